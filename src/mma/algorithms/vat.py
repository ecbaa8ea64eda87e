"""Virtual adversarial training: predictions must not change under the small perturbation that changes them most."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mma.algorithms.algorithm import Algorithm, Batch, Losses
from mma.algorithms.ops import frozen_statistics, noise_like, ramp


class VAT(Algorithm):
    """Make predictions smooth around unlabeled examples, and low in entropy (arXiv:1704.03976, with entropy term)."""

    name: str = "vat"
    views: ClassVar[int] = 1
    radius: float = Field(6.0, gt=0)  # Original: the perturbation has Euclidean length 6.
    # Original: the direction is searched with a perturbation of length 1e-6, whose effect drowns in float32 rounding.
    # Differs: ours has length 1e-3, where the direction found agrees with the one that double precision finds.
    probe: float = Field(1e-3, gt=0)
    weight: float = Field(0.3, ge=0)  # Original: the adversarial term has weight 0.3.
    entropy: float = Field(0.06, ge=0)  # Original: the entropy term has weight 0.06 from the first step on.
    # Original: the adversarial weight rises over the first 0.4 of 2^20 steps.
    ramp: int = Field(419_430, ge=0)

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on labels, divergence under the perturbation, and entropy of the predictions."""
        logits = student(batch.x)  # Original: only the labeled forward moves the BN running statistics.
        u = batch.u[0]
        # The probe is too short for half precision, so autocast rests here.
        with frozen_statistics(student), torch.autocast(u.device.type, enabled=False):
            clean = student(u).log_softmax(1)  # (B, classes)
            perturbed = student(u + self._perturbation(student, u, clean.detach(), rng)).log_softmax(1)
        terms = {
            "labeled": F.cross_entropy(logits, batch.y),
            # Original: the divergence is measured from the perturbed answer to the clean one, which gets no gradient.
            "adversarial": self.weight * ramp(step, self.ramp) * _divergence(perturbed, clean.detach()),
            "entropy": self.entropy * -(clean.exp() * clean).sum(1).mean(),
        }
        return Losses(terms, guesses=clean.detach().exp())

    def _perturbation(self, student: nn.Module, u: Tensor, clean: Tensor, rng: np.random.Generator) -> Tensor:
        """Return, for each example, a step of length `radius` in the direction that changes the prediction most."""
        # Original: the direction comes from one power iteration that starts at normal noise.
        d = (self.probe * _unit(noise_like(u, rng))).requires_grad_()
        divergence = _divergence(clean, student(u + d).log_softmax(1))
        (gradient,) = torch.autograd.grad(divergence, d)  # of the perturbation alone: parameters gather nothing
        return self.radius * _unit(gradient)


def _divergence(a: Tensor, b: Tensor) -> Tensor:
    """Return KL(a || b), the mean over the batch, from log probabilities."""  # (B, classes) twice
    return (a.exp() * (a - b)).sum(1).mean()


def _unit(d: Tensor) -> Tensor:
    """Scale each example to length one. Dividing by the largest entry first keeps tiny gradients from underflowing."""
    own = tuple(range(1, d.ndim))  # all dimensions but the batch
    d = d / (d.abs().amax(own, keepdim=True) + 1e-12)
    return d / (d.square().sum(own, keepdim=True) + 1e-6).sqrt()
