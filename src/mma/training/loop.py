"""The method on one page: start set, train, query, ask, grow, ..., and at the budget train to convergence."""

from __future__ import annotations

import torch

from mma.data import DataSet
from mma.growth import Round
from mma.rng import rng
from mma.run import Run
from mma.training.ask import grow, to_train
from mma.training.host import Host
from mma.training.job import Job, resume
from mma.training.oracle import Oracle
from mma.training.ranks import ALONE, Ranks
from mma.training.record import record, warnings
from mma.training.schedule import scheduled
from mma.training.state import Builder, refresh
from mma.training.step import training_step
from mma.training.stream import Stream
from mma.training.watch import Watch


def train(
    run: Run,
    oracle: Oracle,
    *,
    until: int | None = None,
    watch: Watch | None = None,
    on: Host = Host(),
    inexact: bool = False,
    data: DataSet | None = None,
    network: Builder | None = None,
    ranks: Ranks = ALONE,
) -> None:
    """Train `run` to its end from wherever its folder says it is. Safe to call again at any time."""
    run = ranks.shared(run)
    with run.lock():
        job = resume(run, watch or Watch(), on, inexact=inexact, data=data, network=network, ranks=ranks)
        for round in job.rounds:
            if job.state.step >= round.end:
                continue
            if not grow(job, round, oracle):
                return  # people are still labeling; call again later
            fit(job, round, until)
            if job.state.step < round.end:
                return  # stopped by `until` or by whoever watches


def fit(job: Job, round: Round, until: int | None) -> None:
    """Train with the labels of one round, to its end or to step `until`."""
    state, config, ranks = job.state, job.config, job.ranks
    answers, pool, share = to_train(job, round), job.pool_at(round.index), ranks.share(config.optim.batch)
    stream = Stream(config, job.pixels, pool, answers, round, config.algorithm.views, share)
    if round.refresh and state.step == round.begin:
        refresh(state, config, round.index)
    for warning in warnings(job.data.train.classes, answers, None):
        job.watch.warn(warning)  # such as a class the start set missed
    end = round.end if until is None else min(round.end, until)
    last = job.rounds[-1].end
    while state.step < end and not job.asked_to_stop():
        step, age, ramp = state.step, state.step - round.origin, state.step - round.ramp_from
        noise = rng(config.seed, "loss", step, *ranks.path)
        # For a user's own network: dropout.
        torch.manual_seed(int(rng(config.seed, "torch", step, *ranks.path).integers(2**63)))
        optim = scheduled(config.optim, step, age, last)
        losses = training_step(state, config.algorithm, optim, stream[step], age=age, ramp=ramp, rng=noise, ranks=ranks)
        state.add(losses)
        if state.step % config.log.every == 0 or state.step == last:
            record(job, round, answers)
        if state.step % config.log.checkpoint == 0 or state.step in job.kept or job.due:
            job.store()
        job.watch.stepped(state.step, len(answers))
    if state.step > round.begin:
        job.store()  # before the next query, so that the query can be replayed
