"""Train many run folders to their end. An engine starts tasks and reports which ended; this file decides what may start."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from mma.config import config_of
from mma.data import load_data
from mma.errors import UserError
from mma.experiments.plan import RunTask, shared_sources
from mma.extensions import VARIABLE, use_inherited
from mma.features.backbone import import_extra
from mma.features.extract import OWN_CLUSTER
from mma.files import create_atomically
from mma.run import Run, Watch
from mma.text import first_line
from mma.training.ask import DatasetLabels
from mma.training.checkpoint import fork
from mma.training.host import Host, fill_in
from mma.training.loop import train
from mma.views import Views, ViewSettings

Ended = tuple[Path, str | None]  # the run's folder, and why it failed
PATIENCE = 60.0  # seconds to wait for a run that a dying process still holds
GRACE = 30.0  # seconds for a worker that is asked to stop to end its step and store its state


@dataclass(frozen=True)
class TrainingOptions:
    """How runs are trained: the same for all runs of a grid, or they would not be comparable."""

    device: str | None = None  # None: what a run used before, else the CPU
    threads: int = 1  # of a new run; one that has begun keeps its own, or it could not go on exactly
    inexact: bool = False


@dataclass(frozen=True)
class EngineOptions:
    """Where runs are trained. `local` looks at `workers`, `ray` at the rest; `training` is for both."""

    training: TrainingOptions = field(default_factory=TrainingOptions)
    workers: int = 1
    address: str | None = None  # of a Ray cluster; None = start one on this machine
    cpus: float = 1.0  # per task
    gpus: float = 0.0  # per task
    retries: int = 10  # times a task whose worker or node died is begun again


def train_all(
    tasks: Iterable[RunTask],
    engine: Local | OnRay,
    on_tick: Callable[[set[Path]], None] = lambda running: None,
    on_end: Callable[[Path, str | None], None] = lambda folder, why: None,
) -> None:
    """Run all tasks with a new engine, which is closed in the end. A run that fails stops no other.

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


def check_engine(name: str) -> None:
    """Refuse an engine that does not exist."""
    if name not in ENGINES:
        raise UserError(f"no engine '{name}'. There are: {', '.join(ENGINES)}.")


# What a worker does with one task: make the run folder if it is not there, then train it to its end.


def finish(task: RunTask, options: TrainingOptions, watch: Watch | None = None) -> None:
    """Train one run to its end from wherever it is. Safe to call again after any interruption."""
    run = open_or_create(task)
    if run.status() == "done":
        return
    deadline = time.monotonic() + PATIENCE
    while run.busy() and time.monotonic() < deadline:
        time.sleep(0.2)  # a process that is being killed needs some time to let go of the run
    data = load_once(run.config()["data"]["name"])
    begun = (run.folder / "host.json").exists()
    host = Host(options.device, None if begun else options.threads)
    views = shared_vectors(run, host, data.name)
    oracle = DatasetLabels(data.train, unlabeled_means_no_class=data.strangers)
    train(run, oracle, watch=watch, on=host, inexact=options.inexact, data=data, views=views)
    if run.status() == "waiting":
        raise UserError(f"{data.name} has images without a label, and a grid has nobody to ask.")


def failure_of(task: RunTask, options: TrainingOptions, watch: Watch) -> str | None:
    """Run one task and return why it failed, or None. An error of the run never ends the worker."""
    try:
        finish(task, options, watch)
    except Exception as error:
        return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return "stopped before its end" if watch.stop else None


def open_or_create(task: RunTask) -> Run:
    """Open the task's run. If it is not there, make it from the best stored state its family has."""
    if (task.folder / "config.json").exists():
        return Run.open(task.folder)
    sources = shared_sources(task)
    if sources:
        _, source = sources[-1]
        create_atomically(task.folder, lambda folder: fork(Run.open(source), folder, task.config["growth"]["budget"]))
    else:
        create_atomically(task.folder, lambda folder: Run.create(folder, task.config))
    return Run.open(task.folder)


def shared_vectors(run: Run, host: Host, data: str) -> Views | None:
    """Return the vectors that a worker's runs share. They are in main memory, so a run on a GPU makes its own ready."""
    return vectors_once(config_of(run).views, data) if fill_in(run, host).device == "cpu" else None


load_once = lru_cache(maxsize=1)(load_data)  # a data set is opened once per worker


@lru_cache(maxsize=1)
def vectors_once(settings: ViewSettings, name: str) -> Views | None:
    """Make the vectors of a pool ready once per worker: for a run of seconds that is most of the work. None for pixels."""
    if settings.kind != "features":
        return None
    return settings.open(load_once(name), torch.device("cpu"), 0)


class StopWithParent(Watch):
    """Stops a run, with its state stored, on request or when the parent process is gone."""

    def __init__(self) -> None:
        self.stop_requested, self.parent = False, multiprocessing.parent_process()  # also one that is gone already

    @property
    def stop(self) -> bool:  # type: ignore[override]
        """Return whether to store the state and return."""
        return self.stop_requested or (self.parent is not None and not self.parent.is_alive())


# Processes on this machine, one thread each. A process that dies takes only its own run with it.


@dataclass
class Worker:
    """A process that waits for tasks at the other end of a pipe."""

    process: SpawnProcess
    pipe: Connection
    task: Path | None = None  # the folder of the run it trains


