"""Logistic regression on a few labels: where a head starts, what it uses and how sure it may be, by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

FOLDS = 5  # of the cross-validation, at most
FEWEST = 20  # labels of classes with two or more, below which nothing is compared
ENOUGH = 120  # and below which penalty, scale and temperature are not looked for: it would be noise (results/heads)
TESTED = 1_000  # labels that are predicted in a comparison: of more labels some folds say enough
PENALTIES = (1e-5, 1e-4, 1e-3)  # L2 weights, per label; the first one while there are few labels
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

    where: slice  # the numbers to use
    parts: list[int]
    accuracies: dict[str, float]  # cross-validated, in percent: of each part by its number, and of all
    why: str


@dataclass(frozen=True)
class LeftOut:
    """Labels, and what models say about them that were fitted without them."""

    logits: np.ndarray  # (N, classes)
    labels: np.ndarray  # (N,)

    @property
    def accuracy(self) -> float:
        """The share they get right, in percent."""
        return round(100 * float((self.logits.argmax(1) == self.labels).mean()), 2)

    @cached_property
    def temperature(self) -> float:
        """What the logits are divided by to make the labels most likely."""
        return find_temperature(self.logits, self.labels)

    @property
    def log_loss(self) -> float:
        """The mean negative log-likelihood of the labels, at that temperature."""
        return round(-float(log_likelihoods(self.logits / self.temperature, self.labels).mean()), 4)


@dataclass
class CrossValidation:
    """Features and labels to compare by, without classes that have a single label. Nothing is fitted twice."""

    x: np.ndarray
    y: np.ndarray
    known: dict[tuple[int, int, float], LeftOut] = field(default_factory=dict)

    def __post_init__(self) -> None:
        several = with_two_labels(self.y)
        self.x, self.y = self.x[several], self.y[several]

    def __len__(self) -> int:
        """The number of labels; none if they cannot be compared by, because they are all of one class."""
        return len(self.y) if len(np.unique(self.y)) > 1 else 0

    def left_out(self, part: slice, penalty: float) -> LeftOut:
        """Return what a part of the features says about labels that were left out."""
        first, last, _ = part.indices(self.x.shape[1])
        key = first, last, penalty
        if key not in self.known:
            self.known[key] = cross_validate(self.x[:, part], self.y, penalty)
        return self.known[key]


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


def choose_penalty(labels: CrossValidation) -> tuple[float, dict[str, float]]:
    """Return the penalty that makes left-out labels most likely, of equals the weakest; and the log-loss with each.

    Where classes overlap, a weak penalty overfits the hard images that queries ask for. Accuracy would choose by the few labels
    that it counts differently; the log-loss looks at all of them.
    """
    if len(labels) < ENOUGH:
        return PENALTIES[0], {}
    found = {penalty: labels.left_out(slice(None), penalty).log_loss for penalty in PENALTIES}
    best = min(PENALTIES, key=lambda penalty: (found[penalty], penalty))
    return best, {f"{penalty:g}": log_loss for penalty, log_loss in found.items()}


def choose_parts(labels: CrossValidation, parts: Sequence[int], penalty: float) -> Chosen:
    """Compare each part of the features, and all together.

    All parts are used while there are fewer than FEWEST labels, and unless one part alone is better.
    """
    if len(labels) < FEWEST:
        return everything(parts, {}, f"fewer than {FEWEST} labels to compare by")
    slices = {str(number): part for number, part in enumerate(part_slices(parts))} if len(parts) > 1 else {}
    slices["all" if slices else "0"] = slice(None)
    percent = {name: labels.left_out(part, penalty).accuracy for name, part in slices.items()}
    best = max(slices, key=lambda name: (percent[name], name == "all"))
    if len(parts) == 1:
        return everything(parts, percent, "the only one")
    if best == "all":
        return everything(parts, percent, "none of them alone is better on the labels, cross-validated")
    return Chosen(slices[best], [int(best)], percent, "alone it is better on the labels, cross-validated")


def choose_scale(labels: CrossValidation, part: slice, penalty: float) -> float:
    """Return what to multiply weights and biases by so that left-out labels become most likely.

    A strong penalty makes a model less sure than it may be, and MixMatch then guesses worse.
    """
    if len(labels) < ENOUGH:
        return 1.0
    return round(1.0 / labels.left_out(part, penalty).temperature, 4)


def everything(parts: Sequence[int], accuracies: dict[str, float], why: str) -> Chosen:
    """Choose all parts."""
    return Chosen(slice(None), list(range(len(parts))), accuracies, why)


def part_slices(parts: Sequence[int]) -> list[slice]:
    """Return where each part lies among all numbers."""
    return [slice(end - length, end) for end, length in zip(np.cumsum(parts).tolist(), parts, strict=True)]


def with_two_labels(y: np.ndarray) -> np.ndarray:
    """Mark the labels of classes that have two at least: others cannot be held out and learned."""  # (N,)
    present, counts = np.unique(y, return_counts=True)
    return np.isin(y, present[counts >= 2])


def cross_validate(x: np.ndarray, y: np.ndarray, penalty: float) -> LeftOut:
    """Predict labels by models fitted on the others; the folds depend on the labels alone."""
    classes = int(y.max()) + 1
    fold = deal(y, min(FOLDS, int(np.unique(y, return_counts=True)[1].min())))
    tested, logits = np.zeros(len(y), bool), np.empty((len(y), classes), np.float32)
    for number in np.unique(fold):
        test = fold == number
        weight, bias = fit_logistic(x[~test], y[~test], classes, penalty)
        logits[test], tested[test] = x[test] @ weight.T + bias, True
        if tested.sum() >= TESTED:
            break
    return LeftOut(logits[tested], y[tested])


def deal(y: np.ndarray, folds: int) -> np.ndarray:
    """Return the fold of each label: as many of each class in every fold, as far as they go. (N,)"""
    fold = np.empty(len(y), np.int64)
    fold[np.argsort(y, kind="stable")] = np.arange(len(y)) % folds  # neighbours in this order have the same class
    return fold


def find_temperature(logits: np.ndarray, y: np.ndarray) -> float:
    """Return what to divide logits by so that held-out labels become most likely; near 1 while there are few labels.

    A golden-section search over its logarithm.
    """

    def unlikely(log: float) -> float:
        return float(PRIOR * log * log / 2 - log_likelihoods(logits * np.exp(-log), y).sum())

    low, high = -WIDEST, WIDEST
    while high - low > 1e-4:
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if unlikely(left) <= unlikely(right) else (left, high)
    return round(float(np.exp((low + high) / 2)), 4)


def log_likelihoods(logits: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the logarithm of the probability that logits give to each label. (N,)"""
    wide = logits.astype(np.float64)
    wide -= wide.max(1, keepdims=True)
    found: np.ndarray = wide[np.arange(len(y)), y] - np.log(np.exp(wide).sum(1))
    return found
