"""A trained model to use: images of any size and mode in, probabilities of the classes out.

A `Predictor` does so by the same code that training uses: one class for each kind of input. Backbones that a model names are
found by their label and trusted by their digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from mma.data import photos
from mma.data.images import BadFile
from mma.errors import UserError
from mma.features import Backbone, parse_backbone
from mma.features.extract import BATCH, check_vectors, on_every_core
from mma.features.inputs import decoded_side, squash_one
from mma.model.description import About, FeatureInput, FeaturePart, ModelFile, OnnxFile, PixelInput
from mma.views import Pixels

Opener = Callable[[], Image.Image]  # opens the image anew each time: a decoded one cannot be decoded at another size
HOST = torch.device("cpu")
Pixel = NDArray[np.uint8]
Given = Path | str | np.ndarray | Image.Image
Answers = tuple[NDArray[np.float32], NDArray[np.bool_]]
Vector = NDArray[np.float32] | Tensor


@dataclass(frozen=True, eq=False)
class Predictions:
    """Calibrated probabilities, one row per image in the order given; NaN where a file could not be read (`bad`)."""

    classes: tuple[str, ...]
    probs: NDArray[np.float32]  # (N, classes)
    reasons: tuple[str, ...]  # (N,) why a file could not be read; "" where it could
    names: tuple[str, ...]  # (N,) the files; "" for arrays
    unlike: NDArray[np.bool_]  # (N,) unlike anything labeled, where the model can tell (`Model.can_refuse`)

    def __len__(self) -> int:
        return len(self.probs)

    @property
    def labels(self) -> list[str | None]:
        """The most likely class of each image; None where it could not be read."""
        return [None if row is None else row[0][0] for row in self.top(1)]

    @property
    def confidence(self) -> NDArray[np.float32]:
        """The probability of that class. (N,)"""
        best: NDArray[np.float32] = self.probs.max(axis=1) if len(self) else np.zeros(0, np.float32)
        return best

    @property
    def bad(self) -> tuple[BadFile, ...]:
        """The files that could not be read, and why."""
        return tuple(BadFile(n, why) for n, why in zip(self.names, self.reasons, strict=True) if why)

    def top(self, k: int) -> list[list[tuple[str, float]] | None]:
        """Return the k most likely classes of each image with their probabilities; None where it could not be read."""
        order = np.argsort(-self.probs, axis=1, kind="stable")[:, :k]
        return [
            None if why else [(self.classes[c], float(row[c])) for c in best]
            for row, best, why in zip(self.probs, order, self.reasons, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model. Get one with `mma.load(path)`, keep it with `save(folder)`.

    Examples
    --------
    >>> model = mma.load("runs/digits")
    >>> model.predict(mma.load_data("digits").test.pixels[:3]).probs.shape
    (3, 10)
    """

    file: ModelFile | OnnxFile
    predictor: Predictor = field(repr=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the probabilities."""
        return self.file.classes

    @property
    def about(self) -> About:
        """Where the model comes from and how good it is."""
        return self.file.about

    @property
    def can_refuse(self) -> bool:
        """Whether it can tell that an image is unlike anything labeled."""
        return self.file.strange is not None

    def predict(self, images: Iterable[Given] | Given) -> Predictions:
        """Classify images: files, arrays (H, W), (H, W, 3), (H, W, 4) of any sizes, or one array (N, H, W, C) of many."""
        if isinstance(images, (str, Path, Image.Image)):
            images = [images]
        elif isinstance(images, np.ndarray):
            many = images.ndim == 4 or images.dtype.kind in "OU"  # of objects or names, such as files
            images = list(images) if many else [images]  # whether it is an image is said where it is opened
        parts = list(self.stream(images))
        return Predictions(
            self.classes,
            np.concatenate([part.probs for part in parts]) if parts else np.zeros((0, len(self.classes)), np.float32),
            tuple(reason for part in parts for reason in part.reasons),
            tuple(name for part in parts for name in part.names),
            np.concatenate([part.unlike for part in parts]) if parts else np.zeros(0, bool),
        )

    def stream(self, images: Iterable[Given], *, root: Path | None = None) -> Iterator[Predictions]:
        """Classify images in bounded memory, in order. Files must lie below `root` (resolved) where it is given."""
        self.predictor.open()
        given = iter(images)
        batches = iter(lambda: list(islice(given, self.predictor.batch)), [])
        with photos.quiet_decoders():
            yield from on_every_core(lambda batch: self._classify(batch, root), batches)

    def save(self, folder: Path | str) -> Path:
        """Write model.json and model.safetensors into a folder, whole or not at all; return the folder."""
        from mma.model.loader import save_model

        return save_model(self, Path(folder))

    def _classify(self, images: Sequence[Given], root: Path | None) -> Predictions:
        prepared, reasons = [], []
        for image in images:
            try:
                prepared.append(self.predictor.prepare(opener(image, root)))
                reasons.append("")
            except Exception as error:  # decoders raise anything on broken bytes; one file must not stop the rest
                if not isinstance(image, (str, Path)):
                    raise
                reasons.append(photos.explain_bad_file(error))
        probs = np.full((len(images), len(self.classes)), np.nan, np.float32)
        unlike = np.zeros(len(images), bool)
        if prepared:
            read = [not reason for reason in reasons]
            probs[read], unlike[read] = self.predictor.classify(prepared)
        names = tuple(str(image) if isinstance(image, (str, Path)) else "" for image in images)
        return Predictions(self.classes, probs, tuple(reasons), names, unlike)


def new_model(
    file: ModelFile,
    network: nn.Module,
    centres: Sequence[Vector] = (),
    bases: Sequence[Vector | None] = (),
    typical: Vector | None = None,
) -> Model:
    """Put a model together from what model.json would say and a trained network.

    A head on features brings the mean of each backbone's vectors, the directions they are projected on, if they are, and the
    mean labeled image of each class, if it can tell what is unlike all of them. Its backbones must be the same here.
    """
    network = network.eval().requires_grad_(False)
    if file.input.kind == "pixels":
        return Model(file, PixelPredictor(file.input, network, file.temperature))
    backbones = []
    for part in file.input.parts:
        backbone = parse_backbone(part.backbone)
        if len(backbone.parts) > 1:
            raise UserError(f"a model names its backbones one by one, and '{part.backbone}' are several.")
        if backbone.side != part.side:
            raise UserError(
                f"the model was changed: the backbone {part.backbone} sees {backbone.side} pixels on a side, not "
                f"{part.side}. Restore model.json from a copy, or export the model again."
            )
        if (digest := backbone.digest()) != part.digest:
            raise UserError(
                f"the model was trained on the backbone {part.backbone} with digest {part.digest}, and the one here has "
                f"{digest}. Install the version of mma and of the weights that it was trained with, or use its ONNX export."
            )
        backbones.append(backbone)

    def tensor(values: Vector) -> Tensor:
        return torch.asarray(values, dtype=torch.float32, copy=True)

    means = tuple(map(tensor, centres))
    turned = tuple(None if each is None else tensor(each) for each in bases or [None] * len(backbones))
    known = None if typical is None else tensor(typical)
    parts = (file.input, tuple(backbones), means, turned, network, file.temperature, known, file.strange)
    return Model(file, FeaturePredictor(*parts))


# From an image to probabilities.


def opener(given: Given, root: Path | None = None) -> Opener:
    """Return what opens an image. A file must lie below `root` where one is given. Nothing is decoded yet.

    An array is (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) with alpha, uint8 or uint16.
    """
    if isinstance(given, Image.Image):
        return given.copy
    if isinstance(given, (str, Path)):
        path = Path(given)
        if root is None:
            if not path.exists():
                raise UserError("there is no such file")
            if path.is_dir():
                raise UserError("it is a folder, and mma.predict_folder classifies those")
            path = path.resolve(strict=True)
            root = path.parent
        data = photos.read_file(path, root)
        return lambda: photos.open_image(data, path.name)
    array = np.asarray(given)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))) or 0 in array.shape:
        raise UserError(
            f"an array of shape {array.shape} is no image. Images are (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), and many "
            "images of one size are (N, H, W, C): channels come last"
        )
    if array.dtype == np.uint16:
        array = (array // 257).astype(np.uint8)  # as 16-bit files are read
    if array.dtype != np.uint8:
        raise UserError(f"an array of type {array.dtype} is no image. Convert it to uint8, from 0 to 255")
    return Image.fromarray(np.ascontiguousarray(array)).copy


class Predictor(Protocol):
    """What turns images into probabilities. Several threads call it at once."""

    @property
    def batch(self) -> int:
        """Images per forward."""

    def open(self) -> None:
        """Load what is needed, once, before threads begin: what is missing is an error of its own."""

    def prepare(self, photo: Opener) -> Any:
        """Decode and scale one image."""

    def classify(self, prepared: Sequence[Any]) -> Answers:
        """Return the probabilities of at most `batch` prepared images, (B, classes), and which are unlike anything labeled."""


@dataclass(frozen=True, eq=False)
class PixelPredictor:
    """A network that sees pixels."""

    input: PixelInput
    network: nn.Module
    temperature: float
    batch: int = BATCH

    def open(self) -> None:
        """Everything is loaded already."""

    def prepare(self, photo: Opener) -> Pixel:
        """Squash an image to the network's size."""  # (H, W, C)
        with photo() as image, photos.alone(image):
            return photos.squash_photo(image, (self.input.width, self.input.height), grey=self.input.channels == 1)

    @torch.inference_mode()
    def classify(self, prepared: Sequence[Pixel]) -> Answers:
        """Run the network. It cannot tell what is unlike anything labeled."""
        pixels = Pixels(torch.from_numpy(fill(prepared, self.batch)), HOST, side=self.input.average_to)
        logits, count = self.network(pixels.plain(np.arange(self.batch))), len(prepared)
        return calibrated(logits, self.temperature, count), np.zeros(count, bool)


@dataclass(frozen=True, eq=False)
class FeaturePredictor:
    """A head on frozen backbones. A backbone that the head does not look at is not run."""

    input: FeatureInput
    backbones: tuple[Backbone, ...]
    centres: tuple[Tensor, ...]  # (D,) each
    bases: tuple[Tensor | None, ...]  # (D, kept) each; None where all numbers are kept
    network: nn.Module
    temperature: float
    typical: Tensor | None = None  # (classes, sum of D) the mean labeled image of each class
    strange: float | None = None  # distance from all of them above which an image is unlike anything labeled
    batch: int = BATCH  # that of stored features: the vectors are those that training saw, bit by bit

    @cached_property
    def embedders(self) -> tuple[nn.Module | None, ...]:
        """The backbones' networks; None where the head does not look."""
        used = used_parts(self.network, self.input.shape)
        return tuple(part.load() if use else None for part, use in zip(self.backbones, used, strict=True))

    def open(self) -> None:
        """Load the backbones' weights, or say how to get them."""
        assert self.embedders

    def prepare(self, photo: Opener) -> list[Pixel]:
        """Squash an image to each backbone's size; it is decoded once where one decoded size suits several."""
        decoded: dict[tuple[int, int], Pixel] = {}
        scaled = []
        with photo() as first, photos.alone(first):
            for side in (
                part.side for part, used in zip(self.backbones, self.embedders, strict=True) if used is not None
            ):
                enough = decoded_side(side)
                with photo() as image:
                    size = photos.reduce_photo(image, enough)
                    if size not in decoded:
                        decoded[size] = photos.unscaled_photo(image, enough)
                    scaled.append(squash_one(decoded[size], side))
        return scaled

    @torch.inference_mode()
    def classify(self, prepared: Sequence[list[Pixel]]) -> Answers:
        """Run the backbones and the head."""
        vectors, count = self.vectors(prepared), len(prepared)
        probs = calibrated(self.network(vectors), self.temperature, count)
        if self.typical is None or self.strange is None:
            return probs, np.zeros(count, bool)
        return probs, (strangeness(vectors[:count], self.typical) > self.strange).numpy()

    def vectors(self, prepared: Sequence[list[Pixel]]) -> Tensor:
        """Return what the head sees, for a full batch."""  # (batch, sum of D)
        pieces: list[Tensor] = []
        columns = zip(*prepared, strict=True)
        for part, (backbone, embedder) in enumerate(zip(self.backbones, self.embedders, strict=True)):
            if embedder is None:
                pieces.append(torch.zeros(self.batch, self.input.shape[part]))
            else:
                images = torch.from_numpy(fill(next(columns), self.batch))
                pieces.append(self.ready(part, check_vectors(embedder(images), backbone)))
        return torch.cat(pieces, 1)

    def ready(self, part: int, vectors: Tensor) -> Tensor:
        """Return the vectors of one backbone as the head sees them: rounded wherever training rounds."""
        x, basis = F.normalize(vectors.half().float() - self.centres[part]), self.bases[part]
        x = x if basis is None else x @ basis
        return x.half().float() if self.input.rounded else x


def strangeness(vectors: Tensor, typical: Tensor) -> Tensor:
    """Return how far each image is from the class it is most like: 1 minus the cosine to the class's mean. (N,)"""
    return 1.0 - (F.normalize(vectors.float()) @ F.normalize(typical).T).amax(1)


def used_parts(network: nn.Module, widths: Sequence[int]) -> list[bool]:
    """Return which parts of its input a head looks at; one without a gate looks at all."""
    gate = getattr(network, "gate", None)
    if not isinstance(gate, Tensor) or gate.shape != (sum(widths),):
        return [True] * len(widths)
    return [bool(piece.any()) for piece in torch.split(gate, list(widths))]


def fill(arrays: Sequence[Pixel], batch: int) -> Pixel:
    """Stack images and repeat them until the batch is full: a network may round differently for another batch size."""
    return np.stack(arrays)[np.resize(np.arange(len(arrays)), batch)]


def calibrated(logits: Tensor, temperature: float, count: int) -> NDArray[np.float32]:
    """Return the probabilities of the first `count` rows."""
    probs: NDArray[np.float32] = (logits[:count].float() / temperature).softmax(1).numpy()
    return probs


def describe_backbones(label: str, widths: Sequence[int]) -> FeatureInput:
    """Describe the backbones of a label such as lite0+hog, with everything decided that depends on this machine."""
    described = []
    for part, width in zip(parse_backbone(label).parts, widths, strict=True):
        known = part.resolve()
        described.append(FeaturePart(backbone=known.label(), digest=known.digest(), side=known.side, width=width))
    return FeatureInput(parts=tuple(described))
