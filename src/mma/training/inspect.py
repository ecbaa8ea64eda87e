"""Look at a trained run: test its model, ask what it would label next. Nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mma.errors import UserError
from mma.query import Query
from mma.rng import rng
from mma.run import Run
from mma.shares import exact_interval
from mma.training.ask import free_images, look
from mma.training.job import Job, look_at
from mma.training.predict import correct, percent_correct, probabilities


def open_run(run: Run | Path | str) -> Job:
    """Load a run's latest model, changing nothing."""
    return look_at(run if isinstance(run, Run) else Run.open(Path(run)))


def evaluate(run: Run | Path | str) -> dict[str, Any]:
    """Test a run's latest model: accuracy in percent, in all and per class, on the test images that have a label."""
    job = open_run(run)
    labels = job.data.test.labels
    known = np.flatnonzero(labels >= 0)
    if not len(known):
        raise UserError(f"{job.data.name} has no labeled test images, so there is nothing to test on.")
    test = job.test.at(job.state.step - 1)  # of the size it was trained with
    with job.computing():
        probs, truth = probabilities(job.state.teacher, test, known), labels[known]
    per_class = {
        name: percent_correct(probs[truth == k], truth[truth == k])
        for k, name in enumerate(job.data.test.classes)
        if (truth == k).any()
    }
    low, high = (round(100 * end, 6) for end in exact_interval(correct(probs, truth), len(known)))
    found = {"step": job.state.step, "images": len(known), "accuracy": percent_correct(probs, truth)}
    return {"run": str(job.run.folder), **found, "low": low, "high": high, "per_class": per_class}


def suggest(run: Run | Path | str, n: int, strategy: str | None = None) -> list[dict[str, Any]]:
    """Return the n unlabeled images that a run's latest model would ask about: index, key, score, and name if it has one."""
    return suggest_with_reason(run, n, strategy)[0]


def suggest_with_reason(run: Run | Path | str, n: int, strategy: str | None = None) -> tuple[list[dict[str, Any]], str]:
    """Return what `suggest` returns, and why it is these; the reason is empty for a query that only ranks by its score."""
    job = open_run(run)
    query = Query.parse(strategy or job.config.query)
    free = free_images(job)
    if not len(free):
        raise UserError(
            f"every image of {job.data.name} has a label or was asked about, so there is nothing to choose from."
        )
    found, labeled = look(job, free, query, job.state.step)
    picked = query.selection(found, n, rng(job.config.seed, "look", job.state.step), labeled)
    images = job.data.train
    picks = [
        {
            "index": int(i),
            "key": images.key(int(i)),
            "score": float(score),
            **({"name": images.names[i]} if images.names else {}),
        }
        for i, score in zip(picked.index, picked.scores, strict=True)
    ]
    return picks, picked.why
