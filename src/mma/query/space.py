"""Where images lie: embeddings centred on the pool, along their strongest directions, scaled to length one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from mma.query.candidates import Floats, Ints

WIDE = 512  # numbers per embedding above which only the strongest directions are kept
KEPT = 256  # directions kept then
BASIS = 4_000  # rows that the directions are found on
BLOCK = 8_192  # rows worked on at a time


@dataclass(frozen=True, eq=False)
class Space:
    """Maps embeddings to vectors of length one, so that a distance means the same for every network and backbone."""

    scale: float  # the largest entry, so that no square overflows
    mean: Floats  # (D,) of the pool, after scaling
    directions: Floats | None  # (D, KEPT); None = all are kept

    def __call__(self, features: Floats) -> Floats:
        """Return unit vectors (N, d) float32; a row at the pool's mean stays zero."""
        blocks = [self._unit(features[start : start + BLOCK]) for start in range(0, len(features), BLOCK)]
        width = len(self.mean) if self.directions is None else self.directions.shape[1]
        return np.concatenate(blocks) if blocks else np.zeros((0, width), np.float32)

    def _unit(self, rows: Floats) -> Floats:
        moved = rows.astype(np.float32) / np.float32(self.scale) - self.mean
        if self.directions is not None:
            moved = moved @ self.directions
        norms = np.sqrt(np.einsum("nd,nd->n", moved, moved))[:, None]
        unit: Floats = np.divide(moved, norms, out=np.zeros_like(moved), where=norms > 1e-6)
        return unit


def space_of(features: Floats, rng: Generator) -> Space:
    """Find centre and directions on (N, D) rows of the pool: a sample of it will do."""
    scale = float(max(features.max(initial=0.0), -features.min(initial=0.0))) or 1.0
    points = features.astype(np.float32) / np.float32(scale)
    mean = points.mean(axis=0, dtype=np.float64).astype(np.float32) if len(points) else np.zeros(points.shape[1:])
    if points.shape[1] <= WIDE:
        return Space(scale, mean, None)
    return Space(scale, mean, strongest_directions(points[:BASIS] - mean, rng))


def strongest_directions(points: Floats, rng: Generator) -> Floats:
    """Return the KEPT directions along which centred points differ most, (D, KEPT), by a randomized SVD (arXiv:0909.4061)."""
    kept = min(KEPT, *points.shape)
    sketch = rng.standard_normal((points.shape[1], kept + 16), dtype=np.float32)
    for _ in range(2):  # two power iterations: the strong directions stand out of the weak ones
        sketch, _ = np.linalg.qr(points.T @ (points @ sketch))
    _, _, right = np.linalg.svd(points @ sketch, full_matrices=False)
    directions: Floats = (sketch @ right.T)[:, :kept]
    return directions


def draw_rows(count: int, most: int, rng: Generator) -> Ints:
    """Return at most `most` of `count` rows, shuffled: what is tied is then not taken in the order of the rows."""
    if count <= most:
        return rng.permutation(count)
    return rng.choice(count, most, replace=False)
