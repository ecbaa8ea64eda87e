"""Photos that simulated projects never see: on these the true accuracy of their models is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mma.project.heads import read_head
from mma.project.model_report import read_report
from mma.project.pool import Parts, Pool, photo_files
from mma.project.records import ProjectImage
from mma.project.scripted import LabeledPhotos


@dataclass(frozen=True)
class TruePoint:
    """The true accuracy, in percent, of the model with so many answers, audit ones included."""

    answers: int
    accuracy: float


@dataclass(frozen=True, eq=False)
class HiddenPhotos:
    """Labeled photos outside a project, with the features that its models look at."""

    photos: LabeledPhotos
    keys: Sequence[str]
    pool: Pool

    @cached_property
    def parts(self) -> Parts:
        """Their vectors, of each joined backbone."""
        names = {key: self.photos.paths[key].relative_to(self.photos.root).as_posix() for key in self.keys}
        images = [ProjectImage(key, names[key], 0, 0, key, False) for key in self.keys]
        views = self.pool.views.of_source(photo_files(self.photos.root, images))
        return [part.take(np.arange(len(images))) for part in views.parts]

    def accuracy(self, model: Path) -> TruePoint:
        """Measure one live model."""
        report = read_report(model)
        truth = np.array([report.classes.index(self.photos.classes[key]) for key in self.keys])
        said = read_head(model).probabilities(self.parts).argmax(1)
        return TruePoint(report.labels + report.audit, 100 * float((said == truth).mean()))

    def curve(self, project: Path) -> tuple[TruePoint, ...]:
        """Measure every model of a project."""
        return tuple(self.accuracy(file.parent) for file in sorted((project / "models").glob("*/model.json")))
