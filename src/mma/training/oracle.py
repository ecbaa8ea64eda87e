"""Who answers: the data set's own labels, or people, who answer late and in part."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from mma.data import DataSet, Images
from mma.data.label_csv import read_labels
from mma.files import write_atomically

QUESTIONS = "questions.csv"  # in a run folder: what people are asked
CANNOT_TELL = "?"  # written as a label, it declines
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
    """Answers from the data set's own labels: for experiments. Asked only about images whose label is known, if any is.

    Where images without a label are `strangers`, of no class, it is asked about them too, and cannot tell.
    """

    def __init__(self, images: Images, *, strangers: bool = False) -> None:
        self.labels: np.ndarray = images.labels
        self.strangers = strangers

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return the labels that are known."""
        return {int(i): int(self.labels[i]) for i in indices if self.labels[i] >= 0 or self.strangers}

    def answerable(self, indices: np.ndarray) -> np.ndarray:
        """Return the images with a known label, and strangers."""
        if self.strangers:
            return indices
        known: np.ndarray = indices[self.labels[indices] >= 0]
        return known


class QuestionFile:
    """Asks people through a CSV file with the columns file_name and label, of which they fill in the second.

    Images without a file are named by their key. A label of ? says that one cannot tell.
    """

    def __init__(self, path: Path, images: Images) -> None:
        self.path, self.images = path, images

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return the answers that are filled in. The file lists what is asked now, with the labels it has so far."""
        names = {index: self.name(index) for index in indices}
        labels = self.read()
        table = io.StringIO()
        rows = csv.writer(table, lineterminator="\n")
        rows.writerow(["file_name", "label"])
        rows.writerows(
            [name, labels.get(name, "")] for name in dict.fromkeys(names.values())
        )  # equal images share a row
        write_atomically(self.path, table.getvalue())
        return {index: self.number(labels[name]) for index, name in names.items() if labels.get(name)}

    def read(self) -> dict[str, str]:
        """Read what people filled in so far."""
        if not self.path.exists():
            return {}
        known = self.images.names or [self.name(index) for index in range(len(self.images))]
        return read_labels(self.path, known, (*self.images.classes, CANNOT_TELL))

    def name(self, index: int) -> str:
        """Return how an image is called in the file."""
        return self.images.names[index] if self.images.names else self.images.key(index)

    def number(self, label: str) -> int:
        """Return the number of a class, or that somebody could not tell."""
        return DECLINED if label == CANNOT_TELL else self.images.classes.index(label)


def oracle_for(data: DataSet, folder: Path) -> Oracle:
    """Return who answers when nobody says: the data set's own labels, or people where it has none."""
    if (data.train.labels >= 0).any():
        return DatasetLabels(data.train, strangers=data.strangers)
    return QuestionFile(folder / QUESTIONS, data.train)
