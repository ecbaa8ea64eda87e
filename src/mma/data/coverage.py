"""Images that lie far apart in what they look like, found without any label: the start set called coverage."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mma.data.images import CHUNK

GRID = 8  # images are seen as GRID x GRID patches
DIMENSIONS = 32  # and then along their strongest directions
FAINT = 8.0  # grey levels of contrast below which a picture is not amplified
CLUSTERED = 50_000  # rows the groups are found on; all rows are then assigned, so memory stays bounded
EXACT = 5_000_000  # rows x groups up to which every row takes part in every iteration


def spread(
    pixels: NDArray[np.uint8], rows: NDArray[np.int64], n: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Return `n` different positions in `rows`: of each of n groups of look-alikes the one nearest the middle.

    `rows` must be shuffled: the groups are found on its beginning. Where images repeat so often that there are fewer
    groups than n, the first rows that are left fill up.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    if n == 0:
        return np.empty(0, np.int64)
    with threadpool_limits(1):  # sums of several threads differ in the last digit, and with them the choice
        features = _features(pixels, rows)
        centres = _centres(features[:CLUSTERED], n, int(random.integers(2**31)))
        chosen = _nearest(features, centres)
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
    even: NDArray[np.float32] = (flat - flat.mean(axis=1, keepdims=True)) / contrast
    return even


def _centres(features: NDArray[np.float32], n: int, seed: int) -> NDArray[np.float32]:
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    if n >= len(features):
        return features
    small = len(features) * n <= EXACT
    model = (
        KMeans(n, n_init=1, max_iter=100, random_state=seed)
        if small
        else MiniBatchKMeans(n, n_init=1, max_iter=20, batch_size=4_096, init_size=3 * n, random_state=seed)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different images than groups: `spread` fills up
        model.fit(features)
    return np.asarray(model.cluster_centers_, dtype=np.float32)


def _nearest(features: NDArray[np.float32], centres: NDArray[np.float32]) -> NDArray[np.int64]:
    """Give each row to its nearest centre and return the nearest row of every centre that has one."""
    from sklearn.metrics import pairwise_distances_argmin_min

    groups, distances = pairwise_distances_argmin_min(features, centres)
    order = np.lexsort((distances, groups))  # by group, then nearest first; equal ones in the order of the rows
    _, first = np.unique(groups[order], return_index=True)
    return order[first].astype(np.int64, copy=False)
