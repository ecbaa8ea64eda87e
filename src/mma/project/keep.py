"""Keep a live model: its folder, whole or absent, and what the page is told about it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.config import Config
from mma.files import create_atomically, write_atomically
from mma.model.description import About, ModelAccuracy, ServingFile, ServingMember
from mma.model.find import SERVING
from mma.project.audit import Quality, Share
from mma.project.heads import WholeHead, files_of
from mma.project.model_report import Forecasted, ModelReport, model_folder, write_report
from mma.project.picks import ChosenPicks, picks_csv
from mma.project.pool import Pool
from mma.project.predictions import ANSWERS, DeepAnswers, write_predictions
from mma.project.project import Project
from mma.project.training_set import TrainingSet

MORE = 50  # labels that a forecast looks ahead


@dataclass(frozen=True, eq=False)
class Made:
    """A model with its picks, and what was found out about it."""

    report: ModelReport
    picks: ChosenPicks
    head: WholeHead
    probs: NDArray[np.float32]  # (rows of the pool, classes), of what serves
    deep: DeepAnswers | None = None  # what it was compared with


def write_model(project: Project, pool: Pool, training: TrainingSet, made: Made, config: Config) -> Path:
    """Write models/NNN: the model, the labels it was made of, its picks and its report."""
    folder = model_folder(project.folder, made.report.number)
    backbone = str(getattr(config.views, "backbone", ""))
    files = files_of(made.head, backbone, training.names, about(project, pool, training, made.report))

    def fill(place: Path) -> None:
        place.mkdir(parents=True)
        for name, data in files.items():
            write_atomically(place / name, data)
        write_atomically(place / "labels.csv", training.as_csv())
        write_atomically(place / "picks.csv", picks_csv(made.picks.picks, pool))
        write_predictions(place, [image.id for image in pool.images], made.probs, made.report.class_ids, ANSWERS)
        write_report(place, made.report)

    create_atomically(folder, fill)
    for old in folder.parent.glob(f"*/{ANSWERS}"):
        if old.parent != folder:
            old.unlink()  # it can be computed again, and is large
    write_atomically(folder.parent / SERVING, serving_of(made, training).model_dump_json(indent=1) + "\n")
    return folder


def serving_of(made: Made, training: TrainingSet) -> ServingFile:
    """Say which model the project hands out, and how good that one is."""
    report, members = made.report, tuple[ServingMember, ...]()
    if report.serving.use == "both" and made.deep is not None:
        known = tuple(training.number.get(klass, -1) for klass in made.deep.classes)
        everything = tuple(range(len(training.classes)))
        members = (
            ServingMember(number=report.number, columns=everything),
            ServingMember(number=made.deep.number, columns=known),
        )
    return ServingFile(
        number=report.serving.number,
        use=report.serving.use,
        why=report.serving.why,
        members=members,
        accuracy=accuracy_of(report.quality),
        per_class=recalls_of(report.quality),
    )


def accuracy_of(quality: Quality | None) -> ModelAccuracy | None:
    """Return how good a model is as its card says it: the numbers of the status. None: too few labels to say anything."""
    if quality is None or not quality.accuracy.of:
        return None
    return _measured(quality.accuracy, quality.where.rstrip("."), crossed=quality.source == "cross-validation")


def recalls_of(quality: Quality | None) -> dict[str, ModelAccuracy]:
    """Return how many audit images of each class are recognised; none before there is a verdict."""
    if quality is None or not quality.final:
        return {}
    return {
        each.name: _measured(each.recall, f"audit labels of {each.name}") for each in quality.classes if each.recall
    }


def _measured(share: Share, on: str, *, crossed: bool = False) -> ModelAccuracy:
    percents = (100 * share.value, 100 * share.low, 100 * share.high)
    percent, low, high = (round(value, 6) for value in percents)
    return ModelAccuracy(percent=percent, low=low, high=high, images=share.of, measured_on=on, crossed=crossed)


def about(project: Project, pool: Pool, training: TrainingSet, report: ModelReport) -> About:
    """Say where a model comes from: what its card says."""
    quality = report.quality if report.serving.use == "live" else None  # it is about what serves
    return About(
        source=project.folder.name,
        labels=training.per_class(),
        by=training.by(),
        images=len(pool),
        data=pool_digest([image.id for image in pool.images]),
        accuracy=accuracy_of(quality),
        per_class=recalls_of(quality),
    )


def pool_digest(images: Sequence[str]) -> str:
    """Name the images that a model could learn from, labeled or not: a hash of their hashes, whatever their order."""
    return hashlib.sha256("\n".join(sorted(images)).encode()).hexdigest()


def publish(project: Project, report: ModelReport) -> None:
    """Tell the project: the page shows the model."""
    quality = report.quality
    estimate = None if quality is None else quality.accuracy
    project.put_model(
        report.number,
        kind=report.kind,
        seq=report.seq,
        state="ready",
        message="",
        accuracy=None if estimate is None else estimate.value,
        about={
            "low": None if estimate is None else estimate.low,
            "high": None if estimate is None else estimate.high,
            "source": None if quality is None else short_source(quality),
            "forecast": short_forecast(report.forecasts, report.labels),
            "labels": report.labels,
            "serving": report.serving.why,
        },
    )


def short_source(quality: Quality) -> str:
    """Say in a few words where an accuracy comes from."""
    kind = "audit labels" if quality.source == "audit" else "labels, cross-validated"
    return f"from {quality.accuracy.of} {kind}"


def short_forecast(forecasts: Sequence[Forecasted], labels: int) -> str | None:
    """Say in a few words what the next labels would bring."""
    if not forecasts or forecasts[-1].labels != labels:
        return None
    gain = forecasts[-1].gain
    return f"next {MORE}: {gain.points:+.1f} ({gain.low:.1f} to {gain.high:.1f})"
