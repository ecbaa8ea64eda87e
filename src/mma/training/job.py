"""A run being trained: what its folder says, loaded into memory, checked, and brought to its latest stored state."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mma.config import Config, config_of, from_json
from mma.data import DataSet, Images, OwnData, as_data_set, load_data, nested_order
from mma.errors import UserError
from mma.features.table import is_pretrained
from mma.files import Row
from mma.growth import Round
from mma.rng import rng
from mma.run import Run, Watch, check_vacant
from mma.shares import exact_interval
from mma.training import checkpoint, host
from mma.training.host import Host
from mma.training.predict import correct, percent, probabilities
from mma.training.processes import check_share, group
from mma.training.state import State, start
from mma.training.step import computing, resolve
from mma.views import Views
from mma.views.views import Say, keep_quiet

LEAST_CLASSES = 2


@dataclass
class RunSetup:
    """A config with its data, views and network in memory, before the first step: all of them go together."""

    config: Config
    data: DataSet
    pool: np.ndarray  # rows of data.train that the run may use
    views: Views
    test: Views
    state: State


def prepare(
    config: Config,
    data: DataSet | None = None,
    views: Views | None = None,
    device: torch.device = torch.device("cpu"),
    say: Say = keep_quiet,
) -> RunSetup:
    """Load the data, open the views (features that are not stored yet are computed) and build the network, or say why not."""
    data = data or load_data(config.data.name)
    classes = len(data.train.classes)
    if classes < LEAST_CLASSES:
        have = "no class is" if classes == 0 else "only one class is"
        raise UserError(
            f"{have} known in {data.name}, and a classifier needs {LEAST_CLASSES} or more. Declare them, also before there are "
            "labels:  mma data get folder --from DIR --classes NAME,NAME"
        )
    pool, held_out = split_pool(config, data)
    data = replace(data, test=data.train.take(held_out)) if len(held_out) else data
    views = views or config.views.open(data, device, config.growth.steps, say)
    state = start(config, views.shape, classes, device)
    return RunSetup(config, data, pool, views, views.for_images(data.test), state)


def split_pool(config: Config, data: DataSet) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the pool and those held out to be tested on, both sorted.

    The held-out rows are the same for every seed: what is chosen by them is chosen by one set of images.
    """
    have, held, total = len(data.train), config.data.validation, config.data.total
    if held >= have:
        raise UserError(
            f"data.validation is {held}, but {data.name} has only {have} images, and some must be left to train on."
        )
    asked = {"growth.budget": config.growth.budget, "data.total": total or 1}
    asked["growth.policy.initial_pool"] = config.growth.initial_pool or 1
    name, fewer = max(asked, key=lambda setting: asked[setting]), have - held
    if asked[name] > fewer:
        beside = f" beside the {held} held out by data.validation" if held else ""
        start = f" --set growth.start={max(fewer // 3, 1)}" if config.growth.start > fewer else ""
        raise UserError(
            f"{name} is {asked[name]}, but {data.name} has only {fewer} images{beside}. Use  "
            f"--set {name}={fewer}{start}  or less."
        )
    order = nested_order(have, config.seed)
    kept_out = rng(0, "validation").permutation(have)[:held]
    order = order[~np.isin(order, kept_out)]
    return np.sort(order[:total]), np.sort(kept_out)


STORE_AFTER = 300.0  # seconds after which a state is stored although none is scheduled: a kill should cost minutes


