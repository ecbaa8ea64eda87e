"""Everything that training changes: two networks, Adam's moments, and the sums of what is logged next."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mma.algorithms import Losses
from mma.config import Config
from mma.errors import UserError
from mma.nets import Network, Shape, without_embeddings
from mma.nets.network import is_frozen
from mma.query import Query
from mma.rng import rng


@dataclass
class State:
    """The run after `step` steps. The teacher is the average of the student; both share BN's running statistics."""

    student: nn.Module
    teacher: nn.Module
    weights: Flat
    average: Flat
    moment1: Tensor
    moment2: Tensor
    step: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)  # since the last evaluation
    summed: int = 0  # steps in `sums`
    memory: dict[str, Tensor] = field(default_factory=dict)  # what the algorithm remembers of earlier steps
    blank: dict[str, Tensor] = field(default_factory=dict)  # and what it remembers before the first one
    frozen: frozenset[str] = frozenset()  # names of the modules that are not trained
    rates: Tensor | None = None  # what each weight's learning rate is multiplied by; None = nothing

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return self.weights.vector.device

    def buffers(self, *, frozen: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Name the running statistics that training changes; or those of frozen modules."""
        for prefix, module in self.student.named_modules():
            if (prefix in self.frozen) == frozen:
                own = module.named_buffers(recurse=False)
                yield from ((f"{prefix}.{name}".lstrip("."), buffer) for name, buffer in own)

    def forget(self) -> None:
        """Let the algorithm remember nothing; copies, because a stored state is loaded in place."""
        self.memory = {name: value.clone() for name, value in self.blank.items()}

    def add(self, losses: Losses) -> None:
        """Add one step's losses and guesses to the sums, without waiting for the device."""
        values = {f"loss/{name}": term.detach() for name, term in losses.terms.items()}
        values |= {} if losses.guesses is None else {"guesses": losses.guesses.mean(0)}  # (classes,)
        for name, value in values.items():
            whole = value.to(torch.promote_types(value.dtype, torch.float32))  # sums of halves would stand still
            self.sums[name] = self.sums[name] + whole if name in self.sums else whole.clone()
        self.summed += 1

    def means(self) -> dict[str, np.ndarray]:
        """Return the means since the last call and begin again. Waits for the device."""
        means = {name: (self.sums[name] / self.summed).cpu().numpy() for name in sorted(self.sums)}
        self.sums, self.summed = {}, 0
        return means


def start(config: Config, shape: Shape, classes: int, device: torch.device) -> State:
    """Return the state before the first step, for images of this shape: weights are a function of the seed."""
    student, query = config.net.build(shape, classes), Query.parse(config.query)
    looks = query.needs_features or (query.needs_probs and not query.aug)
    if looks and config.growth.policy.name != "passive" and not isinstance(student, Network):
        raise UserError(without_embeddings(student, config.query))  # before any training
    config.net.reset(student, rng(config.seed, "init"))
    state = assemble(student, device)
    state.rates = state.weights.spread(config.net.rates(student))
    state.blank = {name: t.to(device) for name, t in config.algorithm.memory(classes).items()}
    state.forget()
    return state


def assemble(student: nn.Module, device: torch.device) -> State:
    """Put a student on the device with a teacher equal to it and an optimizer that has seen nothing."""
    student = student.to(device)  # `Flat` lays the kernels out channels-last
    frozen = {name for name, module in student.named_modules() if is_frozen(module)}
    teacher = copy.deepcopy(student)
    weights, average = Flat(student, gradients=True), Flat(teacher, gradients=False)
    # Paper: BN statistics are used raw, only weights are averaged: the teacher reads the student's statistics themselves.
    for module, ours in zip(teacher.modules(), student.modules(), strict=True):
        for name, buffer in ours.named_buffers(recurse=False):
            setattr(module, name, buffer)
    for parameter, mine in zip(teacher.parameters(), student.parameters(), strict=True):
        if not mine.requires_grad:  # nothing is held twice
            parameter.data = mine.data
    student.train()
    for name, module in student.named_modules():  # frozen ones keep their statistics, so they stay in evaluation mode
        if name in frozen and any(parameter.requires_grad for parameter in module.parameters()):
            module.training = False  # only itself: something inside it is trained
        elif name in frozen:
            module.eval()
    zeros = torch.zeros_like(weights.vector)
    return State(student, teacher.eval(), weights, average, zeros, zeros.clone(), frozen=frozenset(frozen))


@torch.no_grad()
def start_from_labels(state: State, config: Config, x: Tensor, y: Tensor) -> dict[str, Any] | None:
    """Let the network start from the labeled images, if it can; the teacher starts there too."""
    about = config.net.start_from(state.student, x, y)
    state.average.vector.copy_(state.weights.vector)
    return about


@torch.no_grad()
def refresh(state: State, config: Config, index: int) -> None:
    """Draw the student anew before round `index`, keeping a share `growth.shrink` of what it had learned."""
    old, kept = state.weights.vector.clone(), config.growth.shrink
    config.net.reset(state.student, rng(config.seed, "refresh", index))
    state.weights.vector.lerp_(old, kept)
    state.average.vector.copy_(state.weights.vector)
    state.moment1.zero_()
    state.moment2.zero_()
    state.forget()


class Flat:
    """The trained parameters of `net` as views of one vector, so that an update is a few passes over memory.

    Kernels come first (they decay), convolutions before dense ones, then biases and BN. Frozen parameters are not in it.
    """

    def __init__(self, net: nn.Module, *, gradients: bool) -> None:
        trained = [(name, parameter) for name, parameter in net.named_parameters() if parameter.requires_grad]
        named = sorted(trained, key=lambda item: (item[1].ndim != 4, item[1].ndim < 2))  # stable
        self.shapes = {name: parameter.shape for name, parameter in named}
        self.vector = torch.cat([in_memory_order(parameter.detach()) for _, parameter in named]).clone()
        self.kernels = sum(p.numel() for _, p in named if p.ndim >= 2)
        self.convolutions = sum(p.numel() for _, p in named if p.ndim == 4)
        self.gradient = torch.zeros_like(self.vector) if gradients else None
        grads = dict(self.views(self.gradient)) if self.gradient is not None else {}
        values = dict(self.views(self.vector))
        for name, parameter in named:
            parameter.data = values[name]
            parameter.grad = grads.get(name)
            parameter.requires_grad_(gradients)

    def views(self, vector: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Cut a vector of this layout into named tensors of the parameters' shapes."""
        begin = 0
        for name, shape in self.shapes.items():
            part = vector[begin : begin + math.prod(shape)]
            if len(shape) == 4:  # undo `in_memory_order`, without a copy
                out, channels, height, width = shape
                yield name, part.view(out, height, width, channels).permute(0, 3, 1, 2)
            else:
                yield name, part.view(shape)
            begin += math.prod(shape)

    def spread(self, factors: Mapping[str, float]) -> Tensor | None:
        """Return a vector of this layout that holds each parameter's factor, 1 where none is given; None without any."""
        if not factors:
            return None
        vector = torch.ones_like(self.vector)
        for name, part in self.views(vector):
            part.fill_(factors.get(name, 1.0))
        return vector

    def convolution_kernels(self, vector: Tensor) -> Iterator[Tensor]:
        """Cut the kernels of convolutions out of such a vector, as they lie there: (outputs, height, width, inputs)."""
        for _, kernel in self.views(vector):
            if kernel.ndim == 4:
                yield kernel.permute(0, 2, 3, 1)


def in_memory_order(tensor: Tensor) -> Tensor:
    """Flatten; convolution kernels channels-last, which is how they are used."""
    return (tensor.permute(0, 2, 3, 1) if tensor.ndim == 4 else tensor).reshape(-1)
