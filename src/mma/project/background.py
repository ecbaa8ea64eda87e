"""What goes on behind the page: indexing in a thread, the worker in a process of its own that is started again if it dies."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mma.project.index import IndexReport
from mma.project.project import Project, Say

LIVE = (sys.executable, "-m", "mma.project.live")
PAUSES = (1.0, 5.0, 20.0, 60.0)  # seconds before the worker is started again; the last one from then on
PATIENCE = 5.0  # seconds a worker gets to end
Advance = Callable[[int, int], None]  # gets how many of how many files are done


@contextmanager
def indexing(project: Project, done: Callable[[IndexReport], None], say: Say, advance: Advance) -> Iterator[None]:
    """Index while the body runs. The body begins when the first images are there."""
    first, wanted = threading.Event(), threading.Event()
    wanted.set()
    errors: list[Exception] = []

    def move(number: int, total: int) -> None:
        if not wanted.is_set():
            raise InterruptedError  # the page was closed; the next start goes on from here
        advance(number, total)
        if number or not total:
            first.set()

    def run() -> None:
        try:
            done(project.index(advance=move))
        except InterruptedError:
            pass
        except Exception as error:
            errors.append(error)
            if first.is_set():
                say(f"indexing stopped: {error}")
        finally:
            first.set()

    thread = threading.Thread(target=run, name="index")
    thread.start()
    try:
        first.wait()
        if errors:
            raise errors[0]
        yield
    finally:
        wanted.clear()
        thread.join()


@contextmanager
def worker(project: Project, say: Say, command: Sequence[str] = LIVE) -> Iterator[None]:
    """Keep a training process running beside the body. It yields to the page, and labeling never waits for it."""
    stop = threading.Event()
    thread = threading.Thread(target=_keep_running, args=([*command, str(project.folder)], say, stop), name="worker")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _keep_running(command: Sequence[str], say: Say, stop: threading.Event) -> None:
    pauses = iter(PAUSES)
    while not stop.is_set():
        # A session of its own: Ctrl-C at the terminal is for us, and we end it in order.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None and not stop.wait(0.2):
            pass
        if stop.is_set():
            _end(process)
            return
        pause = next(pauses, PAUSES[-1])
        say(
            f"the training process ended (code {process.returncode}). Labeling goes on; it is started again in {pause:.0f} s."
        )
        stop.wait(pause)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