@dataclass(kw_only=True)
class Job(RunSetup):
    """A run being trained."""

    run: Run
    identity: checkpoint.Identity
    watch: Watch
    guesses: Tensor | None = None  # (N, classes) of another model, where the run was given them
    stored: float = field(default_factory=time.monotonic)  # when a state was stored last
    due: bool = False  # the clock asks for a stored state

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """Every round of the run."""
        return self.config.growth.rounds()

    @cached_property
    def kept(self) -> frozenset[int]:
        """The steps whose state other budgets start from."""
        return self.config.growth.kept_steps()

    def pool_at(self, upto: int | None = None) -> np.ndarray:
        """Return the rows that are there in round `upto` (None: by now), images bought by then included; sorted."""
        first = self.config.growth.initial_pool
        if first is None:
            return self.pool
        bought = sum(row["images"] for row in self.run.purchases(upto))
        order = nested_order(len(self.data.train), self.config.seed)  # in which images can be bought
        return np.sort(order[np.isin(order, self.pool)][: first + bought])

    def asked_to_stop(self) -> bool:
        """Return whether to stop. Processes agree on that, and on what the clock says, in one message per step."""
        stop, due = group().total(self.watch.stop, time.monotonic() - self.stored > STORE_AFTER)
        self.due = due > 0
        return stop > 0

    def computing(self) -> AbstractContextManager[object]:
        """Compute in the precision of the run, also where nothing is trained."""
        return computing(self.config.optim, self.state.device)

    def as_trained(self, views: Views) -> Views:
        """Return views of the size that the network was last trained with."""
        return views.at_step(self.state.step - 1)

    def store(self) -> None:
        """Store the state; stored states that nobody needs any more are removed."""
        step = self.state.step
        if step not in self.run.checkpoint_steps():
            if not bool(torch.isfinite(self.state.weights.vector).all()):
                raise UserError(checkpoint.diverged(self.run, step))
            self.run.store(step, lambda: checkpoint.encode(self.state, self.identity))
        checkpoint.prune(self.run, step, self.kept, self.config.log.checkpoint)
        self.stored = time.monotonic()

    def check_replicas(self) -> None:
        """Make sure that all processes hold the same state, bit for bit."""
        tensors = checkpoint.tensors(self.state)
        group().require_same(lambda: {"the state": checkpoint.digest(checkpoint.as_arrays(tensors))})


def load_job(
    run: Run,
    device: torch.device,
    watch: Watch,
    data: DataSet | None = None,
    views: Views | None = None,
    setup: RunSetup | None = None,
) -> Job:
    """Load a run before its first step. A setup that fits it is taken over, network and all, and must not be used again."""
    config = config_of(run)
    if setup is None or setup.config != config or setup.state.device != device:
        setup = prepare(config, data, views, device, watch.say)
    images, guesses = setup.data.train, run.path("guesses")
    digest = f"{checkpoint.GUESSES} {hashlib.sha256(guesses.read_bytes()).hexdigest()}" if guesses.exists() else None
    identity = checkpoint.Identity(config.digest(), images.digest(), config.views.digest() or digest)
    probs = read_guesses(run, images.classes, len(images))
    return Job(**vars(setup), run=run, identity=identity, watch=watch, guesses=probs)


def read_guesses(run: Run, classes: tuple[str, ...], count: int) -> Tensor | None:
    """Return the guesses that a run was given, for each of `count` images; None where it was given none.

    An image without a guess could be of any class.
    """  # (N, classes)
    rows = run.read("guesses")
    if not rows:
        return None
    probs = np.ones((count, len(classes)), np.float32)
    for row in rows:
        if row["probs"]:
            probs[row["index"]] = 0.0
        for name, p in row["probs"].items():
            probs[row["index"], classes.index(name)] = p
    return torch.from_numpy(probs / probs.sum(1, keepdims=True))


def resume(run: Run, watch: Watch, on: Host, *, inexact: bool, **in_memory: Any) -> Job:
    """Load a run as of its latest stored state, and cut its logs back to that. The caller holds the lock.

    What is in memory already, such as its data, is handed on to `load_job`.
    """
    processes, automatic = group(), run.host() is None and on.device in (None, "auto")
    on = host.fill_in(run, on)
    if automatic:
        watch.say(f"device {on.device}: {host.choose_device(None)[1]}. --device takes another one")
    device = on.prepare(processes.local)
    job = load_job(run, device, watch, **in_memory)
    optim = job.config.optim
    if on.threads is None and device.type == "cpu":
        example, batch = job.views.plain(np.zeros(1, np.int64)), optim.batch // processes.size
        torch.set_num_threads(host.suitable_threads(job.state.teacher, example, batch, resolve(optim, device)))
    processes.from_first(lambda: check_share(optim.batch, processes.size))
    here = host.describe(on, job.identity, processes.size, optim)
    processes.require_same(lambda: {key: here[key] for key in host.EXACT})
    processes.from_first(lambda: host.check(run, here, inexact=inexact))
    run.remove_unfinished()
    if checkpoint.load_latest(run, job.state, job.identity):
        checkpoint.prune(run, job.state.step, job.kept, job.config.log.checkpoint)  # a kill may have come before it
    job.check_replicas()
    # Cut the logs back to the state that was loaded, after making sure that they hold all that led to it.
    for log in ("queries", "labels", "purchases"):
        run.cut(log, lambda row: True)  # only a torn last row
    check_logs(run, job.config, job.state.step, job.data.train.classes)
    for log in ("metrics", "timings"):
        run.cut(log, lambda row: bool(row["step"] <= job.state.step))
    run.cut("starts", lambda row: bool(row["step"] < job.state.step))  # one at this very step is made again
    if on.compile:
        job.state.student.compile()
    if job.config.views.mirror and not job.data.mirror:
        lost = "a mirror image means something else: --set views.mirror=false"
        watch.warn(f"views.mirror is true, but in {job.data.name} {lost}")
    watch.begin(step=job.state.step, end=job.rounds[-1].end, rounds=job.rounds)
    return job


