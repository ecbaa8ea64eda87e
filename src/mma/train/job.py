"""A run being trained: what its folder says, brought into memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from mma.config import Config, from_json
from mma.data import DataSet, load, subset
from mma.growth import Round
from mma.run import Run
from mma.train import checkpoint, host
from mma.train.host import Host
from mma.train.state import Builder, State, start
from mma.train.stream import Pixels, pixels_of
from mma.train.watch import Clock, Watch


@dataclass
class Job:
    """A run being trained: what its folder says, brought into memory."""

    run: Run
    config: Config
    data: DataSet
    pool: np.ndarray  # rows of data.train that this run may use
    pixels: Pixels
    test: Pixels
    state: State
    identity: checkpoint.Identity
    watch: Watch
    clock: Clock = field(default_factory=Clock)

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """Every round of the run."""
        return self.config.growth.rounds(passive=self.config.passive)

    @cached_property
    def kept(self) -> frozenset[int]:
        """The steps whose state other budgets start from."""
        return self.config.growth.kept_steps(passive=self.config.passive)

    def store(self) -> None:
        """Store the state; stored states that nobody needs any more are removed."""
        checkpoint.save_state(self.run, self.state, self.identity, self.kept, self.config.log.checkpoint)
        self.clock.reset()


def resume(run: Run, watch: Watch, on: Host, *, inexact: bool, data: DataSet | None, network: Builder | None) -> Job:
    """Bring a run into memory as of its latest stored state, and cut its logs back to that. The caller holds the lock."""
    on = host.remembered(run, on)
    device = on.prepare()
    job = bring(run, device, watch, data, network)
    host.check(run, host.describe(on, job.identity.config, job.identity.data), inexact=inexact)
    for left in run.folder.rglob(".*.tmp"):
        left.unlink()  # a write that was killed
    if checkpoint.load_latest(run, job.state, job.identity):
        checkpoint.prune(run, job.state.step, job.kept, job.config.log.checkpoint)  # a kill may have come before it
    for log in ("queries", "labels"):
        run.cut(log, lambda row: True)  # only a torn last row
    for log in ("metrics", "timings"):
        run.cut(log, lambda row: bool(row["step"] <= job.state.step))
    if on.compile:
        job.state.student.compile()
    watch.begin(step=job.state.step, end=job.rounds[-1].end, rounds=job.rounds)
    return job


def look_at(run: Run, data: DataSet | None = None, network: Builder | None = None) -> Job:
    """Bring the latest stored state of a run into memory without changing anything; somebody may be training it."""
    job = bring(run, Host().prepare(), Watch(), data, network)
    if not checkpoint.load_latest(run, job.state, job.identity):
        raise ValueError(f"{run.folder} has no stored state yet. Train it first:  mma train {run.folder}")
    job.state.teacher.eval()
    return job


def bring(run: Run, device: torch.device, watch: Watch, data: DataSet | None, network: Builder | None) -> Job:
    """Put together everything a run needs, before its first step."""
    config = from_json(run.config())
    data = data or load(config.data.name)
    pool = pool_of(config, data)
    identity = checkpoint.Identity(config.digest(), data.train.digest())
    state = start(config, data.train, device, network)
    pixels = pixels_of(data.train, device, config.data.shift, mirror=config.data.mirror)
    test = pixels_of(data.test, device, 0, mirror=False)
    return Job(run, config, data, pool, pixels, test, state, identity, watch)


def pool_of(config: Config, data: DataSet) -> np.ndarray:
    """Return the rows of the pool: all images, or the first `data.total` of one seed-shuffled order."""
    count = len(data.train) if config.data.total is None else config.data.total
    if config.growth.budget > len(data.train):
        raise ValueError(f"growth.budget is {config.growth.budget}, but {data.name} has only {len(data.train)} images.")
    return np.arange(count) if count == len(data.train) else np.sort(subset(data.train, count, config.seed))
