"""Who answers: the data set's own labels, or people, who answer late and in part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from mma.data import Images

DECLINED = -1  # somebody looked and could not tell: the image stays unlabeled and is not asked about again


class Oracle(Protocol):
    """Anyone who can be asked for labels."""

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return index -> label for those that can be answered now. Fewer than asked = people are still working."""
        ...


class Known:
    """Answers from the data set's own labels: for experiments. Images without a label are not answered."""

    def __init__(self, images: Images) -> None:
        self.labels: np.ndarray = images.labels

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return the labels that are known."""
        return {int(i): int(self.labels[i]) for i in indices if self.labels[i] >= 0}
