"""Logistic regression on soft targets, and how guesses become a start: what each is worth is found from labels. No torch.

A source guesses, people label. Its confusion matrix tells what a guess means (Dawid and Skene, 1979); a regression on what all
guesses mean is the offset that labels then correct; how far the offset counts is what makes left-out labels most likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from mma.rng import rng

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Linear = tuple[NDArray[np.float32], NDArray[np.float32]]  # weight (C, D) and bias (C,)

STEPS = 40  # of L-BFGS
MOST = 2_500  # images that a regression on guesses looks at
TRUST = 4.0  # labels that the confidence of a source is worth
HELD = 3.0  # labels per class that hold a source to its accuracy over all
FOLDS = 5
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0)  # of the guesses, which left-out labels choose from
PENALTY = 1e-4  # of a regression on guesses
START, FEWEST = (
    0.02,
    20,
)  # of one on labels that starts from it: for all of them together, so that many correct it freely
MARGIN = 1.0  # what the log-likelihood must gain before guesses count


def stratified_folds(y: Ints, folds: int) -> Ints:
    """Return the fold of each label: as many of each class in every fold, as far as they go. (N,)"""
    fold = np.empty(len(y), np.int64)
    fold[np.argsort(y, kind="stable")] = np.arange(len(y)) % folds  # neighbours in this order have the same class
    return fold


def fit_soft(x: Floats, targets: Floats, penalty: float, offset: Any = 0.0) -> Linear:
    """Fit an L2-regularised logistic regression on soft targets (N, C); `offset` (N, C) is added to its logits."""
    (count, width), classes = x.shape, targets.shape[1]
    x, targets = x.astype(np.float32), targets.astype(np.float32)

    def loss(flat: Floats) -> tuple[float, Floats]:
        both = flat.reshape(classes, width + 1)
        weight = both[:, :width]
        logits = x @ weight.T.astype(np.float32) + both[:, width] + offset
        log = log_softmax(logits, axis=1)
        slope = (np.exp(log) * targets.sum(1, keepdims=True) - targets) / count
        gradient = np.column_stack([slope.T @ x + penalty * weight, slope.sum(0)])
        return float(-(targets * log).sum() / count + penalty / 2 * (weight**2).sum()), gradient.ravel()

    found = minimize(loss, np.zeros(classes * (width + 1)), jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    both = found.x.reshape(classes, width + 1).astype(np.float32)
    return both[:, :width], both[:, width]


def reliability(guesses: Floats, truth: Floats, weights: Floats) -> Floats:
    """Return how likely each class is where a source says each: rows what it says, columns what is true. (C, C)

    `guesses` and `truth` (n, C) are of the same images. While there are few, a source is as good for every class as it is over
    all, and over all nearly as good as it thinks.
    """
    classes = guesses.shape[1]
    counts = (guesses * weights[:, None]).T @ truth
    sure = float(guesses.max(1).mean()) if len(guesses) else 1.0
    right = (float(np.trace(counts)) + TRUST * sure) / (float(counts.sum()) + TRUST)
    counts = counts + HELD * (right * np.eye(classes) + (1 - right) / classes)
    return np.asarray(counts / counts.sum(1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Guesses:
    """What sources say about the images of a pool, and what is known about how good they are."""

    sources: Sequence[Floats]  # (N, C) each; a row of zeros where a source says nothing
    evidence: Floats | None = None  # (N,) how much the label of an image tells about the sources; None = 1 each
    doubts: Sequence[tuple[int, int]] = ()  # images of which people said that they are not of a class

    def meaning(self, rows: Ints, y: Ints) -> list[Floats]:
        """Return the reliability of each source, by labels `y` of some rows and by doubts."""
        classes = self.sources[0].shape[1]
        every, truth = np.concatenate([rows, [row for row, _ in self.doubts]]).astype(np.int64), np.eye(classes)[y]
        weights = np.ones(len(every))
        if self.evidence is not None:
            weights[: len(rows)] = self.evidence[rows]
        others = (1.0 - np.eye(classes)[[k for _, k in self.doubts]]) / max(classes - 1, 1)
        truth = np.concatenate([truth, others.reshape(-1, classes)])
        found = []
        for source in self.sources:
            mine = source[every].any(1)
            found.append(reliability(source[every[mine]], truth[mine], weights[mine]))
        return found

    def targets(self, meaning: Sequence[Floats]) -> Floats:
        """Return what all sources together mean, as soft targets; zeros where none says anything. (N, C)"""
        pairs = zip(self.sources, meaning, strict=True)
        log = np.sum([_log_meaning(source, known) for source, known in pairs], axis=0)
        found: Floats = softmax(log, axis=1)
        found[~np.any([source.any(1) for source in self.sources], axis=0)] = 0.0
        return found

    def start(self, x: Floats, rows: Ints, y: Ints, learn: Ints, trust: float | None = None) -> tuple[Linear, float]:
        """Fit a logistic regression on labels that starts from one on guesses, weighed by what left-out labels say.

        `x` are the features of the pool; `rows` of it are labeled with `y`, and guesses about the rows `learn` are learned.
        Returns weight and bias, and the weight of the guesses: 0 where they do not help, or `trust` if it is known.
        """
        hot, own = np.eye(self.sources[0].shape[1])[y], x[rows]
        best, penalty = self.find_trust(x, rows, y, learn) if trust is None else trust, START / max(len(y), FEWEST)
        if not best:
            return fit_soft(own, hot, penalty), 0.0
        guessed = fit_soft(*_some(x, self.targets(self.meaning(rows, y)), learn), PENALTY)
        weight, bias = fit_soft(own, hot, penalty, best * (own @ guessed[0].T + guessed[1]))
        return (weight + best * guessed[0], bias + best * guessed[1]), best

    def find_trust(self, x: Floats, rows: Ints, y: Ints, learn: Ints) -> float:
        """Return the weight of the guesses with which left-out labels are most likely, if as many are predicted right."""
        own, hot, fold = x[rows], np.eye(self.sources[0].shape[1])[y], stratified_folds(y, min(FOLDS, len(y)))
        heads = [fit_soft(*_some(x, source, learn), PENALTY) for source in self.sources]
        said = [softmax(own @ weight.T + bias, axis=1) for weight, bias in heads]  # as if of images without a guess
        penalty, gains, right = START / max(len(y), FEWEST), np.zeros(len(WEIGHTS)), np.zeros(len(WEIGHTS))
        for out in (fold == number for number in np.unique(fold)):
            pairs = zip(said, self.meaning(rows[~out], y[~out]), strict=True)
            offset = np.sum([_log_meaning(one, known) for one, known in pairs], axis=0)
            new = ~np.isin(y[out], y[~out])  # of a class without another label the labels can say nothing
            for place, share in enumerate(WEIGHTS):
                head = fit_soft(own[~out], hot[~out], penalty, share * offset[~out])
                logits = np.where(new[:, None], 0.0, own[out] @ head[0].T + head[1]) + share * offset[out]
                gains[place] += log_softmax(logits, axis=1)[np.arange(len(logits)), y[out]].sum()
                right[place] += (logits.argmax(1) == y[out]).sum()
        gains[1:] -= MARGIN
        gains[right < right[0]] = -np.inf
        return WEIGHTS[int(gains.argmax())]


def _log_meaning(guesses: Floats, meaning: Floats) -> Floats:
    """Return the logarithms of what guesses mean, centred; zeros for a row that says nothing."""
    log = np.log(np.maximum(guesses @ meaning, 1e-6))
    return np.asarray(log - log.mean(1, keepdims=True))


def _some(x: Floats, targets: Floats, learn: Ints) -> tuple[Floats, Floats]:
    """Return those of the rows that have a target; of very many a part, drawn at random."""
    rows = learn[targets[learn].any(1)]
    rows = np.sort(rng(0, "guesses").permutation(rows)[:MOST])
    return x[rows], targets[rows]
