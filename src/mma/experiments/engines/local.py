"""Processes on this machine, one thread each. A process that dies takes only its own run with it."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType

from mma.experiments.engines import Ended
from mma.experiments.engines.worker import GRACE, StopWithParent, TrainingOptions, failure_of
from mma.experiments.plan import RunTask
from mma.extensions import use_inherited


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
        idle = [worker for worker in self.workers if worker.task is None]
        worker = idle[0] if idle else self.add_worker()
        worker.task = task.folder
        with suppress(OSError):  # it may die this moment; `wait` finds that out
            worker.pipe.send(task)

    def add_worker(self) -> Worker:
        """Start another process."""
        here, there = self.context.Pipe()
        process = self.context.Process(target=work, args=(there, self.options), daemon=True)
        with hidden_main():
            process.start()
        there.close()
        self.workers.append(Worker(process, here))
        return self.workers[-1]

    def wait(self, seconds: float) -> list[Ended]:
        """Collect answers; a closed pipe is a dead worker."""
        busy = {worker.pipe: worker for worker in self.workers if worker.task is not None}
        if not busy:
            time.sleep(seconds)
        return [
            self.read_answer(busy[pipe])
            for pipe in connection.wait(list(busy), seconds)
            if isinstance(pipe, Connection)
        ]

    def read_answer(self, worker: Worker) -> Ended:
        """Return how a worker's task ended."""
        assert worker.task is not None
        folder, worker.task = worker.task, None
        try:
            return folder, worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            self.workers.remove(worker)
            return folder, describe_exit(worker.process.exitcode)

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


@contextmanager
def hidden_main() -> Iterator[None]:
    """Keep new processes from importing the caller's script again, so that it needs no `if __name__ == "__main__"`."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


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
