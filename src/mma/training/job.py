"""A run being trained: what its folder says, brought into memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

import numpy as np
import torch

from mma.config import Config, from_json
from mma.data import DataSet, load, nested_order
from mma.growth import Round
from mma.rng import rng
from mma.run import Run
from mma.training import checkpoint, host
from mma.training.host import Host
from mma.training.ranks import ALONE, Ranks, check_share
from mma.training.state import Builder, State, start
from mma.training.stream import Pixels, pixels_of
from mma.training.watch import Clock, Watch


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
    ranks: Ranks = ALONE
    clock: Clock = field(default_factory=Clock)
    due: bool = False  # the clock asks for a stored state

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """Every round of the run."""
        return self.config.growth.rounds(passive=self.config.passive)

    @cached_property
    def kept(self) -> frozenset[int]:
        """The steps whose state other budgets start from."""
        return self.config.growth.kept_steps(passive=self.config.passive)

    def pool_at(self, upto: int | None = None) -> np.ndarray:
        """Return the rows that are there in round `upto` (None: by now), images bought by then included; sorted."""
        visible = self.config.growth.visible
        if visible is None:
            return self.pool
        bought = sum(row["images"] for row in self.run.purchases(upto))
        return np.sort(self.arriving[: visible + bought])

    @cached_property
    def arriving(self) -> np.ndarray:
        """The rows of the pool in the order in which images can be bought: a function of the seed."""
        order = nested_order(len(self.data.train), self.config.seed)
        return order[np.isin(order, self.pool)]

    def asked_to_stop(self) -> bool:
        """Return whether to stop. Processes agree on that, and on what the clock says, in one message per step."""
        stop, self.due = self.ranks.anyone(self.watch.stop, self.clock.due())
        return stop

    def store(self) -> None:
        """Store the state; stored states that nobody needs any more are removed."""
        scheduled = self.config.log.checkpoint
        self.ranks.told(lambda: checkpoint.save_state(self.run, self.state, self.identity, self.kept, scheduled))
        self.clock.reset()

    def check_replicas(self) -> None:
        """Make sure that all processes hold the same state, bit for bit."""
        self.ranks.alike(lambda: {"the state": checkpoint.digest_of(self.state)})


def resume(
    run: Run,
    watch: Watch,
    on: Host,
    *,
    inexact: bool,
    data: DataSet | None,
    network: Builder | None,
    ranks: Ranks = ALONE,
) -> Job:
    """Bring a run into memory as of its latest stored state, and cut its logs back to that. The caller holds the lock."""
    on = Host(**ranks.told(lambda: asdict(host.remembered(run, on))))
    device = on.prepare(ranks.local)
    job = bring(run, device, watch, data, network, ranks)
    if on.threads is None and device.type == "cpu":
        shape, batch = job.data.train.shape, job.config.optim.batch // ranks.size
        torch.set_num_threads(host.suited(job.state.teacher, shape, batch))
    ranks.told(lambda: check_share(job.config.optim.batch, ranks.size))
    here = host.describe(on, job.identity.config, job.identity.data, ranks.size)
    ranks.alike(lambda: {key: here[key] for key in host.EXACT})
    ranks.told(lambda: host.check(run, here, inexact=inexact))
    ranks.told(lambda: remove_unfinished(run))
    if checkpoint.load_latest(run, job.state, job.identity):
        latest, scheduled = job.state.step, job.config.log.checkpoint
        ranks.told(lambda: checkpoint.prune(run, latest, job.kept, scheduled))  # a kill may have come before it
    job.check_replicas()
    for log in ("queries", "labels", "purchases"):
        run.cut(log, lambda row: True)  # only a torn last row
    for log in ("metrics", "timings"):
        run.cut(log, lambda row: bool(row["step"] <= job.state.step))
    if on.compile:
        job.state.student.compile()
    if job.config.data.mirror and not job.data.mirror:
        watch.warn(
            f"data.mirror is true, but in {job.data.name} a mirror image means something else: --set data.mirror=false"
        )
    watch.begin(step=job.state.step, end=job.rounds[-1].end, rounds=job.rounds)
    return job


def remove_unfinished(run: Run) -> None:
    """Remove what a kill left of a write."""
    for left in run.folder.rglob(".*.tmp"):
        left.unlink()


def look_at(run: Run, data: DataSet | None = None, network: Builder | None = None) -> Job:
    """Bring the latest stored state of a run into memory without changing anything; somebody may be training it."""
    job = bring(run, Host().prepare(), Watch(), data, network)
    if not checkpoint.load_latest(run, job.state, job.identity):
        raise ValueError(f"{run.folder} has no stored state yet. Train it first:  mma train {run.folder}")
    job.state.teacher.eval()
    return job


def bring(
    run: Run,
    device: torch.device,
    watch: Watch,
    data: DataSet | None,
    network: Builder | None,
    ranks: Ranks = ALONE,
) -> Job:
    """Put together everything a run needs, before its first step."""
    config = from_json(run.config())
    data = data or load(config.data.name)
    pool, held = pool_of(config, data)
    identity = checkpoint.Identity(config.digest(), data.train.digest())
    data = replace(data, test=data.train.take(held)) if len(held) else data
    state = start(config, data.train, device, network)
    pixels = pixels_of(data.train, device, config.data.shift, mirror=config.data.mirror)
    test = pixels_of(data.test, device, 0, mirror=False)
    return Job(run, config, data, pool, pixels, test, state, identity, watch, ranks)


def pool_of(config: Config, data: DataSet) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the pool and those held out to be tested on, both sorted.

    The held-out rows are the same for every seed: what is chosen by them is chosen by one set of images.
    """
    have, held, total = len(data.train), config.data.validation, config.data.total
    wanted = max(config.growth.budget, total or 1, config.growth.visible or 1)
    if held >= have:
        raise ValueError(
            f"data.validation is {held}, but {data.name} has only {have} images, and some must be left to train on."
        )
    if wanted > have - held:
        beside = f" beside the {held} held out by data.validation" if held else ""
        larger = next(
            name
            for name, size in (
                ("growth.budget", config.growth.budget),
                ("data.total", total),
                ("growth.visible", wanted),
            )
            if size == wanted
        )
        raise ValueError(f"{larger} is {wanted}, but {data.name} has only {have - held} images{beside}.")
    order = nested_order(have, config.seed)
    kept_out = rng(0, "validation").permutation(have)[:held]
    order = order[~np.isin(order, kept_out)]
    return np.sort(order[:total]), np.sort(kept_out)
