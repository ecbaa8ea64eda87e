"""An algorithm of your own: cross-entropy on labels, and predictions that are pushed to be certain elsewhere.

mma --use docs/examples/own_algorithm.py train digits --set algorithm=entropy-minimisation
"""

from typing import ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import nn

from mma.algorithms import ALGORITHMS, Algorithm, Batch, Losses
from mma.algorithms.ops import frozen_statistics, ramp


class EntropyMinimisation(Algorithm):
    """Fields are settings: --set algorithm.weight=0.5. A field called `ramp` is cut to fit short runs."""

    name: Literal["entropy-minimisation"] = "entropy-minimisation"
    views: ClassVar[int] = 1  # weak views of each unlabeled image in a batch
    weight: float = Field(0.3, ge=0)  # of the unlabeled term
    ramp: int = Field(1_000, ge=0)  # steps over which the weight rises

    def loss(self, student: nn.Module, teacher: nn.Module, batch: Batch, step: int, rng: np.random.Generator) -> Losses:
        """Return named terms; their sum is minimised. All randomness must come from `rng`."""
        with frozen_statistics(student):  # the labeled images alone move the statistics of batch normalisation
            logs = F.log_softmax(student(batch.u[0]), dim=1)  # (B, classes)
        entropy = -(logs.exp() * logs).sum(1).mean()
        return Losses(
            {
                "labeled": F.cross_entropy(student(batch.x), batch.y),
                "unlabeled": self.weight * ramp(step, self.ramp) * entropy,
            },
            guesses=logs.detach().exp(),  # optional: lets the run warn when all guesses become one class
        )


ALGORITHMS["entropy-minimisation"] = EntropyMinimisation
