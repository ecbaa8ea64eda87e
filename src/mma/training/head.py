"""Training without a folder: one round on labels that are there, by the same steps as a run's; and how sure a head may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mma.config import Config
from mma.errors import UserError
from mma.growth import Growth, Passive
from mma.nets import Head, HeadNet
from mma.nets.head import ENOUGH, estimate_shares, find_temperature, thread_pools, with_two_labels
from mma.presets import preset
from mma.soft_targets import Guesses, stratified_folds
from mma.training.host import training_threads
from mma.training.predict import probabilities
from mma.training.processes import alone
from mma.training.state import State, start, start_from_labels
from mma.training.step import Stream, steps
from mma.views import VectorViews, Views


@dataclass(frozen=True, eq=False)
class Told:
    """What is known of a pool besides its labels (see `fit_head`)."""

    guesses: Guesses | None = None
    shares: Mapping[int, float] | None = None
    sample: Sequence[int] = ()
    trust: float | None = None  # the weight of the guesses, where it is found already


@alone()
def train_in_memory(
    config: Config,
    views: Views,
    answers: dict[int, int],
    classes: int,
    *,
    pool: np.ndarray,
    after: Callable[[State], None] = lambda state: None,
    told: Told = Told(),
    targets: torch.Tensor | None = None,
    weights: np.ndarray | None = None,
) -> tuple[State, dict[str, Any] | None]:
    """Train on labels, with `after` after each step; return the state, and what is said of its start (`Net.start_from`).

    `targets` are soft labels in their place, and `weights` say how often each label is drawn: see `Stream`.
    """
    state, length = start(config, views.shape, classes, views.device), config.growth.first
    round = config.growth.rounds()[0]
    found: dict[str, Any] | None
    with training_threads(state.teacher, views.plain(pool[:1]), config.optim):
        if isinstance(state.student, HeadNet):
            found = start_head(state, config, views, answers, pool, length, told)
        else:
            index, labels = rows_and_labels(answers)
            found = start_from_labels(state, config, views.plain(index), labels)
        stream = Stream(config, views, pool, answers, round, targets=targets, weights=weights)
        for _ in steps(state, config, stream, round, length):
            after(state)
    return state, found


def rows_and_labels(answers: dict[int, int]) -> tuple[np.ndarray, torch.Tensor]:
    """Return the rows that have a label, and the labels."""
    return np.array(list(answers), np.int64), torch.tensor(list(answers.values()), dtype=torch.int64)


@dataclass(frozen=True)
class FittedHead:
    """A trained head on features. `net` is in evaluation mode, where its logits are calibrated."""

    net: HeadNet
    used: list[str]  # the backbones whose features it looks at
    accuracies: dict[str, float]  # of each backbone and of all, in percent, on labels that were left out
    why: str  # why these backbones
    penalty: float  # of the logistic regression it started from
    scale: float  # of that regression's weights
    temperature: float
    shares: tuple[float, ...]  # of each class in the pool, as estimated
    trust: float = 0.0  # the weight of the guesses that it started from

    def probabilities(self, views: VectorViews, index: np.ndarray) -> np.ndarray:
        """Return the calibrated class probabilities of some images. (N, classes)"""
        return probabilities(self.net, views, index)


def fit_head(
    views: VectorViews,
    answers: dict[int, int],
    classes: int,
    *,
    pool: np.ndarray | None = None,
    config: Config | None = None,
    guesses: Guesses | None = None,
    shares: Mapping[int, float] | None = None,
    sample: Sequence[int] = (),
) -> FittedHead:
    """Train a head on stored features, in memory, in about a second: a function of its arguments and the machine.

    `views` come from `FeatureViews(...).open(data, device, 0)`, or from `.open_source(PhotoFiles(...), device)` where photos
    are no data set; open them once and keep them. `answers` maps rows of the views to class numbers. `pool` are the rows to
    learn from without labels; None is all of them. `config` brings everything else, such as the seed; None is the preset
    `photos`, and its growth is replaced by one round. New images are scored by
    `head.probabilities(views.of_source(source), np.arange(len(source)))`. `guesses` are what sources say about the
    rows; the head starts from them as far as labels show that this helps.

    Answers about images without a label are aligned to the shares of the classes in the pool. `shares` are what somebody says
    of them ({3: 0.1}: about one in ten is of class 3). `sample` are labels of other images of the same kind, drawn at random,
    such as audit labels: only how many there are of each class is used.
    """
    if not answers:
        raise UserError("a head needs a label at least, and there is none.")
    config, many = config or preset("photos"), len(answers)
    once = one_round(config, many, config.growth.final)
    rows = np.arange(len(views)) if pool is None else pool
    state, found = train_in_memory(once, views, answers, classes, pool=rows, told=Told(guesses, shares, sample))
    net = state.teacher.eval()
    assert isinstance(net, HeadNet)
    assert found is not None
    names = [*views.names, "all"]
    accuracies = {names[int(part) if part.isdigit() else -1]: value for part, value in found["accuracies"].items()}
    used = [names[part] for part in found["parts"]]
    chosen = {name: found[name] for name in ("why", "penalty", "scale", "temperature", "trust", "shares")}
    return FittedHead(net, used, accuracies, **chosen)


@torch.no_grad()
def guess_start(net: HeadNet, told: Told, views: Views, answers: dict[int, int], pool: np.ndarray) -> float:
    """Let a head start from guesses, too, if left-out labels become likelier; return their weight."""
    if told.guesses is None or told.trust == 0.0 or net.hidden is not None:
        return 0.0
    every, gate = np.arange(len(told.guesses.sources[0])), net.gate.cpu()
    pieces = np.array_split(every, len(every) // 4_096 + 1)
    x = np.concatenate([(views.plain(part).cpu().float() * gate).numpy() for part in pieces])
    rows, y = rows_and_labels(answers)
    with thread_pools().limit(limits=1):
        (weight, bias), trust = told.guesses.start(x, rows, y.numpy(), pool, told.trust)
    if trust:
        net.head.weight.copy_(torch.from_numpy(weight))
        net.head.bias.copy_(torch.from_numpy(bias))
    return trust


@alone()
def answers_without(
    fitted: FittedHead,
    views: Views,
    answers: dict[int, int],
    left_out: np.ndarray,
    *,
    pool: np.ndarray,
    config: Config,
    guesses: Guesses | None = None,
    about: np.ndarray | None = None,
) -> np.ndarray:
    """Return what this head would say if it had not seen the labels of some rows: one is trained without them.

    It keeps what `fitted` has chosen; `pool`, `config` and `guesses` are those that it was fitted with. It answers `about`
    other rows, or these. (N, classes)
    """
    out = set(left_out.tolist())
    kept = {row: label for row, label in answers.items() if row not in out}
    fixed = fix_start(config, vars(fitted))
    with training_threads(fitted.net, views.plain(left_out[:1]), config.optim):
        told = Told(guesses, trust=fitted.trust)
        net = train_again(fitted.net, fixed, views, kept, pool, config.growth.final, told)
    net.head.temperature.fill_(fitted.temperature)
    return probabilities(net, views, left_out if about is None else about)


def one_round(config: Config, labels: int, length: int) -> Config:
    """Return the same config with a single round of `length` steps on labels that are there."""
    growth = Growth(start=labels, add=1, budget=labels, first=length, every=1, final=1, policy=Passive())
    return config.model_copy(update={"growth": growth})


def train_again(
    net: HeadNet,
    config: Config,
    views: Views,
    answers: dict[int, int],
    pool: np.ndarray,
    length: int,
    told: Told = Told(),
) -> HeadNet:
    """Train a head on other labels, with the features that `net` uses and what was chosen: see `config.net` and `told`."""
    assert isinstance(config.net, Head)
    once = one_round(config, len(answers), length)
    state = start(once, views.shape, len(net.head.bias), views.device)
    assert isinstance(state.student, HeadNet)
    index, labels = rows_and_labels(answers)
    config.net.start_with(state.student, views.plain(index), labels, net.gate)
    trust = guess_start(state.student, told, views, answers, pool)
    state.average.vector.copy_(state.weights.vector)
    align_to_shares(state, config, predict_shares(state, views, pool), None if trust else labels)
    round = once.growth.rounds()[0]
    for _ in steps(state, once, Stream(once, views, pool, answers, round), round, length):
        pass
    found = state.teacher.eval()
    assert isinstance(found, HeadNet)
    return found


POOL_SEEN = 2_048  # images of the pool that a start looks at


def start_head(
    state: State,
    config: Config,
    views: Views,
    answers: dict[int, int],
    pool: np.ndarray,
    length: int,
    told: Told = Told(),
) -> dict[str, Any]:
    """Start a head: what it uses, its weights, what guesses are aligned to, its temperature; return what to note of that."""
    assert isinstance(config.net, Head)
    assert isinstance(state.student, HeadNet)
    index, y = rows_and_labels(answers)
    found = config.net.start_from(state.student, views.plain(index), y, getattr(views, "closest", None))
    trust = guess_start(state.student, told, views, answers, pool)
    state.average.vector.copy_(state.weights.vector)
    predicted = predict_shares(state, views, pool)
    estimate = config.net.shares or estimate_shares(predicted, len(y), told.sample, told.shares)
    found |= {"trust": trust, "shares": tuple(round(float(share), 5) for share in estimate)}
    fixed = fix_start(config, found)
    align_to_shares(state, fixed, predicted, None if trust else y)
    found["temperature"] = calibrate(state.student, fixed, views, answers, pool, length)
    return found


def predict_shares(state: State, views: Views, pool: np.ndarray) -> np.ndarray:
    """Return the mean prediction of the student on a sample of the pool. (classes,)"""
    some = pool[np.unique(np.linspace(0, len(pool) - 1, POOL_SEEN).astype(np.int64))]
    mean: np.ndarray = probabilities(state.student, views, some).mean(0, dtype=np.float64)
    return mean


def align_to_shares(state: State, config: Config, predicted: np.ndarray, y: torch.Tensor | None) -> None:
    """Align guesses to the shares in the settings; they begin with the student's prediction.

    A student that knows labels `y` alone cannot guess a class without one. None: it knows of every class.
    """
    assert isinstance(config.net, Head)
    if "shares" in state.memory and config.net.shares:
        shares = torch.tensor(config.net.shares)
        if y is not None:
            shares = shares * (torch.bincount(y, minlength=len(shares)) > 0)
        state.memory["guesses"].copy_(torch.from_numpy(predicted))
        state.memory["shares"].copy_(shares / shares.sum().clamp_min(1e-12))


def fix_start(config: Config, found: dict[str, Any]) -> Config:
    """Return the same config with what the labels have chosen for the head (see `Head.start_from`)."""
    chosen = {name: found[name] for name in ("penalty", "scale", "shares")}
    return config.model_copy(update={"net": config.net.model_copy(update=chosen)})


@alone()  # where several processes train a run, each calibrates by itself
def calibrate(
    net: HeadNet, config: Config, views: Views, answers: dict[int, int], pool: np.ndarray, length: int
) -> float:
    """Set the temperature of a head that starts from `answers`, before it is trained for `length` steps, and return it.

    Each label is predicted by a head that was trained as this one will be, with what it has chosen, but without that label.
    Below ENOUGH labels the temperature is 1.
    """
    assert isinstance(config.net, Head)
    index, labels = rows_and_labels(answers)
    y = labels.numpy()
    several, folds, temperature = with_two_labels(y), config.net.folds, 1.0
    if folds > 1 and several.sum() >= ENOUGH and len(np.unique(y[several])) > 1:
        fold = stratified_folds(y, folds)
        logits = np.zeros((len(y), len(net.head.bias)), np.float32)
        for number in range(folds):
            out = fold == number
            some = dict(zip(index[~out].tolist(), y[~out].tolist(), strict=True))
            without = train_again(net, config, views, some, pool, length)
            with torch.inference_mode():
                logits[out] = without(views.plain(index[out])).cpu().numpy()
        temperature = find_temperature(logits[several], y[several])
    net.head.temperature.fill_(temperature)
    return temperature
