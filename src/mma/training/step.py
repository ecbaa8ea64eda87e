"""Training steps: loss, backward, update by Adam or Muon, decay, average. Everything that trains goes through `steps`.

Networks may compute in bfloat16. Weights, their average, the optimizer, statistics and losses are float32 in any case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from mma.algorithms import Algorithm, Batch, Losses
from mma.config import Config, Optim
from mma.features.backbone import Precision, native_precision
from mma.growth import Round
from mma.rng import rng
from mma.training.batches import Stream
from mma.training.processes import group
from mma.training.state import State


def steps(
    state: State,
    config: Config,
    stream: Stream,
    round: Round,
    end: int,
    *,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Losses]:
    """Make one training step after another until step `end`, or until `stop` says so; each hands out its losses."""
    last, path = config.growth.steps, group().path
    while state.step < end and not stop():
        step, age, ramp = state.step, state.step - round.origin, state.step - round.ramp_from
        noise = rng(config.seed, "loss", step, *path)
        # torch's own generators, for a user's network with dropout. `torch.manual_seed` does the same for every kind of
        # device, and takes longer than a step of a small head.
        seed = int(rng(config.seed, "torch", step, *path).integers(2**63))
        torch.default_generator.manual_seed(seed)
        if state.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        optim = at_step(config.optim, step, age, last)
        yield training_step(state, config.algorithm, optim, stream[step], age=age, ramp=ramp, rng=noise)


def training_step(
    state: State,
    algorithm: Algorithm,
    optim: Optim,
    batch: Batch,
    *,
    age: int,
    ramp: int,
    rng: np.random.Generator,
) -> Losses:
    """Fit one batch. `age`: steps since the weights were drawn; `ramp`: steps since the unlabeled weight began to rise."""
    with computing(optim, state.device):
        losses = algorithm.loss(state.student, state.teacher, replace(batch, memory=state.memory), ramp, rng)
        total = torch.stack(list(losses.terms.values())).sum()
    assert state.weights.gradient is not None
    state.weights.gradient.zero_()
    total.backward()  # type: ignore[no-untyped-call]
    losses = group().average(state, losses)
    update(state, optim, age + 1)
    decay(state, optim.lr * optim.weight_decay)
    state.average.vector.lerp_(state.weights.vector, 1.0 - optim.ema_decay)
    state.memory = dict(losses.memory)
    state.step += 1
    state.add(losses)
    return losses


BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's own defaults
NEWTON_SCHULZ_STEPS = 5
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Muon's own: a x + b x^3 + c x^5, which rises fast near zero


@torch.no_grad()
def update(state: State, optim: Optim, updates: int) -> None:
    """Move the weights by the gradient, the `updates`-th time since they were drawn."""
    gradient = state.weights.gradient
    assert gradient is not None
    state.moment1.lerp_(gradient, 1.0 - BETA1)
    begin = muon(state, gradient, optim.kernel_lr) if optim.rule == "muon" else 0
    adam(state, gradient, optim.lr, updates, begin)


def adam(state: State, gradient: Tensor, lr: float, updates: int, begin: int) -> None:
    """Move the weights from `begin` on."""
    # Original: Adam in TensorFlow's form, whose epsilon stands beside the uncorrected sqrt(v).
    gradient, square = gradient[begin:], state.moment2[begin:]
    square.mul_(BETA2).addcmul_(gradient, gradient, value=1.0 - BETA2)
    corrected = lr * math.sqrt(1.0 - BETA2**updates) / (1.0 - BETA1**updates)
    moment = state.moment1[begin:] if state.rates is None else state.moment1[begin:] * state.rates[begin:]
    state.weights.vector[begin:].addcdiv_(moment, square.sqrt().add_(EPSILON), value=-corrected)


def muon(state: State, gradient: Tensor, lr: float) -> int:
    """Move the kernels of convolutions, each by `lr` times the norm of a freshly drawn one; return where the rest begins.

    Every direction in a kernel's gradient moves it alike, however strong it is, so the weak ones are learned as early.
    """
    layout = state.weights
    ahead = state.moment1.lerp(gradient, 1.0 - BETA1)  # Nesterov's momentum
    rates = repeat(None) if state.rates is None else layout.convolution_kernels(state.rates)
    kernels = layout.convolution_kernels(layout.vector)
    for kernel, direction, rate in zip(kernels, layout.convolution_kernels(ahead), rates, strict=False):
        rows = direction.flatten(1)  # (outputs, height x width x inputs)
        turned = orthogonal(rows).view_as(kernel)
        turned = turned if rate is None else turned * rate
        initial_norm = math.sqrt(2 * kernel.shape[-1])  # see nets/layers.py
        kernel.sub_(turned, alpha=lr * initial_norm / math.sqrt(min(rows.shape)))
    return layout.convolutions


def orthogonal(matrix: Tensor) -> Tensor:
    """Return the matrix with its singular values brought close to 1 (0.7 to 1.2; vanishing ones stay small).

    A Newton-Schulz iteration. It runs on the small square matrix of products: polynomials of it commute, so the wide matrix
    is multiplied only before and after.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T).T
    rows = matrix / (matrix.norm() + EPSILON)  # no singular value is above 1
    gram, factor = rows @ rows.T, torch.eye(len(rows), device=rows.device)  # (n, n)
    a, b, c = NEWTON_SCHULZ
    for _ in range(NEWTON_SCHULZ_STEPS):
        polynomial = torch.addmm(b * gram, gram, gram, alpha=c)
        polynomial.diagonal().add_(a)
        factor, gram = polynomial @ factor, polynomial @ gram @ polynomial
    result: Tensor = factor @ rows
    return result


@torch.no_grad()
def decay(state: State, amount: float) -> None:
    """Shrink the kernels (not biases, not BN), apart from the gradient."""
    kernels = state.weights.kernels
    kept = 1.0 - amount if state.rates is None else 1.0 - amount * state.rates[:kernels]
    state.weights.vector[:kernels].mul_(kept)


def at_step(optim: Optim, step: int, age: int, end: int) -> Optim:
    """Return the settings of one step: `age` steps since the weights were drawn, `end` steps in the whole run."""
    if optim.decay == "constant" and age >= optim.warmup:
        return optim
    falling = 1.0 - step / end if optim.decay == "linear" else 1.0
    share = min((age + 1) / (optim.warmup + 1), 1.0) * falling
    return optim.model_copy(update={"lr": optim.lr * share, "kernel_lr": optim.kernel_lr * share})


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies bfloat16 natively. Elsewhere it is emulated, and slower than float32."""
    if device.type == "cuda":
        native: bool = torch.cuda.is_bf16_supported(including_emulation=False)
        return native
    return native_precision() == "bfloat16"


def resolve(optim: Optim, device: torch.device) -> Precision:
    """Return the precision to compute in: `auto` is bfloat16 where the device has it, else float32."""
    if optim.precision != "auto":
        return optim.precision
    return "bfloat16" if has_bfloat16(device) else "float32"


def computing(optim: Optim, device: torch.device) -> AbstractContextManager[object]:
    """Compute in the precision of a run: in bfloat16 networks multiply in it, and everything that they train stays float32."""
    half = resolve(optim, device) == "bfloat16"
    # No cache: a kernel that was cast for a guess has no gradient, and the forward to train would find it there.
    return torch.autocast(device.type, torch.bfloat16, enabled=half, cache_enabled=False)
