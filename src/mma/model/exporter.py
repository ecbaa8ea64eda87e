"""`mma.export`: a folder that somebody else can use. It is whole and compared with the model, or it is not there."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.config import config_of
from mma.data import load_data
from mma.data.folder import list_files
from mma.data.photos import read_unscaled_photo
from mma.data.tables import render_csv
from mma.errors import UserError
from mma.features.backbone import import_extra
from mma.files import create_atomically, explain_write_errors, write_atomically
from mma.model.description import DESCRIPTION, ModelAccuracy, ModelFile
from mma.model.loader import PROJECT, Origin, files_at, find_model, load, model_files, model_of_run
from mma.model.model import FeaturePredictor, Model, used_parts
from mma.model.onnx import NEED, in_float32, load_onnx, onnx_bytes
from mma.rng import rng
from mma.run import Run
from mma.text import did_you_mean, printable, quote_path, render_template

KINDS = ("onnx", "safetensors", "labels")
ONNX, SNIPPET, CARD, SUMS = "model.onnx", "use.py", "MODEL.md", "SHA256SUMS"
TOLERANCE = 1e-4  # the largest difference of a probability between the model and its ONNX file
OWN, BORROWED = 12, 8  # images of the model's own kind; pieces of scikit-learn's photos, for sizes that these lack
ENOUGH = 640  # pixels per side that a photo is decoded with to compare on it
Photo = NDArray[np.uint8]  # (H, W, 3)


@dataclass(frozen=True)
class Agreement:
    """How far an exported file is from the model."""

    images: int
    sizes: int  # different ones
    largest: float  # difference of a probability
    trained: float  # the same, against the arithmetic that the model was trained with
    same_answer: int  # images with the same most likely class as in that arithmetic


@dataclass(frozen=True)
class Exported:
    """What was written, and how well the ONNX file agrees with the model; None without one."""

    folder: Path
    files: tuple[str, ...]
    agreement: Agreement | None


def export(
    path: Run | Path | str,
    out: Path | str | None = None,
    to: Sequence[str] | None = None,
    *,
    photos: Sequence[Photo] | None = None,
) -> Exported:
    """Export a model for others.

    Parameters
    ----------
    path : Run or path
        A run, a project or a model folder.
    out : path, optional
        A new folder. Default: in the project, or beside the run.
    to : sequence of str, optional
        Some of "onnx", "safetensors", "labels". Default: all that there is.
    photos : sequence of uint8 arrays of shape (H, W, 3), optional
        What the ONNX file is compared with the model on. Default: some of the model's own kind.

    Examples
    --------
    >>> exported = mma.export("runs/digits", "exported", to=["safetensors"])
    """
    origin, agreement = find_model(path), None
    folder = Path(f"{origin.place.resolve().stem}-export")
    if out is not None or origin.project is not None:
        folder = Path(out or f"{origin.project}/export/model-{origin.place.name}")
    kinds = check_request(origin, folder, to)
    model = model_of_run(origin.place, tested=True) if origin.is_run else load(path)
    files = {"labels.csv": labels_of(origin)} if "labels" in kinds else {}
    files |= model_files(model) if "safetensors" in kinds else {}
    if "onnx" in kinds:
        photos = [*own_images(origin), *borrowed_images()] if photos is None else photos

    def fill(place: Path) -> None:
        nonlocal agreement
        place.mkdir(parents=True)
        if "onnx" in kinds and photos:
            write_atomically(place / ONNX, onnx_bytes(model))
            write_atomically(place / SNIPPET, Path(__file__).with_name(SNIPPET).read_bytes())
            agreement = compare(place / ONNX, model, photos)
        for name, data in files.items():
            write_atomically(place / name, data)
        names = sorted([*files_at(place), CARD, SUMS])
        write_atomically(place / CARD, write_card(model, agreement, names))
        sums = {name: hashlib.sha256((place / name).read_bytes()).hexdigest() for name in names if name != SUMS}
        write_atomically(place / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))

    with explain_write_errors(folder, "the same command"):
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        create_atomically(folder.absolute(), fill)
    return Exported(folder, tuple(sorted(files_at(folder))), agreement)


def check_request(origin: Origin, folder: Path, to: Sequence[str] | None) -> tuple[str, ...]:
    """Return the kinds to export, after everything cheap was checked."""
    for kind in to or ():
        if kind not in KINDS:
            hint = did_you_mean(kind, KINDS)
            raise UserError(f"there is no export to '{printable(kind)}'.{hint} Choose from: {', '.join(KINDS)}.")
    if origin.place.is_file():
        raise UserError(f"{printable(str(origin.place))} is an export already: copy it.")
    has_labels = origin.is_run or origin.project is not None
    if to is not None and "labels" in to and not has_labels:
        raise UserError(f"{printable(str(origin.place))} is a model alone, without labels. Leave out  labels")
    kinds = tuple(kind for kind in KINDS if kind in (to or KINDS) and (kind != "labels" or has_labels))
    if "onnx" in kinds:
        for package in ("onnx", "onnxruntime"):
            import_extra(package, NEED, "onnx")
    # The folder is replaced as a whole, so it may hold nothing but an earlier export: what its checksums name.
    lines = (folder / SUMS).read_text("utf-8", "replace").splitlines() if (folder / SUMS).is_file() else []
    listed = [SUMS, *(line.partition("  ")[2] for line in lines)]
    if odd := next((name for name in files_at(folder) if name not in listed or CARD not in listed), None):
        raise UserError(
            f"{printable(str(folder))} holds something else than an export: {printable(odd)}. Choose another folder with "
            "-o DIR"
        )
    if (folder / DESCRIPTION).is_file() and folder.resolve() == origin.place.resolve():
        raise UserError(f"{printable(str(folder))} is the model itself. Choose another folder with -o DIR")
    return kinds


def labels_of(origin: Origin) -> bytes:
    """Return the labels of a project as its mirror has them; of a run as file (where there is one), class and sha256."""
    if origin.project is not None:
        mirror = origin.project / "labels.csv"
        if not mirror.is_file():
            command = f"mma labels export {quote_path(origin.project)} {quote_path(mirror)}"
            raise UserError(f"{printable(str(mirror))} is not there. Write it with  {command}")
        return mirror.read_bytes()
    run = Run.open(origin.place)
    images = load_data(config_of(run).data.name).train
    rows = [(*(["file_name"] if images.names else []), "label", "sha256")]
    for index, label in run.answers().items():
        name = [images.names[index]] if images.names else []
        rows.append((*name, images.classes[label] if label >= 0 else "", images.key(index)))
    return render_csv(rows)


def compare(path: Path, model: Model, photos: Sequence[Photo]) -> Agreement:
    """Load an exported file back and run it; refuse it when it computes something else than the model."""
    found = load_onnx(path).predict(photos).probs
    exact, trained = in_float32(model).predict(photos).probs, model.predict(photos).probs
    largest = float(np.abs(found - exact).max())
    if not largest <= TOLERANCE:  # also for NaN
        raise UserError(
            f"the ONNX file computes other probabilities than the model, by up to {largest:.1e} on {len(photos)} images. It "
            "was not exported. Export with  --to safetensors,labels  and report this."
        )
    same = int((found.argmax(1) == trained.argmax(1)).sum())
    sizes = len({photo.shape for photo in photos})
    return Agreement(len(photos), sizes, largest, float(np.abs(found - trained).max()), same)


def own_images(origin: Origin) -> list[Photo]:
    """Return real images of a run's data set or a project's folder to compare on; none where they are not there."""
    root, draw = Path(), rng(0, "export")
    names: Sequence[str] = ()
    if origin.is_run:
        data = load_data(config_of(Run.open(origin.place)).data.name)
        images = data.test if len(data.test) else data.train
        if images.root is None or images.names is None or not images.root.is_dir():
            rows = draw.permutation(len(images))[:OWN]
            return [np.broadcast_to(images.pixels[row], (*images.shape[:2], 3)).copy() for row in rows]
        root, names = images.root, images.names
    elif origin.project is not None:
        settings = tomllib.loads((origin.project / PROJECT).read_text("utf-8"))
        root = origin.project / str(settings.get("images", ""))
        names = list_files(root)[0] if root.is_dir() else []
    photos = []
    for row in np.sort(draw.permutation(len(names))[:OWN]):
        with suppress(Exception):  # decoders raise anything at all; what cannot be read is nothing to compare on
            photos.append(read_unscaled_photo(root.resolve(), names[row], ENOUGH)[0])
    return photos


def borrowed_images() -> list[Photo]:
    """Return pieces of two photos that come with scikit-learn, from 1 x 1 pixel to a whole photo."""
    from sklearn.datasets import load_sample_images

    draw, photos = rng(0, "export", "pieces"), [np.asarray(image) for image in load_sample_images().images]
    pieces = [photos[0], photos[1][:1, :1]]
    for number in range(BORROWED - 2):
        photo = photos[number % 2]
        height, width = (int(draw.integers(8, side)) for side in photo.shape[:2])
        pieces.append(photo[:height, -width:])
    return [np.ascontiguousarray(piece) for piece in pieces]


FEW = 5  # labels of a class, below which it is called weak


def write_card(model: Model, agreement: Agreement | None, contents: Sequence[str]) -> str:
    """Return the text of MODEL.md for a folder with these files."""
    file, predictor = model.file, model.predictor
    assert isinstance(file, ModelFile)
    used: list[str] = []  # the backbones that a head looks at
    if isinstance(predictor, FeaturePredictor):
        looks = used_parts(predictor.network, predictor.input.shape)
        used = [part.backbone for part, look in zip(predictor.input.parts, looks, strict=True) if look]

    def family(name: str) -> str:
        return re.sub("^lite.*", "lite", re.split("[@/:]", name)[0])

    head = getattr(getattr(predictor, "network", None), "head", None)
    return render_template(
        "model_card.md",
        file=file,
        names=", ".join(map(_cell, file.classes)),
        temperature=file.temperature * float(getattr(head, "temperature", 1.0)),
        backbones=[(family(name), name) for name in used],
        people=", ".join(f"{_cell(who)} ({count:,})" for who, count in file.about.by.items()),
        weak=weak_classes(file),
        agreement=agreement,
        contents=contents,
        cell=_cell,
        percent=_percent,
        family=family,
    )


def weak_classes(file: ModelFile) -> dict[str, str]:
    """Return the classes that the model is not to be trusted with, and why."""
    about, found = file.about, {}
    for name in file.classes:
        share, count = about.per_class.get(name), about.labels.get(name, 0)
        if about.labels and count < FEW:
            found[name] = f"labels: {count}"
        elif share is not None and about.accuracy is not None and share.high < about.accuracy.percent:
            found[name] = f"recognised in {_percent(share)}, below the {about.accuracy.percent:.1f} % of all"
        elif about.per_class and share is None:
            found[name] = "never tested"
    return found


def _percent(share: ModelAccuracy) -> str:
    return f"{share.percent:.1f} % (95 % interval {share.low:.1f} to {share.high:.1f})"


def _cell(text: str) -> str:
    """Write a name so that it is one cell of a table, whatever it holds."""
    return re.sub(r"([\\`*{}\[\]<>|#])", r"\\\1", printable(text))
