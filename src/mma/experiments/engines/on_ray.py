"""One Ray task per run folder, on a folder that all nodes share. Ray is imported on use.

A task that loses its worker or its node is begun again elsewhere by Ray, finds the run folder as it was left, and goes on
from the latest stored state. The lock of the dead process is gone with it.
"""

from __future__ import annotations

import importlib
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from mma.experiments.engines import Ended, EngineOptions
from mma.experiments.engines.worker import GRACE, TrainingOptions, failure_of
from mma.experiments.plan import RunTask
from mma.extensions import VARIABLE, use_inherited
from mma.training.watch import Watch

CONFLICT = 'Another cluster may run here: choose it with --ray-address, or "auto".'


class OnRay:
    """Hands every task that is ready to the cluster; Ray queues them until a node has room."""

    def __init__(self, options: EngineOptions) -> None:
        self.ray = import_ray()
        self.options = options
        self.connect()
        resources = {"num_cpus": options.cpus, "num_gpus": options.gpus}
        # `retry_exceptions=False`: only a death is tried again; an error of the run itself would come again.
        # Nodes import what this process was told to use.
        used = {"env_vars": {VARIABLE: os.environ[VARIABLE]}} if os.environ.get(VARIABLE) else None
        self.remote = self.ray.remote(
            max_retries=options.retries, retry_exceptions=False, runtime_env=used, **resources
        )(run_task)
        self.tasks: dict[Any, Path] = {}

    def connect(self) -> None:
        """Join the cluster at the address, or start one on this machine."""
        address = self.options.address
        cores = {} if address else {"num_cpus": max(self.options.workers, 1), "include_dashboard": False}
        try:
            self.ray.init(address=address or "local", log_to_driver=False, logging_level="error", **cores)
        except (ConnectionError, RuntimeError, OSError, ValueError) as error:
            where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
            raise ValueError(f"cannot reach {where}: {error}. {CONFLICT}") from None

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
        return [(self.tasks.pop(reference), self.failure(reference)) for reference in done]

    def failure(self, reference: Any) -> str | None:
        """Return why a task failed, or None."""
        try:
            found: str | None = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            return f"Ray gave up on it after {self.options.retries} retries: {first}"
        return found

    def close(self) -> None:
        """Cancel what waits, give what runs the time to store its state, and leave the cluster; it goes on for others."""
        left = list(self.tasks)
        for reference in left:
            self.ray.cancel(reference, force=False, recursive=True)
        if left:
            self.ray.wait(left, num_returns=len(left), timeout=GRACE)
        self.tasks = {}
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


def import_ray() -> Any:
    """Import Ray, or say how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ValueError("--engine ray needs Ray: pip install 'mma-learn[ray]'") from None
