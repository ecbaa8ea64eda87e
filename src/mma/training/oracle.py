"""Who answers: the data set's own labels, or people, who answer late and in part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from mma.data import Images

DECLINED = -1  # somebody looked and could not tell: the image stays unlabeled and is not asked about again


class Oracle(Protocol):
    """Anyone who can be asked for labels."""

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return index -> label for those that can be answered now. Fewer than asked = people are still working."""
        ...


@runtime_checkable
class Selective(Protocol):
    """An oracle that knows beforehand what it will never be able to answer."""

    def answerable(self, indices: np.ndarray) -> np.ndarray:
        """Return those of the images that it makes sense to ask about: the same ones in every process."""
        ...


class DatasetLabels:
    """Answers from the data set's own labels: for experiments. Asked only about images whose label is known, if any is."""

    def __init__(self, images: Images) -> None:
        self.labels: np.ndarray = images.labels

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return the labels that are known."""
        return {int(i): int(self.labels[i]) for i in indices if self.labels[i] >= 0}

    def answerable(self, indices: np.ndarray) -> np.ndarray:
        """Return the images with a known label; all of them where none is known, so that the run waits for people."""
        known: np.ndarray = indices[self.labels[indices] >= 0]
        return known if (self.labels >= 0).any() else indices
