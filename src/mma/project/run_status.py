"""How a run stands: its accuracy, class by class, and what more labels would bring. The same numbers as `mma eval`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from mma.files import Row
from mma.project.models import MORE
from mma.project.quality.forecast import LEAST, AccuracyPoint, Curve, Gain
from mma.project.quality.show import forecast_words
from mma.run import Run
from mma.shares import describe_accuracy
from mma.training.job import evaluate


@dataclass(frozen=True)
class RunStatus:
    """A run, what its latest model was found to be worth, and the forecast of more labels."""

    run: str
    status: str
    labels: int
    step: int
    steps: int
    tested: dict[str, Any] | None  # what `evaluate` says; None without a model or a test set
    problem: str  # why it was not tested; else empty
    curve: tuple[AccuracyPoint, ...]
    gain: Gain | None


def run_status(folder: Path) -> RunStatus:
    """Test the latest model of a run, and forecast from its rounds."""
    run = Run.open(folder)
    summary = run.summary()
    tested, problem = None, ""
    try:
        tested = evaluate(run)
    except ValueError as error:  # nothing is trained yet, or there is nothing to test on
        problem = str(error)
    curve = curve_of_rounds(run.read("metrics"))
    even = bool(curve) and curve[-1].labels == summary["labels"]
    gain = Curve(curve).gain(MORE) if even and len(curve) >= LEAST else None
    counts = (summary["status"], summary["labels"], summary["step"], summary["steps"])
    return RunStatus(str(folder), *counts, tested, problem, curve, gain)


def curve_of_rounds(rows: list[Row]) -> tuple[AccuracyPoint, ...]:
    """Return the accuracy at the end of each round; a last round that trains longer than the others is no point of it."""
    ends = {row["round"]: row for row in rows if row["accuracy"] is not None}
    rounds = [ends[number] for number in sorted(ends)]
    lengths = [later["step"] - before["step"] for before, later in pairwise(rounds)]
    if len(lengths) > 1 and lengths[-1] != lengths[-2]:
        rounds = rounds[:-1]
    points = {int(row["labels"]): AccuracyPoint(int(row["labels"]), float(row["accuracy"])) for row in rounds}
    return tuple(points[labels] for labels in sorted(points))


def run_lines(now: RunStatus) -> list[str]:
    """Return what `mma status RUN` prints above its table."""
    accuracy = now.problem
    if now.tested is not None:
        images = now.tested["images"]
        described = describe_accuracy(now.tested["accuracy"], images).replace(" accuracy", "", 1)
        accuracy = f"{described}, from {images:,} test images"
    forecast = forecast_words(now.gain, "rounds")
    if now.gain is None and len(now.curve) >= LEAST:
        forecast = (
            "none: the last round trains longer than the others, so that its gain is not that of its labels alone."
        )
    return [
        f"{now.run}: {now.status}, {now.labels:,} labels, step {now.step:,} of {now.steps:,}",
        f"accuracy: {accuracy}",
        f"forecast: {forecast}",
    ]
