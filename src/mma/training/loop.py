"""The method on one page: start set, train, query, ask, grow, ..., and at the budget train to convergence."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mma.config import config_of
from mma.data import OwnData, as_data_set, load_data
from mma.errors import UserError
from mma.growth import Round
from mma.nets import HeadNet
from mma.run import Run, Watch
from mma.text import printable
from mma.training.ask import QUESTIONS, DatasetLabels, Oracle, QuestionFile, grow, labels_to_train
from mma.training.checkpoint import diverged
from mma.training.head import start_head
from mma.training.host import Host
from mma.training.job import Job, RunSetup, resume
from mma.training.predict import accuracy
from mma.training.processes import SharedRun, group
from mma.training.state import refresh, start_from_labels
from mma.training.step import Stream, steps
from mma.views import Views


def train(
    run: Run | Path | str,
    oracle: Oracle | None = None,
    *,
    until: int | None = None,
    watch: Watch | None = None,
    on: Host = Host(),
    inexact: bool = False,
    data: OwnData | None = None,
    views: Views | None = None,
    setup: RunSetup | None = None,
) -> None:
    """Train `run` to its end from wherever its folder says it is. Safe to call again at any time.

    Parameters
    ----------
    run : Run or path
        From `mma.new_run`.
    oracle : Oracle, optional
        Who answers. Default: the data set's own labels, or people through questions.csv where it has none.
    until : int, optional
        Stop after that step.
    watch : optional
        Hears of each evaluation.
    on : Host, optional
        Device and threads.
    inexact : bool
        Resume on another device or with other threads, although the numbers may differ then. Default: False.
    data, views, setup : optional
        The data set of one's own, the views of its pool, or all that `prepare` made.

    Examples
    --------
    >>> mma.train("runs/digits")
    >>> mma.Run.open("runs/digits").status()
    'done'
    """
    run = run if isinstance(run, Run) else Run.open(Path(run))
    run = run if group().size == 1 else SharedRun(run.folder)
    name = config_of(run).data.name
    images = setup.data if setup else as_data_set(data, name) or load_data(name)
    if oracle is None and (images.train.labels >= 0).any():
        oracle = DatasetLabels(images.train, unlabeled_means_no_class=images.strangers)
    oracle = oracle or QuestionFile(run.folder / QUESTIONS, images.train)
    with run.lock():
        job = resume(run, watch or Watch(), on, inexact=inexact, data=images, views=views, setup=setup)
        for round in job.rounds:
            if job.state.step >= round.end:
                continue
            if not grow(job, round, oracle):
                return  # people are still labeling; call again later
            fit(job, round, until)
            if job.state.step < round.end:
                return  # stopped by `until` or by whoever watches


def begin(job: Job, round: Round, answers: dict[int, int]) -> None:
    """Draw the student anew where the round says so; a new student may start from the labels."""
    if round.refresh:
        refresh(job.state, job.config, round.index)
    if round.refresh or round.index == 0:
        index, labels = np.array(list(answers)), torch.tensor(list(answers.values()))
        if isinstance(job.state.student, HeadNet):
            pool, length = job.pool_at(round.index), round.end - round.begin
            about: dict[str, Any] | None = start_head(job.state, job.config, job.views, answers, pool, length)
        else:
            about = start_from_labels(job.state, job.config, job.views.plain(index), labels)
        if about is not None:
            used = [job.views.names[part] for part in about.get("parts", ())]  # a network of one's own has other news
            when = {"round": round.index, "step": job.state.step, **({"used": used} if used else {})}
            job.run.append("starts", [{**when, **about}])
            if used and len(job.views.names) > 1:
                job.watch.say(f"step {job.state.step:,}: uses {' and '.join(used)}: {about['why']}")


def fit(job: Job, round: Round, until: int | None) -> None:
    """Train with the labels of one round, to its end or to step `until`."""
    state, config = job.state, job.config
    answers, pool = labels_to_train(job, round), job.pool_at(round.index)
    stream = Stream(config, job.views, pool, answers, round, job.guesses)
    if state.step == round.begin:
        begin(job, round, answers)
    for warning in warnings(job.data.train.classes, answers, None):
        job.watch.warn(warning)  # such as a class the start set missed
    end = round.end if until is None else min(round.end, until)
    for _ in steps(state, config, stream, round, end, stop=job.asked_to_stop):
        if state.step % config.log.every == 0 or state.step == job.rounds[-1].end:
            record(job, round, answers)
        if state.step % config.log.checkpoint == 0 or state.step in job.kept or job.due:
            job.store()
        job.watch.stepped(state.step, len(answers))
    if state.step > round.begin:
        job.store()  # before the next query, so that the query can be replayed


COLLAPSE = 0.9  # share of all guesses in one class that no real data set of several classes has


def record(job: Job, round: Round, answers: dict[int, int]) -> None:
    """Evaluate the teacher and add one row to the metrics; clock values go to a file of their own."""
    job.check_replicas()
    means = job.state.means()
    if not all(np.isfinite(value).all() for value in means.values()):
        raise UserError(diverged(job.run, job.state.step))
    guesses = means.pop("guesses", None)
    job.state.teacher.eval()
    with job.computing():
        percent = accuracy(job.state.teacher, job.as_trained(job.test), job.data.test.labels)
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
    counts, found = np.bincount(list(answers.values()), minlength=len(classes)), []
    if missing := [printable(name) for name, count in zip(classes, counts, strict=True) if count == 0]:
        found.append(f"no label yet for {len(missing)} of {len(classes)} classes: {', '.join(missing[:10])}")
    if guesses is not None and len(classes) > 1:
        top = int(guesses.argmax())
        if guesses[top] > COLLAPSE and counts[top] < COLLAPSE * counts.sum():
            found.append(
                f"{guesses[top]:.0%} of the guesses are '{printable(classes[top])}': they may have collapsed. Try a smaller "
                "algorithm.weight, a longer algorithm.ramp or a larger growth.start"
            )
    return found
