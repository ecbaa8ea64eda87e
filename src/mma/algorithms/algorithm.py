"""What an algorithm is: its hyper-parameters, and a loss made of named terms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from pydantic import BaseModel
from torch import Tensor, nn


@dataclass(frozen=True)
class Batch:
    """What one step sees: labeled images with their labels, K weak and S strong views of unlabeled ones, and a memory."""

    x: Tensor  # (B, C, H, W)
    y: Tensor  # (B,) int64
    u: Tensor  # (K, B, C, H, W); the number of unlabeled images may differ from that of labeled ones
    strong: Tensor | None = None  # (S, B, C, H, W), of the same images as `u`; None when the algorithm asks for none
    memory: Mapping[str, Tensor] = field(default_factory=dict)  # what the algorithm remembers of earlier steps


@dataclass(frozen=True)
class Losses:
    """What one step minimises, and what it took the unlabeled images for."""

    terms: dict[str, Tensor]  # scalars, already weighted: their sum is minimised
    guesses: Tensor | None = None  # (B, classes), rows sum to one, no gradient; None when nothing is guessed
    memory: Mapping[str, Tensor] = field(default_factory=dict)  # what the next step's batch will hold; no gradient


class Algorithm(BaseModel, frozen=True, extra="forbid"):
    """A way to learn from labeled and unlabeled images; fields are its hyper-parameters.

    The loop owns everything else: forward mode, backward, optimizer, EMA, logging, checkpoints.
    """

    name: str
    views: ClassVar[int]  # augmented views of each unlabeled image that a batch must hold; 0 = none are looked at
    strong: ClassVar[int] = 0  # strongly augmented views of the same images

    def memory(self, classes: int) -> dict[str, Tensor]:
        """Return what the algorithm remembers before its first step: running averages, by name. Most remember nothing.

        A loss changes none of it: it returns what the next step will find, and the loop keeps and stores that.
        """
        return {}

    @abstractmethod
    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return the terms of one step.

        `student` is in training mode and stays so. `teacher` holds the EMA weights and shares the student's BN
        buffers; it is only looked at. `step` counts from the last (re)start of the ramp. All randomness is `rng`.
        """
