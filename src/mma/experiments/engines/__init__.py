"""Train many run folders to their end. An engine starts tasks and reports which ended; this file decides what may start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mma.experiments.engines.worker import TrainingOptions
from mma.experiments.plan import RunTask
from mma.run import Run

Ended = tuple[Path, str | None]  # the run's folder, and why it failed


@dataclass(frozen=True)
class EngineOptions:
    """Where runs are trained. `local` looks at `workers`, `ray` at the rest; `training` is for both."""

    training: TrainingOptions = field(default_factory=TrainingOptions)
    workers: int = 1
    address: str | None = None  # of a Ray cluster; None = start one on this machine
    cpus: float = 1.0  # per task
    gpus: float = 0.0  # per task
    retries: int = 10  # times a task whose worker or node died is begun again


class Engine(Protocol):
    """Something that trains runs: processes here, or a cluster."""

    def has_room(self) -> bool:
        """Return whether another task may be started now."""
        ...

    def start(self, task: RunTask) -> None:
        """Begin a task."""
        ...

    def wait(self, seconds: float) -> list[Ended]:
        """Wait at most so long for tasks to end, and return those that did."""
        ...

    def close(self) -> None:
        """Stop everything at the next step; what is stored stays."""
        ...


def train_all(
    tasks: Iterable[RunTask],
    engine: Engine,
    on_tick: Callable[[set[Path]], None] = lambda running: None,
    on_end: Callable[[Path, str | None], None] = lambda folder, why: None,
) -> None:
    """Run all tasks. A run that fails stops no other.

    `on_tick` is called about twice a second with the running folders, `on_end` with each folder that ended and why it failed.
    """
    waiting, running = list(tasks), set[Path]()
    try:
        while waiting or running:
            unfinished = running | {task.folder for task in waiting}
            for task in [task for task in waiting if is_ready(task, unfinished)]:
                if engine.has_room():
                    engine.start(task)
                    waiting.remove(task)
                    running.add(task.folder)
            for folder, why in engine.wait(0.5):
                running.discard(folder)
                on_end(folder, why)
            on_tick(running)
    finally:
        engine.close()


def is_ready(task: RunTask, unfinished: set[Path]) -> bool:
    """Tell whether a task can start: its trunk has stored the state it starts from, or will store no more."""
    if task.trunk is None or task.trunk not in unfinished or (task.folder / "config.json").exists():
        return True
    return Run(task.trunk).checkpoint_path(task.state).exists()


def local(options: EngineOptions) -> Engine:
    """Return an engine of processes on this machine."""
    from mma.experiments.engines.local import Local

    return Local(options.workers, options.training)


def ray(options: EngineOptions) -> Engine:
    """Return an engine of tasks on a Ray cluster."""
    from mma.experiments.engines.on_ray import OnRay

    return OnRay(options)


def check_engine(name: str) -> None:
    """Refuse an engine that does not exist."""
    if name not in ENGINES:
        raise ValueError(f"no engine '{name}'. There are: {', '.join(ENGINES)}.")


def create_engine(name: str, options: EngineOptions) -> Engine:
    """Return the engine called `name`."""
    check_engine(name)
    return ENGINES[name](options)


ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {"local": local, "ray": ray}
