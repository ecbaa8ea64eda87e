"""What a worker does with one task: make the run folder if it is not there, then train it to its end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import parent_process

import torch

from mma.config import config_of
from mma.data import DataSet, load_data
from mma.errors import UserError
from mma.experiments.plan import RunTask, shared_sources
from mma.files import create_atomically
from mma.run import Run, Watch
from mma.training.ask import DatasetLabels
from mma.training.checkpoint import fork
from mma.training.host import Host, fill_in
from mma.training.loop import train
from mma.views import Views, ViewSettings

PATIENCE = 60.0  # seconds to wait for a run that a dying process still holds
GRACE = 30.0  # seconds for a worker that is asked to stop to end its step and store its state


@dataclass(frozen=True)
class TrainingOptions:
    """How runs are trained: the same for all runs of a grid, or they would not be comparable."""

    device: str | None = None  # None: what a run used before, else the CPU
    threads: int = 1  # of a new run; one that has begun keeps its own, or it could not go on exactly
    inexact: bool = False


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
    on_cpu = fill_in(run, host).device == "cpu"
    return vectors_once(config_of(run).views, data) if on_cpu else None


@lru_cache(maxsize=1)
def load_once(name: str) -> DataSet:
    """Open a data set once per worker."""
    return load_data(name)


@lru_cache(maxsize=1)
def vectors_once(settings: ViewSettings, name: str) -> Views | None:
    """Make the vectors of a pool ready once per worker: for a run of seconds that is most of the work. None for pixels."""
    if settings.kind != "features":
        return None
    return settings.open(load_once(name), torch.device("cpu"), 0)


class StopWithParent(Watch):
    """Stops a run, with its state stored, on request or when the parent process is gone."""

    def __init__(self) -> None:
        self.stop_requested, self.parent = False, parent_process()  # also one that is gone already

    @property
    def stop(self) -> bool:  # type: ignore[override]
        """Return whether to store the state and return."""
        return self.stop_requested or (self.parent is not None and not self.parent.is_alive())
