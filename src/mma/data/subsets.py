"""Which images of the pool take part, and which of them are labeled first. Same seed, same rows, on any machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mma.data.coverage import spread
from mma.data.images import UNKNOWN, Images
from mma.rng import rng
from mma.shares import shares

Index = NDArray[np.int64]


def nested_order(n: int, seed: int) -> Index:
    """Shuffle 0..n-1 by `seed`; a subset of size k is the first k entries, so it lies in every larger one."""
    return rng(seed, "subset").permutation(n).astype(np.int64, copy=False)


def subset(images: Images, total: int, seed: int) -> Index:
    """Choose `total` images of the pool, the paper's `Total` (labeled + unlabeled); subsets of one seed are nested."""
    if not 0 < total <= len(images):
        raise ValueError(
            f"a subset of {total:,} images was asked for, but the pool has {len(images):,}. "
            f"Choose a total from 1 to {len(images):,}."
        )
    return nested_order(len(images), seed)[:total]


def start_set(images: Images, pool: Index, n: int, seed: int, how: str) -> Index:
    """Choose the `n` images to label before the first query, as row numbers of `images`, out of the rows in `pool`.

    `how` is a name in START_SETS:
    uniform: the first n of one seed-shuffled order, so the set of a smaller n is the beginning of that of a larger one;
    proportional: the class distribution of the pool, as exactly as n allows (Paper: the start sets of SVHN);
    coverage: one image out of each of n groups of look-alikes; needs no labels.
    """
    if how not in START_SETS:
        raise ValueError(f"no start set {how!r}. Choose one of {', '.join(START_SETS)}.")
    if not 0 <= n <= len(pool):
        raise ValueError(
            f"a start set of {n:,} images was asked for, but there are {len(pool):,} to choose from. "
            f"Choose a number from 0 to {len(pool):,}."
        )
    return START_SETS[how](images, pool, n, seed)


def _shuffled(images: Images, pool: Index, seed: int) -> Index:
    """Bring the rows of `pool` into an order that depends on the seed alone, not on the order they came in."""
    inside = np.zeros(len(images), dtype=bool)
    inside[pool] = True
    order = rng(seed, "start").permutation(len(images))
    return order[inside[order]].astype(np.int64, copy=False)


def _uniform(images: Images, pool: Index, n: int, seed: int) -> Index:
    return _shuffled(images, pool, seed)[:n]


def _proportional(images: Images, pool: Index, n: int, seed: int) -> Index:
    order = _shuffled(images, pool, seed)
    labels = images.labels[order]
    unknown = int(np.count_nonzero(labels == UNKNOWN))
    if unknown:
        raise ValueError(
            f"a proportional start set needs the label of every image, but {unknown:,} of {len(order):,} have none. "
            "Use a uniform or a coverage start set."
        )
    return order[first_of_each_class(labels, shares(np.bincount(labels, minlength=len(images.classes)), n))]


def _coverage(images: Images, pool: Index, n: int, seed: int) -> Index:
    order = _shuffled(images, pool, seed)
    return order[spread(images.pixels, order, n, rng(seed, "coverage"))]


def first_of_each_class(labels: NDArray[np.int64], quota: NDArray[np.int64]) -> Index:
    """Find the first quota[c] places of every class c in `labels`, in the order they stand."""
    rank = np.full(len(labels), len(labels), dtype=np.int64)
    for c in range(len(quota)):
        places = np.flatnonzero(labels == c)
        rank[places] = np.arange(len(places)) - quota[c]
    return np.flatnonzero(rank < 0).astype(np.int64, copy=False)


StartSet = Callable[[Images, Index, int, int], Index]

START_SETS: dict[str, StartSet] = {
    "uniform": _uniform,
    "proportional": _proportional,
    "coverage": _coverage,
}
