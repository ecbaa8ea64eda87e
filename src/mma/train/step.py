"""One training step: loss, backward, Adam, decay, average. The loop and the parity test call the same function."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from mma.algorithms import Algorithm, Batch, Losses
from mma.config import Optim
from mma.train.ranks import ALONE, Ranks
from mma.train.state import State

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's own defaults


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
    adam(state, optim.lr, age + 1)
    decay(state, optim.lr * optim.weight_decay)
    state.average.vector.lerp_(state.weights.vector, 1.0 - optim.ema_decay)
    state.memory = dict(losses.memory)
    state.step += 1
    return losses


@torch.no_grad()
def adam(state: State, lr: float, updates: int) -> None:
    """Move the weights. Original: TensorFlow's form, whose epsilon stands beside the uncorrected sqrt(v)."""
    gradient = state.weights.gradient
    assert gradient is not None
    state.moment1.lerp_(gradient, 1.0 - BETA1)
    state.moment2.mul_(BETA2).addcmul_(gradient, gradient, value=1.0 - BETA2)
    corrected = lr * math.sqrt(1.0 - BETA2**updates) / (1.0 - BETA1**updates)
    state.weights.vector.addcdiv_(state.moment1, state.moment2.sqrt().add_(EPSILON), value=-corrected)


@torch.no_grad()
def decay(state: State, amount: float) -> None:
    """Shrink the kernels (not biases, not BN), apart from the gradient."""
    state.weights.vector[: state.weights.kernels].mul_(1.0 - amount)
