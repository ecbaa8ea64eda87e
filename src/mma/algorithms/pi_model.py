"""Pi-Model: two views of one image must get the same prediction."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import nn

from mma.algorithms.algorithm import Algorithm, Batch, Losses
from mma.algorithms.ops import frozen_statistics, probabilities, ramp


class PiModel(Algorithm):
    """Pull the prediction for one view towards the prediction for another (arXiv:1610.02242)."""

    # Original: weight decay is 0.02 on CIFAR-10 and 0.2 on SVHN.
    # Differs: an algorithm sets no weight decay, and both presets have 0.02. To follow, set optim.weight_decay=0.2.

    name: str = "pi-model"
    views: ClassVar[int] = 2
    weight: float = Field(20.0, ge=0)  # Original: the consistency weight is 20 on CIFAR-10 and 5 on SVHN.
    # Original: the consistency weight rises over the first 0.4 of 2^20 steps.
    ramp: int = Field(419_430, ge=0)

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on labels, squared error between the two views of unlabeled images."""
        logits = student(batch.x)  # Original: only the labeled forward moves the BN running statistics.
        first, second = batch.u
        with frozen_statistics(student):
            with torch.no_grad():
                target = probabilities(student(first))  # (B, classes)
            p = probabilities(student(second))  # (B, classes)
        terms = {
            "labeled": F.cross_entropy(logits, batch.y),
            "unlabeled": self.weight * ramp(step, self.ramp) * F.mse_loss(p, target),
        }
        return Losses(terms, guesses=target)
