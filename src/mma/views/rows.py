"""Views of plain rows of numbers, as a head takes them: a weak view leaves some numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mma.views.features import SCORED, draw_kept
from mma.views.views import ALL


@dataclass(frozen=True)
class RowViews:
    """Rows that are ready: each about as long as one, like feature vectors."""

    rows: Tensor  # (N, D) float32
    dropout: float  # share of the numbers that a weak view leaves out
    strong_dropout: float
    names: Sequence[str] = ("rows",)
    chunk: int = SCORED

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.rows.device

    @property
    def shape(self) -> Sequence[int]:
        """One part of all columns."""
        return (self.rows.shape[1],)

    def plain(self, index: np.ndarray) -> Tensor:
        """Return the rows themselves."""  # (B, D)
        return self.rows[torch.from_numpy(index)]

    def weak(self, index: np.ndarray, rng: np.random.Generator, mine: slice | np.ndarray = ALL) -> Tensor:
        """Return each row with some numbers left out."""  # (B, D)
        kept = draw_kept((len(index), self.rows.shape[1]), self.dropout, rng)
        return self.plain(index[mine]) * torch.from_numpy(kept[mine]).to(self.device)

    def strong(self, index: np.ndarray, rng: np.random.Generator, mine: slice | np.ndarray = ALL) -> Tensor:
        """Return each row with more numbers left out."""  # (B, D)
        return self.distort(self.weak(index, rng), rng)[mine]

    def distort(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """Leave more numbers out."""
        return inputs * torch.from_numpy(draw_kept(tuple(inputs.shape), self.strong_dropout, rng)).to(inputs)

    def of(self, images: object) -> RowViews:
        """Rows are no images."""
        raise TypeError("rows have no views of images")

    def at(self, step: int) -> RowViews:
        """Return the same views: they do not change."""
        return self
