"""FixMatch: a confident guess from a weak view is the target of a strong view."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import nn

from mma.algorithms.algorithm import Algorithm, Batch, Losses
from mma.algorithms.ops import joint_forward, one_hot, probabilities, weak_logits


class FixMatch(Algorithm):
    """Guess from a weak view, keep confident guesses, fit them on a strong view (arXiv:2001.07685)."""

    name: str = "fixmatch"
    views: ClassVar[int] = 1
    strong: ClassVar[int] = 1
    threshold: float = Field(0.95, ge=0, le=1)  # guesses count from this probability on
    weight: float = Field(1.0, ge=0)  # of the unlabeled term

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on labels, and on sure guesses for the strong views."""
        assert batch.strong is not None
        p = probabilities(weak_logits(student, teacher, batch.u[0], "student"))  # (B, classes)
        q = one_hot(p.argmax(1), p)  # (B, classes)
        sure = (p.amax(1) >= self.threshold).to(p.dtype)  # (B,)
        x, s = joint_forward(student, batch.x, batch.strong[0])
        # The mean runs over all unlabeled images, also those left out: a few confident guesses have little weight.
        fit = (sure * F.cross_entropy(s, q, reduction="none")).mean()
        terms = {"labeled": F.cross_entropy(x, batch.y), "unlabeled": self.weight * fit}
        return Losses(terms, guesses=q)
