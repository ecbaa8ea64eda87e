"""Child processes that never outlive their parent, however it dies: `python -m mma.children MODULE ARGUMENTS`.

The parent holds the other end of the child's stdin. When that pipe ends, the parent is gone or wants no more. The child
waits for it in a thread that is started before anything heavy is imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

PATIENCE = 0.7  # seconds that a parent waits for a child to end
POLL = 0.05  # seconds between two looks at a child
GRACE = 2.0  # seconds that a child whose parent is gone has to end in order


def cores() -> int:
    """Return how many cores this process may use; a scheduler or container may allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(module: str, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
    """Run `main()` of a module in a process that ends when this one does.

    It has a session of its own: Ctrl-C at the terminal is for us, and we end it in order.
    """
    command = [sys.executable, "-m", "mma.children", module, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **options)


def run(module: str, *arguments: str, timeout: float, stop: Callable[[], bool]) -> subprocess.CompletedProcess[str]:
    """Run `main()` of a module and return what it printed. `stop` and `timeout` end it early."""
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = start(module, *arguments, stdout=output, stderr=errors)
        while process.poll() is None and not stop() and time.monotonic() < deadline:
            time.sleep(POLL)
        end(process)
        output.seek(0)
        errors.seek(0)
        code = -signal.SIGKILL if process.returncode is None else process.returncode
        return subprocess.CompletedProcess(process.args, code, output.read(), errors.read())


def end(process: subprocess.Popen[Any]) -> None:
    """Tell a child to end, and wait a moment. One that is slower ends by itself, after GRACE at the latest."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        if process.stdin is None:
            process.kill()
    finally:
        if process.stdin is not None:  # only now: the end of the pipe is a second signal, and would disturb the first
            process.stdin.close()


def end_after(is_over: Callable[[], object]) -> None:
    """End this process in order when `is_over` returns; at once if that takes longer than GRACE."""

    def watch() -> None:
        is_over()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def main() -> None:
    """Run a module's `main()` until it ends or the parent is gone."""
    end_after(lambda: os.read(sys.stdin.fileno(), 1))
    del sys.argv[0]
    import_module(sys.argv[0]).main()


if __name__ == "__main__":
    main()
