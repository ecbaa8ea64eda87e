"""FixMatch: a confident guess from a weak view is the target of a strong view."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mma.algorithms.algorithm import Algorithm, Batch, Losses
from mma.algorithms.ops import (
    Alignment,
    align_distribution,
    alignment_memory,
    joint_forward,
    one_hot,
    probabilities,
    sharpen,
    weak_logits,
)


class FixMatch(Algorithm):
    """Guess from a weak view, keep confident guesses, fit them on a strong view (arXiv:2001.07685)."""

    name: Literal["fixmatch"] = "fixmatch"
    views: ClassVar[int] = 1
    strong: ClassVar[int] = 1
    threshold: float = Field(0.95, ge=0, le=1)  # guesses count from this probability on
    weight: float = Field(1.0, ge=0)  # of the unlabeled term
    temperature: float = Field(0.0, ge=0)  # guesses are sharpened with it; 0 = the most likely class alone
    guesser: Literal["student", "teacher"] = "student"  # the teacher knows more early, and follows later
    align: Alignment = "off"  # bring the mean of the guesses to that of the labels, or to all classes alike
    align_decay: float = Field(0.99, ge=0, lt=1)  # of the running means behind it, per step

    def memory(self, classes: int) -> dict[str, Tensor]:
        """Return the running means that alignment needs."""
        return alignment_memory(self.align, classes)

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on labels, and on sure guesses for the strong views."""
        assert batch.strong is not None
        p = probabilities(weak_logits(student, teacher, batch.u[0], self.guesser))  # (B, classes)
        p, memory = align_distribution(p, batch.y, batch.memory, self.align, self.align_decay)
        q = self._targets(p)  # (B, classes)
        sure = (p.amax(1) >= self.threshold).to(p.dtype)  # (B,)
        x, s = joint_forward(student, batch.x, batch.strong[0], moves_statistics=self.guesser == "teacher")
        # The mean runs over all unlabeled images, also those left out: a few confident guesses have little weight.
        fit = (sure * F.cross_entropy(s, q, reduction="none")).mean()
        terms = {"labeled": F.cross_entropy(x, batch.y), "unlabeled": self.weight * fit}
        return Losses(terms, guesses=q, memory=memory)

    def _targets(self, p: Tensor) -> Tensor:
        """Return sharpened guesses; one-hot ones at temperature 0."""
        if self.temperature > 0:
            return sharpen(p, self.temperature)
        return one_hot(p.argmax(1), p)
