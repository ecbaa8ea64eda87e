"""A head for stored features: one dense layer, or two. A round takes less than a second.

It starts from a logistic regression on the labels. Which features it uses and how sure it may be is found by cross-validation.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
from torch import Tensor, nn

from mma.nets.network import Dense, GroupedNetwork, Net, Shape
from mma.query.coverage import predicted_by_others
from mma.soft_targets import stratified_folds

FOLDS = 5  # of the cross-validation, at most
HEAD_START = 4  # labels that the part whose images lie closest is ahead by
ENOUGH = 120  # labels below which penalty, scale and temperature are not looked for: it would be noise (results/heads)
TESTED = 1_000  # labels that are predicted in a comparison, at most
PENALTIES = (1e-5, 1e-4, 1e-3)  # L2 weights, per label; the first one while there are few labels
WIDEST = 1.5  # log of the largest temperature; its negative is that of the smallest
PRIOR = 20.0  # holds a temperature at 1: that many times log(temperature)^2 / 2, against the sum over the labels


class Head(Net):
    """A dense layer on features, started from a logistic regression on the labels."""

    name: Literal["head"] = "head"
    takes: ClassVar[str] = "features"
    hidden: int = Field(default=0, ge=0)  # units of a hidden layer; 0 = none
    start: Literal["logistic", "zero"] = "logistic"  # a hidden layer always starts at random
    penalty: float | None = Field(default=None, gt=0.0)  # its L2 weight, per label; None = the labels choose
    scale: float | None = Field(default=None, gt=0.0)  # of its weights; None = as sure as left-out labels allow
    choose: bool = True  # which parts of joined features to use: those that predict left-out labels best
    shares: tuple[float, ...] | None = None  # of each class in the pool; None = estimated (see `estimate_shares`)
    folds: int = Field(default=3, ge=0)  # heads trained without a part of the labels, to find the temperature; 0 = none

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return the head for feature vectors whose parts have these lengths."""
        return HeadNet(shape, classes, self.hidden)

    def reset(self, module: nn.Module, rng: np.random.Generator) -> None:
        """Draw a hidden layer, set the last one to zero: it says nothing before it has learned anything."""
        super().reset(module, rng)
        assert isinstance(module, HeadNet)
        module.gate.fill_(1.0)
        module.head.temperature.fill_(1.0)
        if not self.hidden:
            nn.init.zeros_(module.head.weight)

    def start_from(self, module: nn.Module, x: Tensor, y: Tensor, closest: int | None = None) -> dict[str, Any]:
        """Choose what tells left-out labels apart best, and start from a logistic regression with that.

        `closest` is the part to prefer before labels can compare them (see `VectorViews.closest`); None is no part.
        """
        assert isinstance(module, HeadNet)
        labels = CrossValidation(x.cpu().numpy(), y.cpu().numpy())
        use = ChosenParts(list(range(len(module.parts))), {}, "nothing was compared: net.choose=false")
        with thread_pools().limit(limits=1):  # one thread: the same numbers on every machine
            penalty, penalties = (self.penalty, {}) if self.penalty else choose_penalty(labels)
            if self.choose:
                use = choose_parts(labels, module.parts, closest)
            scale = self.scale or choose_scale(labels, use.where, penalty)
        chosen, gate = {"penalty": penalty, "scale": scale}, torch.zeros_like(module.gate)
        gate[use.where] = 1.0
        self.model_copy(update=chosen).start_with(module, x, y, gate)
        return {"parts": use.parts, "accuracies": use.accuracies, "why": use.why, **chosen, "penalties": penalties}

    @torch.no_grad()
    def start_with(self, module: HeadNet, x: Tensor, y: Tensor, gate: Tensor) -> None:
        """Use some of the features, and start from a logistic regression on them."""
        module.gate.copy_(gate)
        if self.start != "logistic" or self.hidden:
            return
        features = (x.cpu() * gate.cpu()).numpy()
        with thread_pools().limit(limits=1):
            fitted = fit_logistic(features, y.cpu().numpy(), len(module.head.bias), self.penalty or PENALTIES[0])
        for parameter, values in zip((module.head.weight, module.head.bias), fitted, strict=True):
            parameter.copy_(torch.from_numpy(values) * (self.scale or 1.0))


