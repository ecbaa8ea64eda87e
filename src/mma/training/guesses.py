"""What another model says about the pool: a network that starts from nothing begins with its guesses."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from mma.config import Config, config_of
from mma.data import Images
from mma.files import Row
from mma.run import Run
from mma.training.checkpoint import GUESSES
from mma.training.evaluate import probabilities

LEAST = 0.001  # the smallest probability that is written down


def given_guesses(source: Run, config: Config, images: Images) -> list[Row]:
    """Return what the model of a run on features says about the images of a new run; nothing where that is not used."""
    if not is_guided(config) or config_of(source).views.kind != "features" or not source.checkpoint_steps():
        return []
    from mma.training.job import look_at  # a job is made of a run that has begun, and this one begins

    job = look_at(source)
    known = job.data.train
    row_of = {known.key(row): row for row in job.pool.tolist()}
    keys = [images.key(index) for index in range(len(images))]
    found = [index for index, key in enumerate(keys) if key in row_of]
    probs = probabilities(job.state.teacher, job.views, np.array([row_of[keys[index]] for index in found], np.int64))
    names = [name if name in images.classes else "" for name in known.classes]
    return [as_guess(index, keys[index], names, row) for index, row in zip(found, probs.tolist(), strict=True)]


def is_guided(config: Config) -> bool:
    """Return whether the algorithm would look at the guesses of another model."""
    return bool(getattr(config.algorithm, "guided", 0))


def as_guess(index: int, key: str, names: list[str], probs: list[float]) -> Row:
    """Return a row of guesses.jsonl: probabilities by the name of their class."""
    kept = {name: round(p, 3) for name, p in zip(names, probs, strict=True) if name and p >= LEAST}
    return {"index": index, "key": key, "probs": kept}


def read_guesses(run: Run, classes: tuple[str, ...], count: int) -> Tensor | None:
    """Return the guesses that a run was given, for each of `count` images; None where it was given none.

    An image without a guess could be of any class.
    """  # (N, classes)
    rows = run.read("guesses")
    if not rows:
        return None
    found, number = np.ones((count, len(classes)), np.float32), {name: place for place, name in enumerate(classes)}
    for row in rows:
        if row["probs"]:
            found[row["index"]] = 0.0
        for name, p in row["probs"].items():
            found[row["index"], number[name]] = p
    return torch.from_numpy(found / found.sum(1, keepdims=True))


def guesses_digest(run: Run) -> str | None:
    """Return the hash of the guesses that a run was given; None where it was given none."""
    path = run.path("guesses")
    return f"{GUESSES} {hashlib.sha256(path.read_bytes()).hexdigest()}" if path.exists() else None
