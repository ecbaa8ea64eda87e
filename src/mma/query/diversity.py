"""From scores to rows: take the most uncertain, spread over clusters, or prefer the typical. Never an N x N matrix.

Ties are broken by a shuffle from the generator given, so that equal scores are not biased towards low rows, and the
choice is still a pure function of its arguments. A new way is one or two functions and one line in DIVERSITY.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from mma.query.candidates import Floats, Ints
from mma.shares import shares

CLUSTERS = 20  # Paper: "We fix the number of clusters to be 20"
BETA = 1.0  # Paper: "we set beta = 1"
BLOCK = 8_192  # rows worked on at a time
CLUSTERED = 200_000  # rows the centres are found on; all rows are then assigned


@dataclass(frozen=True)
class Diversity:
    """How scores become rows: `reweigh` may change the scores, `pick` chooses n <= N rows, the preferred ones first.

    Without `needs_features` both are given features of no columns.
    """

    reweigh: Callable[[Floats, Floats], Floats]  # scores (N,), features (N, D) -> (N,)
    pick: Callable[[Floats, Floats, int, Generator], Ints]  # scores, features, n, rng -> (n,)
    needs_features: bool


def unchanged(scores: Floats, features: Floats) -> Floats:
    """The uncertainty alone."""
    return scores


def information_density(scores: Floats, features: Floats) -> Floats:
    """s(x) * (mean cosine similarity to all candidates)^beta: uncertain *and* typical.

    An image that points away from the rest (negative mean similarity) counts as similarity 0: it must not become less
    wanted by being more uncertain, and a negative base has no real power for other beta.
    """
    # Original: mean cosine *distance*, which prefers outliers. Differs: similarity, as the paper defines it.
    return scores * np.maximum(mean_cosine_similarity(features), 0) ** BETA


def mean_cosine_similarity(features: Floats) -> Floats:
    """Mean cosine similarity of each row to all rows, itself included; a row of zeros is similar to nothing (0).

    Exact in O(N D): the mean over x' of cos(x, x') is the unit vector of x times the mean of all unit vectors.
    """
    # Paper: suggests a random subsample for a large pool. Differs: none is needed.
    blocks = [slice(start, start + BLOCK) for start in range(0, len(features), BLOCK)]
    mean = sum((_unit(features[rows]).sum(axis=0) for rows in blocks), np.zeros(features.shape[1])) / max(
        len(features), 1
    )
    # einsum, not BLAS: each row is summed in the same order wherever it lies, so that equal images get equal scores.
    return np.concatenate([np.zeros(0), *(np.einsum("nd,d->n", _unit(features[rows]), mean) for rows in blocks)])


def _unit(rows: Floats) -> Floats:
    rows = rows.astype(np.float64)
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))[:, None]
    unit: Floats = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return unit


def most_uncertain(scores: Floats, features: Floats, n: int, rng: Generator) -> Ints:
    """The n rows with the largest scores."""
    return _by_preference(scores, rng)[:n]


def from_each_cluster(scores: Floats, features: Floats, n: int, rng: Generator) -> Ints:
    """The most uncertain rows of each of 20 clusters of the embeddings, in proportion to the clusters' sizes."""
    order = _by_preference(scores, rng)
    if n in (0, len(scores)):
        return order[:n]
    labels = clusters(features, CLUSTERS, rng)[order]
    sizes = np.bincount(labels)
    grouped = np.argsort(labels, kind="stable")  # cluster by cluster, each still by preference
    place = np.empty_like(grouped)  # of each row within its own cluster
    place[grouped] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[place < shares(sizes, n)[labels]]


def clusters(features: Floats, k: int, rng: Generator) -> Ints:
    """k-means labels (N,), fewer than k different ones where there are fewer distinct rows.

    One thread on purpose: the sums, and so the labels, do not depend on how many cores there are; and OpenMP threads
    that spin beside another busy process can be many times slower than one thread alone.
    """
    # Original: MiniBatchKMeans with batches of 80. Differs: Lloyd, which ends at lower inertia and is fast enough.
    from sklearn.cluster import KMeans  # here, because importing it costs most of a second
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    seed = int(rng.integers(2**32))
    # A larger pool is clustered by a sample of it: 20 centres do not move by more, and memory stays bounded.
    large = len(features) > CLUSTERED
    sample = np.sort(rng.choice(len(features), CLUSTERED, replace=False)) if large else slice(None)
    points, move = _centered(features[sample])
    fit = KMeans(min(k, len(points)), n_init=1, max_iter=50, random_state=seed, copy_x=False)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        labels = fit.fit_predict(points)
        if large:
            blocks = (features[start : start + BLOCK] for start in range(0, len(features), BLOCK))
            labels = np.concatenate([fit.predict(move(block)) for block in blocks])
    return np.asarray(labels, dtype=np.int64)


def _centered(features: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
    """The one copy k-means works on, around 0 and within 1 so that no square overflows, and what moves others there.

    Neither changes a cluster.
    """
    points = np.array(features, dtype=np.float32, order="C")
    largest = max(float(points.max()), -float(points.min()))
    scale = np.float32(largest if largest > 0 else 1)
    points /= scale
    mean = points.mean(axis=0, dtype=np.float64).astype(np.float32)
    points -= mean
    return points, lambda others: others.astype(np.float32) / scale - mean


def _by_preference(scores: Floats, rng: Generator) -> Ints:
    """All rows, largest score first; ties in shuffled order."""
    order = rng.permutation(len(scores))
    return order[np.argsort(-scores[order], kind="stable")]


DIVERSITY: dict[str, Diversity] = {
    "direct": Diversity(unchanged, most_uncertain, needs_features=False),
    "kmeans": Diversity(unchanged, from_each_cluster, needs_features=True),
    "infoD": Diversity(information_density, most_uncertain, needs_features=True),
}
