"""From an image (a file, an array, an image of Pillow) to probabilities, by the same code that training uses.

One class for each kind of input. Backbones that a model names are found by their label and trusted by their digest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from mma.data.photos import alone, open_image, read_file, reduce_photo, squash_photo, unscaled_photo
from mma.errors import UserError
from mma.features import Backbone, parse_backbone
from mma.features.extract import BATCH, check_vectors
from mma.features.inputs import decoded_side, squash_one
from mma.model.description import FeatureInput, FeaturePart, PixelInput
from mma.views import Pixels

Opener = Callable[[], Image.Image]  # opens the image anew each time: a decoded one cannot be decoded at another size
HOST = torch.device("cpu")
Pixel = NDArray[np.uint8]
Given = Path | str | np.ndarray | Image.Image
Answers = tuple[NDArray[np.float32], NDArray[np.bool_]]


def opener(given: Given, root: Path | None = None) -> Opener:
    """Return what opens an image. A file must lie below `root` where one is given. Nothing is decoded yet."""
    if isinstance(given, Image.Image):
        return given.copy
    if not isinstance(given, (str, Path)):
        return image_of_array(given).copy
    path = Path(given)
    if root is None:
        if not path.exists():
            raise UserError("there is no such file")
        if path.is_dir():
            raise UserError("it is a folder, and mma.predict_folder classifies those")
        path = path.resolve(strict=True)
        root = path.parent
    data = read_file(path, root)
    return lambda: open_image(data, path.name)


def image_of_array(array: Any) -> Image.Image:
    """Return an array as an image: (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) with alpha, uint8 or uint16."""
    array = np.asarray(array)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    plain = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    if not plain or 0 in array.shape:
        raise UserError(
            f"an array of shape {array.shape} is no image. Images are (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), and many "
            "images of one size are (N, H, W, C): channels come last"
        )
    if array.dtype == np.uint16:
        array = (array // 257).astype(np.uint8)  # as 16-bit files are read
    if array.dtype != np.uint8:
        raise UserError(f"an array of type {array.dtype} is no image. Convert it to uint8, from 0 to 255")
    return Image.fromarray(np.ascontiguousarray(array))


def describe_backbones(label: str, widths: Sequence[int]) -> FeatureInput:
    """Describe the backbones of a label such as lite0+hog, with everything decided that depends on this machine."""
    described = []
    for part, width in zip(parse_backbone(label).parts, widths, strict=True):
        known = part.resolve()
        described.append(FeaturePart(backbone=known.label(), digest=known.digest(), side=known.side, width=width))
    return FeatureInput(parts=tuple(described))


def find_backbones(described: FeatureInput) -> tuple[Backbone, ...]:
    """Return the backbones that a model was trained on, or say which one is not the same here."""
    found = []
    for part in described.parts:
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
        found.append(backbone)
    return tuple(found)


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
        """Return the probabilities of at most `batch` prepared images, and which are unlike anything labeled.

        They do not depend on each other. (B, classes), (B,)
        """


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
        with photo() as image, alone(image):
            return squash_photo(image, (self.input.width, self.input.height), grey=self.input.channels == 1)

    @torch.inference_mode()
    def classify(self, prepared: Sequence[Pixel]) -> Answers:
        """Run the network. It cannot tell what is unlike anything labeled."""
        pixels = Pixels(torch.from_numpy(fill(prepared, self.batch)), HOST, side=self.input.average_to)
        logits = self.network(pixels.plain(np.arange(self.batch)))
        return calibrated(logits, self.temperature, len(prepared)), np.zeros(len(prepared), bool)


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
        with photo() as first, alone(first):
            for backbone, embedder in zip(self.backbones, self.embedders, strict=True):
                if embedder is None:
                    continue
                enough = decoded_side(backbone.side)
                with photo() as image:
                    size = reduce_photo(image, enough)
                    if size not in decoded:
                        decoded[size] = unscaled_photo(image, enough)
                    scaled.append(squash_one(decoded[size], backbone.side))
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
        columns = iter(range(len(self.backbones)))
        for part, (backbone, embedder) in enumerate(zip(self.backbones, self.embedders, strict=True)):
            if embedder is None:
                pieces.append(torch.zeros(self.batch, self.input.shape[part]))
                continue
            column = next(columns)
            images = torch.from_numpy(fill([each[column] for each in prepared], self.batch))
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
