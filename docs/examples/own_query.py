"""Queries of your own: an uncertainty measure and a way to pick. Plain numpy.

mma --use docs/examples/own_query.py train digits --set query=gini.aug-spread
"""

import numpy as np

from mma.query import DIVERSITY, UNCERTAINTY, Diversity

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


UNCERTAINTY["gini"] = gini
DIVERSITY["spread"] = Diversity(pick=spread, needs_features=True)
