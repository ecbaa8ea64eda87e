"""A trained model to use: images of any size and mode in, probabilities of the classes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from mma.data.images import BadFile
from mma.data.photos import explain_bad_file, quiet_decoders
from mma.features.extract import on_every_core
from mma.model.description import About, ModelFile, OnnxFile
from mma.model.predictors import FeaturePredictor, Given, PixelPredictor, Predictor, find_backbones, opener


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
        parts = list(self.stream(as_images(images)))
        return Predictions(
            self.classes,
            np.concatenate([part.probs for part in parts]) if parts else np.zeros((0, len(self.classes)), np.float32),
            tuple(reason for part in parts for reason in part.reasons),
            tuple(name for part in parts for name in part.names),
            np.concatenate([part.unlike for part in parts]) if parts else np.zeros(0, bool),
        )

    def stream(
        self, images: Iterable[Given], *, root: Path | None = None, threads: int | None = None
    ) -> Iterator[Predictions]:
        """Classify any number of images in bounded memory, a batch at a time, in order.

        Files must lie below `root` (resolved) where it is given. Every core decodes and computes a batch of its own.
        """
        self.predictor.open()
        given = iter(images)
        batches = iter(lambda: list(islice(given, self.predictor.batch)), [])
        with quiet_decoders():
            yield from on_every_core(lambda batch: self._classify(batch, root), batches, threads)

    def described(self, about: About) -> Model:
        """Return the same model with another story of where it comes from and how good it is."""
        return Model(self.file.model_copy(update={"about": about}), self.predictor)

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
            except (
                Exception
            ) as error:  # decoders raise anything at all on broken bytes; one file must not stop the rest
                if not isinstance(image, (str, Path)):
                    raise
                reasons.append(explain_bad_file(error))
        probs = np.full((len(images), len(self.classes)), np.nan, np.float32)
        unlike = np.zeros(len(images), bool)
        if prepared:
            read = [not reason for reason in reasons]
            probs[read], unlike[read] = self.predictor.classify(prepared)
        names = tuple(str(image) if isinstance(image, (str, Path)) else "" for image in images)
        return Predictions(self.classes, probs, tuple(reasons), names, unlike)


def as_images(images: Iterable[Given] | Given) -> Iterable[Given]:
    """Return images one by one. A single file, image of Pillow or array (H, W) or (H, W, 3) is one image."""
    if isinstance(images, (str, Path, Image.Image)):
        return [images]
    if isinstance(images, np.ndarray):
        many = images.ndim == 4 or images.dtype.kind in "OU"  # of objects or names, such as files
        return list(images) if many else [images]  # whether it is an image is said where it is opened
    return images


def new_model(
    file: ModelFile,
    network: torch.nn.Module,
    centres: Sequence[NDArray[np.float32]] = (),
    bases: Sequence[NDArray[np.float32] | None] = (),
    typical: NDArray[np.float32] | None = None,
) -> Model:
    """Put a model together from what model.json would say and a trained network.

    A head on features brings the mean of each backbone's vectors, the directions they are projected on, if they are, and the
    mean labeled image of each class, if it can tell what is unlike all of them.
    """
    network = network.eval().requires_grad_(False)
    if file.input.kind == "pixels":
        return Model(file, PixelPredictor(file.input, network, file.temperature))
    means = tuple(torch.from_numpy(np.array(centre, np.float32)) for centre in centres)
    turned = tuple(None if basis is None else torch.from_numpy(np.array(basis, np.float32)) for basis in bases)
    backbones = find_backbones(file.input)
    turned = turned or (None,) * len(backbones)
    parts = (file.input, backbones, means, turned, network, file.temperature)
    return Model(file, FeaturePredictor(*parts, None if typical is None else torch.from_numpy(typical), file.strange))
