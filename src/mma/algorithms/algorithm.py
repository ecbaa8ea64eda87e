"""The contract of an algorithm: hyper-parameters, and a loss made of named terms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from pydantic import model_validator
from torch import Tensor, nn

from mma.settings import Settings

# Original: the baselines' unlabeled weight rises over the first 0.4 of all steps.
RAMP_SHARE = 0.4


@dataclass(frozen=True)
class Batch:
    """The input of one step. Examples have any shape: images (C, H, W) or feature rows (D,).

    Parameters
    ----------
    x : tensor of shape (B, ...)
        Labeled examples, and their classes `y`, int64 of shape (B,), or soft labels of shape (B, classes).
    u : tensor of shape (K, B', ...)
        K weak views of B' unlabeled examples.
    strong : tensor of shape (S, B', ...), optional
        Strong views of the same examples; None for S = 0.
    memory : mapping of tensors, optional
        Running averages of earlier steps, by name.
    guesses : tensor of shape (B', classes), optional
        What another model says about the unlabeled examples.

    Examples
    --------
    >>> import torch
    >>> Batch(torch.zeros(4, 8), torch.zeros(4, dtype=torch.int64), torch.zeros(2, 6, 8)).u.shape[0]
    2
    """

    x: Tensor
    y: Tensor
    u: Tensor
    strong: Tensor | None = None
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    guesses: Tensor | None = None


@dataclass(frozen=True)
class Losses:
    """The result of one step.

    Parameters
    ----------
    terms : dict of scalar tensors
        Already weighted: their sum is minimised.
    guesses : tensor of shape (B, classes), optional
        Guessed labels; rows sum to one, without gradient.
    memory : mapping of tensors, optional
        Running averages for the next step's batch, without gradient.

    Examples
    --------
    >>> import torch
    >>> sum(Losses({"labeled": torch.tensor(0.5), "unlabeled": torch.tensor(0.25)}).terms.values()).item()
    0.75
    """

    terms: dict[str, Tensor]
    guesses: Tensor | None = None
    memory: Mapping[str, Tensor] = field(default_factory=dict)


class Algorithm(Settings):
    """A way to learn from labeled and unlabeled images; fields are its hyper-parameters.

    The loop owns everything else: forward mode, backward, optimizer, EMA, logging, checkpoints.

    Examples
    --------
    >>> from mma.algorithms import ALGORITHMS
    >>> mixmatch = ALGORITHMS["mixmatch"](weight=50.0)
    >>> mixmatch.temperature, mixmatch.views
    (0.5, 2)
    """

    name: str
    views: ClassVar[int]  # augmented views of each unlabeled image that a batch must hold; 0 = none are looked at
    strong: ClassVar[int] = 0  # strongly augmented views of the same images

    @model_validator(mode="after")
    def _name_is_its_own(self) -> Self:
        if self.name != type(self).model_fields["name"].default:
            raise ValueError(f"{type(self).__name__} is called {type(self).model_fields['name'].default}")
        return self

    def memory(self, classes: int) -> dict[str, Tensor]:
        """Return the running averages before the first step, by name. `loss` returns new ones, and changes none in place."""
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
