"""Run by test_kill_two.py in a process of its own: two processes train one run; one of them is killed, again and again.

    python kill_two.py FOLDER SEED KILLS

The other one must notice by itself. Prints how often each of the two was killed.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

import torch

from mma.data import load_data
from mma.run import Run
from mma.training.ask import DatasetLabels
from mma.training.host import Host
from mma.training.loop import train
from mma.training.processes import OtherProcessFailed, joined

ALONE_LEFT = 3  # how a process ends that lost the other one
PATIENCE = 120  # seconds after which a process that should have ended hangs


def child(run: Run, rank: int, port: int, ready: int) -> int:
    """Train in a forked process, as one of two; it writes a byte when both are there."""
    pid = os.fork()
    if pid:
        return pid
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        with joined() as group:
            group.total(0)
            os.write(ready, b".")
            train(run, DatasetLabels(DATA.train), on=Host(threads=1), data=DATA)
    except OtherProcessFailed as error:
        os._exit(ALONE_LEFT if "lost another process" in str(error) else 1)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def ended(pid: int) -> int:
    """Wait for a process to end by itself."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sys.exit("a process hangs after the other one was killed")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def life(run: Run, victim: int, seconds: float | None) -> bool:
    """Train with two processes and kill one after a while. True if it was still alive."""
    listen, ready = os.pipe()
    port = free_port()
    pids = [child(run, rank, port, ready) for rank in (0, 1)]
    os.close(ready)
    while len(os.read(listen, 1)) == 1 and seconds is None:
        pass  # nobody is killed: wait until both are done
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pids[victim], signal.SIGKILL)
    os.close(listen)
    codes = [ended(pid) for pid in (pids[victim], pids[1 - victim])]
    if codes not in ([0, 0], [-signal.SIGKILL, ALONE_LEFT], [-signal.SIGKILL, 0]):
        sys.exit(f"the processes ended with {codes}")
    return codes[0] != 0


def main(run: Run, draw: random.Random, kills: int) -> None:
    """Kill `kills` times in all, then let the run come to its end."""
    killed, longest = [0, 0], 0.1
    while sum(killed) < kills and run.status() != "done":
        before, victim = run.checkpoint_steps(), sum(killed) % 2
        killed[victim] += life(run, victim, draw.uniform(0, longest))
        # Lives just long enough to get somewhere, whatever the speed of the machine.
        longest *= 1.3 if run.checkpoint_steps() == before else 0.7
    life(run, 0, None)
    print(*killed)


if __name__ == "__main__":
    torch.set_num_threads(1)
    DATA = load_data("digits")
    main(Run.open(Path(sys.argv[1])), random.Random(int(sys.argv[2])), int(sys.argv[3]))
