"""Which images of the pool take part, and which of them are labeled first. Same seed, same rows, on any machine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from mma.data.images import CHUNK, UNKNOWN, Images
from mma.errors import UserError
from mma.rng import rng
from mma.shares import shares

GRID = 8  # images are seen as GRID x GRID patches
DIMENSIONS = 32  # and then along their strongest directions
FAINT = 8.0  # grey levels of contrast below which a picture is not amplified
CLUSTERED = 50_000  # rows the groups are found on; all rows are then assigned, so memory stays bounded
EXACT = 5_000_000  # rows x groups up to which every row takes part in every iteration
Index = NDArray[np.int64]


def nested_order(n: int, seed: int) -> Index:
    """Shuffle 0..n-1 by `seed`; a subset of size k is the first k entries, so it lies in every larger one."""
    return rng(seed, "subset").permutation(n).astype(np.int64, copy=False)


def start_set(images: Images, pool: Index, n: int, seed: int, how: str) -> Index:
    """Choose the `n` images to label before the first query, as row numbers of `images`, out of the rows in `pool`.

    `how` is a name in START_SETS:
    uniform: the first n of one seed-shuffled order, so the set of a smaller n is the beginning of that of a larger one;
    proportional: the class distribution of the pool, as exactly as n allows (Paper: the start sets of SVHN);
    coverage: one image out of each of n groups of look-alikes; needs no labels.
    """
    if how not in START_SETS:
        raise UserError(f"no start set {how!r}. Choose one of {', '.join(START_SETS)}.")
    if not 0 <= n <= len(pool):
        raise UserError(
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


def _proportional(images: Images, pool: Index, n: int, seed: int) -> Index:
    order = _shuffled(images, pool, seed)
    labels = images.labels[order]
    unknown = int(np.count_nonzero(labels == UNKNOWN))
    if unknown:
        raise UserError(
            f"a proportional start set needs the label of every image, but {unknown:,} of {len(order):,} have none. "
            "Use a uniform or a coverage start set."
        )
    return order[first_of_each_class(labels, shares(np.bincount(labels, minlength=len(images.classes)), n))]


def first_of_each_class(labels: NDArray[np.int64], quota: NDArray[np.int64]) -> Index:
    """Find the first quota[c] places of every class c in `labels`, in the order they stand."""
    rank = np.full(len(labels), len(labels), dtype=np.int64)
    for c in range(len(quota)):
        places = np.flatnonzero(labels == c)
        rank[places] = np.arange(len(places)) - quota[c]
    return np.flatnonzero(rank < 0).astype(np.int64, copy=False)


StartSet = Callable[[Images, Index, int, int], Index]

START_SETS: dict[str, StartSet] = {
    "uniform": lambda images, pool, n, seed: _shuffled(images, pool, seed)[:n],
    "proportional": _proportional,
    "coverage": lambda images, pool, n, seed: (order := _shuffled(images, pool, seed))[
        spread(images.pixels, order, n, rng(seed, "coverage"))
    ],
}


# The start set called coverage: images that lie far apart in what they look like, found without any label.


def spread(
    pixels: NDArray[np.uint8], rows: NDArray[np.int64], n: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Return `n` different positions in `rows`: of each of n groups of look-alikes the one nearest the middle.

    `rows` must be shuffled: the groups are found on its beginning. Where images repeat so often that there are fewer
    groups than n, the first rows that are left fill up.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import pairwise_distances_argmin_min
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    if n == 0:
        return np.empty(0, np.int64)
    with threadpool_limits(1):  # sums of several threads differ in the last digit, and with them the choice
        features = _features(pixels, rows)
        sample, seed = features[:CLUSTERED], int(random.integers(2**31))
        centres = sample
        if n < len(sample):
            model = KMeans(n, n_init=1, max_iter=100, random_state=seed)
            if len(sample) * n > EXACT:
                model = MiniBatchKMeans(n, n_init=1, max_iter=20, batch_size=4_096, init_size=3 * n, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # fewer images than groups: filled up below
                model.fit(sample)
            centres = np.asarray(model.cluster_centers_, dtype=np.float32)
        groups, distances = pairwise_distances_argmin_min(features, centres)
    order = np.lexsort((distances, groups))  # by group, then nearest first; equal ones in the order of the rows
    _, first = np.unique(groups[order], return_index=True)
    chosen = order[first].astype(np.int64, copy=False)
    others = np.setdiff1d(np.arange(len(rows)), chosen, assume_unique=True)
    return np.concatenate([chosen, others[: n - len(chosen)]])


def _features(pixels: NDArray[np.uint8], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Describe each image by the strongest directions of its patches, (N, at most DIMENSIONS)."""
    sample = np.concatenate([_patches(pixels[part]) for part in _parts(rows[:CLUSTERED])])
    mean = sample.mean(axis=0)
    _, directions = np.linalg.eigh((sample - mean).T @ (sample - mean))  # weakest first
    strongest = directions[:, -DIMENSIONS:]
    return np.concatenate([(_patches(pixels[part]) - mean) @ strongest for part in _parts(rows)])


def _parts(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    return (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))


def _patches(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Average each channel over a grid of patches, (N, H, W, C) -> (N, at most GRID * GRID * C), contrast evened out.

    Otherwise dark and bright pictures would be the groups. Measured on small start sets: more classes than a uniform
    set on digits (9.0 to 6.6 of 10 with 10 images), about as many on photos.
    """
    patches = images.astype(np.float32)
    for axis in (1, 2):
        side = patches.shape[axis]
        edges = np.linspace(0, side, min(GRID, side), endpoint=False).astype(np.intp)
        widths = np.diff(np.append(edges, side)).astype(np.float32)
        sums: NDArray[np.float32] = np.add.reduceat(patches, edges, axis=axis)
        patches = sums / widths.reshape(-1, *[1] * (3 - axis))
    flat = patches.reshape(len(patches), -1)
    contrast = flat.std(axis=1, keepdims=True) + FAINT
    return np.asarray((flat - flat.mean(axis=1, keepdims=True)) / contrast, np.float32)