class Calibrated(Dense):
    """A dense layer whose logits are divided by a temperature when it is used, and not while it is trained."""

    temperature: Tensor

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.register_buffer("temperature", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""  # (B, inputs) -> (B, classes)
        logits = super().forward(x)
        return logits if self.training else logits / self.temperature


class HeadNet(GroupedNetwork):
    """The chosen parts pass; the embedding is what the last dense layer sees. Evaluation mode calibrates its logits."""

    gate: Tensor

    def __init__(self, shape: Shape, classes: int, hidden: int) -> None:
        super().__init__()
        self.parts, width = tuple(shape), sum(shape)
        self.register_buffer("gate", torch.ones(width))  # 1 for the numbers that are used, 0 for the others
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.head = Calibrated(hidden or width, classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the numbers the last layer sees."""  # (B, D) -> (B, D) or (B, hidden)
        x = x * self.gate
        return x if self.hidden is None else F.relu(self.hidden(x))


@cache
def thread_pools() -> ThreadpoolController:
    """Return the thread pools of this process's numerical libraries: finding them takes longer than a fit."""
    import sklearn.linear_model  # noqa: F401 (it loads them)

    return ThreadpoolController()


@dataclass(frozen=True)
class ChosenParts:
    """Which parts of the features to use, and what that rests on."""

    parts: list[int]
    accuracies: dict[str, float]  # of left-out labels, in percent: by each part's number, and by all parts
    why: str
    where: slice = field(default_factory=lambda: slice(None))  # the numbers to use


@dataclass
class CrossValidation:
    """Features and labels to compare by, without classes that have a single label. Nothing is fitted twice."""

    x: np.ndarray
    y: np.ndarray
    fitted: dict[tuple[int, int, float], tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        several = with_two_labels(self.y)
        self.x, self.y = self.x[several], self.y[several]

    def __len__(self) -> int:
        """The number of labels; none if they cannot be compared by, because they are all of one class."""
        return len(self.y) if len(np.unique(self.y)) > 1 else 0

    def temperature_and_loss(self, part: slice, penalty: float) -> tuple[float, float]:
        """Return the temperature that makes left-out labels likeliest by a part of the features, and their log-loss at it."""
        first, last, _ = part.indices(self.x.shape[1])
        key = first, last, penalty
        if key not in self.fitted:
            logits, y = cross_validate(self.x[:, part], self.y, penalty)
            temperature = find_temperature(logits, y)
            self.fitted[key] = temperature, round(-float(log_likelihoods(logits / temperature, y).mean()), 4)
        return self.fitted[key]


def fit_logistic(x: np.ndarray, y: np.ndarray, classes: int, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Fit an L2-regularised logistic regression. A class without a label gets no weight and a low bias."""
    from sklearn.linear_model import LogisticRegression

    present = np.unique(y)
    weight, bias = np.zeros((classes, x.shape[1]), np.float32), np.zeros(classes, np.float32)
    bias[np.setdiff1d(np.arange(classes), present)] = -np.log(len(y) + 1.0)
    if len(present) < 2:
        return weight, bias
    model = LogisticRegression(C=1.0 / (penalty * len(y)), max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # not converged; more classes than half the labels, as at the beginning
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
    losses = {penalty: labels.temperature_and_loss(slice(None), penalty)[1] for penalty in PENALTIES}
    best = min(PENALTIES, key=lambda penalty: (losses[penalty], penalty))
    return best, {f"{penalty:g}": loss for penalty, loss in losses.items()}


def choose_parts(labels: CrossValidation, parts: Sequence[int], closest: int | None = None) -> ChosenParts:
    """Compare each part of the features, and all together, by how many labels the others predict right.

    The part that is preferred without labels begins with HEAD_START right answers, so it is used while there are few labels.
    Where none is preferred, labels decide from the first one on, and all parts are used while they say nothing.
    """
    every, ends = list(range(len(parts))), np.cumsum(parts).tolist() if len(parts) > 1 else []
    slices = {str(number): slice(end - parts[number], end) for number, end in enumerate(ends)}
    slices["all" if slices else "0"] = slice(None)
    some = np.unique(np.linspace(0, max(len(labels) - 1, 0), TESTED).astype(np.int64))[: len(labels)]
    x, y, right, percent = labels.x[some], labels.y[some], dict.fromkeys(slices, 0), {}
    if len(some):
        right = {name: int(predicted_by_others(x[:, part], y).sum()) for name, part in slices.items()}
        percent = {name: round(100 * count / len(some), 2) for name, count in right.items()}
    if len(parts) == 1:
        return ChosenParts(every, percent, "the only one")
    ahead = {} if closest is None else {str(closest): HEAD_START}
    best = max(slices, key=lambda name: (right[name] + ahead.get(name, 0), name in ahead, name == "all"))
    why = "it predicts left-out labels best"
    if not len(some) or right[best] < max(right.values()):
        near = "" if closest is None else ", and images of one kind lie closest there"
        why = f"too few labels to compare by{near}"
    return ChosenParts(every if best == "all" else [int(best)], percent, why, slices[best])


def choose_scale(labels: CrossValidation, part: slice, penalty: float) -> float:
    """Return what to multiply weights and biases by so that left-out labels become most likely.

    A strong penalty makes a model less sure than it may be, and MixMatch then guesses worse.
    """
    return 1.0 if len(labels) < ENOUGH else round(1.0 / labels.temperature_and_loss(part, penalty)[0], 4)


TRUSTED, SAID = 8.0, 100.0  # how many images drawn at random say as much: each label, and a person who knows shares


def estimate_shares(
    predicted: np.ndarray, labels: int, sample: Sequence[int] = (), said: Mapping[int, float] | None = None
) -> np.ndarray:
    """Estimate how often each class is in the pool: the mean of a posterior of shares (Dirichlet). (classes,)

    `predicted` is the mean prediction on the pool of a model that was fitted on so many labels. `sample` are labels of images
    that were drawn at random, `said` what a person says of some classes.
    """
    counts = TRUSTED * labels * predicted + np.bincount(np.asarray(sample, np.int64), minlength=len(predicted))
    if said:
        words = predicted.copy()
        rest = np.setdiff1d(np.arange(len(words)), list(said))
        words[list(said)] = list(said.values())
        words[rest] *= max(1.0 - sum(said.values()), 0.0) / max(words[rest].sum(), 1e-12)
        counts += SAID * words
    shares: np.ndarray = counts / counts.sum()
    return shares


def with_two_labels(y: np.ndarray) -> np.ndarray:
    """Mark the labels of classes that have two at least: others cannot be held out and learned."""  # (N,)
    present, counts = np.unique(y, return_counts=True)
    return np.isin(y, present[counts >= 2])


def cross_validate(x: np.ndarray, y: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Return logits of labels by models fitted on the others, and those labels; the folds depend on the labels alone."""
    classes = int(y.max()) + 1
    fold = stratified_folds(y, min(FOLDS, int(np.unique(y, return_counts=True)[1].min())))
    tested, logits = np.zeros(len(y), bool), np.empty((len(y), classes), np.float32)
    for number in np.unique(fold):
        test = fold == number
        weight, bias = fit_logistic(x[~test], y[~test], classes, penalty)
        logits[test], tested[test] = x[test] @ weight.T + bias, True
        if tested.sum() >= TESTED:
            break
    return logits[tested], y[tested]


def find_temperature(logits: np.ndarray, y: np.ndarray) -> float:
    """Return what to divide logits by so that held-out labels become most likely; near 1 while there are few labels."""

    def unlikely(log: float) -> float:
        return float(PRIOR * log * log / 2 - log_likelihoods(logits * np.exp(-log), y).sum())

    return round(float(np.exp(minimize_scalar(unlikely, bounds=(-WIDEST, WIDEST), options={"xatol": 1e-5}).x)), 4)


def log_likelihoods(logits: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the logarithm of the probability that logits give to each label. (N,)"""
    likelihoods: np.ndarray = log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(y)), y]
    return likelihoods
