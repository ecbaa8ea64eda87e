"""Training without a folder: one round on labels that are there. The same steps as a run's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from mma.config import Config
from mma.nets import HeadNet
from mma.presets import preset
from mma.training.calibrate import calibrate, fix_start, one_round
from mma.training.evaluate import probabilities
from mma.training.host import training_threads
from mma.training.state import State, start, start_from_labels
from mma.training.step import steps
from mma.training.stream import Stream
from mma.views import VectorViews, Views


def train_in_memory(
    config: Config,
    views: Views,
    answers: dict[int, int],
    classes: int,
    *,
    pool: np.ndarray,
    after: Callable[[State], None] = lambda state: None,
) -> tuple[State, dict[str, Any] | None]:
    """Train `config.growth.first` steps on the labels in `answers`; `after` is called after each step.

    Returns the state, and what the network wrote down about where it started from (see `Net.start_from`).
    """
    state = start(config, views.shape, classes, views.device)
    index, labels = np.array(list(answers), np.int64), torch.tensor(list(answers.values()), dtype=torch.int64)
    round = config.growth.rounds()[0]
    with training_threads(state.teacher, views.plain(pool[:1]), config.optim):
        found = start_from_labels(state, config, views.plain(index), labels)
        if isinstance(state.student, HeadNet):
            assert found is not None
            fixed = fix_start(config, found)
            found["temperature"] = calibrate(state.student, fixed, views, answers, pool, config.growth.first)
        stream = Stream(config, views, pool, answers, round)
        for _ in steps(state, config, stream, round, config.growth.first):
            after(state)
    return state, found


@dataclass(frozen=True)
class FittedHead:
    """A trained head on features. `net` is in evaluation mode, where its logits are calibrated."""

    net: HeadNet
    used: list[str]  # the backbones whose features it looks at
    accuracies: dict[str, float]  # of each backbone and of all, in percent: logistic regression, cross-validated
    why: str  # why these backbones
    penalty: float  # of the logistic regression it started from
    scale: float  # of that regression's weights
    temperature: float

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
) -> FittedHead:
    """Train a head on stored features, in memory, in about a second: a function of its arguments and the machine.

    `views` come from `FeatureViews(...).open(data, device, 0)`, or from `.open_source(PhotoFiles(...), device)` where photos
    are no data set; open them once and keep them. `answers` maps rows of the views to class numbers. `pool` are the rows to
    learn from without labels; None is all of them. `config` brings everything else, such as the seed; None is the preset
    `photos`, and its growth is replaced by one round. New images are scored by
    `head.probabilities(views.of_source(source), np.arange(len(source)))`.
    """
    if not answers:
        raise ValueError("a head needs a label at least, and there is none.")
    config, many = config or preset("photos"), len(answers)
    once = one_round(config, many, config.growth.final)
    rows = np.arange(len(views)) if pool is None else pool
    state, found = train_in_memory(once, views, answers, classes, pool=rows)
    net = state.teacher.eval()
    assert isinstance(net, HeadNet)
    assert found is not None
    names = [*views.names, "all"]
    accuracies = {names[int(part) if part.isdigit() else -1]: value for part, value in found["accuracies"].items()}
    used = [names[part] for part in found["parts"]]
    chosen = {name: found[name] for name in ("why", "penalty", "scale", "temperature")}
    return FittedHead(net, used, accuracies, **chosen)


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Let torch's own generators (dropout, layers being made) start from `seed`, and put them back afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def on_its_own(net: nn.Module) -> nn.Module:
    """Return a copy that shares no memory: a pickle of views of one vector would hold that vector once per view."""
    net = copy.deepcopy(net).eval()
    for parameter in net.parameters():
        parameter.data = parameter.data.clone()
    return net
