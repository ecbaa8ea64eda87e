"""Cover the pool: images that stand for many others which no labeled image stands for yet. No labels are needed.

The pool is seen through two samples: the images to cover and those that may be picked. So cost and memory are bounded, however
large the pool is. Below: the space in which images are compared, and how far a young model can be trusted there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.special import softmax

from mma.query.candidates import Candidates, Floats, Ints, Labeled, Picks
from mma.query.uncertainty import diff2

TARGETS = 20_000  # images to cover
CHOICE = 4_000  # images that may be picked, at least; twice as many as asked for where that is more
CELLS = 80_000_000  # entries of the matrix of similarities: 320 MB
RADIUS = 1.0  # of the kernel, on vectors of length one. Paper: sigma = 1 for MaxHerding
SMALLEST = 0.1  # radius
MEASURED = 2_000  # labeled images whose distance to the next one is measured
LOOK = 64  # gains computed at a time
SURE = 1e-6  # share of all uncertainty; a pick that covers less covers none, but for rounding


@dataclass(frozen=True, eq=False)
class PoolSample:
    """A sample of the pool as coverage sees it."""

    targets: Ints  # (T,) rows of the candidates
    choice: Ints  # (M,) rows that may be picked
    target_points: Floats  # (T, d)
    choice_points: Floats  # (M, d)
    labeled_points: Floats  # (L, d)


def sample_pool(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> PoolSample:
    """Draw the images to cover and those that may be picked, and map them."""
    features = candidates.embeddings
    choice = draw_rows(len(candidates), max(CHOICE, 2 * n), rng)
    targets = draw_rows(len(candidates), min(TARGETS, max(CELLS // max(len(choice), 1), 1)), rng)
    space = space_of(features[targets], rng)
    shown = features[targets], features[choice], labeled.features_like(features)
    return PoolSample(targets, choice, *map(space, shown))


def herding(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
    """Pick the images that bring most of the pool close to a labeled one (MaxHerding, arXiv:2407.12212).

    Cost: the kernel between at most 4,000 (or 2 n) images and 20,000 others, then about 2 ms for each pick.
    """
    return cover(sample_pool(candidates, labeled, n, rng), n)


def uncertain_herding(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
    """Pick the images that bring most of the *uncertain* pool close to a labeled one (Uncertainty Herding, arXiv:2412.20644).

    Without probabilities, before there is a model, it is herding. Cost: that of herding, and the probabilities of at most
    20,000 images.
    """
    pool = sample_pool(candidates, labeled, n, rng)
    if candidates.probs is None:
        return cover(pool, n)
    # Paper: the temperature of least calibration error. Differs: no labels are held out, so each is left out in turn.
    accuracy = left_out_accuracy(pool.labeled_points, labeled.classes, pool.target_points, rng)
    return cover_uncertain(pool, candidates.probs[pool.targets], accuracy, n)


def cover(pool: PoolSample, n: int) -> Picks:
    """Pick what covers the pool."""
    covered = coverage_by(pool.labeled_points, pool.target_points, RADIUS)
    picked, gains = greedy(similarity(pool.choice_points, pool.target_points, RADIUS), covered, None, n)
    before, more = float(covered.mean()), float(gains.sum())
    why = f"the pool's mean similarity to the nearest labeled image rises from {before:.3f} to {before + more:.3f}"
    return Picks(pool.choice[picked], gains, why)


def cover_uncertain(pool: PoolSample, probs: Floats, accuracy: float, n: int) -> Picks:
    """Pick what covers the images that the model is unsure about; `probs` are those of the targets.

    A young model's probabilities are tempered until their confidence is the accuracy that the labels show, so that without
    trust it is herding. The radius follows the distance between labeled images, so that with many labels it is
    uncertainty sampling without duplicates.
    """
    weights = diff2(tempered(probs, accuracy))
    weights = (weights / max(float(weights.sum()), 1e-30)).astype(np.float32)
    radius = radius_of(pool.labeled_points)
    covered = coverage_by(pool.labeled_points, pool.target_points, radius)
    kernel = similarity(pool.choice_points, pool.target_points, radius)
    picked, gains = greedy(kernel, covered, weights, n)
    why = f"{left_out(accuracy)}; unsure images that lie closer than about {radius:.2f} count as one"
    unsure = int(np.count_nonzero(gains > SURE))
    if unsure < n:
        # Fill up with what covers the pool, at a gain of zero: without it, copies would be as good as any image.
        picked, gains = picked[:unsure], gains[:unsure]
        covered = np.maximum(covered, kernel[picked].max(axis=0, initial=0))
        others, _ = greedy(kernel, covered, None, n - unsure, taken=picked)
        picked, gains = np.concatenate([picked, others]), np.concatenate([gains, np.zeros(len(others))])
        why += f"; the model is sure of all others, so that {n - unsure} picks cover the pool"
    return Picks(pool.choice[picked], gains, why)


def left_out(accuracy: float) -> str:
    """Say how well labels that are left out are predicted."""
    return f"labels that the other labels predict right stand for {accuracy:.0%} of the pool"


def radius_of(points: Floats) -> float:
    """Return the median distance of a labeled image to the next one, at most RADIUS."""
    # Paper: the smallest distance. Differs: the median, because one pair of near-duplicates would make the radius zero.
    if len(points) < 2:
        return RADIUS
    some = points[:MEASURED]
    products = some @ points.T
    products[np.arange(len(some)), np.arange(len(some))] = -np.inf
    distances = np.sqrt(np.maximum(2 - 2 * products.max(axis=1), 0))
    return float(np.clip(np.median(distances), SMALLEST, RADIUS))


def similarity(points: Floats, targets: Floats, radius: float) -> Floats:
    """Return the Gaussian kernel exp(-|a - b|^2 / radius^2) between rows, (A, B) float32."""
    squares = np.einsum("nd,nd->n", points, points)[:, None] + np.einsum("nd,nd->n", targets, targets)
    kernel: Floats = points @ targets.T
    kernel *= -2
    kernel += squares
    np.maximum(kernel, 0, out=kernel)
    kernel /= -(np.float32(radius) ** 2)
    return np.exp(kernel, out=kernel)


def coverage_by(points: Floats, targets: Floats, radius: float) -> Floats:
    """Return how close each target is to the nearest of the points, (B,): 1 = the same, 0 = far from all, or no points."""
    covered = np.zeros(len(targets), np.float32)
    rows = max(CELLS // 8 // max(len(targets), 1), 1)
    for start in range(0, len(points), rows):
        np.maximum(covered, similarity(points[start : start + rows], targets, radius).max(axis=0), out=covered)
    return covered


def greedy(
    kernel: Floats, covered: Floats, weights: Floats | None, n: int, *, taken: Ints | Sequence[int] = ()
) -> tuple[Ints, Floats]:
    """Return n rows of the kernel (M, T), each the one that adds most coverage to those before it, and what each adds.

    What a row adds only falls as others are picked, so that old gains are upper bounds: few rows are computed again for a pick
    (lazy greedy; the picks are those of the plain one).
    """
    weight = np.full(len(covered), 1 / max(len(covered), 1), np.float32) if weights is None else weights
    covered = covered.copy()
    bounds = gains_of(kernel, np.arange(len(kernel)), covered, weight)
    bounds[np.asarray(taken, np.int64)] = -1.0  # picked before
    picked, gains = np.empty(n, np.int64), np.empty(n)
    for place in range(n):
        order = np.argsort(-bounds, kind="stable")
        best, gain, begin, length = int(order[0]), -1.0, 0, LOOK
        while begin < len(order) and gain < bounds[order[begin]]:
            rows = order[begin : begin + length]
            rows = rows[bounds[rows] >= 0]
            if not len(rows):
                break
            bounds[rows] = gains_of(kernel, rows, covered, weight)
            if bounds[rows].max() > gain:
                best = int(rows[np.argmax(bounds[rows])])
                gain = float(bounds[best])
            begin, length = begin + length, 2 * length
        picked[place], gains[place] = best, max(gain, 0.0)
        np.maximum(covered, kernel[best], out=covered)
        bounds[best] = -1.0  # never again
    return picked, np.minimum.accumulate(gains)  # rounding may raise a gain in its last digit


def gains_of(kernel: Floats, rows: Ints, covered: Floats, weight: Floats) -> Floats:
    """Return how much weighted coverage each row would add."""
    parts = [np.maximum(kernel[rows[i : i + LOOK]] - covered, 0) @ weight for i in range(0, len(rows), LOOK)]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


# Where images lie: embeddings centred on the pool, along their strongest directions, scaled to length one.

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
        blocks = []
        for start in range(0, max(len(features), 1), BLOCK):
            moved = features[start : start + BLOCK].astype(np.float32) / np.float32(self.scale) - self.mean
            moved = moved if self.directions is None else moved @ self.directions
            norms = np.sqrt(np.einsum("nd,nd->n", moved, moved))[:, None]
            blocks.append(np.divide(moved, norms, out=np.zeros_like(moved), where=norms > 1e-6))
        return np.concatenate(blocks)


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


# How far a young model can be trusted: estimated from the labels, by leaving each of them out.

LEFT_OUT = 1_500  # labels that take part; more change the estimate by less than a point
PENALTY = 0.1  # of the ridge regression, on vectors of length one


def left_out_accuracy(points: Floats, labels: Ints, targets: Floats, rng: Generator) -> float:
    """Return the share of the pool whose nearest label is predicted right by all the other labels; 0 below two classes.

    A label counts by the targets it is nearest to. So a few labels that stand for half of the pool decide half of the
    estimate, however many labels lie elsewhere. Labels of -1 are left aside. Labels of one class predict each other right, and
    say nothing about the other classes. Cost: a matrix of at most 1,500 x 1,500 is inverted, and the labels are compared with
    each target.
    """
    known = np.flatnonzero(labels >= 0)
    known = np.sort(known[draw_rows(len(known), LEFT_OUT, rng)])
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
        sure = softmax(logs / np.exp(middle), axis=1).max(axis=1).mean()
        low, high = (middle, high) if sure > accuracy else (low, middle)
    return np.asarray(softmax(logs / np.exp(high), axis=1))
