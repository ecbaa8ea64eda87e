"""Typical images of clusters that no label covers."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from mma.query.candidates import Candidates, Floats, Ints, Labeled
from mma.query.diversity import clusters
from mma.query.picks import Picks
from mma.query.space import draw_rows, space_of

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
    assert candidates.features is not None
    rows = draw_rows(len(candidates), max(SAMPLE, n), rng)
    space = space_of(candidates.features[rows[:SAMPLE]], rng)
    known = space(labeled.features_like(candidates.features))
    points = np.concatenate([space(candidates.features[rows]), known])
    groups = clusters(points, min(len(known) + n, MOST_CLUSTERS), rng)
    free, labels = groups[: len(rows)], np.bincount(groups[len(rows) :], minlength=groups.max() + 1)
    picked, sizes = take_in_turns(points[: len(rows)], free, labels, n)
    chosen = np.unique(free[picked])
    why = f"typical images of {len(chosen)} clusters, of which {int((labels[chosen] == 0).sum())} had no label"
    return Picks(rows[picked], sizes, why)


def take_in_turns(points: Floats, groups: Ints, labels: Ints, n: int) -> tuple[Ints, Floats]:
    """Go through the clusters, those with fewest labels first, then the largest, and take the most typical image left."""
    members = [np.flatnonzero(groups == group) for group in range(len(labels))]
    queues = [list(member[np.argsort(-typicality(points[member]), kind="stable")]) for member in members]
    sizes, counts = np.array([len(member) for member in members]), labels.copy()
    picked: list[int] = []
    while len(picked) < n:
        open_ = np.array([len(queue) > 0 for queue in queues])
        small = sizes < FEWEST
        order = np.lexsort((-sizes, counts, small, ~open_))
        group = int(order[0])
        picked.append(int(queues[group].pop(0)))
        counts[group] += 1
    ranks = np.arange(n, 0, -1) / n
    return np.array(picked, np.int64), ranks


def typicality(points: Floats) -> Floats:
    """Return the inverse of the mean distance to the nearest neighbours, (N,); in a crowd, to those of a part of it."""
    if len(points) < 2:
        return np.ones(len(points), np.float32)
    others = points[:CROWD]
    squares = np.maximum(2 - 2 * (points @ others.T), 0)
    nearest = np.partition(squares, min(NEIGHBOURS, len(others) - 1), axis=1)[:, : NEIGHBOURS + 1]  # itself included
    typical: Floats = 1 / (np.sqrt(nearest).mean(axis=1) + 1e-6)
    return typical
