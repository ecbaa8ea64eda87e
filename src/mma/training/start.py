"""Begin a run: everything is checked before anything is created. It may start with the labels and guesses of another run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mma.config import Config, config_of, from_json
from mma.data import DataSet, Images
from mma.errors import UserError
from mma.files import Row
from mma.run import Run, check_vacant
from mma.training.job import RunSetup, load_read_only, prepare
from mma.training.predict import probabilities
from mma.views.views import Say, keep_quiet

GIVEN = "given"  # the strategy of the query that stands for labels of another run
LEAST = 0.001  # the smallest probability of a guess that is written down


def new_run(
    config: Config,
    folder: Path,
    data: DataSet | None = None,
    say: Say = keep_quiet,
    *,
    labels_from: Run | None = None,
    guesses: Sequence[Row] = (),
    setup: RunSetup | None = None,
) -> Run:
    """Make the folder of a new run, after checking that its data, classes, budget and network go together.

    Features that are not stored yet are computed here; `say` hears how far that is. The labels of another run,
    `labels_from`, become its start set, and what its model says about the pool guides the first steps; `guesses` are those
    of a model without a run. A `setup` that was prepared from the config is not made again, here and in `train`.
    """
    config = config if labels_from is None else with_labels_of(config, labels_from)
    check_vacant(folder)
    images = (setup or prepare(config, data, say=say)).data.train
    logs = {} if labels_from is None else logs_from_run(labels_from, images)
    guided = bool(getattr(config.algorithm, "guided", 0))  # the algorithm looks at the guesses of another model
    if guided and labels_from is not None:
        guesses = guesses_from_run(labels_from, images)
    if guided and guesses:
        logs["guesses"] = list(guesses)
    return Run.create(folder, config.model_dump(mode="json"), logs)


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
    accuracies = {name: starts[-1][str(number)] for number, name in enumerate(names)} if starts else {}
    pretrained = {name: value for name, value in accuracies.items() if is_pretrained(name)}
    others = {name: value for name, value in accuracies.items() if not is_pretrained(name)}
    if not pretrained or not others:
        return (
            "photos-deep",
            f"{source.folder} has not compared a pretrained backbone with another one: it is fine-tuned",
        )
    best, other = max(pretrained, key=lambda name: accuracies[name]), max(others, key=lambda name: accuracies[name])
    compared = (
        f"on the labels, cross-validated, {best} reaches {accuracies[best]:.1f} % and {other} {accuracies[other]:.1f} %"
    )
    if accuracies[other] > accuracies[best]:
        return "photos-scratch", f"{compared}: the network is trained from scratch"
    return "photos-deep", f"{compared}: the network is fine-tuned"


def is_pretrained(backbone: str) -> bool:
    """Return whether a backbone is a network that was trained on photos."""
    return backbone.partition("@")[0].partition("/")[0] != "hog"


def logs_from_run(source: Run, images: Images) -> dict[str, list[Row]]:
    """Return the first rows of a new run's logs: the labels of `source`, found again by the keys of their images.

    Images that people could not tell are taken over too, and so are those that were bought to measure by.
    """
    answers = source.answers()
    rows = {row["index"]: row for row in source.read("labels") if row["index"] in answers}
    labels: dict[int, Row] = {}
    for index, row in zip(
        images.rows([rows[i]["key"] for i in answers]).tolist(), (rows[i] for i in answers), strict=True
    ):
        name = row.get("class")
        if name is not None and name not in images.classes:
            raise UserError(
                f"a label says '{name}', which is no class of this data set: {', '.join(images.classes)}. Give the data set "
                "that the labels are of, with the same classes."
            )
        label = row["label"] if name is None else images.classes.index(name)
        # Equal images have one row: the first label stands.
        labels.setdefault(index, {"round": 0, "index": index, "key": row["key"], "label": label, "class": name})
    query = {
        "round": 0,
        "step": 0,
        "strategy": GIVEN,
        "indices": list(labels),
        "keys": [row["key"] for row in labels.values()],
        "scores": [0.0] * len(labels),
    }
    return {"queries": [query], "labels": list(labels.values())}


def guesses_from_run(source: Run, images: Images) -> list[Row]:
    """Return what the model of a run on features says about the images of a new run; nothing for a run on pixels."""
    if config_of(source).views.kind != "features" or not source.checkpoint_steps():
        return []
    job = load_read_only(source)
    theirs = job.data.train
    row_of = {theirs.key(row): row for row in job.pool.tolist()}
    keys = [images.key(index) for index in range(len(images))]
    shared = [index for index, key in enumerate(keys) if key in row_of]
    probs = probabilities(job.state.teacher, job.views, np.array([row_of[keys[index]] for index in shared], np.int64))
    names = [name if name in images.classes else "" for name in theirs.classes]
    return [as_guess(index, keys[index], names, row) for index, row in zip(shared, probs.tolist(), strict=True)]


def as_guess(index: int, key: str, names: list[str], probs: list[float]) -> Row:
    """Return a row of guesses.jsonl: probabilities by the name of their class."""
    kept = {name: round(p, 3) for name, p in zip(names, probs, strict=True) if name and p >= LEAST}
    return {"index": index, "key": key, "probs": kept}
