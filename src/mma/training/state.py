"""Everything that training changes: two networks, Adam's moments, and the sums of what is logged next."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from mma.algorithms import Losses
from mma.config import Config
from mma.data import Images
from mma.nets import Network, build, initialise, without_embeddings
from mma.query import Query
from mma.rng import rng
from mma.training.flat import Flat

Builder = Callable[[int, int, int], nn.Module]  # (channels, classes, side) -> a network with features() and head


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

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return self.weights.vector.device

    def forget(self) -> None:
        """Let the algorithm remember nothing; copies, because a stored state is loaded in place."""
        self.memory = {name: value.clone() for name, value in self.blank.items()}

    def add(self, losses: Losses) -> None:
        """Add one step's losses and guesses to the sums, without waiting for the device."""
        values = {f"loss/{name}": term.detach() for name, term in losses.terms.items()}
        if losses.guesses is not None:
            values["guesses"] = losses.guesses.mean(0)  # (classes,)
        for name, value in values.items():
            whole = value.to(torch.promote_types(value.dtype, torch.float32))  # sums of halves would stand still
            self.sums[name] = self.sums[name] + whole if name in self.sums else whole.clone()
        self.summed += 1

    def means(self) -> dict[str, np.ndarray]:
        """Return the means since the last call and begin again. Waits for the device."""
        means = {name: (self.sums[name] / self.summed).cpu().numpy() for name in sorted(self.sums)}
        self.sums, self.summed = {}, 0
        return means


def network(config: Config, images: Images, builder: Builder | None = None) -> nn.Module:
    """Build the network the config names, or the user's own, without weights worth keeping."""
    _, height, width, channels = images.pixels.shape
    classes = len(images.classes)
    if config.net.name == "own":
        if builder is None:
            raise ValueError(
                "this run trains a network of its own: call mma.training.loop.train(run, oracle, network=...)."
            )
        return complete(builder(channels, classes, max(height, width)), config.query)
    settings = config.net.model_dump(exclude={"name"})
    return build(config.net.name, channels, classes, max(height, width), **settings)


def complete(net: nn.Module, query: str) -> nn.Module:
    """Return a user's network, or say before any training what the query will miss in it."""
    asked = Query.parse("random" if query == "passive" else query)
    looks = asked.needs_features or (asked.needs_probs and not asked.aug)
    if looks and not isinstance(net, Network):
        raise ValueError(without_embeddings(net, query))
    return net


def start(config: Config, images: Images, device: torch.device, builder: Builder | None = None) -> State:
    """Return the state before the first step: weights are a function of the seed."""
    student = network(config, images, builder)
    initialise(student, rng(config.seed, "init"))
    state = assemble(student, device)
    state.blank = {name: t.to(device) for name, t in config.algorithm.memory(len(images.classes)).items()}
    state.forget()
    return state


def assemble(student: nn.Module, device: torch.device) -> State:
    """Put a student on the device with a teacher equal to it and an optimizer that has seen nothing."""
    student = student.to(device)  # `Flat` lays the kernels out channels-last
    teacher = copy.deepcopy(student)
    weights, average = Flat(student, gradients=True), Flat(teacher, gradients=False)
    share_statistics(student, teacher)
    zeros = torch.zeros_like(weights.vector)
    return State(student.train(), teacher.eval(), weights, average, zeros, zeros.clone())


def share_statistics(student: nn.Module, teacher: nn.Module) -> None:
    """Let the teacher read the student's BN statistics themselves."""
    # Paper: BN statistics are used raw, only weights are averaged.
    modules = dict(teacher.named_modules())
    for prefix, module in student.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(modules[prefix], name, buffer)


@torch.no_grad()
def refresh(state: State, config: Config, index: int) -> None:
    """Draw the student anew before round `index`, keeping a share `growth.shrink` of what it had learned."""
    old, kept = state.weights.vector.clone(), config.growth.shrink
    initialise(state.student, rng(config.seed, "refresh", index))
    state.weights.vector.lerp_(old, kept)
    state.average.vector.copy_(state.weights.vector)
    state.moment1.zero_()
    state.moment2.zero_()
    state.forget()
