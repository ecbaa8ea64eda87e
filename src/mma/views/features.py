"""Views of stored features: a few views of each image, computed once by a frozen backbone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from mma.data import DataSet, Images
from mma.features import (
    FeatureProgress,
    Features,
    ImageSource,
    Joined,
    StoredViews,
    features,
    image_source,
    parse_backbone,
)
from mma.features.sources import make_again
from mma.views.projection import Projection, find_projection, project
from mma.views.views import ALL, Say, ViewSettings, keep_quiet

PATIENCE = 4.0  # seconds between two reports
READY = 2_000_000_000  # bytes of vectors that are kept in memory
SCORED = 8_192  # vectors per forward when nothing is trained


class FeatureViews(ViewSettings):
    """Features of a frozen backbone; a weak view is one of the stored views with some numbers left out."""

    name: Literal["features"] = "features"
    kind: ClassVar[str] = "features"
    backbone: str = "lite0+hog"  # see docs/features.md; joined by +
    mirror: bool = False  # one stored view is the mirror image
    crops: int = Field(default=2, ge=0)  # stored views that are crops
    width: int = Field(default=256, ge=0)  # numbers kept of each backbone: along its principal directions; 0 = all
    dropout: float = Field(default=0.2, ge=0.0, lt=1.0)  # share of the numbers that a weak view leaves out
    strong_dropout: float = Field(default=0.5, ge=0.0, lt=1.0)  # and a strong one
    strong_labels: float = Field(default=0.0, ge=0.0, le=1.0)

    def open(self, data: DataSet, device: torch.device, steps: int, say: Say = keep_quiet) -> VectorViews:
        """Compute what is not stored yet, and centre on the pool's mean."""
        again = make_again(data)
        source, note = image_source(data.train, again)
        if note:
            say(note)
        return replace(self.open_source(source, device, say), again=again)

    def open_source(self, source: ImageSource, device: torch.device, say: Say = keep_quiet) -> VectorViews:
        """Return the views of a pool that need not be a data set: photos by their keys, say."""
        parts = self.compute(source, StoredViews(mirror=self.mirror, crops=self.crops), say)
        projections = tuple(find_projection(part, self.width) for part in parts)
        return VectorViews(parts, projections, device, self, say)

    def compute(self, source: ImageSource, views: StoredViews, say: Say) -> tuple[Features, ...]:
        """Return the features of each joined backbone."""
        backbone = parse_backbone(self.backbone)
        joined = backbone.parts if isinstance(backbone, Joined) else (backbone,)
        return tuple(features(source, part, views, progress=Report(part.label(), say)) for part in joined)

    def digest(self) -> str | None:
        """Name the backbone by its weights and settings."""
        return parse_backbone(self.backbone).digest()


class Report:
    """Says every few seconds how far a backbone is."""

    def __init__(self, backbone: str, say: Say) -> None:
        self.backbone, self.say, self.last = backbone, say, time.monotonic()

    def __call__(self, now: FeatureProgress) -> None:
        """Say it, if it is time."""
        if time.monotonic() - self.last < PATIENCE or now.done == now.total:
            return
        self.last = time.monotonic()
        left = "" if now.seconds_left is None else f", about {now.seconds_left:.0f} s left"
        self.say(f"features by {self.backbone}: {now.done:,} of {now.total:,} images{left}")


