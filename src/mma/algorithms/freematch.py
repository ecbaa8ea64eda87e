"""FreeMatch: confidence thresholds adapt by themselves, one per class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mma.algorithms.algorithm import Algorithm, Batch, Losses
from mma.algorithms.ops import ema, joint_forward, one_hot, probabilities, uniform, weak_logits


class FreeMatch(Algorithm):
    """Fit guesses above thresholds that follow the running confidence, and treat classes fairly (arXiv:2205.07246)."""

    name: str = "freematch"
    views: ClassVar[int] = 1
    strong: ClassVar[int] = 1
    weight: float = Field(1.0, ge=0)  # of the unlabeled term
    fairness: float = Field(0.01, ge=0)  # of the fairness term
    decay: float = Field(0.99, ge=0, lt=1)  # of the running averages, per step

    def memory(self, classes: int) -> dict[str, Tensor]:
        """Return the running averages before the first step: mean confidence, mean guess, share of each class among guesses."""
        return {"confidence": uniform(classes)[:1], "guesses": uniform(classes), "histogram": uniform(classes)}

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on labels and on sure guesses for the strong views, and the fairness term."""
        assert batch.strong is not None
        p = probabilities(weak_logits(student, teacher, batch.u[0], "student"))  # (B, classes)
        confidence, guess = p.max(1)  # (B,), (B,)
        memory = {
            "confidence": ema(batch.memory["confidence"], confidence.mean(0, keepdim=True), self.decay),
            "guesses": ema(batch.memory["guesses"], p.mean(0), self.decay),
            "histogram": ema(batch.memory["histogram"], one_hot(guess, p).mean(0), self.decay),
        }
        thresholds = memory["confidence"] * memory["guesses"] / memory["guesses"].amax()  # (classes,)
        sure = (confidence >= thresholds[guess]).to(p.dtype)  # (B,)
        x, s = joint_forward(student, batch.x, batch.strong[0])
        terms = {
            "labeled": F.cross_entropy(x, batch.y),
            "unlabeled": self.weight * (sure * F.cross_entropy(s, guess, reduction="none")).mean(),
            "fairness": self.fairness * fairness_divergence(s, sure, memory["guesses"], memory["histogram"]),
        }
        return Losses(terms, guesses=one_hot(guess, p), memory=memory)


def fairness_divergence(logits: Tensor, sure: Tensor, guesses: Tensor, histogram: Tensor) -> Tensor:
    """Return KL(running || batch) between the confidence per class of earlier guesses and that of this batch.

    The confidence of a class is its mean probability divided by its share among the answers, normalised over the classes.
    Only classes that are an answer in this batch count.
    """
    # Original: adds the sum of running * log(batch), the negative cross-entropy. Minimising it drives
    # the batch away from the running confidence.
    # Differs: we add the divergence, whose gradient has the opposite sign: it pulls the batch towards the running confidence
    # and is zero where the two agree.
    s = probabilities(logits) * sure[:, None]  # (B, classes)
    answers = one_hot(logits.detach().argmax(1), s) * sure[:, None]  # (B, classes)
    count = answers.sum(0)  # (classes,)
    batch = class_confidence(s.sum(0), count)
    running = class_confidence(guesses, histogram * (count > 0))
    return (running * (running.clamp_min(1e-12).log() - batch.clamp_min(1e-12).log())).sum()


def class_confidence(mean: Tensor, count: Tensor) -> Tensor:
    """Return mean / count scaled to sum to one; a class that was never an answer gets 0."""  # (classes,)
    ratio = mean * (count > 0) / count.clamp_min(1e-12)
    return ratio / ratio.sum().clamp_min(1e-12)
