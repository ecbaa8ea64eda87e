"""Stored vectors made ready for a head: centred, of length one, and brought to a few hundred numbers.

Everything here is computed with one torch thread per block of fixed size, so that it does not depend on the cores there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mma.features import Features
from mma.machine import cores
from mma.rng import rng

SAMPLE = 1_024  # images whose principal directions are kept
BLOCK = 1_024  # images made ready at a time
FAINTEST = 1e-6  # share of the largest variance below which a direction is rounding


@dataclass(frozen=True, eq=False)
class Projection:
    """What is done with the stored vectors of one backbone. Frozen: a function of the pool."""

    mean: Tensor  # (D,) of the pool
    basis: Tensor | None  # (D, d) orthonormal columns; None keeps all numbers

    @property
    def width(self) -> int:
        """How many numbers are left."""
        return len(self.mean) if self.basis is None else self.basis.shape[1]

    def __call__(self, stored: np.ndarray) -> Tensor:
        """Return vectors of length one, projected."""  # (..., D) float16 -> (..., d) float16
        x = F.normalize(torch.from_numpy(stored).float().sub_(self.mean), dim=-1)
        return (x if self.basis is None else x @ self.basis).half()


def find_projection(stored: Features, width: int) -> Projection:
    """Return the projection on the `width` principal directions of a sample of the pool; 0 keeps all numbers."""
    mean = torch.from_numpy(stored.centring().mean)
    if not 0 < width < stored.width:
        return Projection(mean, None)
    rows = np.sort(rng(0, "directions").permutation(len(stored))[:SAMPLE])
    with one_thread():
        sample = F.normalize(torch.from_numpy(stored.take(rows)).float().sub_(mean)).double()
        return Projection(mean, principal_directions(sample, width).float())


def principal_directions(sample: Tensor, width: int) -> Tensor:
    """Return the strongest directions of a sample, turned at random among themselves.

    Turned, so that each number carries as much as any other, and leaving some out at random disturbs all images alike.
    """  # (N, D) -> (D, d)
    variance, left = torch.linalg.eigh(sample @ sample.T)  # ascending
    kept = variance[-width:] > FAINTEST * variance[-1]
    kept[-1] = True  # also where all images are the same one
    basis = F.normalize(sample.T @ left[:, -width:][:, kept], dim=0)
    turn: Tensor = torch.linalg.qr(torch.from_numpy(rng(0, "turn").standard_normal((basis.shape[1],) * 2))).Q
    return basis @ turn


@torch.inference_mode(False)  # whoever scores images first must not make them unfit for training
def project(parts: tuple[Features, ...], projections: tuple[Projection, ...]) -> Tensor:
    """Return all views of all images, ready; every core works on blocks of its own."""  # (N, views, d) float16
    count, views = len(parts[0]), parts[0].views
    ready = torch.empty(count, views, sum(projection.width for projection in projections), dtype=torch.float16)

    def make(start: int) -> None:
        rows = np.arange(start, min(start + BLOCK, count))
        pieces = [projection(part.stored[part.rows[rows]]) for part, projection in zip(parts, projections, strict=True)]
        torch.cat(pieces, 2, out=ready[start : start + BLOCK])

    with one_thread(), ThreadPoolExecutor(cores(), "projection", torch.set_num_threads, (1,)) as pool:
        list(pool.map(make, range(0, count, BLOCK)))
    return ready


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, here and in threads that start meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
