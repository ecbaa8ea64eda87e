"""Images that look like none of the classes, and alike: perhaps a class that nobody has named yet. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
BLOCK = 2_048  # images compared with the labeled ones at a time
MOST = 2_000  # of the strangest images, among which groups are looked for
FEWEST = 5  # images that make a group
FAR = 0.02  # share of the labeled images that are as far from their nearest fellow as a stranger is
LOOSE = 0.1  # and that are as far from it as two images of one group may be


@dataclass(frozen=True)
class StrangerGroup:
    """Images that are alike and like nothing that has a name; the most typical one first."""

    rows: tuple[int, ...]
    similarity: float  # of its images to their middle; 1 is the same

    def __len__(self) -> int:
        return len(self.rows)


def find_strangers(features: Floats, labels: Ints, fewest: int = FEWEST) -> list[StrangerGroup]:
    """Return groups of unlabeled images (label -1) that look like no labeled image, the largest first.

    `features` are vectors of length one. An image is strange when its nearest labeled image is farther away than that of
    all but a few labeled ones is from their own. Costs images x labels, in blocks; groups are looked for among the MOST
    strangest.
    """  # (N, D), (N,)
    known, free = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    if len(known) < 2 or not len(free):
        return []
    own = nearest_similarity(features[known], features[known], skip_self=True)
    border, alike = np.quantile(own, [FAR, LOOSE]).tolist()
    nearest = nearest_similarity(features[free], features[known])
    strange = free[nearest < border]
    strange = strange[np.argsort(nearest[nearest < border], kind="stable")][:MOST]
    return _groups(features, np.sort(strange), alike, fewest)


def nearest_similarity(images: Floats, others: Floats, *, skip_self: bool = False) -> Floats:
    """Return the cosine similarity of each image to its nearest other one. (N,)"""
    found = np.empty(len(images), np.float32)
    for start in range(0, len(images), BLOCK):
        block = images[start : start + BLOCK].astype(np.float32) @ others.astype(np.float32).T  # (B, M)
        if skip_self:
            block[np.arange(len(block)), start + np.arange(len(block))] = -np.inf
        found[start : start + BLOCK] = block.max(axis=1)
    return found


def _groups(features: Floats, rows: Ints, alike: float, fewest: int) -> list[StrangerGroup]:
    """Put images together that have enough neighbours as near as most labeled images have theirs."""
    from sklearn.cluster import DBSCAN

    if len(rows) < fewest:
        return []
    distance = np.clip(1.0 - features[rows].astype(np.float32) @ features[rows].astype(np.float32).T, 0.0, 2.0)
    numbers = DBSCAN(eps=max(1.0 - alike, 1e-6), min_samples=fewest, metric="precomputed").fit(distance).labels_
    groups = [_group(features, rows[numbers == number]) for number in range(numbers.max() + 1)]
    return sorted(groups, key=lambda group: (-len(group), group.rows))


def _group(features: Floats, rows: Ints) -> StrangerGroup:
    members = features[rows].astype(np.float32)
    middle = members.mean(axis=0)
    closeness = members @ (middle / max(float(np.linalg.norm(middle)), 1e-12))
    order = np.argsort(-closeness, kind="stable")
    return StrangerGroup(tuple(rows[order].tolist()), float(closeness.mean()))


def describe_strangers(groups: Sequence[StrangerGroup]) -> list[str]:
    """Say for each group what it may be."""
    return [f"{len(group):,} images look alike and like nothing you named: a new class?" for group in groups]
