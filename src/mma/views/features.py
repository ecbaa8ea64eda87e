"""Views of stored features: a few views of each image, computed once by a frozen backbone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from mma.data import DataSet, Images
from mma.features import FeatureProgress, Features, Joined, StoredViews, features, image_source, parse_backbone
from mma.views.views import ALL, Say, ViewSettings, keep_quiet

PATIENCE = 4.0  # seconds between two reports
SCORED = 8_192  # vectors per forward when nothing is trained


class FeatureViews(ViewSettings):
    """Features of a frozen backbone; a weak view is one of the stored views with some numbers left out."""

    name: Literal["features"] = "features"
    kind: ClassVar[str] = "features"
    backbone: str = "lite0+hog"  # see docs/features.md; joined by +
    mirror: bool = False  # one stored view is the mirror image
    crops: int = Field(default=2, ge=0)  # stored views that are crops
    dropout: float = Field(default=0.2, ge=0.0, lt=1.0)  # share of the numbers that a weak view leaves out
    strong_dropout: float = Field(default=0.5, ge=0.0, lt=1.0)  # and a strong one
    strong_labels: float = Field(default=0.0, ge=0.0, le=1.0)

    def open(self, data: DataSet, device: torch.device, steps: int, say: Say = keep_quiet) -> VectorViews:
        """Compute what is not stored yet, and centre on the pool's mean."""
        parts = self.compute(data.train, say)
        centres = tuple(torch.from_numpy(part.centring().mean).to(device) for part in parts)
        return VectorViews(parts, centres, device, self, say)

    def compute(self, images: Images, say: Say) -> tuple[Features, ...]:
        """Return the features of each joined backbone."""
        source, note = image_source(images)
        if note:
            say(note)
        views = StoredViews(mirror=self.mirror, crops=self.crops)
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
    """Stored vectors of one or several backbones, each centred on the pool's mean and scaled to length one.

    So none of the joined parts drowns the others.
    """

    parts: tuple[Features, ...]
    centres: tuple[Tensor, ...]  # (D,) each
    device: torch.device
    settings: FeatureViews
    say: Say = keep_quiet

    @property
    def shape(self) -> Sequence[int]:
        """The lengths of the joined parts."""
        return tuple(part.width for part in self.parts)

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
        """Return the same views of other images, around the same centres."""
        return replace(self, parts=self.settings.compute(images, self.say))

    def at(self, step: int) -> VectorViews:
        """Return the same views: they do not change."""
        return self

    def _as_input(self, index: np.ndarray, view: np.ndarray) -> Tensor:
        pieces = []
        for part, centre in zip(self.parts, self.centres, strict=True):
            stored = torch.from_numpy(part.take(index, view)).to(self.device).float()  # torch converts halves faster
            pieces.append(F.normalize(stored.sub_(centre)))
        return torch.cat(pieces, 1) if len(pieces) > 1 else pieces[0]


def draw_kept(shape: tuple[int, ...], dropout: float, rng: np.random.Generator) -> np.ndarray:
    """Return 0 for a share `dropout` of the places, and for the others what keeps the mean.

    One random byte for each place: the share is right to 1/256, and drawing costs a fifth of drawing floats.
    """
    threshold = round(256 * dropout)
    kept = np.frombuffer(rng.bytes(int(np.prod(shape))), np.uint8).reshape(shape) >= threshold
    return kept.astype(np.float32) * np.float32(256 / (256 - threshold))
