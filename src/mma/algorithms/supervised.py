"""The supervised baseline: learn from the labeled images alone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import nn

from mma.algorithms.algorithm import Algorithm, Batch, Losses


class Supervised(Algorithm):
    """Cross-entropy on the labeled images; unlabeled ones are never looked at."""

    name: str = "supervised"
    views: ClassVar[int] = 0
    # Original: the fully supervised baseline smooths CIFAR-10's labels by 0.001 and SVHN's by 0.01.
    smoothing: float = Field(0.001, ge=0, lt=1)

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return the cross-entropy with smoothed labels."""
        return Losses({"labeled": F.cross_entropy(student(batch.x), batch.y, label_smoothing=self.smoothing)})
