"""MixMatch: guess labels for unlabeled images, mix everything with MixUp, and fit the mixture."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mma.algorithms import ops
from mma.algorithms.algorithm import Algorithm, Batch, Losses


class MixMatch(Algorithm):
    """Guess labels, sharpen them, MixUp everything, fit the mixture (arXiv:1905.02249, algorithm 1)."""

    name: str = "mixmatch"
    views: ClassVar[int] = 2  # Paper: each unlabeled image is augmented K = 2 times.
    temperature: float = Field(0.5, gt=0)  # Paper: guesses are sharpened with T = 0.5.
    alpha: float = Field(0.75, ge=0)  # Paper: MixUp draws from Beta(0.75, 0.75) on CIFAR-10 (appendix table).
    weight: float = Field(75.0, ge=0)  # Paper: lambda_U is 75 on CIFAR-10 (appendix table).
    # Original: the unlabeled weight rises over 128 kimg, which is 2,048 steps at batch 64.
    ramp: int = Field(2_048, ge=0)
    align: ops.Alignment = "off"  # bring the mean of the guesses to this: see `align_distribution`
    align_decay: float = Field(0.99, ge=0, lt=1)  # of the running means behind it, per step

    def memory(self, classes: int) -> dict[str, Tensor]:
        """Return the running means that alignment needs."""
        return ops.alignment_memory(self.align, classes)

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on the labeled part of the mixture, squared error on the unlabeled part."""
        with torch.no_grad(), ops.frozen_statistics(student):
            # Original: guesses come from the student's own weights with batch statistics, one forward per view.
            p = torch.stack([ops.probabilities(logits) for logits in ops.forwards(student, list(batch.u))]).mean(0)
        p, memory = ops.align_distribution(p, batch.y, batch.memory, self.align, self.align_decay)
        q = ops.sharpen(p, self.temperature)  # (B, classes)
        targets = torch.cat([ops.one_hot(batch.y, q), *[q] * len(batch.u)])  # (N, classes), N = B + K B
        inputs, targets = ops.mixup(torch.cat([batch.x, *batch.u]), targets, self.alpha, rng)
        logits = ops.interleaved_forward(student, inputs, [len(batch.x), *[len(q)] * len(batch.u)])  # (N, classes)
        x, u = slice(len(batch.x)), slice(len(batch.x), None)
        terms = {
            "labeled": F.cross_entropy(logits[x], targets[x]),
            # Original: the squared error is averaged over the batch and over the classes.
            "unlabeled": self.weight * ops.ramp(step, self.ramp) * F.mse_loss(ops.probabilities(logits[u]), targets[u]),
        }
        return Losses(terms, guesses=q, memory=memory)
