"""Bring many run folders to their end. An engine starts jobs and says which ended; this file decides what may start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mma.experiments.engines.worker import Means
from mma.experiments.plan import Job
from mma.run import Run

Ended = tuple[Path, str | None]  # the run's folder, and why it failed


@dataclass(frozen=True)
class Options:
    """Where jobs run and with what. `local` looks at `workers`, `ray` at the rest; `means` is for both."""

    means: Means = field(default_factory=Means)
    workers: int = 1
    address: str | None = None  # of a Ray cluster; None = start one on this machine
    cpus: float = 1.0  # per task
    gpus: float = 0.0  # per task
    retries: int = 10  # times a task whose worker or node died is begun again


class Engine(Protocol):
    """Something that runs jobs: processes here, or a cluster."""

    def room(self) -> bool:
        """Return whether another job may be started now."""
        ...

    def start(self, job: Job) -> None:
        """Begin a job."""
        ...

    def ended(self, seconds: float) -> list[Ended]:
        """Wait at most so long for jobs to end, and return those that did."""
        ...

    def close(self) -> None:
        """Stop everything at the next step; what is stored stays."""
        ...


def finish_all(
    jobs: Iterable[Job],
    engine: Engine,
    tick: Callable[[set[Path]], None] = lambda running: None,
    ended: Callable[[Path, str | None], None] = lambda folder, why: None,
) -> None:
    """Run all jobs. `tick` hears about twice a second what is running, `ended` what ended and why if it failed.

    A failing run stops no other.
    """
    waiting, running = list(jobs), set[Path]()
    try:
        while waiting or running:
            unfinished = running | {job.folder for job in waiting}
            for job in [job for job in waiting if ready(job, unfinished)]:
                if engine.room():
                    engine.start(job)
                    waiting.remove(job)
                    running.add(job.folder)
            for folder, why in engine.ended(0.5):
                running.discard(folder)
                ended(folder, why)
            tick(running)
    finally:
        engine.close()


def ready(job: Job, unfinished: set[Path]) -> bool:
    """Tell whether a job need not wait: its trunk has stored the state it starts from, or will store no more."""
    if job.after is None or job.after not in unfinished or (job.folder / "config.json").exists():
        return True
    return Run(job.after).checkpoint_path(job.state).exists()


def local(options: Options) -> Engine:
    """Return an engine of processes on this machine."""
    from mma.experiments.engines.local import Local

    return Local(options.workers, options.means)


def ray(options: Options) -> Engine:
    """Return an engine of tasks on a Ray cluster."""
    from mma.experiments.engines.on_ray import OnRay

    return OnRay(options)


def engine(name: str, options: Options) -> Engine:
    """Return the engine called `name`."""
    if name not in ENGINES:
        raise ValueError(f"no engine '{name}'. There are: {', '.join(ENGINES)}.")
    return ENGINES[name](options)


ENGINES: dict[str, Callable[[Options], Engine]] = {"local": local, "ray": ray}
