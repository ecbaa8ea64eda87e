"""A run being trained: what its folder says, loaded into memory."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mma.config import Config, config_of
from mma.data import DataSet, load_data, nested_order
from mma.errors import UserError
from mma.growth import Round
from mma.run import Run, Watch
from mma.training import checkpoint, host
from mma.training.host import Host
from mma.training.processes import ALONE, Ranks, check_share
from mma.training.start import check_data, guesses_digest, read_guesses, split_pool
from mma.training.state import State, start
from mma.training.step import computing, resolve
from mma.views import Views


class Clock:
    """Tells when a state should be stored although none is scheduled: a kill should cost minutes, not hours."""

    def __init__(self, seconds: float = 300.0) -> None:
        self.seconds, self.last = seconds, time.monotonic()

    def due(self) -> bool:
        """Return whether it is time."""
        return time.monotonic() - self.last > self.seconds

    def reset(self) -> None:
        """Begin to count again."""
        self.last = time.monotonic()


@dataclass
class Job:
    """A run being trained: what its folder says, loaded into memory."""

    run: Run
    config: Config
    data: DataSet
    pool: np.ndarray  # rows of data.train that this run may use
    views: Views
    test: Views
    state: State
    identity: checkpoint.Identity
    watch: Watch
    ranks: Ranks = ALONE
    guesses: Tensor | None = None  # (N, classes) of another model, where the run was given them
    clock: Clock = field(default_factory=Clock)
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
        return np.sort(self.order_of_arrival[: first + bought])

    @cached_property
    def order_of_arrival(self) -> np.ndarray:
        """The rows of the pool in the order in which images can be bought: a function of the seed."""
        order = nested_order(len(self.data.train), self.config.seed)
        return order[np.isin(order, self.pool)]

    def asked_to_stop(self) -> bool:
        """Return whether to stop. Processes agree on that, and on what the clock says, in one message per step."""
        stop, self.due = self.ranks.anyone(self.watch.stop, self.clock.due())
        return stop

    def computing(self) -> AbstractContextManager[object]:
        """Compute in the precision of the run, also where nothing is trained."""
        return computing(self.config.optim, self.state.device)

    def store(self) -> None:
        """Store the state; stored states that nobody needs any more are removed."""
        checkpoint.save_state(self.run, self.state, self.identity)
        checkpoint.prune(self.run, self.state.step, self.kept, self.config.log.checkpoint)
        self.clock.reset()

    def check_replicas(self) -> None:
        """Make sure that all processes hold the same state, bit for bit."""
        self.ranks.require_same(lambda: {"the state": checkpoint.digest_of(self.state)})


def resume(
    run: Run,
    watch: Watch,
    on: Host,
    *,
    inexact: bool,
    data: DataSet | None,
    views: Views | None = None,
    ranks: Ranks = ALONE,
) -> Job:
    """Load a run as of its latest stored state, and cut its logs back to that. The caller holds the lock."""
    on = host.fill_in(run, on)
    device = on.prepare(ranks.local)
    job = load_job(run, device, watch, data, views, ranks)
    if on.threads is None and device.type == "cpu":
        set_suitable_threads(job)
    ranks.from_first_rank(lambda: check_share(job.config.optim.batch, ranks.size))
    here = host.describe(on, job.identity, ranks.size, job.config.optim)
    ranks.require_same(lambda: {key: here[key] for key in host.EXACT})
    ranks.from_first_rank(lambda: host.check(run, here, inexact=inexact))
    run.remove_unfinished()
    if checkpoint.load_latest(run, job.state, job.identity):
        checkpoint.prune(run, job.state.step, job.kept, job.config.log.checkpoint)  # a kill may have come before it
    job.check_replicas()
    cut_logs(job)
    if on.compile:
        job.state.student.compile()
    if job.config.views.mirror and not job.data.mirror:
        watch.warn(
            f"views.mirror is true, but in {job.data.name} a mirror image means something else: --set views.mirror=false"
        )
    watch.begin(step=job.state.step, end=job.rounds[-1].end, rounds=job.rounds)
    return job


def set_suitable_threads(job: Job) -> None:
    """Let torch use as many threads as suit the network and its share of a batch."""
    batch, precision = job.config.optim.batch // job.ranks.size, resolve(job.config.optim, job.state.device)
    example = job.views.plain(np.zeros(1, np.int64))
    torch.set_num_threads(host.suitable_threads(job.state.teacher, example, batch, precision))


def cut_logs(job: Job) -> None:
    """Cut the logs back to the state that was loaded, after making sure that they hold all that led to it."""
    for log in ("queries", "labels", "purchases"):
        job.run.cut(log, lambda row: True)  # only a torn last row
    check_labels(job.run, job.data.train.classes)
    check_logs(job.run, job.config, job.state.step)
    for log in ("metrics", "timings"):
        job.run.cut(log, lambda row: bool(row["step"] <= job.state.step))
    job.run.cut("starts", lambda row: bool(row["step"] < job.state.step))  # one at this very step is made again


def look_at(run: Run, data: DataSet | None = None) -> Job:
    """Load the latest stored state of a run without changing anything; somebody may be training it."""
    job = load_job(run, Host().prepare(), Watch(), data)
    if not checkpoint.load_latest(run, job.state, job.identity):
        raise UserError(f"{run.folder} has no stored state yet. Train it first:  mma train {run.folder}")
    job.state.teacher.eval()
    return job


def load_job(
    run: Run,
    device: torch.device,
    watch: Watch,
    data: DataSet | None = None,
    views: Views | None = None,
    ranks: Ranks = ALONE,
) -> Job:
    """Put together everything a run needs, before its first step."""
    config = config_of(run)
    data = data or load_data(config.data.name)
    check_data(config, data)
    pool, held = split_pool(config, data)
    identity = checkpoint.Identity(config.digest(), data.train.digest(), config.views.digest() or guesses_digest(run))
    guesses = read_guesses(run, data.train.classes, len(data.train))
    data = replace(data, test=data.train.take(held)) if len(held) else data
    views = views or config.views.open(data, device, config.growth.steps, watch.say)
    state = start(config, views.shape, len(data.train.classes), device)
    return Job(run, config, data, pool, views, views.of(data.test), state, identity, watch, ranks, guesses)


# Whether the logs of a run hold everything that led to its stored state. If not, going on would be another run.


def check_labels(run: Run, classes: tuple[str, ...]) -> None:
    """Refuse a label whose number and class name differ: one of them was changed, and nobody knows which."""
    for number, row in enumerate(run.read("labels"), 1):
        label = row["label"]
        name = classes[label] if 0 <= label < len(classes) else None
        if not -1 <= label < len(classes) or row.get("class", name) != name:
            raise UserError(
                f"{run.path('labels')}: line {number} contradicts itself: label {label} is {name!r} here, and its class says "
                f"{row.get('class')!r}. Restore the file from a copy."
            )


def check_logs(run: Run, config: Config, step: int) -> None:
    """Refuse logs that are older than the state: those of a folder that was copied while it was trained, say."""
    begun = {round.index for round in config.growth.rounds() if round.begin < step}
    asked = {row["round"] for row in run.read("queries")}
    bought = {row["round"] for row in run.read("purchases")} if config.growth.spending else begun
    answered = {row["index"] for row in run.read("labels")}
    unanswered = [
        i for row in run.read("queries") if row["round"] in begun for i in row["indices"] if i not in answered
    ]
    recorded = {row["step"] for row in run.read("metrics")}
    last = config.growth.steps
    due = {*range(config.log.every, step + 1, config.log.every), *([last] if step >= last else [])}
    if config.growth.spending:  # a round that bought no label has no query
        asked |= begun - {0}
        bought |= {0}
    for log, gap in (
        ("queries", sorted(begun - asked)),
        ("purchases", sorted(begun - bought)),
        ("labels", unanswered),
        ("metrics", sorted(due - recorded)),
    ):
        if gap:
            raise UserError(explain_gap(run, log, gap[0], step))


def explain_gap(run: Run, log: str, first: int, step: int) -> str:
    """Say what is missing and how to go on."""
    what = {"queries": "round", "purchases": "round", "labels": "image", "metrics": "step"}[log]
    state = run.checkpoint_path(step)
    return (
        f"{run.path(log)} has no row for {what} {first}, which led to the stored state of step {step}. The log is older than "
        f"the state: perhaps the folder was copied while it was trained. Copy it again, or go back to an earlier state with  "
        f"rm {state} && mma train {run.folder}"
    )
