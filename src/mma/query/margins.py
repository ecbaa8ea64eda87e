"""Uncertain images that differ from each other: Cluster-Margin and BADGE."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from mma.query.candidates import Candidates, Floats, Ints, Labeled
from mma.query.diversity import most_uncertain
from mma.query.picks import Picks
from mma.query.space import draw_rows, space_of
from mma.query.uncertainty import diff2

WIDER = 10  # Paper (Cluster-Margin): ten times as many uncertain images as are asked for
LINKED = 6_000  # images that are linked to clusters at most: their distances take 144 MB
DRAWN = 40_000  # images that BADGE draws from


def cluster_margin(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
    """Pick from clusters of the most uncertain images, one of each in turn, small clusters first (arXiv:2107.14263).

    Cost: the margins of all images, and average linkage of at most 10 n (6,000) of them.
    """
    # Paper: links the whole pool once. Differs: only the uncertain images, anew each time: a pool of any size will do.
    assert candidates.probs is not None
    assert candidates.features is not None
    scores = diff2(candidates.probs).astype(np.float64)
    rows = most_uncertain(scores, candidates.features, min(max(min(WIDER * n, LINKED), n), len(scores)), rng)
    groups = linked(space_of(candidates.features[rows], rng)(candidates.features[rows]), n)
    picked = rows[in_turns(groups, n)]
    picked = picked[np.argsort(-scores[picked], kind="stable")]
    why = f"margin: the most uncertain of {groups.max() + 1} clusters of the {len(rows):,} most uncertain images"
    return Picks(picked, scores[picked], why)


def linked(points: Floats, count: int) -> Ints:
    """Return the cluster of each row, from average linkage cut into at most `count` clusters."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(points) < 2 or len(points) > LINKED:
        return np.arange(len(points))  # more are asked for than can be linked: each is on its own
    tree = linkage(points.astype(np.float64), "average")
    return np.asarray(fcluster(tree, count, "maxclust"), np.int64) - 1


def in_turns(groups: Ints, n: int) -> Ints:
    """Return n rows: the first of each cluster, the smallest cluster first, then the second of each, and so on."""
    sizes = np.bincount(groups)
    grouped = np.argsort(groups, kind="stable")
    place = np.empty_like(grouped)
    place[grouped] = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.lexsort((groups, sizes[groups], place))[:n]


def badge(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
    """Pick images whose gradients would be large and different, by k-means++ on them (BADGE, arXiv:1906.03671).

    A gradient is (p - one_hot(guess)) x embedding. Distances follow from the two factors, so that the (N, classes * D) array is
    never made. Cost: n passes over at most 40,000 images of (classes + D) numbers.
    """
    assert candidates.probs is not None
    assert candidates.features is not None
    rows = draw_rows(len(candidates), max(DRAWN, n), rng)
    errors = candidates.probs[rows].astype(np.float32)
    errors[np.arange(len(rows)), errors.argmax(axis=1)] -= 1
    points = space_of(candidates.features[rows[:DRAWN]], rng)(candidates.features[rows])
    sizes = np.einsum("nc,nc->n", errors, errors) * np.einsum("nd,nd->n", points, points)
    picked = spread_gradients(errors, points, sizes, n, rng)
    norms = np.sqrt(sizes[picked].astype(np.float64))
    order = np.argsort(-norms, kind="stable")
    why = f"gradients that are large and differ, drawn from {len(rows):,} images; the mean length is {norms.mean():.3g}"
    return Picks(rows[picked][order], norms[order], why)


def spread_gradients(errors: Floats, points: Floats, sizes: Floats, n: int, rng: Generator) -> Ints:
    """Draw n different rows, the longest gradient first, then each in proportion to its squared distance to those drawn."""
    nearest = sizes.astype(np.float64).copy()
    picked = [int(np.argmax(nearest))]
    taken = np.zeros(len(sizes), bool)
    while True:
        last = picked[-1]
        taken[last] = True
        if len(picked) == n:
            return np.array(picked, np.int64)
        products = (errors @ errors[last]) * (points @ points[last])
        np.minimum(nearest, np.maximum(sizes + sizes[last] - 2 * products, 0), out=nearest)
        nearest[taken] = 0
        picked.append(draw_one(nearest, taken, rng))


def draw_one(weights: Floats, taken: np.ndarray, rng: Generator) -> int:
    """Draw a row in proportion to its weight; where all weights are zero, the first row that is not taken."""
    total = np.cumsum(weights)
    if total[-1] <= 1e-12:
        return int(np.argmin(taken))
    row = min(int(np.searchsorted(total, rng.random() * total[-1], side="right")), len(weights) - 1)
    return row if not taken[row] else int(np.argmin(taken))
