"""An algorithm: `--set algorithm=entropy-minimisation`."""

from typing import ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import nn

from mma.algorithms import ALGORITHMS, Algorithm, Batch, Losses
from mma.algorithms.ops import frozen_statistics


class EntropyMinimisation(Algorithm):
    """Fit the labels, and be sure about the unlabeled images (Grandvalet and Bengio, 2004)."""

    name: Literal["entropy-minimisation"] = "entropy-minimisation"
    views: ClassVar[int] = 1
    weight: float = Field(0.3, ge=0)  # of the entropy

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return cross-entropy on labels, entropy on unlabeled images."""
        logits = student(batch.x)
        with frozen_statistics(student):
            log_p = student(batch.u[0]).log_softmax(1)  # (B, classes)
        entropy = -(log_p.exp() * log_p).sum(1).mean()
        return Losses({"labeled": F.cross_entropy(logits, batch.y), "entropy": self.weight * entropy})


ALGORITHMS["entropy-minimisation"] = EntropyMinimisation
