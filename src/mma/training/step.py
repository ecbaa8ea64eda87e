"""One training step: loss, backward, update, decay, average. The loop and the parity test call the same function."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from mma.algorithms import Algorithm, Batch, Losses
from mma.config import Optim
from mma.training.ranks import ALONE, Ranks
from mma.training.state import State
from mma.training.update import decay, update


def training_step(
    state: State,
    algorithm: Algorithm,
    optim: Optim,
    batch: Batch,
    *,
    age: int,
    ramp: int,
    rng: np.random.Generator,
    ranks: Ranks = ALONE,
) -> Losses:
    """Fit one batch. `age`: steps since the weights were drawn; `ramp`: steps since the unlabeled weight began to rise."""
    half = optim.precision == "bfloat16"
    with torch.autocast(state.device.type, torch.bfloat16, enabled=half):
        losses = algorithm.loss(state.student, state.teacher, replace(batch, memory=state.memory), ramp, rng)
        total = torch.stack(list(losses.terms.values())).sum()
    assert state.weights.gradient is not None
    state.weights.gradient.zero_()
    total.backward()  # type: ignore[no-untyped-call]
    losses = ranks.average(state, losses)
    update(state, optim, age + 1)
    decay(state, optim.lr * optim.weight_decay)
    state.average.vector.lerp_(state.weights.vector, 1.0 - optim.ema_decay)
    state.memory = dict(losses.memory)
    state.step += 1
    return losses
