"""Processes on this machine, one thread each. A process that dies takes only its own run with it."""

from __future__ import annotations

import multiprocessing
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from mma.experiments.engines import Ended
from mma.experiments.engines.worker import GRACE, Means, Stoppable, outcome
from mma.experiments.plan import Job


@dataclass
class Worker:
    """A process that waits for jobs at the other end of a pipe."""

    process: SpawnProcess
    pipe: Connection
    job: Path | None = None


class Local:
    """W worker processes that live as long as the engine: importing torch costs seconds, a small run not much more."""

    def __init__(self, workers: int, means: Means) -> None:
        self.size, self.means = workers, means
        self.context = multiprocessing.get_context("spawn")
        self.workers: list[Worker] = []

    def room(self) -> bool:
        """Return whether a worker is idle or may be started."""
        self.workers = [worker for worker in self.workers if worker.job is not None or worker.process.is_alive()]
        return len(self.workers) < self.size or any(worker.job is None for worker in self.workers)

    def start(self, job: Job) -> None:
        """Hand the job to an idle worker, or to a new one."""
        idle = [worker for worker in self.workers if worker.job is None]
        worker = idle[0] if idle else self.hire()
        worker.job = job.folder
        with suppress(OSError):  # it may die this moment; `ended` finds that out and says so
            worker.pipe.send(job)

    def hire(self) -> Worker:
        """Start another process."""
        here, there = self.context.Pipe()
        process = self.context.Process(target=work, args=(there, self.means), daemon=True)
        process.start()
        there.close()
        self.workers.append(Worker(process, here))
        return self.workers[-1]

    def ended(self, seconds: float) -> list[Ended]:
        """Collect answers; a closed pipe is a dead worker."""
        busy = {worker.pipe: worker for worker in self.workers if worker.job is not None}
        if not busy:
            time.sleep(seconds)
        return [self.answer(busy[pipe]) for pipe in wait(list(busy), seconds) if isinstance(pipe, Connection)]

    def answer(self, worker: Worker) -> Ended:
        """Return what became of a worker's job."""
        assert worker.job is not None
        folder, worker.job = worker.job, None
        try:
            return folder, worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            self.workers.remove(worker)
            return folder, death(worker.process.exitcode)

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


def death(code: int | None) -> str:
    """Say how a worker died."""
    if code is not None and code < 0:
        hint = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{hint}"
    return f"its process ended with code {code}"


def work(pipe: Connection, means: Means) -> None:
    """Do the jobs that come through the pipe until it closes."""
    watch = Stoppable()

    def asked(*_: object) -> None:
        watch.asked = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, asked)
    while not watch.stop:
        try:
            if not pipe.poll(0.5):
                continue
            job = pipe.recv()
            pipe.send(outcome(job, means, watch))
        except (EOFError, OSError):
            return
