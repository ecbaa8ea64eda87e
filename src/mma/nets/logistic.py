"""Logistic regression on a few labels: where a head starts, and how parts of the features are compared."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FOLDS = 5  # of the cross-validation, at most
FEWEST = 20  # labels of classes with two or more, below which nothing is compared


@dataclass(frozen=True)
class Chosen:
    """The parts of joined features to use, and what that rests on."""

    gate: np.ndarray  # (D,) ones and zeros
    parts: list[int]
    accuracies: dict[str, float]  # cross-validated, in percent: of each part by its number, and of all
    why: str


def fit_logistic(x: np.ndarray, y: np.ndarray, classes: int, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Fit an L2-regularised logistic regression. A class without a label gets no weight and a low bias."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    present = np.unique(y)
    weight, bias = np.zeros((classes, x.shape[1]), np.float32), np.zeros(classes, np.float32)
    bias[np.setdiff1d(np.arange(classes), present)] = -np.log(len(y) + 1.0)
    if len(present) < 2:
        return weight, bias
    model = LogisticRegression(C=1.0 / (penalty * len(y)), max_iter=200)
    with threadpool_limits(1), warnings.catch_warnings():  # one thread: the same numbers on every machine
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    coefficients, offsets = model.coef_, model.intercept_
    if len(present) == 2:  # one row for two classes
        coefficients, offsets = np.concatenate([-coefficients, coefficients]) / 2, np.array([-1, 1]) * offsets / 2
    weight[present], bias[present] = coefficients, offsets - offsets.mean()
    return weight, bias


def choose_parts(x: np.ndarray, y: np.ndarray, parts: Sequence[int], penalty: float) -> Chosen | None:
    """Compare each part of the features, and all together, by cross-validation on the labels.

    None when there is one part. Classes with a single label are left out. All parts are used while fewer than FEWEST labels
    are left, and unless one part alone is better.
    """
    if len(parts) < 2:
        return None
    ends = np.cumsum(parts)
    slices = [slice(end - length, end) for end, length in zip(ends, parts, strict=True)]
    everything = Chosen(np.ones(sum(parts), np.float32), list(range(len(parts))), {}, "")
    present, counts = np.unique(y, return_counts=True)
    several = np.isin(y, present[counts >= 2])
    x, y = x[several], y[several]
    if len(np.unique(y)) < 2 or len(y) < FEWEST:
        why = f"fewer than {FEWEST} labels to compare them by"
        return Chosen(everything.gate, everything.parts, {}, why)
    found = {str(number): cross_validate(x[:, part], y, penalty) for number, part in enumerate(slices)}
    found["all"] = cross_validate(x, y, penalty)
    best = max(range(len(parts)), key=lambda number: found[str(number)])
    percent = {name: round(100 * value, 2) for name, value in found.items()}
    if found[str(best)] <= found["all"]:
        return Chosen(
            everything.gate, everything.parts, percent, "none of them alone is better on the labels, cross-validated"
        )
    gate = np.zeros(sum(parts), np.float32)
    gate[slices[best]] = 1.0
    return Chosen(gate, [best], percent, "alone it is better on the labels, cross-validated")


def cross_validate(x: np.ndarray, y: np.ndarray, penalty: float) -> float:
    """Return the share of labels that a model fitted on the others gets right; the folds depend on the labels alone."""
    classes = int(y.max()) + 1
    folds = min(FOLDS, int(np.unique(y, return_counts=True)[1].min()))
    order = np.argsort(y, kind="stable")
    fold = np.empty(len(y), np.int64)
    fold[order] = (
        np.arange(len(y)) % folds
    )  # neighbours in the order have the same class: every fold has its part of each
    right = 0
    for number in range(folds):
        test = fold == number
        weight, bias = fit_logistic(x[~test], y[~test], classes, penalty)
        right += int(((x[test] @ weight.T + bias).argmax(1) == y[test]).sum())
    return right / len(y)
