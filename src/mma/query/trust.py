"""How far a young model can be trusted: estimated from the labels alone, by leaving each of them out."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from mma.query.candidates import Floats, Ints
from mma.query.space import draw_rows

MOST = 1_500  # labels that take part; more change the estimate by less than a point
PENALTY = 0.1  # of the ridge regression, on vectors of length one


def left_out_accuracy(points: Floats, labels: Ints, rng: Generator) -> float:
    """Return the share of labels that a ridge regression on all the others gets right; 0 without labels.

    Exact without fitting again: the answer for a label that is left out follows from the inverse of one matrix. Labels of -1
    are left aside. Cost: a matrix of at most 1,500 x 1,500 is inverted.
    """
    known = np.flatnonzero(labels >= 0)
    known = np.sort(known[draw_rows(len(known), MOST, rng)])
    if len(known) < 2:
        return 0.0
    x, y = points[known].astype(np.float64), labels[known]
    classes, number = np.unique(y, return_inverse=True)
    targets = np.eye(len(classes))[number]  # (L, classes)
    inverse = np.linalg.inv(x @ x.T + 1.0 + PENALTY * np.eye(len(x)))  # + 1 is the bias
    guesses = targets - (inverse @ targets) / np.diag(inverse)[:, None]
    return float((guesses.argmax(axis=1) == number).mean())


def tempered(probs: Floats, accuracy: float) -> Floats:
    """Return probabilities whose mean confidence is the accuracy, by one temperature: a model that is too sure becomes less so.

    An accuracy below chance makes all classes equal.
    """
    logs = np.log(np.maximum(probs, 1e-30))
    low, high = np.log(0.05), np.log(100.0)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if softmax(logs / np.exp(middle)).max(axis=1).mean() > accuracy else (low, middle)
    return softmax(logs / np.exp(high))


def softmax(logits: Floats) -> Floats:
    """Return probabilities that are proportional to the exponentials."""
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs: Floats = raised / raised.sum(axis=1, keepdims=True)
    return probs
