"""What a model says about every image, kept beside it: the page and the live worker read it and load no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mma.files import write_atomically
from mma.project.training_set import TrainingSet

FILE = "predictions.safetensors"  # of a deep model, which goes on to be compared with live ones
ANSWERS = "answers.safetensors"  # of whatever serves now, beside the newest live model alone
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class DeepAnswers:
    """Probabilities of a deep model by image; its classes by id."""

    number: int
    classes: tuple[int, ...]
    probs: Floats  # (N, classes)
    row: dict[str, int]

    def of(self, ids: Sequence[str], training: TrainingSet) -> Floats | None:
        """Return what it says about images, in the order of the classes there are now; None unless it knows them all."""
        if any(each not in self.row for each in ids):
            return None
        found = np.zeros((len(ids), len(training.classes)), np.float32)
        rows = np.array([self.row[each] for each in ids], np.int64)
        for column, klass in enumerate(self.classes):
            if klass in training.number:
                found[:, training.number[klass]] = self.probs[rows, column]
        return found


def write_predictions(
    folder: Path, ids: Sequence[str], probs: Floats, classes: Sequence[int], name: str = FILE
) -> None:
    """Keep the probabilities of images."""
    keys = np.frombuffer(bytes.fromhex("".join(ids)), np.uint8).reshape(-1, 32)
    tensors: dict[str, NDArray[Any]] = {
        "keys": keys.copy(),
        "probs": probs.astype(np.float16),
        "classes": np.array(classes, np.int64),
    }
    write_atomically(folder / name, save(tensors))


def read_predictions(folder: Path, name: str = FILE) -> DeepAnswers | None:
    """Read what was kept; None where nothing whole is."""
    try:
        found = load((folder / name).read_bytes())
        keys, probs, classes = found["keys"], found["probs"].astype(np.float32), found["classes"]
    except (OSError, KeyError, SafetensorError):
        return None
    row = {bytes(key).hex(): place for place, key in enumerate(keys)}
    return DeepAnswers(int(folder.name), tuple(int(each) for each in classes), probs, row)


def latest_predictions(project: Path, name: str = FILE) -> DeepAnswers | None:
    """Return the answers of the newest deep model that ended, or of what serves now; None before there is one."""
    folders = sorted((path.parent for path in (project / "models").glob(f"*/{name}")), key=lambda each: int(each.name))
    return read_predictions(folders[-1], name) if folders else None
