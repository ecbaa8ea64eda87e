"""Whole strategies: queries that are not an uncertainty and a way to pick, but one thing.

A new one is one function and one entry in STRATEGIES, here or from your own code. `Query.parse` and the contract suite find it
at once:

    STRATEGIES["first"] = Strategy(lambda candidates, labeled, n, rng: Picks(np.arange(n), np.zeros(n)))
    Query.parse("first")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from mma.query import coverage
from mma.query.candidates import Candidates, Floats, Ints, Labeled, Picks
from mma.query.diversity import clusters, most_uncertain
from mma.query.uncertainty import diff2, entropy

WIDER = 10  # Paper (Cluster-Margin): ten times as many uncertain images as are asked for
LINKED = 6_000  # images that are linked to clusters at most: their distances take 144 MB
DRAWN = 40_000  # images that BADGE, BALD and the coreset draw from


def draw_points(
    candidates: Candidates, labeled: Labeled, most: int, n: int, rng: Generator
) -> tuple[Ints, Floats, Floats]:
    """Draw at most `most` rows (but n), and map them and the labeled images into the space found on them."""
    rows = coverage.draw_rows(len(candidates), max(most, n), rng)
    space = coverage.space_of(candidates.embeddings[rows[:most]], rng)
    return rows, space(candidates.embeddings[rows]), space(labeled.features_like(candidates.embeddings))


def cluster_margin(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
    """Pick from clusters of the most uncertain images, one of each in turn, small clusters first (arXiv:2107.14263).

    Cost: the margins of all images, and average linkage of at most 10 n (6,000) of them.
    """
    from scipy.cluster.hierarchy import fcluster, linkage

    # Paper: links the whole pool once. Differs: only the uncertain images, anew each time: a pool of any size will do.
    scores = diff2(candidates.probabilities).astype(np.float64)
    rows = most_uncertain(scores, candidates.embeddings, min(max(min(WIDER * n, LINKED), n), len(scores)), rng)
    groups = np.arange(len(rows))  # each is on its own, where more are asked for than can be linked
    if 2 <= len(rows) <= LINKED:
        points = coverage.space_of(candidates.embeddings[rows], rng)(candidates.embeddings[rows])
        groups = np.asarray(fcluster(linkage(points.astype(np.float64), "average"), n, "maxclust"), np.int64) - 1
    picked = rows[in_turns(groups, n)]
    picked = picked[np.argsort(-scores[picked], kind="stable")]
    why = f"margin: the most uncertain of {groups.max() + 1} clusters of the {len(rows):,} most uncertain images"
    return Picks(picked, scores[picked], why)


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
    rows, points, _ = draw_points(candidates, Labeled(), DRAWN, n, rng)
    errors = candidates.probabilities[rows].astype(np.float32)
    errors[np.arange(len(rows)), errors.argmax(axis=1)] -= 1
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
        total, row = np.cumsum(nearest), int(np.argmin(taken))  # the first that is not taken, where all others are zero
        if total[-1] > 1e-12:
            drawn = min(int(np.searchsorted(total, rng.random() * total[-1], side="right")), len(nearest) - 1)
            row = row if taken[drawn] else drawn
        picked.append(row)


def coreset(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
    """Pick, again and again, the image that lies farthest from all labeled ones (k-center greedy, arXiv:1708.00489).

    Cost: a pass over at most 40,000 images for each labeled one and each pick.
    """
    rows, points, centers = draw_points(candidates, labeled, DRAWN, n, rng)
    nearest = np.full(len(rows), 2.0, np.float32)  # distance to the nearest center; 2: nothing is farther on a sphere
    for start in range(0, len(centers), 256):
        cosine = (points @ centers[start : start + 256].T).max(axis=1)
        np.minimum(nearest, np.sqrt(np.maximum(2 - 2 * cosine, 0)), out=nearest)
    picked, distances, taken = np.empty(n, np.int64), np.empty(n), np.zeros(len(rows), bool)
    for place in range(n):
        first = place == 0 and not len(centers)
        farthest = int(rng.integers(len(rows))) if first else int(np.where(taken, -1, nearest).argmax())
        picked[place], distances[place], taken[farthest] = farthest, nearest[farthest], True
        np.minimum(nearest, np.sqrt(np.maximum(2 - 2 * points @ points[farthest], 0)), out=nearest)
    why = f"the farthest image from a labeled one is {nearest.max():.2f} away now (1.41: unlike, 0: the same)"
    return Picks(rows[picked], distances, why)


HEADS = 10  # that vote on each image
INVERSE_PENALTY = 10.0  # of a head: what scikit-learn calls C


def bald(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
    """Pick images about which heads disagree: entropy of their mean minus their mean entropy (BALD, arXiv:1112.5745).

    Ten logistic regressions on the labeled embeddings, each with other weights of the labels (the Bayesian bootstrap). Without
    labels of two classes, the picks are random. Cost: ten fits, and a pass of each over at most 40,000 images.
    """
    # Paper: draws from the posterior of the model. Differs: heads on embeddings, whose weights the bootstrap draws.
    from sklearn.linear_model import LogisticRegression

    rows, points, known = draw_points(candidates, labeled, DRAWN, n, rng)
    x, y = known[labeled.classes >= 0], labeled.classes[labeled.classes >= 0]
    if len(np.unique(y)) < 2:
        return Picks(rows[:n], np.zeros(n), "random, because fewer than two classes are labeled")
    head = LogisticRegression(C=INVERSE_PENALTY, max_iter=500)
    votes = [head.fit(x, y, rng.exponential(size=len(y))).predict_proba(points) for _ in range(HEADS)]
    scores = np.maximum(entropy(np.mean(votes, axis=0)) - np.mean([entropy(vote) for vote in votes], axis=0), 0.0)
    picked = most_uncertain(scores, points, n, rng)
    why = f"heads disagree by {scores[picked].mean():.3g} nats on these, by {scores.mean():.3g} on the {len(rows):,} looked at"
    return Picks(rows[picked], scores[picked], why)


SAMPLE = 20_000  # images that are clustered
MOST_CLUSTERS = 500  # Paper: at most 500
FEWEST = 5  # Paper: clusters with fewer images are left aside
NEIGHBOURS = 20  # Paper: typicality is measured on the 20 nearest neighbours
CROWD = 1_000  # images of one cluster that are compared with each other


def typiclust(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
    """Pick the most typical image of each of the largest clusters without a label (TypiClust, arXiv:2202.02794).

    There are as many clusters as images labeled and asked for. Where more are asked for than there are clusters, those with the
    fewest labels come next. Cost: k-means of at most 20,000 images, and distances within clusters.
    """
    rows, points, known = draw_points(candidates, labeled, SAMPLE, n, rng)
    groups = clusters(np.concatenate([points, known]), min(len(known) + n, MOST_CLUSTERS), rng)
    free, labels = groups[: len(rows)], np.bincount(groups[len(rows) :], minlength=groups.max() + 1)
    members = [np.flatnonzero(free == group) for group in range(len(labels))]
    queues = [list(member[np.argsort(-typicality(points[member]), kind="stable")]) for member in members]
    sizes, counts, picked = np.array(list(map(len, members))), labels.copy(), np.empty(n, np.int64)
    for place in range(n):  # clusters with fewest labels first, then the largest
        empty = np.array([not queue for queue in queues])
        group = int(np.lexsort((-sizes, counts, sizes < FEWEST, empty))[0])
        picked[place] = queues[group].pop(0)
        counts[group] += 1
    chosen = np.unique(free[picked])
    why = f"typical images of {len(chosen)} clusters, of which {int((labels[chosen] == 0).sum())} had no label"
    return Picks(rows[picked], np.arange(n, 0, -1) / n, why)


def typicality(points: Floats) -> Floats:
    """Return the inverse of the mean distance to the nearest neighbours, (N,); in a crowd, to those of a part of it."""
    if len(points) < 2:
        return np.ones(len(points), np.float32)
    others = points[:CROWD]
    squares = np.maximum(2 - 2 * (points @ others.T), 0)
    nearest = np.partition(squares, min(NEIGHBOURS, len(others) - 1), axis=1)[:, : NEIGHBOURS + 1]  # itself included
    typical: Floats = 1 / (np.sqrt(nearest).mean(axis=1) + 1e-6)
    return typical


# Share of left-out labels that must be predicted right before the model's doubts count. Chosen on images held out of the pool
# (digits, signs, Fashion-MNIST, CIFAR-10): from 0.4 on doubts always gained.
TRUST_FROM = 1 / 3


def auto(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
    """Cover the pool while the model is young, then cover what it is unsure about. Copies of an image never fill a batch.

    Young means that labels which are left out are predicted wrong. Cost: that of uherding.
    """
    pool = coverage.sample_pool(candidates, labeled, n, rng)
    if candidates.probs is None:
        picks = coverage.cover(pool, n)
        return replace(picks, why=f"auto covers the pool, because there is no model yet; {picks.why}")
    accuracy = coverage.left_out_accuracy(pool.labeled_points, labeled.classes, pool.target_points, rng)
    if accuracy < TRUST_FROM:
        why = f"the model cannot be trusted yet: {coverage.left_out(accuracy)}, less than {TRUST_FROM:.0%}"
        picks = coverage.cover(pool, n)
        return replace(picks, why=f"auto covers the pool, because {why}; {picks.why}")
    picks = coverage.cover_uncertain(pool, candidates.probs[pool.targets], accuracy, n)
    return replace(picks, why=f"auto asks where the model is unsure, because it can be trusted: {picks.why}")


Pick = Callable[[Candidates, Labeled, int, Generator], Picks]  # n >= 1 and at most the number of candidates


@dataclass(frozen=True)
class Strategy:
    """How images are picked, and what that needs to know about them."""

    pick: Pick
    needs_probs: bool = False
    needs_features: bool = True
    needs_labeled: bool = True
    before_model: bool = False  # it also works without the probabilities, before there is a model


STRATEGIES: dict[str, Strategy] = {
    "herding": Strategy(coverage.herding),
    "typiclust": Strategy(typiclust),
    "uherding": Strategy(coverage.uncertain_herding, needs_probs=True, before_model=True),
    "cluster-margin": Strategy(cluster_margin, needs_probs=True, needs_labeled=False),
    "coreset": Strategy(coreset),
    "badge": Strategy(badge, needs_probs=True, needs_labeled=False),
    "bald": Strategy(bald),
    "auto": Strategy(auto, needs_probs=True, before_model=True),
}
