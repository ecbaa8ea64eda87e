"""What an algorithm is: its hyper-parameters, and a loss made of named terms."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel
from torch import Tensor, nn


@dataclass(frozen=True)
class Batch:
    """What one step sees: labeled images with their labels, and K augmented views of unlabeled ones."""

    x: Tensor  # (B, C, H, W)
    y: Tensor  # (B,) int64
    u: Tensor  # (K, B, C, H, W); the number of unlabeled images may differ from that of labeled ones


@dataclass(frozen=True)
class Losses:
    """What one step minimises, and what it took the unlabeled images for."""

    terms: dict[str, Tensor]  # scalars, already weighted: their sum is minimised
    guesses: Tensor | None = None  # (B, classes), rows sum to one, no gradient; None when nothing is guessed


class Algorithm(BaseModel, frozen=True, extra="forbid"):
    """A way to learn from labeled and unlabeled images; fields are its hyper-parameters.

    The loop owns everything else: forward mode, backward, optimizer, EMA, logging, checkpoints.
    """

    name: str
    views: ClassVar[int]  # augmented views of each unlabeled image that a batch must hold; 0 = none are looked at

    @abstractmethod
    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return the terms of one step.

        `student` is in training mode and stays so. `teacher` holds the EMA weights and shares the student's BN
        buffers; it is only looked at. `step` counts from the last (re)start of the ramp. All randomness is `rng`.
        """
