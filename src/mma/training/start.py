"""Begin a run: everything cheap is checked before anything is created."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mma.config import Config, config_of, from_json
from mma.data import DataSet, Images, load_data, nested_order
from mma.errors import UserError
from mma.files import Row
from mma.rng import rng
from mma.run import Run, check_vacant
from mma.training.checkpoint import GUESSES
from mma.training.predict import probabilities
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
        raise UserError(
            f"{have} known in {data.name}, and a classifier needs {LEAST_CLASSES} or more. Declare them, also before there are "
            "labels:  mma data get folder --from DIR --classes NAME,NAME"
        )


def split_pool(config: Config, data: DataSet) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the pool and those held out to be tested on, both sorted.

    The held-out rows are the same for every seed: what is chosen by them is chosen by one set of images.
    """
    have, held, total = len(data.train), config.data.validation, config.data.total
    if held >= have:
        raise UserError(
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
        raise UserError(
            f"{name} is {asked[name]}, but {data.name} has only {fewer} images{beside}. Use  "
            f"--set {name}={fewer}{start}  or less."
        )
    order = nested_order(have, config.seed)
    kept_out = rng(0, "validation").permutation(have)[:held]
    order = order[~np.isin(order, kept_out)]
    return np.sort(order[:total]), np.sort(kept_out)


# Labels that another run has paid for: a new run starts with them, so that nobody is asked twice.

GIVEN = "given"  # the strategy of the query that stands for them


def with_labels_of(config: Config, source: Run) -> Config:
    """Return the config of a run that starts with the labels of another one; it may buy more, never fewer."""
    count = sum(label >= 0 for label in source.answers().values())
    if not count:
        raise UserError(
            f"{source.folder} has no labels yet that another run could start with. Train it first:  "
            f"mma train {source.folder}"
        )
    growth = {**config.growth.model_dump(mode="json"), "start": count, "budget": max(count, config.growth.budget)}
    return from_json({**config.model_dump(mode="json"), "growth": growth})


def choose_deep_preset(source: Run) -> tuple[str, str]:
    """Return the preset for pixels that suits the labels of a run on features, and why.

    The run has compared its backbones by cross-validation on its labels. Where one that was not pretrained, such as hog, is
    better than the pretrained ones, there is little to fine-tune: a network from scratch does better there.
    """
    starts = [row["accuracies"] for row in source.read("starts") if row.get("accuracies")]
    names = str(config_of(source).views.model_dump().get("backbone", "")).split("+")
    found = {name: starts[-1][str(number)] for number, name in enumerate(names)} if starts else {}
    pretrained = {name: value for name, value in found.items() if is_pretrained(name)}
    others = {name: value for name, value in found.items() if not is_pretrained(name)}
    if not pretrained or not others:
        return (
            "photos-deep",
            f"{source.folder} has not compared a pretrained backbone with another one: it is fine-tuned",
        )
    best, other = max(pretrained, key=lambda name: found[name]), max(others, key=lambda name: found[name])
    compared = f"on the labels, cross-validated, {best} reaches {found[best]:.1f} % and {other} {found[other]:.1f} %"
    if found[other] > found[best]:
        return "photos-scratch", f"{compared}: the network is trained from scratch"
    return "photos-deep", f"{compared}: the network is fine-tuned"


def is_pretrained(backbone: str) -> bool:
    """Return whether a backbone is a network that was trained on photos."""
    return backbone.partition("@")[0].partition("/")[0] != "hog"


def given_logs(source: Run, images: Images) -> dict[str, list[Row]]:
    """Return the first rows of a new run's logs: the labels of `source`, found again by the keys of their images.

    Images that people could not tell are taken over too, and so are those that were bought to measure by.
    """
    wanted = source.answers()
    rows = {row["index"]: row for row in source.read("labels") if row["index"] in wanted}
    known = [rows[index] for index in wanted]
    places = images.rows([row["key"] for row in known])
    first = dict(zip(reversed(places.tolist()), reversed(known), strict=True))  # equal images have one place
    labels = [as_given(place, first[place], images) for place in dict.fromkeys(places.tolist())]
    query = {
        "round": 0,
        "step": 0,
        "strategy": GIVEN,
        "indices": [row["index"] for row in labels],
        "keys": [row["key"] for row in labels],
        "scores": [0.0] * len(labels),
    }
    return {"queries": [query], "labels": labels}


def as_given(index: int, row: Row, images: Images) -> Row:
    """Return a label as the new run writes it: its class is found by name."""
    name = row.get("class")
    if name is not None and name not in images.classes:
        raise UserError(
            f"a label says '{name}', which is no class of this data set: {', '.join(images.classes)}. Give the data set that "
            "the labels are of, with the same classes."
        )
    label = row["label"] if name is None else images.classes.index(name)
    return {"round": 0, "index": index, "key": row["key"], "label": label, "class": name}


# What another model says about the pool: a network that starts from nothing begins with its guesses.

LEAST = 0.001  # the smallest probability that is written down


def given_guesses(source: Run, config: Config, images: Images) -> list[Row]:
    """Return what the model of a run on features says about the images of a new run; nothing where that is not used."""
    if not is_guided(config) or config_of(source).views.kind != "features" or not source.checkpoint_steps():
        return []
    from mma.training.job import look_at

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
