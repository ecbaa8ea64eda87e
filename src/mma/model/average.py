"""Several models that answer together: the mean of their probabilities."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.model.description import DESCRIPTION, About, AverageFile, Member
from mma.model.model import Model
from mma.model.predictors import Opener


@dataclass(frozen=True, eq=False)
class AveragedPredictor:
    """The mean of what several models say. A class that one of them does not know gets nothing from it."""

    models: tuple[Model, ...]
    columns: tuple[tuple[int, ...], ...]  # of each model: where its classes stand in the whole, or -1
    classes: int

    @property
    def batch(self) -> int:
        """Images per forward."""
        return min(model.predictor.batch for model in self.models)

    def open(self) -> None:
        """Load what each model needs."""
        for model in self.models:
            model.predictor.open()

    def prepare(self, photo: Opener) -> list[Any]:
        """Decode and scale one image for each model."""
        return [model.predictor.prepare(photo) for model in self.models]

    def probabilities(self, prepared: Sequence[list[Any]]) -> NDArray[np.float32]:
        """Average the probabilities. (B, classes)"""
        total = np.zeros((len(prepared), self.classes), np.float32)
        for place, (model, table) in enumerate(zip(self.models, self.tables(), strict=True)):
            total += model.predictor.probabilities([each[place] for each in prepared]) @ table
        shares: NDArray[np.float32] = total / total.sum(axis=1, keepdims=True)
        return shares

    def tables(self) -> list[NDArray[np.float32]]:
        """Return how each model's classes are spread over those of the whole. (its classes, classes)"""
        return [np.eye(self.classes + 1, dtype=np.float32)[list(columns), : self.classes] for columns in self.columns]


def average(
    models: Sequence[Model],
    columns: Sequence[Sequence[int]],
    classes: Sequence[str],
    about: About,
    names: Sequence[str],
) -> Model:
    """Put models together; `names` are the folders that they are kept in."""
    from mma.model.loader import model_files

    for model, places in zip(models, columns, strict=True):
        if len(places) != len(model.classes) or not all(-1 <= place < len(classes) for place in places):
            raise ValueError("the classes of the averaged models do not fit together. Export the model again.")
    digests = [hashlib.sha256(model_files(model)[DESCRIPTION]).hexdigest() for model in models]
    members = tuple(
        Member(folder=name, columns=tuple(places), sha256=digest)
        for name, places, digest in zip(names, columns, digests, strict=True)
    )
    file = AverageFile(classes=tuple(classes), members=members, about=about)
    return Model(file, AveragedPredictor(tuple(models), tuple(map(tuple, columns)), len(classes)))


def average_files(model: Model) -> dict[str, bytes]:
    """Return the files of an averaged model: its own model.json, and a folder for each of those it averages."""
    from mma.model.loader import model_files

    file, predictor = model.file, model.predictor
    assert isinstance(file, AverageFile)
    assert isinstance(predictor, AveragedPredictor)
    files = {DESCRIPTION: (file.model_dump_json(indent=2) + "\n").encode()}
    for member, each in zip(file.members, predictor.models, strict=True):
        files |= {f"{member.folder}/{name}": data for name, data in model_files(each).items()}
    return files


def load_average(folder: Path, file: AverageFile) -> Model:
    """Read the models that are averaged, each after its model.json was compared with its sha256."""
    from mma.model.loader import load_model

    models = []
    for member in file.members:
        path = folder / member.folder / DESCRIPTION
        if not path.is_file():
            raise ValueError(f"{path} is missing, so the model is not whole. Restore it from a copy.")
        if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != member.sha256:
            raise ValueError(
                f"{path} is damaged or was changed: its sha256 is {found}, and {folder / DESCRIPTION} says "
                f"{member.sha256}. Restore it from a copy, or export the model again."
            )
        models.append(load_model(path.parent))
    columns = [member.columns for member in file.members]
    return average(models, columns, file.classes, file.about, [member.folder for member in file.members])


def parts_of(model: Model) -> tuple[Model, ...]:
    """Return the models that are averaged, or the model itself."""
    return model.predictor.models if isinstance(model.predictor, AveragedPredictor) else (model,)
