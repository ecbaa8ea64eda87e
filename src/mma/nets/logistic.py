"""Logistic regression on a few labels: where a head starts, which parts of the features it uses, how sure it may be."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

FOLDS = 5  # of the cross-validation, at most
FEWEST = 20  # labels of classes with two or more, below which nothing is compared
WIDEST = 1.5  # log of the largest temperature; its negative is that of the smallest
PRIOR = 20.0  # how strongly a temperature is held at 1: that many times log(temperature)^2 / 2, against the sum over the labels
GOLDEN = (5**0.5 - 1) / 2


@cache
def thread_pools() -> ThreadpoolController:
    """Return the thread pools of this process's numerical libraries: finding them takes longer than a fit."""
    import sklearn.linear_model  # noqa: F401 (it loads them)

    return ThreadpoolController()


@dataclass(frozen=True)
class Chosen:
    """What the labels say about the features, and what that rests on."""

    gate: np.ndarray  # (D,) 1 for the numbers to use, 0 for the others
    parts: list[int]
    accuracies: dict[str, float]  # cross-validated, in percent: of each part by its number, and of all
    why: str


def fit_logistic(x: np.ndarray, y: np.ndarray, classes: int, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Fit an L2-regularised logistic regression. A class without a label gets no weight and a low bias."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    present = np.unique(y)
    weight, bias = np.zeros((classes, x.shape[1]), np.float32), np.zeros(classes, np.float32)
    bias[np.setdiff1d(np.arange(classes), present)] = -np.log(len(y) + 1.0)
    if len(present) < 2:
        return weight, bias
    model = LogisticRegression(C=1.0 / (penalty * len(y)), max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)  # more classes than half the labels: so it is at the beginning
        model.fit(x, y)
    coefficients, offsets = model.coef_, model.intercept_
    if len(present) == 2:  # one row for two classes
        coefficients, offsets = np.concatenate([-coefficients, coefficients]) / 2, np.array([-1, 1]) * offsets / 2
    weight[present], bias[present] = coefficients, offsets - offsets.mean()
    return weight, bias


def choose_parts(x: np.ndarray, y: np.ndarray, parts: Sequence[int], penalty: float) -> Chosen:
    """Compare each part of the features, and all together, by cross-validation on the labels.

    Classes with a single label are left out. All parts are used while fewer than FEWEST labels are left, and unless one
    part alone is better.
    """
    several = with_two_labels(y)
    if several.sum() < FEWEST or len(np.unique(y[several])) < 2:
        return everything(parts, {}, f"fewer than {FEWEST} labels to compare by")
    x, y = x[several], y[several]
    slices = {str(number): part for number, part in enumerate(part_slices(parts))}
    if len(parts) > 1:
        slices["all"] = slice(0, sum(parts))
    held_out = {name: cross_validate(x[:, part], y, penalty) for name, part in slices.items()}
    right = {name: float((logits.argmax(1) == y).mean()) for name, logits in held_out.items()}
    percent = {name: round(100 * share, 2) for name, share in right.items()}
    best = max(slices, key=lambda name: (right[name], name == "all"))
    if best == "all":
        return everything(parts, percent, "none of them alone is better on the labels, cross-validated")
    if len(parts) == 1:
        return everything(parts, percent, "the only one")
    gate = np.zeros(sum(parts), np.float32)
    gate[slices[best]] = 1.0
    return Chosen(gate, [int(best)], percent, "alone it is better on the labels, cross-validated")


def everything(parts: Sequence[int], accuracies: dict[str, float], why: str) -> Chosen:
    """Choose all parts."""
    return Chosen(np.ones(sum(parts), np.float32), list(range(len(parts))), accuracies, why)


def part_slices(parts: Sequence[int]) -> list[slice]:
    """Return where each part lies among all numbers."""
    return [slice(end - length, end) for end, length in zip(np.cumsum(parts).tolist(), parts, strict=True)]


def with_two_labels(y: np.ndarray) -> np.ndarray:
    """Mark the labels of classes that have two at least: others cannot be held out and learned."""  # (N,)
    present, counts = np.unique(y, return_counts=True)
    return np.isin(y, present[counts >= 2])


def cross_validate(x: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
    """Return the logits of each label from a model fitted on the others; the folds depend on the labels alone. (N, classes)"""
    classes = int(y.max()) + 1
    fold = deal(y, min(FOLDS, int(np.unique(y, return_counts=True)[1].min())))
    logits = np.empty((len(y), classes), np.float32)
    for number in np.unique(fold):
        test = fold == number
        weight, bias = fit_logistic(x[~test], y[~test], classes, penalty)
        logits[test] = x[test] @ weight.T + bias
    return logits


def deal(y: np.ndarray, folds: int) -> np.ndarray:
    """Return the fold of each label: as many of each class in every fold, as far as they go. (N,)"""
    fold = np.empty(len(y), np.int64)
    fold[np.argsort(y, kind="stable")] = np.arange(len(y)) % folds  # neighbours in this order have the same class
    return fold


def find_temperature(logits: np.ndarray, y: np.ndarray) -> float:
    """Return what to divide logits by so that held-out labels become most likely; near 1 while there are few labels.

    A golden-section search over its logarithm.
    """
    wide, rows = logits.astype(np.float64), np.arange(len(y))

    def unlikely(log: float) -> float:
        scaled = wide * np.exp(-log)
        scaled -= scaled.max(1, keepdims=True)
        likelihood = scaled[rows, y] - np.log(np.exp(scaled).sum(1))
        return float(PRIOR * log * log / 2 - likelihood.sum())

    low, high = -WIDEST, WIDEST
    while high - low > 1e-4:
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if unlikely(left) <= unlikely(right) else (left, high)
    return round(float(np.exp((low + high) / 2)), 4)
