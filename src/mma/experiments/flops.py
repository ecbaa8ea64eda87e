"""How much arithmetic a run asks for, counted on a few real operations and multiplied out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from mma.config import Config
from mma.experiments.estimate import Trial
from mma.experiments.make import data_set
from mma.nets.flops import count_flop, forward_flop
from mma.query import Query

FEW = 4  # labeled images in a counted step


@dataclass(frozen=True)
class Flop:
    """Floating-point operations of a run; those of evaluating and of looking for images to ask about stand apart."""

    image: int  # one forward of one image of full size
    step: float  # one training step, the mean over the run
    training: float
    evaluating: float
    asking: float

    @property
    def total(self) -> float:
        """Everything."""
        return self.training + self.evaluating + self.asking


def flop(config: Config) -> Flop:
    """Count a run. Evaluations and queries in the steps made with small images are counted as if they were of full size."""
    data, end = data_set(config.data.name), config.growth.steps
    trial = Trial(config, torch.device("cpu"), 2 * FEW)
    image = forward_flop(trial.state.teacher, trial.views.plain(np.zeros(1, np.int64)))
    few, more = (step_flop(trial, batch) for batch in (FEW, 2 * FEW))
    step = few + (more - few) * (config.optim.batch / FEW - 1)  # updates cost the same with every batch
    queries = (len(config.growth.rounds()) - 1) * Query.parse(config.query).looks * (config.data.total or data.pool)
    evaluations = config.log.evaluations(end) * (config.data.validation or data.test)
    return Flop(image, step, step * end, float(image * evaluations), float(image * queries))


def step_flop(trial: Trial, batch: int) -> float:
    """Count one training step, the mean over a run whose first steps may be made with smaller images."""
    share = trial.config.views.early_share
    first, last = (count_flop(partial(trial.step, at, batch)) for at in (0, trial.config.growth.steps - 1))
    return share * first + (1 - share) * last
