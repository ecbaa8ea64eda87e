"""Look at a trained run: test its model, predict with it, ask what it would label next. Nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mma.data import Images
from mma.query import Query
from mma.rng import rng
from mma.run import Run
from mma.training.ask import free_images, look
from mma.training.evaluate import percent_correct, probabilities
from mma.training.job import Job, look_at


def open_run(run: Run | Path | str) -> Job:
    """Load a run's latest model, changing nothing."""
    return look_at(run if isinstance(run, Run) else Run.open(Path(run)))


def evaluate(run: Run | Path | str) -> dict[str, Any]:
    """Test a run's latest model: accuracy in percent, in all and per class, on the test images that have a label."""
    job = open_run(run)
    labels = job.data.test.labels
    known = np.flatnonzero(labels >= 0)
    if not len(known):
        raise ValueError(f"{job.data.name} has no labeled test images, so there is nothing to test on.")
    test = job.test.at(job.state.step - 1)  # of the size it was trained with
    probs, truth = probabilities(job.state.teacher, test, known), labels[known]
    per_class = {
        name: percent_correct(probs[truth == k], truth[truth == k])
        for k, name in enumerate(job.data.test.classes)
        if (truth == k).any()
    }
    found = {"step": job.state.step, "images": len(known), "accuracy": percent_correct(probs, truth)}
    return {"run": str(job.run.folder), **found, "per_class": per_class}


def predict(run: Run | Path | str, pixels: np.ndarray) -> np.ndarray:
    """Return the class probabilities of images of the run's own size. (N, H, W, C) uint8 -> (N, classes)"""
    job = open_run(run)
    pixels = np.asarray(pixels)
    if pixels.shape[1:] != job.data.train.shape:
        raise ValueError(
            f"the run was trained on images of shape {job.data.train.shape} (height, width, channels); these have shape "
            f"{pixels.shape[1:]}."
        )
    images = Images(pixels, np.full(len(pixels), -1), job.data.train.classes)
    views = job.views.of(images).at(job.state.step - 1)
    return probabilities(job.state.teacher, views, np.arange(len(images)))


def suggest(run: Run | Path | str, n: int, strategy: str | None = None) -> list[dict[str, Any]]:
    """Return the n unlabeled images that a run's latest model would ask about: index, key, score, and name if it has one."""
    job = open_run(run)
    query = Query.parse(strategy or job.config.query)
    free = free_images(job)
    if not len(free):
        raise ValueError(
            f"every image of {job.data.name} has a label or was asked about, so there is nothing to choose from."
        )
    found = look(job, free, query, job.state.step)
    picked = query.selection(found, n, rng(job.config.seed, "look", job.state.step))
    images = job.data.train
    return [
        {
            "index": int(i),
            "key": images.key(int(i)),
            "score": float(score),
            **({"name": images.names[i]} if images.names else {}),
        }
        for i, score in zip(picked.index, picked.scores, strict=True)
    ]
