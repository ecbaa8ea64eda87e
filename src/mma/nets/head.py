"""A head for stored features: one dense layer, or two. A round takes less than a second."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mma.nets.dense import Dense
from mma.nets.logistic import (
    PENALTIES,
    CrossValidation,
    choose_parts,
    choose_penalty,
    choose_scale,
    everything,
    fit_logistic,
    thread_pools,
)
from mma.nets.network import GroupedNetwork, Net, Shape


class Head(Net):
    """A dense layer on features, started from a logistic regression on the labels."""

    name: Literal["head"] = "head"
    takes: ClassVar[str] = "features"
    hidden: int = Field(default=0, ge=0)  # units of a hidden layer; 0 = none
    start: Literal["logistic", "zero"] = "logistic"  # a hidden layer always starts at random
    penalty: float | None = Field(default=None, gt=0.0)  # its L2 weight, per label; None = the labels choose
    scale: float | None = Field(default=None, gt=0.0)  # of its weights; None = as sure as left-out labels allow
    choose: bool = True  # which parts of joined features to use, by cross-validation on the labels
    folds: int = Field(default=3, ge=0)  # heads trained without a part of the labels, to find the temperature; 0 = none

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return the head for feature vectors whose parts have these lengths."""
        return HeadNet(shape, classes, self.hidden)

    def reset(self, module: nn.Module, rng: np.random.Generator) -> None:
        """Draw a hidden layer, set the last one to zero: it says nothing before it has learned anything."""
        super().reset(module, rng)
        assert isinstance(module, HeadNet)
        module.gate.fill_(1.0)
        module.head.temperature.fill_(1.0)
        if not self.hidden:
            nn.init.zeros_(module.head.weight)

    def start_from(self, module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any] | None:
        """Choose what tells left-out labels apart best, and start from a logistic regression with that."""
        assert isinstance(module, HeadNet)
        labels = CrossValidation(x.cpu().numpy(), y.cpu().numpy())
        found = everything(module.parts, {}, "nothing was compared: net.choose=false")
        with thread_pools().limit(limits=1):  # one thread: the same numbers on every machine
            penalty, penalties = (self.penalty, {}) if self.penalty else choose_penalty(labels)
            if self.choose:
                found = choose_parts(labels, module.parts, penalty)
            scale = self.scale or choose_scale(labels, found.where, penalty)
        chosen, gate = {"penalty": penalty, "scale": scale}, torch.zeros_like(module.gate)
        gate[found.where] = 1.0
        self.model_copy(update=chosen).start_with(module, x, y, gate)
        said = {"parts": found.parts, "accuracies": found.accuracies, "why": found.why}
        return {**said, **chosen, "penalties": penalties}

    @torch.no_grad()
    def start_with(self, module: HeadNet, x: Tensor, y: Tensor, gate: Tensor) -> None:
        """Use some of the features, and start from a logistic regression on them."""
        module.gate.copy_(gate)
        if self.start != "logistic" or self.hidden:
            return
        features = (x.cpu() * gate.cpu()).numpy()
        with thread_pools().limit(limits=1):
            found = fit_logistic(features, y.cpu().numpy(), len(module.head.bias), self.penalty or PENALTIES[0])
        weight, bias = (torch.from_numpy(each) * (self.scale or 1.0) for each in found)
        module.head.weight.copy_(weight)
        module.head.bias.copy_(bias)


class Calibrated(Dense):
    """A dense layer whose logits are divided by a temperature when it is used, and not while it is trained."""

    temperature: Tensor

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.register_buffer("temperature", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""  # (B, inputs) -> (B, classes)
        logits = super().forward(x)
        return logits if self.training else logits / self.temperature


class HeadNet(GroupedNetwork):
    """features() lets the chosen parts through; the embedding is what the last dense layer sees."""

    gate: Tensor

    def __init__(self, shape: Shape, classes: int, hidden: int) -> None:
        super().__init__()
        self.parts, width = tuple(shape), sum(shape)
        self.register_buffer("gate", torch.ones(width))  # 1 for the numbers that are used, 0 for the others
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.head = Calibrated(hidden or width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the numbers the last layer sees."""  # (B, D) -> (B, D) or (B, hidden)
        x = x * self.gate
        return x if self.hidden is None else F.relu(self.hidden(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits; calibrated in evaluation mode."""  # (B, classes)
        logits: Tensor = self.head(self.features(x))
        return logits

    def joined(self, x: Tensor, groups: int) -> Tensor:
        """Return the logits of several batches at once: nothing here mixes the images of a batch."""
        logits: Tensor = self(x)
        return logits
