"""What is written down at an evaluation, and what it warns of."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from mma.growth import Round
from mma.text import printable
from mma.training.checkpoint import diverged
from mma.training.evaluate import accuracy
from mma.training.job import Job

COLLAPSE = 0.9  # share of all guesses in one class that no real data set of several classes has


def record(job: Job, round: Round, answers: dict[int, int]) -> None:
    """Evaluate the teacher and add one row to the metrics; clock values go to a file of their own."""
    job.check_replicas()
    means = job.state.means()
    if not all(np.isfinite(value).all() for value in means.values()):
        raise ValueError(diverged(job.run, job.state.step))
    guesses = means.pop("guesses", None)
    job.state.teacher.eval()
    test = job.test.at(job.state.step - 1)  # of the size it was trained with
    with job.computing():
        percent = accuracy(job.state.teacher, test, job.data.test.labels, job.ranks)
    row: dict[str, Any] = {
        "step": job.state.step,
        "round": round.index,
        "labels": len(answers),
        "accuracy": percent,
        "loss": {name.removeprefix("loss/"): shortest(value) for name, value in means.items()},
        "guesses": None if guesses is None else [shortest(share) for share in guesses],
        "warnings": warnings(job.data.train.classes, answers, guesses),
    }
    job.run.append("metrics", [row])
    job.run.append("timings", [{"step": job.state.step, "time": time.time()}])
    job.watch.evaluated(row)


def shortest(value: Any) -> float:
    """Return a float32 as the shortest decimal that gives it back."""
    return float(str(np.float32(value)))


def warnings(classes: tuple[str, ...], answers: dict[int, int], guesses: np.ndarray | None) -> list[str]:
    """Return warnings to show: missing classes, collapsed guesses."""
    counts = np.bincount(list(answers.values()), minlength=len(classes))
    found = []
    if missing := [name for name, count in zip(classes, counts, strict=True) if count == 0]:
        found.append(
            f"no label yet for {len(missing)} of {len(classes)} classes: {', '.join(printable(name) for name in missing[:10])}"
        )
    if guesses is not None and len(classes) > 1:
        top = int(guesses.argmax())
        if guesses[top] > COLLAPSE and counts[top] < COLLAPSE * counts.sum():
            found.append(
                f"{guesses[top]:.0%} of the guesses are '{printable(classes[top])}': they may have collapsed. Try a smaller "
                "algorithm.weight, a longer algorithm.ramp or a larger growth.start"
            )
    return found
