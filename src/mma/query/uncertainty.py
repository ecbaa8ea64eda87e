"""Uncertainty of predictions: (N, classes) -> (N,), larger = less sure, 0 = certain.

A new measure is one function and one entry in UNCERTAINTY, here or from your own code. `Query.parse` and the contract suite
find it at once:

    UNCERTAINTY["second"] = lambda probs: np.sort(probs, axis=1)[:, -2]
    Query.parse("second.aug-kmeans")
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mma.query.candidates import Floats


def max_(probs: Floats) -> Floats:
    """Return 1 - the largest probability."""
    # Original: keeps confidences (smaller = less sure). Differs: larger = less sure, as the paper writes s(x).
    scores: Floats = np.maximum(1 - probs.max(axis=1), 0)  # rounding may leave a probability just above 1
    return scores


def diff2(probs: Floats) -> Floats:
    """Return 1 - the gap between the two largest probabilities; 0 with a single class."""
    if probs.shape[1] == 1:
        return max_(probs)
    top = np.partition(probs, -2, axis=1)[:, -2:]  # (N, 2), ascending
    return np.maximum(1 - (top[:, 1] - top[:, 0]), 0)


def entropy(probs: Floats) -> Floats:
    """Return -sum p log p in nats."""
    # p log p goes to 0 as p does, but 0 * log(0) is NaN: the most certain images could become the first asked about.
    logs = np.log(probs, where=probs > 0, out=np.zeros_like(probs))
    scores: Floats = np.maximum(-np.einsum("nc,nc->n", probs, logs), 0) + 0.0  # + 0.0 turns -0.0 into 0.0
    return scores


UNCERTAINTY: dict[str, Callable[[Floats], Floats]] = {"max": max_, "diff2": diff2, "entropy": entropy}
