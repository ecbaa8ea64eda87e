"""A run being trained: what its folder says, loaded into memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mma.config import Config, config_of
from mma.data import DataSet, load_data, nested_order
from mma.growth import Round
from mma.run import Run
from mma.training import checkpoint, host
from mma.training.begin import check_data, split_pool
from mma.training.guesses import guesses_digest, read_guesses
from mma.training.host import Host
from mma.training.logs import check_logs
from mma.training.precision import computing, resolve
from mma.training.ranks import ALONE, Ranks, check_share
from mma.training.state import State, start
from mma.training.watch import Clock, Watch
from mma.views import Views


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
    check_logs(job.run, job.config, job.state.step)
    for log in ("metrics", "timings"):
        job.run.cut(log, lambda row: bool(row["step"] <= job.state.step))
    job.run.cut("starts", lambda row: bool(row["step"] < job.state.step))  # one at this very step is made again


def look_at(run: Run, data: DataSet | None = None) -> Job:
    """Load the latest stored state of a run without changing anything; somebody may be training it."""
    job = load_job(run, Host().prepare(), Watch(), data)
    if not checkpoint.load_latest(run, job.state, job.identity):
        raise ValueError(f"{run.folder} has no stored state yet. Train it first:  mma train {run.folder}")
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
