"""Training steps: loss, backward, update, decay, average. Every room that trains goes through `steps`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from mma.algorithms import Algorithm, Batch, Losses
from mma.config import Config, Optim
from mma.growth import Round
from mma.rng import rng
from mma.training.precision import computing
from mma.training.ranks import ALONE, Ranks
from mma.training.schedule import at_step
from mma.training.state import State
from mma.training.stream import Stream
from mma.training.update import decay, update


def steps(
    state: State,
    config: Config,
    stream: Stream,
    round: Round,
    end: int,
    *,
    stop: Callable[[], bool] = lambda: False,
    ranks: Ranks = ALONE,
) -> Iterator[Losses]:
    """Make one training step after another until step `end`, or until `stop` says so; each hands out its losses."""
    last = config.growth.steps
    while state.step < end and not stop():
        step, age = state.step, state.step - round.origin
        noise = rng(config.seed, "loss", step, *ranks.path)
        seed_torch(int(rng(config.seed, "torch", step, *ranks.path).integers(2**63)), state.device)
        optim = at_step(config.optim, step, age, last)
        ramp = step - round.ramp_from
        yield training_step(state, config.algorithm, optim, stream[step], age=age, ramp=ramp, rng=noise, ranks=ranks)


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed torch's own generators, for a user's network with dropout.

    `torch.manual_seed` does the same for every kind of device, and takes longer than a step of a small head.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


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
    with computing(optim, state.device):
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
    state.add(losses)
    return losses