class Local:
    """W worker processes that live as long as the engine: importing torch costs seconds, a small run not much more."""

    def __init__(self, workers: int, options: TrainingOptions) -> None:
        self.size, self.options = workers, options
        self.context = multiprocessing.get_context("spawn")
        self.workers: list[Worker] = []

    def has_room(self) -> bool:
        """Return whether a worker is idle or may be started."""
        self.workers = [worker for worker in self.workers if worker.task is not None or worker.process.is_alive()]
        return len(self.workers) < self.size or any(worker.task is None for worker in self.workers)

    def start(self, task: RunTask) -> None:
        """Hand the task to an idle worker, or to a new one."""
        worker = next((worker for worker in self.workers if worker.task is None), None)
        if worker is None:
            here, there = self.context.Pipe()
            process = self.context.Process(target=work, args=(there, self.options), daemon=True)
            # Without the caller's script, which needs no `if __name__ == "__main__"` then.
            main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
            try:
                process.start()
            finally:
                sys.modules["__main__"] = main
            there.close()
            worker = Worker(process, here)
            self.workers.append(worker)
        worker.task = task.folder
        with suppress(OSError):  # it may die this moment; `wait` finds that out
            worker.pipe.send(task)

    def wait(self, seconds: float) -> list[Ended]:
        """Collect answers; a closed pipe is a dead worker."""
        busy = [worker for worker in self.workers if worker.task is not None]
        if not busy:
            time.sleep(seconds)
        ready, ended = connection.wait([worker.pipe for worker in busy], seconds), list[Ended]()
        for worker in (worker for worker in busy if worker.pipe in ready):
            assert worker.task is not None
            folder, worker.task = worker.task, None
            try:
                ended.append((folder, worker.pipe.recv()))
            except (EOFError, OSError):
                worker.process.join()
                self.workers.remove(worker)
                ended.append((folder, describe_exit(worker.process.exitcode)))
        return ended

    def close(self) -> None:
        """Ask the workers to store their states and end; those that do not in time are killed, which is as safe."""
        for worker in self.workers:
            worker.pipe.close()
            worker.process.terminate()
        deadline = time.monotonic() + GRACE
        for worker in self.workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
        self.workers = []


def describe_exit(code: int | None) -> str:
    """Say how a process ended."""
    if code is not None and code < 0:
        hint = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{hint}"
    return f"its process ended with code {code}"


def work(pipe: Connection, options: TrainingOptions) -> None:
    """Run the tasks that come through the pipe until it closes."""
    watch = StopWithParent()

    def request_stop(*_: object) -> None:
        watch.stop_requested = True

    use_inherited()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, request_stop)
    while not watch.stop:
        try:
            if not pipe.poll(0.5):
                continue
            pipe.send(failure_of(pipe.recv(), options, watch))
        except (EOFError, OSError):
            return


# One Ray task per run folder, on a folder that all nodes share. Ray is imported on use.
# A task that loses its worker or its node is begun again elsewhere by Ray, finds the run folder as it was left, and goes on
# from the latest stored state. The lock of the dead process is gone with it.


class OnRay:
    """Hands every task that is ready to the cluster; Ray queues them until a node has room."""

    def __init__(self, options: EngineOptions) -> None:
        self.ray = import_extra("ray", "--engine ray needs Ray", "ray")
        self.options = options
        address = options.address
        cores: dict[str, Any] = {} if address else {"num_cpus": max(options.workers, 1), **OWN_CLUSTER}
        try:  # to join the cluster at the address, or to start one on this machine
            self.ray.init(address=address or "local", log_to_driver=False, logging_level="error", **cores)
        except (ConnectionError, RuntimeError, OSError, ValueError) as error:
            where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
            other = 'Another cluster may run here: choose it with --ray-address, or "auto".'
            raise UserError(f"cannot reach {where}: {error}. {other}") from None
        resources = {"num_cpus": options.cpus, "num_gpus": options.gpus}
        # `retry_exceptions=False`: only a death is tried again; an error of the run itself would come again.
        # Nodes import what this process was told to use.
        used = {"env_vars": {VARIABLE: os.environ[VARIABLE]}} if os.environ.get(VARIABLE) else None
        self.remote = self.ray.remote(
            max_retries=options.retries, retry_exceptions=False, runtime_env=used, **resources
        )(run_task)
        self.tasks: dict[Any, Path] = {}

    def has_room(self) -> bool:
        """Return True: the queue is Ray's."""
        return True

    def start(self, task: RunTask) -> None:
        """Queue a task. Nodes may have other working directories, so its paths become absolute."""
        far = replace(
            task,
            folder=task.folder.resolve(),
            sources=tuple(source.resolve() for source in task.sources),
            trunk=None if task.trunk is None else task.trunk.resolve(),
        )
        self.tasks[self.remote.remote(far, self.options.training)] = task.folder

    def wait(self, seconds: float) -> list[Ended]:
        """Collect the tasks that ended."""
        if not self.tasks:
            return []
        done, _ = self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=seconds)
        ended = []
        for reference in done:
            try:
                why = self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                why = f"Ray gave up on it after {self.options.retries} retries: {first_line(error)}"
            ended.append((self.tasks.pop(reference), why))
        return ended

    def close(self) -> None:
        """Cancel what waits, give what runs the time to store its state, and leave the cluster; it goes on for others."""
        for reference in self.tasks:
            self.ray.cancel(reference, force=False, recursive=True)
        if self.tasks:
            self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=GRACE)
        self.ray.shutdown()


def run_task(task: RunTask, options: TrainingOptions) -> str | None:
    """Run one task on some node. What is wrong with the run comes back as a sentence; a death raises."""
    watch = Watch()  # not one that looks at its parent: a node that dies has its tasks begun again, not ended

    def request_stop(*_: object) -> None:
        watch.stop = True

    use_inherited()
    before = signal.signal(signal.SIGINT, request_stop)  # which is how Ray cancels a task that runs
    try:
        return failure_of(task, options, watch)
    finally:
        signal.signal(signal.SIGINT, before)


ENGINES: dict[str, Callable[[EngineOptions], Local | OnRay]] = {
    "local": lambda options: Local(options.workers, options.training),
    "ray": OnRay,
}
