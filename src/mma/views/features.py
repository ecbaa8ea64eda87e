"""Views of stored features: a few views of each image, computed once by a frozen backbone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from mma.data import DataSet, Images
from mma.views.views import ALL, ViewSettings

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

    def open(self, data: DataSet, device: torch.device, steps: int) -> VectorViews:
        """Compute what is not stored yet, and centre on the pool's mean."""
        values, rows, parts = self.compute(data.train)
        centre = mean_of(values, rows)
        return VectorViews(values, rows, centre, tuple(parts), device, self)

    def compute(self, images: Images) -> tuple[Any, np.ndarray, Sequence[int]]:
        """Return the stored values, the row of each image in them, and the lengths of the joined parts."""
        from mma.features import StoredViews, features, image_source, parse_backbone

        source, _ = image_source(images)
        found = features(source, parse_backbone(self.backbone), StoredViews(mirror=self.mirror, crops=self.crops))
        return found.values, found.rows, found.parts

    def digest(self) -> str | None:
        """Name the backbone by its weights and settings."""
        from mma.features import parse_backbone

        return parse_backbone(self.backbone).digest()


@dataclass(frozen=True)
class VectorViews:
    """Stored vectors, centred on the pool's mean and normalised."""

    values: Any  # (M, views, D) float16, memory-mapped
    rows: np.ndarray  # (N,) where each image is
    centre: Tensor  # (D,)
    parts: tuple[int, ...]
    device: torch.device
    settings: FeatureViews

    @property
    def shape(self) -> Sequence[int]:
        """The lengths of the joined parts."""
        return self.parts

    @property
    def chunk(self) -> int:
        """As many vectors as fit the processor's cache well."""
        return SCORED

    def plain(self, index: np.ndarray) -> Tensor:
        """Return the features of the images themselves."""  # (B, D)
        return self._as_input(self.values[self.rows[index], 0])

    def weak(self, index: np.ndarray, rng: np.random.Generator, mine: slice | np.ndarray = ALL) -> Tensor:
        """Return one stored view of each image, with some numbers left out."""  # (B, D)
        view = rng.integers(0, self.values.shape[1], len(index))
        kept = rng.random((len(index), sum(self.parts)), dtype=np.float32) >= self.settings.dropout
        chosen = self._as_input(self.values[self.rows[index[mine]], view[mine]])
        return chosen * torch.from_numpy(kept[mine]).to(chosen) / (1.0 - self.settings.dropout)

    def strong(self, index: np.ndarray, rng: np.random.Generator, mine: slice | np.ndarray = ALL) -> Tensor:
        """Return a weak view of each image with more numbers left out."""  # (B, D)
        return self.distort(self.weak(index, rng), rng)[mine]

    def distort(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """Leave more numbers out."""
        kept = rng.random(tuple(inputs.shape), dtype=np.float32) >= self.settings.strong_dropout
        return inputs * torch.from_numpy(kept).to(inputs) / (1.0 - self.settings.strong_dropout)

    def of(self, images: Images) -> VectorViews:
        """Return the same views of other images, around the same centre."""
        values, rows, _ = self.settings.compute(images)
        return replace(self, values=values, rows=rows)

    def at(self, step: int) -> VectorViews:
        """Return the same views: they do not change."""
        return self

    def _as_input(self, stored: np.ndarray) -> Tensor:
        """Centre, and bring each part to length one, so that none of them drowns the others."""
        x = torch.from_numpy(np.asarray(stored, np.float32)).to(self.device) - self.centre
        pieces = [torch.nn.functional.normalize(piece) for piece in x.split(list(self.parts), 1)]
        return torch.cat(pieces, 1)


def mean_of(values: Any, rows: np.ndarray) -> Tensor:
    """Return the mean of the plain views, a block at a time."""  # (D,)
    total = np.zeros(values.shape[2])
    for begin in range(0, len(rows), SCORED):
        total += values[rows[begin : begin + SCORED], 0].astype(np.float64).sum(0)
    return torch.from_numpy((total / max(len(rows), 1)).astype(np.float32))
