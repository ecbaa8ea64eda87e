"""Begin a run: everything cheap is checked before anything is created."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from mma.config import Config
from mma.data import DataSet, load_data, nested_order
from mma.files import Row
from mma.rng import rng
from mma.run import Run, check_vacant
from mma.training.given import given_logs, with_labels_of
from mma.training.guesses import given_guesses, is_guided
from mma.training.state import start
from mma.views.views import Say, keep_quiet

LEAST_CLASSES = 2


def new_run(
    config: Config,
    folder: Path,
    data: DataSet | None = None,
    say: Say = keep_quiet,
    *,
    labels_from: Run | None = None,
    guesses: Sequence[Row] = (),
) -> Run:
    """Make the folder of a new run, after checking that its data, classes, budget and network go together.

    Features that are not stored yet are computed here; `say` hears how far that is. The labels of another run,
    `labels_from`, become its start set, and what its model says about the pool guides the first steps; `guesses` are those
    of a model without a run.
    """
    config = config if labels_from is None else with_labels_of(config, labels_from)
    check_vacant(folder)
    data = data or load_data(config.data.name)
    check_data(config, data)
    split_pool(config, data)
    device = torch.device("cpu")
    views = config.views.open(data, device, config.growth.steps, say)
    start(config, views.shape, len(data.train.classes), device)  # a network that does not fit says so
    logs = {} if labels_from is None else given_logs(labels_from, data.train)
    guesses = guesses if labels_from is None else given_guesses(labels_from, config, data.train)
    if guesses and is_guided(config):
        logs["guesses"] = list(guesses)
    return Run.create(folder, config.model_dump(mode="json"), logs)


def check_data(config: Config, data: DataSet) -> None:
    """Refuse data that nothing can be learned from."""
    classes = len(data.train.classes)
    if classes < LEAST_CLASSES:
        have = "no class is" if classes == 0 else "only one class is"
        raise ValueError(
            f"{have} known in {data.name}, and a classifier needs {LEAST_CLASSES} or more. Declare them, also before there are "
            "labels:  mma data get folder --from DIR --classes NAME,NAME"
        )


def split_pool(config: Config, data: DataSet) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the pool and those held out to be tested on, both sorted.

    The held-out rows are the same for every seed: what is chosen by them is chosen by one set of images.
    """
    have, held, total = len(data.train), config.data.validation, config.data.total
    if held >= have:
        raise ValueError(
            f"data.validation is {held}, but {data.name} has only {have} images, and some must be left to train on."
        )
    asked = {
        "growth.budget": config.growth.budget,
        "data.total": total or 1,
        "growth.policy.initial_pool": config.growth.initial_pool or 1,
    }
    name = max(asked, key=lambda setting: asked[setting])
    if asked[name] > have - held:
        beside = f" beside the {held} held out by data.validation" if held else ""
        fewer = have - held
        start = f" --set growth.start={max(fewer // 3, 1)}" if config.growth.start > fewer else ""
        raise ValueError(
            f"{name} is {asked[name]}, but {data.name} has only {fewer} images{beside}. Use  "
            f"--set {name}={fewer}{start}  or less."
        )
    order = nested_order(have, config.seed)
    kept_out = rng(0, "validation").permutation(have)[:held]
    order = order[~np.isin(order, kept_out)]
    return np.sort(order[:total]), np.sort(kept_out)
