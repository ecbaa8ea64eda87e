"""Bring many run folders to their end on this machine: one process per core, one thread each. Runs never wait for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from mma.run import Run


def finish(folder: Path) -> None:
    """Train one run to its end: the whole job of a worker."""
    from mma.data import load
    from mma.train.host import Host
    from mma.train.loop import train
    from mma.train.oracle import Known

    run = Run.open(folder)
    data = load(run.config()["data"]["name"])
    train(run, Known(data.train), on=Host(threads=1), data=data)


def finish_all(runs: Sequence[Run], workers: int, tick: Callable[[], None]) -> dict[Path, str]:
    """Train all runs that are not done, calling `tick` twice a second. Returns why those that failed did."""
    todo = [run.folder for run in runs if run.status() != "done"]
    if not todo:
        return {}
    pool = ProcessPoolExecutor(min(workers, len(todo)), mp_context=get_context("spawn"))
    try:
        jobs: dict[Future[None], Path] = {pool.submit(finish, folder): folder for folder in todo}
        waiting = set(jobs)
        while waiting:
            _, waiting = wait(waiting, timeout=0.5)
            tick()
    except BaseException:  # Ctrl-C: the folders are whole, so nothing is lost by stopping at once
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return {jobs[job]: str(job.exception()) for job in jobs if job.exception() is not None}
