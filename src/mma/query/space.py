"""Where images lie: embeddings centred on the pool, along their strongest directions, scaled to length one.

And how far a young model can be trusted there: estimated from the labels, by leaving each of them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from mma.query.candidates import Floats, Ints

WIDE = 512  # numbers per embedding above which only the strongest directions are kept
KEPT = 256  # directions kept then
BASIS = 4_000  # rows that the directions are found on
BLOCK = 8_192  # rows worked on at a time


@dataclass(frozen=True, eq=False)
class Space:
    """Maps embeddings to vectors of length one, so that a distance means the same for every network and backbone."""

    scale: float  # the largest entry, so that no square overflows
    mean: Floats  # (D,) of the pool, after scaling
    directions: Floats | None  # (D, KEPT); None = all are kept

    def __call__(self, features: Floats) -> Floats:
        """Return unit vectors (N, d) float32; a row at the pool's mean stays zero."""
        blocks = [self._unit(features[start : start + BLOCK]) for start in range(0, len(features), BLOCK)]
        width = len(self.mean) if self.directions is None else self.directions.shape[1]
        return np.concatenate(blocks) if blocks else np.zeros((0, width), np.float32)

    def _unit(self, rows: Floats) -> Floats:
        moved = rows.astype(np.float32) / np.float32(self.scale) - self.mean
        if self.directions is not None:
            moved = moved @ self.directions
        norms = np.sqrt(np.einsum("nd,nd->n", moved, moved))[:, None]
        unit: Floats = np.divide(moved, norms, out=np.zeros_like(moved), where=norms > 1e-6)
        return unit


def space_of(features: Floats, rng: Generator) -> Space:
    """Find centre and directions on (N, D) rows of the pool: a sample of it will do."""
    scale = float(max(features.max(initial=0.0), -features.min(initial=0.0))) or 1.0
    points = features.astype(np.float32) / np.float32(scale)
    mean = points.mean(axis=0, dtype=np.float64).astype(np.float32) if len(points) else np.zeros(points.shape[1:])
    if points.shape[1] <= WIDE:
        return Space(scale, mean, None)
    return Space(scale, mean, strongest_directions(points[:BASIS] - mean, rng))


def strongest_directions(points: Floats, rng: Generator) -> Floats:
    """Return the KEPT directions along which centred points differ most, (D, KEPT), by a randomized SVD (arXiv:0909.4061)."""
    kept = min(KEPT, *points.shape)
    sketch = rng.standard_normal((points.shape[1], kept + 16), dtype=np.float32)
    for _ in range(2):  # two power iterations: the strong directions stand out of the weak ones
        sketch, _ = np.linalg.qr(points.T @ (points @ sketch))
    _, _, right = np.linalg.svd(points @ sketch, full_matrices=False)
    directions: Floats = (sketch @ right.T)[:, :kept]
    return directions


def draw_rows(count: int, most: int, rng: Generator) -> Ints:
    """Return at most `most` of `count` rows, shuffled: what is tied is then not taken in the order of the rows."""
    if count <= most:
        return rng.permutation(count)
    return rng.choice(count, most, replace=False)


MOST = 1_500  # labels that take part; more change the estimate by less than a point
PENALTY = 0.1  # of the ridge regression, on vectors of length one


def left_out_accuracy(points: Floats, labels: Ints, targets: Floats, rng: Generator) -> float:
    """Return the share of the pool whose nearest label is predicted right by all the other labels; 0 below two classes.

    A label counts by the targets it is nearest to. So a few labels that stand for half of the pool decide half of the
    estimate, however many labels lie elsewhere. Labels of -1 are left aside. Labels of one class predict each other right, and
    say nothing about the other classes. Cost: a matrix of at most 1,500 x 1,500 is
    inverted, and the labels are compared with each target.
    """
    known = np.flatnonzero(labels >= 0)
    known = np.sort(known[draw_rows(len(known), MOST, rng)])
    if len(np.unique(labels[known])) < 2:
        return 0.0
    right = predicted_by_others(points[known], labels[known])
    shares = np.bincount(nearest(points[known], targets), minlength=len(known))
    return float(right @ shares / shares.sum()) if shares.any() else float(right.mean())


def predicted_by_others(points: Floats, labels: Ints) -> Ints:
    """Return 1 for each label that a ridge regression on all the others gets right, else 0. (L,)

    Exact without fitting again: the answer for a label that is left out follows from the inverse of one matrix.
    """
    x = points.astype(np.float64)
    classes, number = np.unique(labels, return_inverse=True)
    y = np.eye(len(classes))[number]  # (L, classes)
    inverse = np.linalg.inv(x @ x.T + 1.0 + PENALTY * np.eye(len(x)))  # + 1 is the bias
    guesses = y - (inverse @ y) / np.diag(inverse)[:, None]
    right: Ints = (guesses.argmax(axis=1) == number).astype(np.int64)
    return right


def nearest(points: Floats, targets: Floats) -> Ints:
    """Return the row of the point that each target is nearest to. (T,)"""
    sizes = np.einsum("nd,nd->n", points, points) / 2
    blocks = (targets[start : start + BLOCK] for start in range(0, len(targets), BLOCK))
    return np.concatenate([np.zeros(0, np.int64), *((block @ points.T - sizes).argmax(axis=1) for block in blocks)])


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