def check_logs(run: Run, config: Config, step: int, classes: tuple[str, ...]) -> None:
    """Refuse logs that contradict themselves, or are older than the state: it would be another run.

    Of a label whose number and class name differ, one was changed, and nobody knows which. A folder that was copied while it
    was trained may lack rows that led to the state.
    """
    for number, row in enumerate(run.read("labels"), 1):
        label = row["label"]
        name = classes[label] if 0 <= label < len(classes) else None
        if not -1 <= label < len(classes) or row.get("class", name) != name:
            raise UserError(
                f"{run.path('labels')}: line {number} contradicts itself: label {label} is {name!r} here, and its class says "
                f"{row.get('class')!r}. Restore the file from a copy."
            )
    begun = {round.index for round in config.growth.rounds() if round.begin < step}
    queries, bought = run.read("queries"), {row["round"] for row in run.read("purchases")}
    asked = {row["round"] for row in queries}
    answered = {row["index"] for row in run.read("labels")}
    unanswered = [i for row in queries if row["round"] in begun for i in row["indices"] if i not in answered]
    last, spending = config.growth.steps, config.growth.spending is not None
    due = {*range(config.log.every, step + 1, config.log.every), *([last] if step >= last else [])}
    for log, what, gap in (
        ("queries", "round", sorted((begun & {0} if spending else begun) - asked)),  # bought no label: no query
        ("purchases", "round", sorted(begun - bought - {0}) if spending else []),
        ("labels", "image", unanswered),
        ("metrics", "step", sorted(due - {row["step"] for row in run.read("metrics")})),
    ):
        if gap:
            raise UserError(
                f"{run.path(log)} has no row for {what} {gap[0]}, which led to the stored state of step {step}. The log is "
                "older than the state: perhaps the folder was copied while it was trained. Copy it again, or go back to an "
                f"earlier state with  rm {run.checkpoint_path(step)} && mma train {run.folder}"
            )


def load_read_only(run: Run | Path | str, data: OwnData | None = None, on: Host = Host()) -> Job:
    """Load the latest stored state of a run without changing anything; somebody may be training it."""
    run = run if isinstance(run, Run) else Run.open(Path(run))
    job = load_job(run, on.prepare(), Watch(), as_data_set(data, run.config()["data"]["name"]))
    if not checkpoint.load_latest(run, job.state, job.identity):
        raise UserError(f"{run.folder} has no stored state yet. Train it first:  mma train {run.folder}")
    job.state.teacher.eval()
    return job


