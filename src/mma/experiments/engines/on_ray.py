"""One Ray task per run folder, on a folder that all nodes share. Ray is imported on use.

A task that loses its worker or its node is begun again elsewhere by Ray, finds the run folder as it was left, and goes on
from the latest stored state. The lock of the dead process is gone with it.
"""

from __future__ import annotations

import importlib
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from mma.experiments.engines import Ended, Options
from mma.experiments.engines.worker import GRACE, Means, outcome
from mma.experiments.plan import Job
from mma.training.watch import Watch

CONFLICT = 'Another cluster may run here: choose it with --ray-address, or "auto".'


class OnRay:
    """Hands every job that is ready to the cluster; Ray queues them until a node has room."""

    def __init__(self, options: Options) -> None:
        self.ray = imported()
        self.options = options
        self.connect()
        resources = {"num_cpus": options.cpus, "num_gpus": options.gpus}
        # `retry_exceptions=False`: only a death is tried again; an error of the run itself would come again.
        self.task = self.ray.remote(max_retries=options.retries, retry_exceptions=False, **resources)(task)
        self.jobs: dict[Any, Path] = {}

    def connect(self) -> None:
        """Join the cluster at the address, or start one on this machine."""
        address = self.options.address
        cores = {} if address else {"num_cpus": max(self.options.workers, 1), "include_dashboard": False}
        try:
            self.ray.init(address=address or "local", log_to_driver=False, logging_level="error", **cores)
        except (ConnectionError, RuntimeError, OSError, ValueError) as error:
            where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
            raise ValueError(f"cannot reach {where}: {error}. {CONFLICT}") from None

    def room(self) -> bool:
        """Return True: the queue is Ray's."""
        return True

    def start(self, job: Job) -> None:
        """Queue a job. Nodes may have other working directories, so its paths become absolute."""
        far = replace(
            job,
            folder=job.folder.resolve(),
            sources=tuple(source.resolve() for source in job.sources),
            after=None if job.after is None else job.after.resolve(),
        )
        self.jobs[self.task.remote(far, self.options.means)] = job.folder

    def ended(self, seconds: float) -> list[Ended]:
        """Collect the tasks that ended."""
        if not self.jobs:
            return []
        done, _ = self.ray.wait(list(self.jobs), num_returns=len(self.jobs), timeout=seconds)
        return [(self.jobs.pop(reference), self.why(reference)) for reference in done]

    def why(self, reference: Any) -> str | None:
        """Return why a task failed, or None."""
        try:
            found: str | None = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            return f"Ray gave up on it after {self.options.retries} retries: {first}"
        return found

    def close(self) -> None:
        """Cancel what waits, give what runs the time to store its state, and leave the cluster; it goes on for others."""
        left = list(self.jobs)
        for reference in left:
            self.ray.cancel(reference, force=False, recursive=True)
        if left:
            self.ray.wait(left, num_returns=len(left), timeout=GRACE)
        self.jobs = {}
        self.ray.shutdown()


def task(job: Job, means: Means) -> str | None:
    """Run one job on some node. What is wrong with the run comes back as a sentence; a death raises."""
    watch = Watch()  # not one that looks at its parent: a node that dies has its tasks begun again, not ended

    def asked(*_: object) -> None:
        watch.stop = True

    before = signal.signal(signal.SIGINT, asked)  # which is how Ray cancels a task that runs
    try:
        return outcome(job, means, watch)
    finally:
        signal.signal(signal.SIGINT, before)


def imported() -> Any:
    """Import Ray, or say how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ValueError("--engine ray needs Ray: pip install 'mma-learn[ray]'") from None
