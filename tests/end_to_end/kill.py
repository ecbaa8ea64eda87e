"""Run by test_kill.py in a process of its own: trains one run again and again, killing the trainer each time.

    python kill.py FOLDER MODE SEED

MODE "random": SIGKILL after a random time. MODE "points": SIGKILL before the n-th operation on files or query, n = 1, 2, ...
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from mma.data import load_data
from mma.query import Query
from mma.run import Run
from mma.training.ask import DatasetLabels
from mma.training.host import Host
from mma.training.loop import train


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(n: int) -> None:
    """Arrange for this process to kill itself at the n-th point where a kill could hurt; a write leaves part of its bytes."""
    count = 0

    def counted(function, half=None):
        def wrapped(*args, **kwargs):
            nonlocal count
            count += 1
            if count == n:
                if half is not None:
                    half(*args)
                die()
            return function(*args, **kwargs)

        return wrapped

    def half_the_file(handle: int) -> None:
        path, size = os.readlink(f"/proc/self/fd/{handle}"), os.fstat(handle).st_size
        if path.endswith(".tmp"):  # a file written whole: any part of it may be missing
            os.truncate(path, size // 2)
        elif path.endswith(".jsonl") and fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_APPEND:
            # appended to: rows already on disk stay, the new one is torn
            os.truncate(path, size - 10)

    os.fsync = counted(os.fsync, half_the_file)
    Path.replace = counted(Path.replace)
    Path.unlink = counted(Path.unlink)
    Query.selection = counted(Query.selection)


def child(run: Run, prepare) -> int:
    """Train in a forked process; return how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            prepare()
            train(run, DatasetLabels(DATA.train), on=Host(threads=1), data=DATA)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def killed(pid: int, after: float | None) -> bool:
    """Wait for the child, killing it after a time if one is given. True if it was killed."""
    deadline = None if after is None else time.monotonic() + after
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            if os.WIFEXITED(status) and os.WEXITSTATUS(status):
                sys.exit("the trainer failed")
            return os.WIFSIGNALED(status)
        if deadline is not None and time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            deadline = None
        time.sleep(0.001)


def main(folder: str, mode: str, seed: int) -> None:
    """Kill and start again until the run is done; print how often it was killed."""
    run, draw, kills, life = Run.open(Path(folder)), random.Random(seed), 0, 0.05
    while True:
        before = run.checkpoint_steps()
        if mode == "points":
            # Another point each time, or the same one would be hit for ever.
            pid, after = child(run, lambda n=kills: die_at(1 + (n * 5) % 17)), None
        else:
            pid, after = child(run, lambda: None), draw.uniform(0.0, life)
        if not killed(pid, after):
            break
        kills += 1
        # Lives just long enough to get somewhere, whatever the speed of the machine.
        life *= 1.3 if run.checkpoint_steps() == before else 0.7
    print(kills)


if __name__ == "__main__":
    torch.set_num_threads(1)
    DATA = load_data("digits")
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
