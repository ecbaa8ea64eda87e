"""The process that trains on pixels: started when somebody asks for it or nobody labels, watched, and stopped. No torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from mma.errors import UserError
from mma.files import write_atomically
from mma.project.attempts import MOST, Attempts
from mma.project.events import now
from mma.project.project import Project, silent
from mma.project.records import ModelRow

IDLE = 300.0  # seconds without an answer after which a deep training may begin by itself
LEAST = 50  # labels that one takes
GROWN = 1.25  # times the labels of the last one
ASKED = "deep-asked.json"


def ask_for_deep(project: Project, by: str) -> None:
    """Ask the worker to train on pixels with the labels there are."""
    labeled = project.counts().labeled
    if len([each for each in project.classes() if each.merged_into is None]) < 2 or labeled < 2:
        raise UserError(f"a deep training needs labels of two classes at least, and there are {labeled} labels in all.")
    note = {"by": by, "at": now(), "seq": project.seq()}
    write_atomically(project.layout.state / ASKED, json.dumps(note) + "\n")


class DeepProcess:
    """At most one deep training of a project at a time, in a process of its own that yields to everything else."""

    def __init__(self, project: Project, say: Callable[[str], None] = silent) -> None:
        self.project, self.say = project, say
        self.process: subprocess.Popen[bytes] | None = None
        self.attempts = Attempts(project.layout.state / "deep-attempt.json")
        self.place = ""

    @property
    def running(self) -> bool:
        """Whether it trains now."""
        return self.process is not None and self.process.poll() is None

    def tend(self, idle: float) -> bool:
        """Start one where it is due, and see whether one has ended. True: there is a new deep model."""
        if self.process is None:
            if self.is_due(idle):
                self.start()
            return False
        if self.process.poll() is None:
            return False
        return self.finish(self.process.returncode)

    def is_due(self, idle: float) -> bool:
        """Tell whether to train: one was not finished, somebody asked, or there are many new labels and nobody is there."""
        if self.unfinished() or self.note.exists():
            return True
        if not self.project.settings.deep_when_idle or idle < IDLE:
            return False
        last = max((int(row.about.get("labels", 0)) for row in self.rows()), default=0)
        labels = self.project.counts().labeled
        return labels >= LEAST and labels >= GROWN * last

    def start(self) -> None:
        """Start the process, unless it died twice with the same labels."""
        unfinished = self.unfinished()
        self.place = f"deep model {unfinished.number}" if unfinished else f"deep model at event {self.project.seq()}"
        self.note.unlink(missing_ok=True)
        if not self.attempts.begin(self.place):
            self.fail("it died twice")
            return
        folder = str(self.project.folder)
        command = [sys.executable, "-m", "mma.project.deep", folder]
        # A session of its own: Ctrl-C at the terminal is for whoever started it, who ends it in order.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

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
            self.project_asked_again()
        return False

    def project_asked_again(self) -> None:
        """Try once more where nothing was begun that could be continued."""
        write_atomically(self.note, json.dumps({"by": "worker", "at": now(), "seq": self.project.seq()}) + "\n")

    def fail(self, why: str) -> None:
        """Report it; labeling goes on."""
        self.attempts.end(self.place)
        row = self.unfinished()
        message = f"deep training stopped: {why}. Ask for it again after more labels."
        if row is not None and row.message:
            message = f"{message} It was at: {row.message}"
        number = row.number if row else None
        labels = self.project.counts().labeled
        self.project.put_model(
            number, kind="deep", seq=self.project.seq(), state="failed", message=message, about={"labels": labels}
        )

    def stop(self) -> None:
        """Stop the process; its folder goes on from its last stored state."""
        if self.running and self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.attempts.end(self.place)

    def rows(self) -> list[ModelRow]:
        """Return the deep models there are."""
        return [row for row in self.project.models() if row.kind == "deep"]

    def unfinished(self) -> ModelRow | None:
        """Return the deep model that was begun and has not ended."""
        rows = self.rows()
        return rows[-1] if rows and rows[-1].state == "training" else None

    @property
    def note(self) -> Path:
        """The file that asks for a deep training."""
        return self.project.layout.state / ASKED
