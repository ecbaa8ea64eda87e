"""What a worker does with one job: make the run folder if it is not there, then train it to its end."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mma.data import DataSet, load
from mma.experiments.plan import Job, usable
from mma.run import Run
from mma.training.fork import fork
from mma.training.host import Host
from mma.training.loop import train
from mma.training.oracle import DatasetLabels
from mma.training.watch import Watch

PATIENCE = 60.0  # seconds to wait for a run that a dying process still holds
GRACE = 30.0  # seconds for a worker that is asked to stop to end its step and store its state


@dataclass(frozen=True)
class Means:
    """How runs are trained: the same for all jobs of a grid, or they would not be comparable."""

    device: str | None = None  # None: what a run used before, else the CPU
    threads: int = 1  # of a new run; one that has begun keeps its own, or it could not go on exactly
    inexact: bool = False


def finish(job: Job, means: Means, watch: Watch | None = None) -> None:
    """Bring one run to its end from wherever it is. Safe to call again after any kind of death."""
    run = prepared(job)
    if run.status() == "done":
        return
    wait_for(run)
    data = images(run.config()["data"]["name"])
    begun = (run.folder / "host.json").exists()
    on = Host(means.device, None if begun else means.threads)
    train(run, DatasetLabels(data.train), watch=watch, on=on, inexact=means.inexact, data=data)
    if run.status() == "waiting":
        raise ValueError(f"{data.name} has images without a label, and a grid has nobody to ask.")


def outcome(job: Job, means: Means, watch: Watch) -> str | None:
    """Run one job and say why it failed; whatever goes wrong is the job's, not the worker's."""
    try:
        finish(job, means, watch)
    except Exception as error:
        return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return "stopped before its end" if watch.stop else None


def prepared(job: Job) -> Run:
    """Open the job's run; make it first if it is not there, from the best stored state its family has."""
    if (job.folder / "config.json").exists():
        return Run.open(job.folder)
    found = usable(job)
    if found:
        _, source = found[-1]
        appear(job.folder, lambda folder: fork(Run.open(source), folder, job.config["growth"]["budget"]))
    else:
        appear(job.folder, lambda folder: Run.create(folder, job.config))
    return Run.open(job.folder)


def appear(folder: Path, make: Callable[[Path], object]) -> None:
    """Let a folder appear whole: made beside its place, then moved there. A kill leaves nothing half made."""
    beside = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    make(beside)
    if folder.exists():  # a kill inside Run.create of another program left it without a config
        shutil.rmtree(folder)
    beside.rename(folder)


def wait_for(run: Run) -> None:
    """Give a process that is being killed the time to let go of the run."""
    deadline = time.monotonic() + PATIENCE
    while run.busy() and time.monotonic() < deadline:
        time.sleep(0.2)


@lru_cache(maxsize=1)
def images(name: str) -> DataSet:
    """Open a data set once per worker."""
    return load(name)


class Stoppable(Watch):
    """Stops a run, with its state stored, when asked to or when the process that gave the job is gone."""

    def __init__(self) -> None:
        self.asked, self.parent = False, os.getppid()

    @property
    def stop(self) -> bool:  # type: ignore[override]
        """Return whether to store the state and return."""
        return self.asked or os.getppid() != self.parent
