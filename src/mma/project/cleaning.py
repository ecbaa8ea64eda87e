"""What does the review bring? A scripted person looks at the labels that seem wrong, and the next model learns from it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from mma.config import Config
from mma.project.hidden import HiddenPhotos
from mma.project.mistakes import out_of_sample
from mma.project.model_report import latest_report, model_folder
from mma.project.pool import Pool
from mma.project.project import Project
from mma.project.recall import live_config
from mma.project.review import find_wrong_labels, label_margins
from mma.project.scripted import ScriptedPerson
from mma.project.training_set import TrainingSet


@dataclass(frozen=True)
class Cleaned:
    """Wrong labels that were found, and the true accuracy in percent before and after they were corrected."""

    labels: int  # trained with
    wrong: int  # of these
    suspects: int  # labels that the review names
    found: int  # wrong ones among them
    found_by_margin: int  # wrong ones among as many labels with the lowest margin
    before: float
    after: float  # suspects corrected
    ceiling: float  # every wrong label corrected


def clean(
    project: Project, person: ScriptedPerson, hidden: HiddenPhotos, training: TrainingSet, train: Callable[[], None]
) -> Cleaned:
    """Look at the suspects, train; look at all other labels, train again. `train` lets the worker make a model."""

    def accuracy() -> float:
        report = latest_report(project.folder, "live")
        assert report is not None
        return hidden.accuracy(model_folder(project.folder, report.number)).accuracy

    wrong = wrong_labels(person, training)
    suspects, by_margin = look_for_wrong_labels(hidden.pool, training, live_config(project))
    before = accuracy()
    after = _corrected(person, suspects, train, accuracy)
    ceiling = _corrected(person, wrong - set(suspects), train, accuracy)
    return Cleaned(
        len(training.train),
        len(wrong),
        len(suspects),
        len(wrong & set(suspects)),
        len(wrong & set(by_margin)),
        before,
        after,
        ceiling,
    )


def _corrected(
    person: ScriptedPerson, images: Collection[str], train: Callable[[], None], accuracy: Callable[[], float]
) -> float:
    for image in sorted(images):
        person.look_again(image)
    train()
    return accuracy()


def wrong_labels(person: ScriptedPerson, training: TrainingSet) -> set[str]:
    """Return the images that train with a wrong label."""
    right = {name: place for place, name in enumerate(training.names)}
    return {image for image, label in training.train.items() if label != right[person.photos.classes[image]]}


def look_for_wrong_labels(pool: Pool, training: TrainingSet, config: Config) -> tuple[list[str], list[str]]:
    """Return the images whose label the review doubts, and as many whose label has the lowest margin."""
    images = [image for image in training.train if image in pool.row]
    labels, probs = out_of_sample(pool, training, images, config)
    suspects = [images[found.row] for found in find_wrong_labels(labels, probs)]
    lowest = np.argsort(label_margins(labels, probs), kind="stable")[: len(suspects)]
    return suspects, [images[row] for row in lowest]
