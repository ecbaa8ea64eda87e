"""A head for stored features: one dense layer, or two. A round takes a second."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mma.nets.logistic import choose_parts, fit_logistic
from mma.nets.network import Net, Shape


class Head(Net):
    """A dense layer on features, started from a logistic regression on the labels."""

    name: Literal["head"] = "head"
    takes: ClassVar[str] = "features"
    hidden: int = Field(default=0, ge=0)  # units of a hidden layer; 0 = none
    start: Literal["logistic", "zero"] = "logistic"  # a hidden layer always starts at random
    penalty: float = Field(default=0.0001, gt=0.0)  # of the logistic regression: its L2 weight, per label
    choose: bool = True  # which parts of joined features to use, by cross-validation on the labels

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return the head for feature vectors whose parts have these lengths."""
        return HeadNet(shape, classes, self.hidden)

    def reset(self, module: nn.Module, rng: np.random.Generator) -> None:
        """Draw a hidden layer, set the last one to zero: it says nothing before it has learned anything."""
        super().reset(module, rng)
        assert isinstance(module, HeadNet)
        module.gate.fill_(1.0)
        if not self.hidden:
            nn.init.zeros_(module.head.weight)

    def start_from(self, module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any] | None:
        """Choose the parts of the features that tell the labels apart best, and start from a logistic regression."""
        assert isinstance(module, HeadNet)
        features, labels = x.cpu().numpy(), y.cpu().numpy()
        found = choose_parts(features, labels, module.parts, self.penalty) if self.choose else None
        with torch.no_grad():
            if found is not None:
                module.gate.copy_(torch.from_numpy(found.gate))
            if self.start == "logistic" and not self.hidden:
                weight, bias = fit_logistic(
                    features * module.gate.cpu().numpy(), labels, len(module.head.bias), self.penalty
                )
                module.head.weight.copy_(torch.from_numpy(weight))
                module.head.bias.copy_(torch.from_numpy(bias))
        return None if found is None else {"parts": found.parts, "accuracies": found.accuracies, "why": found.why}


class HeadNet(nn.Module):
    """features() lets the chosen parts through; the embedding is what the last dense layer sees."""

    gate: Tensor

    def __init__(self, shape: Shape, classes: int, hidden: int) -> None:
        super().__init__()
        self.parts, width = tuple(shape), sum(shape)
        self.register_buffer("gate", torch.ones(width))  # 1 for the numbers that are used, 0 for the others
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.head = nn.Linear(hidden or width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the numbers the last layer sees."""  # (B, D) -> (B, D) or (B, hidden)
        x = x * self.gate
        return x if self.hidden is None else F.relu(self.hidden(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""  # (B, classes)
        logits: Tensor = self.head(self.features(x))
        return logits
