"""One owner per project: a lock that ends with its process, and a note that says who holds it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mma.files import explain_write_errors, locked, read_json, write_atomically
from mma.project.events import now
from mma.text import printable


@contextmanager
def owned(state: Path, command: str) -> Iterator[None]:
    """Hold the project for this process, or say who holds it. A lock whose process is gone does not count."""
    note = state / "owner.json"
    with locked(state / "lock", _busy(note)):
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": now(), "command": command}
        with explain_write_errors(state, command):
            write_atomically(note, json.dumps(about) + "\n", private=True)
        try:
            yield
        finally:
            note.unlink(missing_ok=True)


@contextmanager
def training(state: Path, command: str) -> Iterator[None]:
    """Be the one process that trains a project: two would write the same models."""
    place = printable(str(state.parent))
    busy = f"{place} is being trained by another process, mma start or mma work. Stop that one first, or let it train."
    with ExitStack() as held:
        with explain_write_errors(state, command):
            held.enter_context(locked(state / "training.lock", busy))
        yield


def _busy(note: Path) -> str:
    place = printable(str(note.parents[1]))
    try:
        about = read_json(note)
        who = f"process {about['pid']} on {about['host']} since {about['since']} ({about['command']})"
    except (OSError, ValueError, KeyError):
        who = "another process"
    return f"{place} is in use by {printable(who)}. Use its page, or stop it first."
