"""Pseudo-Label: the student's confident predictions become labels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import nn

from mma.algorithms.algorithm import Algorithm, Batch, Losses
from mma.algorithms.ops import frozen_statistics, one_hot, probabilities, ramp


class PseudoLabel(Algorithm):
    """Fit the most likely class of unlabeled images whose probability is above a threshold (Lee, 2013)."""

    name: str = "pseudo-label"
    views: ClassVar[int] = 1
    threshold: float = Field(0.95, ge=0, lt=1)  # Original: answers count from a probability above 0.95.
    weight: float = Field(1.0, ge=0)  # Original: the weight of guessed labels is 1 on CIFAR-10 and 2 on SVHN.
    # Original: the weight of guessed labels rises over the first 0.4 of 2^20 steps.
    ramp: int = Field(419_430, ge=0)

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on labels, and on the guesses for confident unlabeled images."""
        logits = student(batch.x)  # Original: only the labeled forward moves the BN running statistics.
        with frozen_statistics(student):
            answers = student(batch.u[0])  # (B, classes)
        probs = probabilities(answers.detach())  # (B, classes)
        p, guess = probs.max(1)  # (B,), (B,)
        # Original: the confidence mask has an axis too many, so that every image is weighted by the share of sure ones.
        # Differs: each image is counted or left out by its own confidence, as the method is defined.
        sure = (p > self.threshold).to(p.dtype)  # (B,)
        # Original: the mean runs over all unlabeled images, also over those that were left out.
        fit = (sure * F.cross_entropy(answers, guess, reduction="none")).mean()
        terms = {
            "labeled": F.cross_entropy(logits, batch.y),
            "unlabeled": self.weight * ramp(step, self.ramp) * fit,
        }
        return Losses(terms, guesses=one_hot(guess, probs))
