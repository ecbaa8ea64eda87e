"""Queries of your own: an uncertainty measure, a way to pick, and a whole strategy. Plain numpy.

mma --use docs/examples/own_query.py train digits --set query=gini.aug-spread
mma --use docs/examples/own_query.py train digits --set query=far-unsure
"""

import numpy as np

from mma.query import DIVERSITY, STRATEGIES, UNCERTAINTY, Candidates, Diversity, Labeled, Picks, Strategy

POOL = 10  # candidates per image that is picked


def gini(probs: np.ndarray) -> np.ndarray:
    """Return the chance that two draws from the prediction differ. Larger = less sure, 0 = certain."""
    return 1.0 - np.square(probs).sum(axis=1)  # (N, classes) -> (N,)


def spread(scores: np.ndarray, features: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Pick n different rows: of the most uncertain ones, each time the one farthest from those picked before."""
    order = rng.permutation(len(scores))  # ties are broken at random, and by `rng` alone
    best = order[np.argsort(-scores[order], kind="stable")][: POOL * n]
    picked: list[int] = []
    distance = np.full(len(best), np.inf)
    for _ in range(n):
        place = int(distance.argmax())
        picked.append(int(best[place]))
        distance = np.minimum(distance, np.linalg.norm(features[best] - features[best[place]], axis=1))
        distance[np.isin(best, picked)] = -1.0
    return np.array(picked, dtype=np.int64)


def far_unsure(candidates: Candidates, labeled: Labeled, n: int, rng: np.random.Generator) -> Picks:
    """Pick unsure images that lie far from every labeled one: a strategy sees all candidates and the labeled images."""
    scores = gini(candidates.probabilities)
    known = labeled.features_like(candidates.embeddings)  # (L, D)
    if len(known):
        nearest = [np.linalg.norm(known - row, axis=1).min() for row in candidates.embeddings]  # (N,)
        scores = scores * np.array(nearest)
    rows = np.argsort(-scores, kind="stable")[:n]
    return Picks(rows, scores[rows], why="unsure, and unlike what has a label")


UNCERTAINTY["gini"] = gini
DIVERSITY["spread"] = Diversity(pick=spread, needs_features=True)
STRATEGIES["far-unsure"] = Strategy(far_unsure, needs_probs=True)  # needs_features and needs_labeled are the default
