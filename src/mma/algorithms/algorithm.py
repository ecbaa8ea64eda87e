"""The contract of an algorithm: hyper-parameters, and a loss made of named terms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from torch import Tensor, nn

from mma.settings import Settings

# Original: the baselines' unlabeled weight rises over the first 0.4 of all steps.
RAMP_SHARE = 0.4


@dataclass(frozen=True)
class Batch:
    """The input of one step. Examples have any shape: images (C, H, W) or feature rows (D,)."""

    x: Tensor  # (B, ...) labeled
    y: Tensor  # (B,) int64
    u: Tensor  # (K, B', ...) K weak views of B' unlabeled examples
    strong: Tensor | None = None  # (S, B', ...) strong views of the same examples; None for S = 0
    memory: Mapping[str, Tensor] = field(default_factory=dict)  # running averages of earlier steps, by name
    guesses: Tensor | None = None  # (B', classes) what another model says about the unlabeled examples; None = nothing


@dataclass(frozen=True)
class Losses:
    """The result of one step: terms to minimise, guessed labels, updated running averages."""

    terms: dict[str, Tensor]  # scalars, already weighted: their sum is minimised
    guesses: Tensor | None = None  # (B, classes), rows sum to one, no gradient; None when nothing is guessed
    memory: Mapping[str, Tensor] = field(default_factory=dict)  # for the next step's batch; no gradient


class Algorithm(Settings):
    """A way to learn from labeled and unlabeled images; fields are its hyper-parameters.

    The loop owns everything else: forward mode, backward, optimizer, EMA, logging, checkpoints.
    """

    name: str
    views: ClassVar[int]  # augmented views of each unlabeled image that a batch must hold; 0 = none are looked at
    strong: ClassVar[int] = 0  # strongly augmented views of the same images

    def memory(self, classes: int) -> dict[str, Tensor]:
        """Return the running averages before the first step, by name. Most algorithms have none.

        `loss` never changes them in place: it returns new values, which the loop passes to the next step and stores.
        """
        return {}

    def for_length(self, steps: int) -> Self:
        """Return the algorithm for a run of `steps` steps: a ramp is cut to at most RAMP_SHARE of them."""
        longest = round(RAMP_SHARE * steps)
        if getattr(self, "ramp", 0) <= longest:
            return self
        return self.model_copy(update={"ramp": longest})

    @abstractmethod
    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return the terms of one step.

        `student` is in training mode and stays so. `teacher` holds the EMA weights and shares the student's BN
        buffers; it is only looked at. `step` counts from the last (re)start of the ramp. All randomness is `rng`.
        """