@dataclass(frozen=True)
class VectorViews:
    """Stored vectors of one or several backbones, each centred on the pool's mean, scaled to length one and projected.

    So none of the joined parts drowns the others. They are kept in memory, ready, up to READY bytes.
    """

    parts: tuple[Features, ...]
    projections: tuple[Projection, ...]
    device: torch.device
    settings: FeatureViews
    say: Say = keep_quiet
    again: str | None = None  # what to do about a photo of the data set that changed

    def __len__(self) -> int:
        return len(self.parts[0])

    @property
    def shape(self) -> Sequence[int]:
        """The lengths of the joined parts."""
        return tuple(projection.width for projection in self.projections)

    @cached_property
    def ready(self) -> Tensor | None:
        """All vectors; None where they take too much memory, so that each batch is made ready when it is needed."""
        size = 2 * len(self) * self.parts[0].views * sum(self.shape)
        return project(self.parts, self.projections).to(self.device) if size <= READY else None

    @property
    def names(self) -> Sequence[str]:
        """The backbones that are joined."""
        return self.settings.backbone.split("+")

    @property
    def chunk(self) -> int:
        """As many vectors as fit the processor's cache well."""
        return SCORED

    def plain(self, index: np.ndarray) -> Tensor:
        """Return the features of the images themselves."""  # (B, D)
        return self._as_input(index, np.zeros(len(index), np.int64))

    def weak(self, index: np.ndarray, rng: np.random.Generator, mine: slice | np.ndarray = ALL) -> Tensor:
        """Return one stored view of each image, with some numbers left out."""  # (B, D)
        view = rng.integers(0, self.parts[0].views, len(index))
        kept = draw_kept((len(index), sum(self.shape)), self.settings.dropout, rng)
        chosen = self._as_input(index[mine], view[mine])
        return chosen.mul_(torch.from_numpy(kept[mine]).to(self.device))

    def strong(self, index: np.ndarray, rng: np.random.Generator, mine: slice | np.ndarray = ALL) -> Tensor:
        """Return a weak view of each image with more numbers left out."""  # (B, D)
        return self.distort(self.weak(index, rng), rng)[mine]

    def distort(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """Leave more numbers out."""
        kept = draw_kept(tuple(inputs.shape), self.settings.strong_dropout, rng)
        return inputs * torch.from_numpy(kept).to(inputs)

    def of(self, images: Images) -> VectorViews:
        """Return views of other images with the same projections: of the images themselves, as a test set needs them."""
        source, note = image_source(images, self.again)
        if note:
            self.say(note)
        return self.of_source(source)

    def of_source(self, source: ImageSource) -> VectorViews:
        """Return views of other images that need not be a data set."""
        plain = self.settings.model_copy(update={"mirror": False, "crops": 0})
        return VectorViews(
            plain.compute(source, StoredViews(), self.say), self.projections, self.device, plain, self.say
        )

    def unproject(self, weight: Tensor) -> Tensor:
        """Turn the weights of a dense layer on these views into those on all numbers of the backbones.

        With `weight` of a head, its logits are  sum over parts of  weight @ unit(stored - mean)  plus the bias: nothing of the
        projection is left but the means.
        """  # (classes, d) -> (classes, D)
        pieces = zip(torch.split(weight, list(self.shape), 1), self.projections, strict=True)
        return torch.cat([piece if part.basis is None else piece @ part.basis.T for piece, part in pieces], 1)

    def at(self, step: int) -> VectorViews:
        """Return the same views: they do not change."""
        return self

    def _as_input(self, index: np.ndarray, view: np.ndarray) -> Tensor:
        if self.ready is not None:
            return self.ready[torch.from_numpy(index), torch.from_numpy(view)].float()
        pieces = [
            projection(part.take(index, view)) for part, projection in zip(self.parts, self.projections, strict=True)
        ]
        return torch.cat(pieces, 1).to(self.device).float()


def draw_kept(shape: tuple[int, ...], dropout: float, rng: np.random.Generator) -> np.ndarray:
    """Return 0 for a share `dropout` of the places, and for the others what keeps the mean.

    One random byte for each place: the share is right to 1/256, and drawing costs a fifth of drawing floats.
    """
    threshold = round(256 * dropout)
    kept = np.frombuffer(rng.bytes(int(np.prod(shape))), np.uint8).reshape(shape) >= threshold
    return kept.astype(np.float32) * np.float32(256 / (256 - threshold))
