"""The model that a run hands out: the teacher of its latest stored state."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mma.interval import exact_interval
from mma.model.backbones import describe_backbones
from mma.model.description import About, FeatureInput, ModelAccuracy, ModelFile, PixelInput
from mma.model.model import Model, new_model
from mma.run import Run
from mma.training.evaluate import accuracy, probabilities
from mma.training.inspect import open_run
from mma.training.job import Job
from mma.views import Pixels, VectorViews


def model_of_run(run: Run | Path | str, *, tested: bool = False) -> Model:
    """Return the latest model of a run. The run's data must be there: features are centred on its pool.

    With `tested`, it is tested class by class as well.
    """
    job = open_run(run)
    views = job.views.at(job.state.step - 1)  # of the size it was trained with
    about = about_run(job)
    if tested:
        about = about.model_copy(update={"per_class": per_class_of_run(job)})
    file = ModelFile(classes=job.data.train.classes, input=input_of(views), net=job.config.net, about=about)
    network = job.config.net.build(views.shape, len(file.classes))
    network.load_state_dict(job.state.teacher.state_dict())
    projections = views.projections if isinstance(views, VectorViews) else ()
    centres = [each.mean.cpu().numpy() for each in projections]
    return new_model(
        file, network, centres, [None if each.basis is None else each.basis.numpy() for each in projections]
    )


def input_of(views: object) -> PixelInput | FeatureInput:
    """Describe what the network of a run is shown."""
    if isinstance(views, VectorViews):
        whole = describe_backbones(views.settings.backbone, [len(each.mean) for each in views.projections])
        kept = [None if each.basis is None else each.width for each in views.projections]
        parts = [part.model_copy(update={"kept": k}) for part, k in zip(whole.parts, kept, strict=True)]
        return FeatureInput(parts=tuple(parts), rounded=True)
    if isinstance(views, Pixels):
        height, width, channels = views.shape
        if channels in (1, 3):
            return PixelInput(height=height, width=width, channels=channels, average_to=views.side)  # type: ignore[arg-type]
    raise ValueError("this run's network sees something else than images, so it cannot be used on them.")


def about_run(job: Job) -> About:
    """Say where a run's model comes from, and how good it is on the run's test images."""
    names, answers = job.data.train.classes, [label for label in job.run.answers().values() if label >= 0]
    counts = np.bincount(np.array(answers, np.int64), minlength=len(names)).tolist()
    return About(
        source=job.run.folder.resolve().name,
        step=job.state.step,
        labels=dict(zip(names, counts, strict=True)),
        by={"the data set": len(answers)} if job.data.train.labels.max(initial=-1) >= 0 else {"people": len(answers)},
        images=len(job.pool),
        data=job.data.train.digest(),
        accuracy=accuracy_of_run(job),
    )


def accuracy_of_run(job: Job) -> ModelAccuracy | None:
    """Return the accuracy that the run reports, with its interval; None without a test set."""
    images, rows = int((job.data.test.labels >= 0).sum()), job.run.read("metrics")
    if not images:
        return None
    if rows and rows[-1]["step"] == job.state.step:
        percent = rows[-1]["accuracy"]
    else:  # a state that was stored between two evaluations
        percent = accuracy(job.state.teacher, job.test.at(job.state.step - 1), job.data.test.labels)
    return measured(round(percent * images / 100), images, f"{images:,} test images of {job.data.name}")


def per_class_of_run(job: Job) -> dict[str, ModelAccuracy]:
    """Return how many of the test images of each class are recognised."""
    labels, found = job.data.test.labels, {}
    known = np.flatnonzero(labels >= 0)
    if not len(known):
        return {}
    said = probabilities(job.state.teacher, job.test.at(job.state.step - 1), known).argmax(1)
    for number, name in enumerate(job.data.test.classes):
        mine = labels[known] == number
        if mine.any():
            found[name] = measured(int((said[mine] == number).sum()), int(mine.sum()), f"test images of {name}")
    return found


def measured(right: int, images: int, on: str) -> ModelAccuracy:
    """Return an accuracy with its exact interval."""
    low, high = exact_interval(right, images)
    percent, low, high = (round(100 * share, 6) for share in (right / images, low, high))
    return ModelAccuracy(percent=percent, low=low, high=high, images=images, measured_on=on)
