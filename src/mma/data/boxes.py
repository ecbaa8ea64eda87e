"""Boxes in photos as images of their own: read from a detector's file, cut out, and answers written back to the boxes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from mma.children import cores
from mma.data.images import BadFile
from mma.data.photos import SMALLEST, bounded_photo, explain_bad_file, open_photo, quiet_decoders
from mma.errors import UserError
from mma.files import read_json, write_atomically
from mma.text import printable

MANIFEST = ".boxes.json"  # in the folder of the pieces: which box of which photo each of them is
SUFFIX = ".boxes"
SURE = 0.2  # confidence below which a detector's box is left out
LONGEST = 8_192  # pixels of a photo that is cut
Tell = Callable[[int, int], None]


class Box(NamedTuple):
    """A part of a photo: left, top, width and height as shares of the upright photo."""

    file: str
    place: tuple[float, float, float, float]
    confidence: float = 1.0
    category: str = "1"


@dataclass(frozen=True)
class Pieces:
    """What was cut out, where it lies, and what could not be."""

    folder: Path
    boxes: int
    photos: int
    bad: list[BadFile] = field(default_factory=list)


def read_boxes(path: Path) -> list[Box]:
    """Read the boxes of MegaDetector (JSON), COCO (JSON) or YOLO (a folder of .txt files) that are sure enough."""
    shown = printable(str(path))
    if not path.exists():
        raise UserError(f"there is no {shown}. --crops takes a JSON file of MegaDetector or COCO, or a folder of YOLO.")
    try:
        found = list(_yolo(path) if path.is_dir() else _detections(read_json(path)))
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        why = f"{type(error).__name__}: {printable(str(error))[:200]}"
        raise UserError(f"{shown} holds no boxes of MegaDetector, COCO or YOLO ({why}). Export it again.") from error
    for box in found:
        left, top, width, height = box.place
        if not (-0.01 <= left <= 1 and -0.01 <= top <= 1 and 0 < width <= 1.01 and 0 < height <= 1.01):
            raise UserError(f"{shown}: a box of {printable(box.file)} lies outside the photo: {box.place}.")
        if PurePosixPath(box.file).is_absolute() or ".." in PurePosixPath(box.file).parts:
            raise UserError(f"{shown}: {printable(box.file)} leads out of the folder. Paths must be relative to it.")
    if not any(box.confidence >= SURE for box in found):
        raise UserError(f"{shown} has no box with a confidence of {SURE} or more.")
    return [box for box in found if box.confidence >= SURE]


def _detections(values: Any) -> Iterable[Box]:
    if "annotations" in values:  # COCO: pixels
        images = {each["id"]: each for each in values["images"]}
        for each in values["annotations"]:
            image, (left, top, width, height) = images[each["image_id"]], map(float, each["bbox"])
            w, h = float(image["width"]), float(image["height"])
            place = left / w, top / h, width / w, height / h
            yield Box(str(image["file_name"]), place, float(each.get("score", 1)), str(each.get("category_id", 1)))
        return
    for image in values["images"]:
        for each in image.get("detections") or ():
            left, top, width, height = map(float, each["bbox"])
            yield Box(str(image["file"]), (left, top, width, height), float(each["conf"]), str(each["category"]))


def _yolo(folder: Path) -> Iterable[Box]:
    for path in sorted(folder.rglob("*.txt")):
        for line in path.read_text("utf-8").splitlines():
            if words := line.split():
                x, y, width, height, *more = map(float, words[1:6])
                place = x - width / 2, y - height / 2, width, height
                sure = more[0] if more else 1.0
                yield Box(path.relative_to(folder).with_suffix("").as_posix(), place, sure, words[0])


def cut_boxes(photos: Path, boxes: Iterable[Box], tell: Tell = lambda done, total: None) -> Pieces:
    """Cut boxes out into the folder beside the photos, `photos.boxes`. Pieces that are there stay; photos are not changed."""
    root, into = photos.resolve(), photos.resolve().with_name(photos.resolve().name + SUFFIX)
    if into.exists() and any(into.iterdir()) and not (into / MANIFEST).is_file():
        raise UserError(f"{printable(str(into))} is there already, and not made by --crops. Rename it.")
    found, of_photo = dict[str, str](), dict[str, list[Box]]()
    for box in boxes:
        if box.file not in found:  # YOLO names photos without their suffix
            beside = list((root / box.file).parent.glob(f"{Path(box.file).name}.*"))
            whole = (root / box.file).is_file() or len(beside) != 1
            found[box.file] = box.file if whole else beside[0].relative_to(root).as_posix()
        of_photo.setdefault(found[box.file], []).append(box)
    names = {file: [f"{file}--{at}.jpg" for at in range(1, len(some) + 1)] for file, some in of_photo.items()}
    manifest = {
        name: {"file": file, "bbox": box.place, "conf": box.confidence, "category": box.category}
        for file, some in of_photo.items()
        for name, box in zip(names[file], some, strict=True)
    }
    into.mkdir(exist_ok=True)
    before = read_json(into / MANIFEST) if (into / MANIFEST).is_file() else {}
    write_atomically(into / MANIFEST, json.dumps(manifest).encode())

    def cut(file: str) -> list[BadFile]:
        todo = [
            (name, box)
            for name, box in zip(names[file], of_photo[file], strict=True)
            if not (into / name).is_file() or before.get(name, {}).get("bbox") != list(box.place)
        ]
        bad: list[BadFile] = []
        try:
            if todo:
                with open_photo(root, file) as (image, _):
                    whole = bounded_photo(image, LONGEST)
        except Exception as error:  # decoders raise anything at all on broken bytes
            return [BadFile(printable(file), explain_bad_file(error))]
        for name, box in todo:
            left, top, width, height = box.place
            edges = [left, top, left + width, top + height]
            x0, y0, x1, y1 = (round(min(max(edge, 0), 1) * whole.size[at % 2]) for at, edge in enumerate(edges))
            if min(x1 - x0, y1 - y0) < SMALLEST:
                bad.append(BadFile(printable(name), f"{x1 - x0} x {y1 - y0} pixels are too few"))
                continue
            data = io.BytesIO()
            whole.crop((x0, y0, x1, y1)).save(data, "JPEG", quality=95, subsampling=0)
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(into / name, data.getvalue())
        return bad

    bad: list[BadFile] = []
    with quiet_decoders(), ThreadPoolExecutor(min(cores(), 3)) as pool:
        for done, some in enumerate(pool.map(cut, names), 1):
            bad += some
            tell(done, len(names))
    return Pieces(into, len(manifest), len(names), bad)


def photos_of_pieces(folder: Path) -> dict[str, str]:
    """Map each piece to the photo it was cut from; empty for a folder of whole photos."""
    path = folder / MANIFEST
    return {name: str(each["file"]) for name, each in read_json(path).items()} if path.is_file() else {}


def write_answers(folder: Path, rows: Iterable[Mapping[str, Any]], out: Path) -> int:
    """Write predictions of pieces as a file of MegaDetector: each detection gets its classification. Return how many."""
    if not (folder / MANIFEST).is_file():
        raise UserError(f"{printable(str(folder))} holds no boxes. Give the folder that --crops made, NAME{SUFFIX}.")
    manifest, numbers = read_json(folder / MANIFEST), dict[str, str]()
    photos: dict[str, list[dict[str, Any]]] = {each["file"]: [] for each in manifest.values()}
    answers = {str(row["file"]): row for row in rows}
    for name, each in manifest.items():
        found = {"category": each["category"], "conf": each["conf"], "bbox": each["bbox"]}
        if (row := answers.get(name)) and row["label"]:
            number = numbers.setdefault(str(row["label"]), str(len(numbers) + 1))
            found["classifications"] = [[number, round(float(row["confidence"]), 4)]]
        photos[each["file"]].append(found)
    values = {
        "images": [{"file": file, "detections": some} for file, some in photos.items()],
        "detection_categories": {key: key for key in sorted({each["category"] for each in manifest.values()})},
        "classification_categories": {number: label for label, number in numbers.items()},
        "info": {"format_version": "1.3", "classifier": "mma"},
    }
    write_atomically(out, json.dumps(values, ensure_ascii=False, indent=1).encode())
    return sum("classifications" in each for some in photos.values() for each in some)