def evaluate(run: Run | Path | str, *, data: OwnData | None = None) -> dict[str, Any]:
    """Test a run's latest model on the test images that have a label.

    Parameters
    ----------
    run : Run or path
        A run that has a model.
    data : DataSet or torch Dataset, optional
        What the run was trained on, where that is no data set with a name.

    Returns
    -------
    dict
        The accuracy in percent, in all and per class, and what it was measured on.

    Examples
    --------
    >>> 0 <= mma.evaluate("runs/digits")["accuracy"] <= 100
    True
    """
    job = load_read_only(run, data)
    labels, classes = job.data.test.labels, job.data.test.classes
    labeled = np.flatnonzero(labels >= 0)
    if not len(labeled):
        raise UserError(f"{job.data.name} has no labeled test images, so there is nothing to test on.")
    with job.computing():
        probs, truth = probabilities(job.state.teacher, job.as_trained(job.test), labeled), labels[labeled]
    right, of = correct(probs, truth), len(labeled)
    mine = {name: truth == k for k, name in enumerate(classes) if (truth == k).any()}
    per_class = {name: percent(correct(probs[k], truth[k]), int(k.sum())) for name, k in mine.items()}
    low, high = (round(100 * end, 6) for end in exact_interval(right, of))
    result = {"step": job.state.step, "images": of, "accuracy": percent(right, of), "low": low, "high": high}
    return {"run": str(job.run.folder), **result, "per_class": per_class}


# Begin a run: everything is checked before anything is created. It may start with the labels and guesses of another run.

GIVEN = "given"  # the strategy of the query that stands for labels of another run
LEAST = 0.001  # the smallest probability of a guess that is written down


def new_run(
    config: Config,
    folder: Path | str,
    data: OwnData | None = None,
    say: Say = keep_quiet,
    *,
    labels_from: Run | None = None,
    guesses: Sequence[Row] = (),
    setup: RunSetup | None = None,
) -> Run:
    """Make the folder of a new run, after checking that its data, classes, budget and network go together.

    Parameters
    ----------
    config : Config
        From `mma.preset` and `mma.change`.
    folder : path
        A new folder.
    data : DataSet or torch Dataset, optional
        What to train on, where that is no data set with a name.
    say : callable, optional
        Hears how far features are that are computed here.
    labels_from : Run, optional
        Its labels become the start set, and what its model says about the pool guides the first steps.
    guesses : sequence of rows, optional
        The same from a model without a run.
    setup : optional
        What `prepare` made from the config, to not make it again.

    Examples
    --------
    >>> run = mma.new_run(mma.preset("digits"), "runs/another")
    >>> run.status()
    'new'
    """
    config = config if labels_from is None else with_labels_of(config, labels_from)
    folder = Path(folder)
    check_vacant(folder)
    images = (setup or prepare(config, as_data_set(data, config.data.name), say=say)).data.train
    logs = {} if labels_from is None else logs_from_run(labels_from, images)
    if getattr(config.algorithm, "guided", 0):  # the algorithm looks at the guesses of another model
        guesses = guesses if labels_from is None else guesses_from_run(labels_from, images)
        logs |= {"guesses": list(guesses)} if guesses else {}
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
        why = f"{source.folder} has not compared a pretrained backbone with another one: it is fine-tuned"
        return "photos-deep", why
    best, other = (max(some, key=lambda name: accuracies[name]) for some in (pretrained, others))
    reached = f"{best} reaches {accuracies[best]:.1f} % and {other} {accuracies[other]:.1f} %"
    scratch = accuracies[other] > accuracies[best]
    how = "trained from scratch" if scratch else "fine-tuned"
    why = f"on the labels, cross-validated, {reached}: the network is {how}"
    return "photos-scratch" if scratch else "photos-deep", why


def logs_from_run(source: Run, images: Images) -> dict[str, list[Row]]:
    """Return the first rows of a new run's logs: the labels of `source`, found again by the keys of their images.

    Images that people could not tell are taken over too, and so are those that were bought to measure by.
    """
    rows = {row["index"]: row for row in source.read("labels")}
    answers, labels = [rows[index] for index in source.answers()], dict[int, Row]()
    for index, row in zip(images.rows([row["key"] for row in answers]).tolist(), answers, strict=True):
        name = row.get("class")
        if name is not None and name not in images.classes:
            raise UserError(
                f"a label says '{name}', which is no class of this data set: {', '.join(images.classes)}. Give the data set "
                "that the labels are of, with the same classes."
            )
        label = row["label"] if name is None else images.classes.index(name)
        # Equal images have one row: the first label stands.
        labels.setdefault(index, {"round": 0, "index": index, "key": row["key"], "label": label, "class": name})
    keys, scores = [row["key"] for row in labels.values()], [0.0] * len(labels)
    query = {"round": 0, "step": 0, "strategy": GIVEN, "indices": list(labels), "keys": keys, "scores": scores}
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
