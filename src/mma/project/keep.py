"""Keep a live model: its folder, whole or absent, and what the page is told about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.config import Config
from mma.files import create_atomically, write_atomically
from mma.interval import exact_interval
from mma.model.description import About, ModelAccuracy
from mma.project.audit import Quality
from mma.project.heads import WholeHead, files_of
from mma.project.model_report import Forecasted, ModelReport, model_folder, write_report
from mma.project.picks import ChosenPicks, picks_csv
from mma.project.pool import Pool
from mma.project.predictions import ANSWERS, write_predictions
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
    serving = {"number": made.report.serving.number, "why": made.report.serving.why}
    write_atomically(folder.parent / "serving.json", json.dumps(serving) + "\n")
    return folder


def about(project: Project, pool: Pool, training: TrainingSet, report: ModelReport) -> About:
    """Say where a model comes from: what its card says."""
    quality = report.quality
    measured = None
    if quality is not None and quality.final and report.serving.use == "live":
        low, high = exact_interval(quality.accuracy.right, quality.accuracy.of)
        measured = ModelAccuracy(
            percent=100 * quality.accuracy.value,
            low=100 * min(low, quality.accuracy.low),
            high=100 * max(high, quality.accuracy.high),
            images=quality.accuracy.of,
            measured_on=f"audit: {quality.where}",
        )
    return About(
        source=project.folder.name,
        labels=training.per_class(),
        by=training.by(),
        images=len(pool),
        accuracy=measured,
    )


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
