"""How sure a head may be: a temperature by cross-validation on its labels, of the whole training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mma.config import Config
from mma.growth import Growth, Passive
from mma.nets import Head, HeadNet
from mma.nets.logistic import ENOUGH, deal, find_temperature, with_two_labels
from mma.training.state import start
from mma.training.step import steps
from mma.training.stream import Stream
from mma.views import Views


def one_round(config: Config, labels: int, length: int) -> Config:
    """Return the same config with a single round of `length` steps on labels that are there."""
    growth = Growth(start=labels, add=1, budget=labels, first=length, every=1, final=1, policy=Passive())
    return config.model_copy(update={"growth": growth})


def fix_start(config: Config, found: dict[str, Any]) -> Config:
    """Return the same config with what the labels have chosen for the head (see `Head.start_from`)."""
    chosen = {"penalty": found["penalty"], "scale": found["scale"]}
    return config.model_copy(update={"net": config.net.model_copy(update=chosen)})


def calibrate(
    net: HeadNet, config: Config, views: Views, answers: dict[int, int], pool: np.ndarray, length: int
) -> float:
    """Set the temperature of a head that starts from `answers`, before it is trained for `length` steps, and return it.

    Each label is predicted by a head that was trained as this one will be, with what it has chosen, but without that label.
    Below ENOUGH labels the temperature is 1.
    """
    assert isinstance(config.net, Head)
    index, y = np.array(list(answers), np.int64), np.array(list(answers.values()), np.int64)
    several, folds = with_two_labels(y), config.net.folds
    temperature = 1.0
    if folds > 1 and several.sum() >= ENOUGH and len(np.unique(y[several])) > 1:
        fold = deal(y, folds)
        logits = np.zeros((len(y), len(net.head.bias)), np.float32)
        for number in range(folds):
            kept, left = fold != number, index[fold == number]
            some = {int(row): int(label) for row, label in zip(index[kept], y[kept], strict=True)}
            logits[~kept] = train_fold(net, one_round(config, len(some), length), views, some, pool, left)
        temperature = find_temperature(logits[several], y[several])
    net.head.temperature.fill_(temperature)
    return temperature


def train_fold(
    net: HeadNet, config: Config, views: Views, answers: dict[int, int], pool: np.ndarray, left: np.ndarray
) -> np.ndarray:
    """Train another head like `net` on some of its labels, and return its logits for the rows in `left`. (N, classes)"""
    assert isinstance(config.net, Head)
    state = start(config, views.shape, len(net.head.bias), views.device)
    assert isinstance(state.student, HeadNet)
    x, y = views.plain(np.array(list(answers), np.int64)), torch.tensor(list(answers.values()))
    config.net.start_with(state.student, x, y, net.gate)
    state.average.vector.copy_(state.weights.vector)
    round = config.growth.rounds()[0]
    for _ in steps(state, config, Stream(config, views, pool, answers, round), round, config.growth.first):
        pass
    with torch.inference_mode():
        found: np.ndarray = state.teacher.eval()(views.plain(left)).cpu().numpy()
    return found
