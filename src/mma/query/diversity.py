"""Diversification: from scores to rows, without an N x N matrix.

Equal scores are shuffled with the generator given, so that low rows are not preferred. A new way is one or two functions and
one entry in DIVERSITY, here or from your own code. `Query.parse` and the contract suite find it at once:

    DIVERSITY["halves"] = Diversity(pick=one_from_each_half)
    Query.parse("max-halves")
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
CLUSTER_SAMPLE = 200_000  # rows the centres are found on; all rows are then assigned

Pick = Callable[[Floats, Floats, int, Generator], Ints]  # scores (N,), features (N, D), n, rng -> (n,) rows
Reweigh = Callable[[Floats, Floats], Floats]  # scores (N,), features (N, D) -> (N,)


def information_density(scores: Floats, features: Floats) -> Floats:
    """Return s(x) * (mean cosine similarity to all candidates)^beta: high for uncertain *and* typical images."""
    # A negative similarity counts as 0: more uncertainty would lower such a score.
    # Original: mean cosine *distance*, which prefers outliers. Differs: similarity, as the paper defines it.
    return scores * np.maximum(mean_cosine_similarity(features), 0) ** BETA


def mean_cosine_similarity(features: Floats) -> Floats:
    """Return the mean cosine similarity of each row to all rows, itself included; 0 for a row of zeros.

    Exact in O(N D): the mean over x' of cos(x, x') is the unit vector of x times the mean of all unit vectors.
    """
    # Paper: suggests a random subsample for a large pool. Differs: none is needed.
    blocks = [slice(start, start + BLOCK) for start in range(0, len(features), BLOCK)]
    total = sum((_unit(features[rows]).sum(axis=0) for rows in blocks), np.zeros(features.shape[1]))
    mean = total / max(len(features), 1)
    # einsum, not BLAS: each row is summed in the same order wherever it lies, so that equal images get equal scores.
    return np.concatenate([np.zeros(0), *(np.einsum("nd,d->n", _unit(features[rows]), mean) for rows in blocks)])


def _unit(rows: Floats) -> Floats:
    rows = rows.astype(np.float64)
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows))[:, None]
    unit: Floats = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return unit


def most_uncertain(scores: Floats, features: Floats, n: int, rng: Generator) -> Ints:
    """Return the n rows with the largest scores."""
    return _order(scores, rng)[:n]


def by_chance(scores: Floats, features: Floats, n: int, rng: Generator) -> Ints:
    """Draw n rows without replacement, in proportion to their scores (power acquisition, arXiv:2106.12059, beta = 1).

    The largest of log score + Gumbel noise are such a draw. Rows that score zero come last. Cost: one sort.
    """
    with np.errstate(divide="ignore"):
        noisy = np.log(scores) + rng.gumbel(size=len(scores))
    drawn = _order(noisy, rng)[:n]
    return drawn[np.argsort(-scores[drawn], kind="stable")]


def most_uncertain_per_cluster(scores: Floats, features: Floats, n: int, rng: Generator) -> Ints:
    """Return the most uncertain rows of each of 20 clusters of the embeddings, in proportion to the clusters' sizes."""
    order = _order(scores, rng)
    if n in (0, len(scores)):
        return order[:n]
    labels = clusters(features, CLUSTERS, rng)[order]
    sizes = np.bincount(labels)
    grouped = np.argsort(labels, kind="stable")  # cluster by cluster, each still by preference
    place = np.empty_like(grouped)  # of each row within its own cluster
    place[grouped] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[place < shares(sizes, n)[labels]]


def clusters(features: Floats, k: int, rng: Generator) -> Ints:
    """Return k-means labels (N,); fewer than k clusters where there are fewer distinct rows.

    One thread on purpose: the labels do not depend on the number of cores, and OpenMP threads that spin beside another
    busy process can be many times slower than one thread.
    """
    # Original: MiniBatchKMeans with batches of 80. Differs: Lloyd, which ends at lower inertia and is fast enough.
    from sklearn.cluster import KMeans  # here, because importing it costs most of a second
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    seed = int(rng.integers(2**32))
    # A larger pool is clustered by a sample of it: 20 centres do not move by more, and memory stays bounded.
    large = len(features) > CLUSTER_SAMPLE
    sample = np.sort(rng.choice(len(features), CLUSTER_SAMPLE, replace=False)) if large else slice(None)
    points = np.array(features[sample], dtype=np.float32, order="C")
    largest = max(float(points.max()), -float(points.min()))
    scale = np.float32(largest if largest > 0 else 1)  # within 1, no square overflows; clusters stay as they are
    points /= scale
    mean = points.mean(axis=0, dtype=np.float64).astype(np.float32)
    points -= mean
    fit = KMeans(min(k, len(points)), n_init=1, max_iter=50, random_state=seed, copy_x=False)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        labels = fit.fit_predict(points)
        if large:
            blocks = (features[start : start + BLOCK] for start in range(0, len(features), BLOCK))
            labels = np.concatenate([fit.predict(block.astype(np.float32) / scale - mean) for block in blocks])
    return np.asarray(labels, dtype=np.int64)


def _order(scores: Floats, rng: Generator) -> Ints:
    """Return all rows, largest score first; ties in shuffled order."""
    order = rng.permutation(len(scores))
    return order[np.argsort(-scores[order], kind="stable")]


@dataclass(frozen=True)
class Diversity:
    """How scores become rows: `reweigh` may change the scores, `pick` chooses n <= N rows, the preferred ones first.

    Without `needs_features` both get features with no columns.
    """

    pick: Pick = most_uncertain
    reweigh: Reweigh = lambda scores, features: scores
    needs_features: bool = False


DIVERSITY: dict[str, Diversity] = {
    "direct": Diversity(),
    "kmeans": Diversity(pick=most_uncertain_per_cluster, needs_features=True),
    "infoD": Diversity(reweigh=information_density, needs_features=True),
    "power": Diversity(pick=by_chance),
}
