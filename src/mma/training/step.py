"""Training steps: batch, loss, backward, update by Adam or Muon, decay, average. Everything that trains goes through `steps`.

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
from mma.training.processes import group
from mma.training.state import State
from mma.views import Views


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
        elif state.device.type == "mps":
            torch.mps.manual_seed(seed)
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
    """Move the weights by the gradient, the `updates`-th time since they were drawn: by Adam, kernels perhaps by Muon."""
    gradient = state.weights.gradient
    assert gradient is not None
    state.moment1.lerp_(gradient, 1.0 - BETA1)
    begin = muon(state, gradient, optim.kernel_lr) if optim.rule == "muon" else 0
    # Original: Adam in TensorFlow's form, whose epsilon stands beside the uncorrected sqrt(v).
    gradient, square = gradient[begin:], state.moment2[begin:]
    square.mul_(BETA2).addcmul_(gradient, gradient, value=1.0 - BETA2)
    corrected = optim.lr * math.sqrt(1.0 - BETA2**updates) / (1.0 - BETA1**updates)
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
        initial_norm = math.sqrt(2 * kernel.shape[-1])  # see nets/network.py
        kernel.sub_(turned, alpha=lr * initial_norm / math.sqrt(min(rows.shape)))
    return layout.convolutions


def orthogonal(matrix: Tensor) -> Tensor:
    """Return the matrix with its singular values brought close to 1 (0.7 to 1.2; vanishing ones stay small).

    A Newton-Schulz iteration on the small square matrix of products: polynomials of it commute.
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
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and native_precision() == "bfloat16"


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


View = Callable[[np.ndarray, np.random.Generator], Tensor]


class Epochs:
    """An endless sequence that runs through shuffled copies of a set, each item once per copy; any slice on demand."""

    def __init__(self, size: int, order: Callable[[int], np.ndarray]) -> None:
        self.size, self.order = size, order
        self.ready: dict[int, np.ndarray] = {}

    def slice(self, begin: int, count: int) -> np.ndarray:
        """Return items begin .. begin + count."""
        first, last = begin // self.size, (begin + count - 1) // self.size
        wanted = range(first, last + 1)
        self.ready = {epoch: self.ready[epoch] if epoch in self.ready else self.order(epoch) for epoch in wanted}
        joined = np.concatenate([self.ready[epoch] for epoch in wanted])
        return joined[begin - first * self.size :][:count]


class Stream:
    """The batches of one round: stream[step]. Every process draws the whole batch, and keeps its part."""

    def __init__(
        self,
        config: Config,
        views: Views,
        pool: np.ndarray,
        answers: dict[int, int],
        round: Round,
        guesses: Tensor | None = None,  # (N, classes) of another model, for every image
        targets: Tensor | None = None,  # (labels, classes) soft labels, in the place of the answers
        weights: np.ndarray | None = None,  # (labels,) how often each label is drawn; None = all alike
    ) -> None:
        self.config, self.views, self.round, self.guesses = config, views, round, guesses
        self.part, many = group().share(config.optim.batch), config.optim.unlabeled_ratio
        self.unlabeled_part = slice(self.part.start * many, self.part.stop * many)
        self.images = labeled = np.array(list(answers), np.int64)
        targets = torch.tensor(list(answers.values()), dtype=torch.int64) if targets is None else targets
        self.targets, seed, index = targets.to(views.device), config.seed, round.index

        def draw(epoch: int) -> np.ndarray:
            order = rng(seed, "labeled", index, epoch)
            if weights is None:
                return order.permutation(len(labeled))
            ends = np.cumsum(weights) / np.sum(weights)  # places at equal distances fall into each label by its weight
            places = (np.arange(len(labeled)) + order.random()) / len(labeled)
            return order.permutation(np.minimum(np.searchsorted(ends, places, side="right"), len(labeled) - 1))

        self.labeled = Epochs(len(labeled), draw)
        # When every image has a label, all of them serve as unlabeled ones too: the mathematics go on unchanged.
        free = ~np.isin(pool, labeled)
        free = free if free.any() else ~free

        def shuffle(epoch: int) -> np.ndarray:
            # Shuffle the whole pool, then leave out the labeled: methods that pair by seed see the same order.
            order = rng(seed, "unlabeled", index, epoch).permutation(len(pool))
            chosen: np.ndarray = pool[order[free[order]]]
            return chosen

        self.unlabeled = Epochs(int(free.sum()), shuffle)

    def __getitem__(self, step: int) -> Batch:
        """Return the batch of one step."""
        algorithm, seed, many = self.config.algorithm, self.config.seed, self.config.optim.unlabeled_ratio
        size, begin = self.config.optim.batch, (step - self.round.begin) * self.config.optim.batch
        views, draw = self.views.at_step(step), rng(seed, "augment", step)
        rows = self.labeled.slice(begin, size)
        x = views.weak(self.images[rows], draw)
        if len(distorted := spread_evenly(self.config.views.strong_labels, len(rows))):
            where = torch.from_numpy(distorted).to(views.device, non_blocking=True)
            x = x.index_copy(0, where, views.distort(x[where], rng(seed, "strong labels", step)))
        x = x[self.part]
        y = self.targets[torch.from_numpy(rows[self.part]).to(self.targets.device, non_blocking=True)]
        if not algorithm.views:
            return Batch(x, y, x[None][:0])
        unlabeled = self.unlabeled.slice(begin * many, size * many)
        u = self.several(views.weak, unlabeled, algorithm.views, draw)
        if not algorithm.strong:
            return Batch(x, y, u)
        # Drawn apart, so that the weak views are those of every other algorithm.
        strong = self.several(views.strong, unlabeled, algorithm.strong, rng(seed, "strong", step))
        guesses = self.guesses
        if guesses is not None:
            guesses = guesses[torch.from_numpy(unlabeled[self.unlabeled_part])].to(views.device)
        return Batch(x, y, u, strong, guesses=guesses)

    def several(self, view: View, rows: np.ndarray, count: int, draw: np.random.Generator) -> Tensor:
        """Return the part of this process of `count` views of each image."""  # (count, B', ...)
        return torch.stack(view(np.tile(rows, count), draw).chunk(count))[:, self.unlabeled_part]


def spread_evenly(share: float, count: int) -> np.ndarray:
    """Return which of `count` places make up a share of them, evenly spread: every slice of a batch gets its part."""
    marks = np.floor(np.arange(count + 1) * share + 1e-9)
    return np.flatnonzero(np.diff(marks))
