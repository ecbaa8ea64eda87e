"""MixMatch with augmentation anchoring: the guess of a weak view is also the target of a strong view."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mma.algorithms import ops
from mma.algorithms.algorithm import Algorithm, Batch, Losses


class AnchoredMixMatch(Algorithm):
    """MixMatch with two ideas of its successor (arXiv:1911.09785): distribution alignment and augmentation anchoring.

    The guess comes from one weak view. That view and a strong view of the same image are mixed with the labeled images
    and fitted as in MixMatch. Unlike the successor, it predicts no rotations and keeps MixMatch's squared error. A run that
    was given the guesses of another model (`--labels-from`) begins with them.
    """

    name: str = "anchored-mixmatch"
    views: ClassVar[int] = 1
    strong: ClassVar[int] = 1
    temperature: float = Field(0.5, gt=0)  # guesses are sharpened with it
    alpha: float = Field(0.75, ge=0)  # MixUp draws from Beta(alpha, alpha)
    weight: float = Field(30.0, ge=0)  # of the unlabeled term
    ramp: int = Field(2_048, ge=0)  # steps over which that weight rises
    guesser: Literal["student", "teacher"] = "teacher"  # the teacher knows more early, and follows later
    align: ops.Alignment = "uniform"  # bring the mean of the guesses to that of the labels, or to all classes alike
    align_decay: float = Field(0.99, ge=0, lt=1)  # of the running means behind it, per step
    guided: int = Field(0, ge=0)  # steps over which guesses of another model, if there are any, give way to its own

    def memory(self, classes: int) -> dict[str, Tensor]:
        """Return the running means that alignment needs."""
        return ops.alignment_memory(self.align, classes)

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on the labeled part of the mixture, squared error on the unlabeled part."""
        assert batch.strong is not None
        with ops.frozen_statistics(student):
            p = ops.probabilities(ops.weak_logits(student, teacher, batch.u[0], self.guesser))  # (B, classes)
        given = batch.guesses.to(p) if batch.guesses is not None and self.guided else None
        # Labels that were asked for are not distributed as the pool is; the guesses of a model that knows them are.
        like = batch.y if given is None else given
        p, memory = ops.align_distribution(p, like, batch.memory, self.align, self.align_decay)
        guidance = 0.0 if given is None else 1.0 - ops.ramp(step, self.guided)
        p = p if given is None else torch.lerp(p, given, guidance)
        q = ops.sharpen(p, self.temperature)  # (B, classes)
        targets = torch.cat([ops.one_hot(batch.y, q), q, q])  # (N, classes), N = B + 2 B
        inputs, targets = ops.mixup(torch.cat([batch.x, batch.u[0], batch.strong[0]]), targets, self.alpha, rng)
        logits = ops.interleaved_forward(student, inputs, [len(batch.x), len(q), len(q)])  # (N, classes)
        x, u = slice(len(batch.x)), slice(len(batch.x), None)
        height = max(ops.ramp(step, self.ramp), guidance)  # guesses of a trained model count from the start
        terms = {
            "labeled": F.cross_entropy(logits[x], targets[x]),
            "unlabeled": self.weight * height * F.mse_loss(ops.probabilities(logits[u]), targets[u]),
        }
        return Losses(terms, guesses=q, memory=memory)
