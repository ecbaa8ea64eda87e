"""What runs behind the page: the index in a thread, live and deep training in processes that are started again if they die.

What killed a process twice is not tried a third time. No torch.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from mma import children
from mma.errors import UserError
from mma.files import read_json, write_atomically
from mma.project.labels.events import now
from mma.project.photos import IndexReport
from mma.project.project import Project, Say, silent
from mma.project.records import ModelRow

LIVE = "mma.project.worker.worker"
MOST = 2  # times that something is tried
PAUSES = (1.0, 5.0, 20.0, 60.0)  # seconds before the worker is started again; the last one from then on
IDLE = 300.0  # seconds without an answer after which a deep training may begin by itself
LEAST = 50  # labels that one takes
GROWN = 1.25  # times the labels of the last one
ASKED = "deep-asked.json"
Advance = Callable[[int, int], None]  # gets how many of how many files are done


@contextmanager
def indexing(project: Project, done: Callable[[IndexReport], None], say: Say, advance: Advance) -> Iterator[None]:
    """Index while the body runs. The body begins when the first images are there."""
    first, unwanted = threading.Event(), threading.Event()

    def move(number: int, total: int) -> None:
        if unwanted.is_set():
            raise InterruptedError  # the page was closed; the next start goes on from here
        advance(number, total)
        if number or not total:
            first.set()

    def ended(task: Future[None]) -> None:
        if first.is_set() and (error := task.exception()) and not isinstance(error, InterruptedError):
            say(f"indexing stopped: {error}")
        first.set()

    with ThreadPoolExecutor(1, "index") as threads:
        task = threads.submit(lambda: done(project.index(advance=move)))
        task.add_done_callback(ended)
        try:
            first.wait()
            if task.done():
                task.result()
            yield
        finally:
            unwanted.set()


@contextmanager
def worker(project: Project, say: Say, module: str = LIVE) -> Iterator[None]:
    """Keep a training process running beside the body. It yields to the page, and labeling never waits for it."""
    stop, pauses = threading.Event(), iter(PAUSES)

    def keep_running() -> None:
        while not stop.is_set():
            process = children.start(module, str(project.folder))
            while process.poll() is None and not stop.wait(0.2):
                pass
            children.end(process)
            if not stop.is_set():
                pause = next(pauses, PAUSES[-1])
                ended = f"the training process ended (code {process.returncode})."
                say(f"{ended} Labeling goes on; it is started again in {pause:.0f} s.")
                stop.wait(pause)

    thread = threading.Thread(target=keep_running, name="worker")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def ask_for_deep(project: Project, by: str) -> None:
    """Ask the worker to train on pixels with the labels there are."""
    labeled = project.counts().labeled
    if len([each for each in project.classes() if each.merged_into is None]) < 2 or labeled < 2:
        raise UserError(f"a deep training needs labels of two classes at least, and there are {labeled} labels in all.")
    note = {"by": by, "at": now(), "seq": project.seq()}
    write_atomically(project.layout.state / ASKED, json.dumps(note) + "\n")


class DeepProcess:
    """At most one deep training of a project at a time, in a process of its own that yields to everything else."""

    def __init__(self, project: Project, say: Say = silent) -> None:
        self.project, self.say, self.note = project, say, project.layout.state / ASKED
        self.process: subprocess.Popen[bytes] | None = None
        self.attempts = Attempts(project.layout.state / "deep-attempt.json")
        self.place = ""

    @property
    def running(self) -> bool:
        """Whether it trains now."""
        return self.process is not None and self.process.poll() is None

    def tend(self, idle: float) -> bool:
        """Start one where it is due, and see whether one has ended. True: there is a new deep model."""
        if self.process is None and self.is_due(idle):
            self.start()
        if self.process is None or self.process.poll() is None:
            return False
        children.end(self.process)
        return self.finish(self.process.returncode)

    def is_due(self, idle: float) -> bool:
        """Tell whether to train: one was not finished, somebody asked, or there are many new labels and nobody is there."""
        if self.unfinished() or self.note.exists():
            return True
        if not self.project.settings.deep_when_idle or idle < IDLE:
            return False
        rows, labels = self.project.models.rows(), self.project.counts().labeled
        last = max((int(row.about.get("labels", 0)) for row in rows if row.kind == "deep"), default=0)
        return labels >= LEAST and labels >= GROWN * last

    def start(self) -> None:
        """Start the process, unless it died twice with the same labels."""
        unfinished = self.unfinished()
        self.place = f"deep model {unfinished.number}" if unfinished else f"deep model at event {self.project.seq()}"
        self.note.unlink(missing_ok=True)
        if not self.attempts.begin(self.place):
            self.fail("it died twice")
            return
        self.process = children.start("mma.project.worker.deep", str(self.project.folder))

    def finish(self, code: int) -> bool:
        """Take note of how it ended."""
        self.process = None
        if code == 0:
            self.attempts.end(self.place)
            return True
        self.say(f"deep training ended with code {code}")
        if self.attempts.counts().get(self.place, 0) >= MOST:
            self.fail(f"it ended with code {code} twice")
        elif not self.unfinished():
            self.note.touch()  # nothing was begun that could be continued: once more
        return False

    def fail(self, why: str) -> None:
        """Report it; labeling goes on."""
        self.attempts.end(self.place)
        row, about = self.unfinished(), {"labels": self.project.counts().labeled}
        was = f" It was at: {row.message}" if row is not None and row.message else ""
        message = f"deep training stopped: {why}. Ask for it again after more labels.{was}"
        values = {"seq": self.project.seq(), "message": message, "about": about}
        self.project.models.put(row.number if row else None, kind="deep", state="failed", **values)

    def stop(self) -> None:
        """Stop the process; its folder goes on from its last stored state."""
        if self.running and self.process is not None:
            children.end(self.process)
            self.attempts.end(self.place)

    def unfinished(self) -> ModelRow | None:
        """Return the deep model that was begun and has not ended."""
        rows = [row for row in self.project.models.rows() if row.kind == "deep"]
        return rows[-1] if rows and rows[-1].state == "training" else None


class Attempts:
    """A note on disk of what was begun and has not ended. It outlives the process that died of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, place: str) -> bool:
        """Note that `place` is tried now. False: it was tried twice and never ended."""
        counts = self.counts()
        tried = counts.get(place, 0)
        if tried < MOST:
            write_atomically(self.path, json.dumps({**counts, place: tried + 1}) + "\n")
        return tried < MOST

    def end(self, place: str) -> None:
        """Note that what was tried is done, or given up."""
        counts = self.counts()
        if counts.pop(place, None) is None:
            return
        if counts:
            write_atomically(self.path, json.dumps(counts) + "\n")
        else:
            self.path.unlink(missing_ok=True)

    def counts(self) -> dict[str, int]:
        """Return how often each place was begun and not ended."""
        try:
            found = read_json(self.path)
        except (OSError, ValueError):  # no note, or one that is damaged: then nothing is known
            return {}
        return {place: count for place, count in found.items() if isinstance(count, int)}
