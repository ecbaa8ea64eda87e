"""MixMatch with an anchor: what a weak view is taken for, a strong view must be taken for too."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from mma.algorithms.algorithm import Algorithm, Batch, Losses
from mma.algorithms.ops import (
    Alignment,
    aligned,
    alignment_memory,
    blended,
    frozen_statistics,
    probabilities,
    ramp,
    sharpen,
    weak_answers,
)


class AnchoredMixMatch(Algorithm, frozen=True):
    """MixMatch with two ideas of its successor (arXiv:1911.09785): distribution alignment and augmentation anchoring.

    The guess comes from one weak view; this view and a strong one of the same image are blended with the labeled images
    and fitted as MixMatch does. Unlike there: no prediction of rotations, and the squared error of MixMatch.
    """

    name: Literal["anchored-mixmatch"] = "anchored-mixmatch"
    views: ClassVar[int] = 1
    strong: ClassVar[int] = 1
    temperature: float = Field(0.5, gt=0)  # guesses are sharpened with it
    alpha: float = Field(0.75, ge=0)  # MixUp draws from Beta(alpha, alpha)
    weight: float = Field(30.0, ge=0)  # of the unlabeled term
    ramp: int = Field(2_048, ge=0)  # steps over which that weight rises
    guesser: Literal["student", "teacher"] = "teacher"  # the teacher knows more early, and follows later
    align: Alignment = "uniform"  # bring the mean of the guesses to that of the labels, or to all classes alike
    align_decay: float = Field(0.99, ge=0, lt=1)  # of the running means behind it, per step

    def memory(self, classes: int) -> dict[str, Tensor]:
        """Return the running means that alignment needs."""
        return alignment_memory(self.align, classes)

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on the labeled part of the blend, squared error on the unlabeled one."""
        assert batch.strong is not None
        with frozen_statistics(student):
            p = probabilities(weak_answers(student, teacher, batch.u[0], self.guesser))  # (B, classes)
        p, memory = aligned(p, batch.y, batch.memory, self.align, self.align_decay)
        q = sharpen(p, self.temperature)  # (B, classes)
        weight = self.weight * ramp(step, self.ramp)
        terms = blended(student, (batch.x, batch.y), [batch.u[0], batch.strong[0]], q, self.alpha, weight, rng)
        return Losses(terms, guesses=q, memory=memory)
