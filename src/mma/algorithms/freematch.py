"""FreeMatch: the bar for a sure guess rises by itself, for each class as fast as it is learned."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mma.algorithms.algorithm import Algorithm, Batch, Losses
from mma.algorithms.ops import joint_forward, moved, one_hot, probabilities, uniform, weak_answers


class FreeMatch(Algorithm, frozen=True):
    """Fit guesses above thresholds that follow the running confidence, and treat classes fairly (arXiv:2205.07246)."""

    name: Literal["freematch"] = "freematch"
    views: ClassVar[int] = 1
    strong: ClassVar[int] = 1
    weight: float = Field(1.0, ge=0)  # of the unlabeled term
    fairness: float = Field(0.01, ge=0)  # of the term that keeps classes equally confident
    decay: float = Field(0.99, ge=0, lt=1)  # of the running averages, per step
    guesser: Literal["student", "teacher"] = "student"  # the teacher knows more early, and follows later

    def memory(self, classes: int) -> dict[str, Tensor]:
        """Return the running averages: confidence, distribution of the guesses, and how often a class is guessed."""
        return {"confidence": uniform(classes)[:1], "guesses": uniform(classes), "histogram": uniform(classes)}

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on labels and on sure guesses for the strong views, and the fairness term."""
        assert batch.strong is not None
        p = probabilities(weak_answers(student, teacher, batch.u[0], self.guesser))  # (B, classes)
        confidence, guess = p.max(1)  # (B,), (B,)
        memory = {
            "confidence": moved(batch.memory["confidence"], confidence.mean(0, keepdim=True), self.decay),
            "guesses": moved(batch.memory["guesses"], p.mean(0), self.decay),
            "histogram": moved(batch.memory["histogram"], one_hot(guess, p).mean(0), self.decay),
        }
        thresholds = memory["confidence"] * memory["guesses"] / memory["guesses"].amax()  # (classes,)
        sure = (confidence >= thresholds[guess]).to(p.dtype)  # (B,)
        x, s = joint_forward(student, batch.x, batch.strong[0], moves_statistics=self.guesser == "teacher")
        terms = {
            "labeled": F.cross_entropy(x, batch.y),
            "unlabeled": self.weight * (sure * F.cross_entropy(s, guess, reduction="none")).mean(),
            "fairness": self.fairness * unfairness(s, sure, memory["guesses"], memory["histogram"]),
        }
        return Losses(terms, guesses=one_hot(guess, p), memory=memory)


def unfairness(logits: Tensor, sure: Tensor, guesses: Tensor, histogram: Tensor) -> Tensor:
    """Return how far the confidence per class of a batch is from the running one: KL(running || batch).

    Confidence per class is the mean probability of a class over how often it is the answer, scaled to sum to one.
    The authors subtract the cross-entropy of the two; we add the divergence, which is never negative and is zero where
    the two agree.
    """
    s = probabilities(logits) * sure[:, None]  # (B, classes)
    answers = one_hot(logits.detach().argmax(1), s) * sure[:, None]  # (B, classes)
    often = answers.sum(0)  # (classes,)
    batch = shares(s.sum(0), often)
    running = shares(guesses, histogram * (often > 0))  # of the classes that this batch says something about
    return (running * (running.clamp_min(1e-12).log() - batch.clamp_min(1e-12).log())).sum()


def shares(mean: Tensor, often: Tensor) -> Tensor:
    """Return mean / often, zero where nothing was answered, scaled to sum to one."""  # (classes,)
    ratio = mean * (often > 0) / often.clamp_min(1e-12)
    return ratio / ratio.sum().clamp_min(1e-12)
