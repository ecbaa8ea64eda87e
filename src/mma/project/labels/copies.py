"""labels.jsonl: every event once more, one checked line each. The database can be made again from it."""

from __future__ import annotations

import atexit
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import select

from mma.errors import TemporarilyUnavailable, UserError
from mma.files import append_bytes, cut_lines, explain_write_errors, in_turn, write_atomically
from mma.project.exchange.formats import read_current, render_labels
from mma.project.labels import database as db
from mma.project.labels.database import Store
from mma.project.labels.events import events_after
from mma.project.records import Event, Layout
from mma.text import quote_path

TAIL = 1 << 16  # bytes read from the end to find the last line
PART = 5_000  # events appended at once


class LogLine(NamedTuple):
    """One line: an event, or what is wrong with it."""

    number: int
    event: Event | None
    problem: str = ""


class SecondCopy:
    """The file, and how far it has come. Several processes may append; each brings it up to what is committed."""

    def __init__(self, path: Path, images: Path) -> None:
        self.path, self.lock, self.command = path, path.with_name("log.lock"), f"mma start {quote_path(images)}"
        self._turn, self._size, self._seq = threading.Lock(), -1, 0

    def catch_up(self, store: Store, upto: int) -> None:
        """Append what the database holds and the file does not. On disk up to event `upto` when this returns."""
        with explain_write_errors(self.path, self.command), self._turn, in_turn(self.lock):
            self.path.touch(0o600)
            if self.path.stat().st_size != self._size:  # it is not as we left it
                self._find_end(store)
            while self._seq < upto:
                with store.reading() as connection:
                    events = events_after(connection, self._seq, PART)
                data = b"".join(map(line_of, events))
                append_bytes(self.path, data)
                self._size, self._seq = self._size + len(data), events[-1].seq

    def _find_end(self, store: Store) -> None:
        """Find the last good line. A torn line at the end is cut off."""
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - 1, 0))
            torn = size > 0 and file.read(1) != b"\n"
        if torn:  # whoever wrote the last line was never told that it was saved
            cut_lines(self.path)
        self._size, self._seq = self.path.stat().st_size, last_seq(self.path)
        with store.reading() as connection:
            known = connection.execute(select(db.events.c.seq).where(db.events.c.seq == self._seq)).scalar()
        if self._seq and known is None:
            raise TemporarilyUnavailable(
                f"{self.path} holds events that the database does not: the database is an older copy. Bring them together "
                f"with  mma doctor {quote_path(self.path.parents[1])} --rebuild"
            )


def last_seq(path: Path) -> int:
    """Return the number of the last event in the file; 0 where there is none."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(file.seek(0, 2) - TAIL, 0))
        for line in reversed(file.read().split(b"\n")[:-1]):  # the first one may be a part; then its check is wrong
            if event := parse_log_line(0, line).event:
                return event.seq
    return max((line.event.seq for line in read_log(path) if line.event), default=0)


def line_of(event: Event) -> bytes:
    """Write an event as a line that carries its own check."""
    values = {name: value for name, value in event._asdict().items() if value is not None}
    return json.dumps({**values, "check": _check(values)}, separators=(",", ":")).encode() + b"\n"


def _check(values: dict[str, object]) -> str:
    text = json.dumps(values, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_log_line(number: int, line: bytes) -> LogLine:
    """Read one line, and compare it with its check."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        values = json.loads(line)
        if values.pop("check") == _check(values):
            return LogLine(number, Event(**{**dict.fromkeys(Event._fields), **values}))
    return LogLine(number, None, "it is damaged: bytes were changed")


def read_log(path: Path) -> Iterator[LogLine]:
    """Yield every line of the file; a last line without its end is a torn one."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                yield LogLine(number, None, "the last line is torn: writing it was interrupted")
            else:
                yield parse_log_line(number, line[:-1])


# labels.csv in the project folder: the labels in force, for people and other programs. Never behind when we end.

DELAY = 2.0  # seconds after an answer
SHARE = 20  # a large file is written so many times less often than it takes to write


class Mirror:
    """Writes the file some time after an answer, once for many answers, and at the latest when the project is closed."""

    def __init__(self, path: Path, lock: Path, store: Store) -> None:
        self.path, self.lock, self.store = path, lock, store
        self._turn, self._delay, self._behind = threading.Lock(), DELAY, False
        self._timer: threading.Timer | None = None

    def touch(self) -> None:
        """Note that something changed."""
        with self._turn:
            self._behind = True
            if self._timer is None:
                self._timer = threading.Timer(self._delay, self._write_later)
                self._timer.daemon = True
                self._timer.start()
                atexit.register(self.finish)

    def finish(self) -> None:
        """Write what is not written yet."""
        atexit.unregister(self.finish)
        timer = self._timer
        if timer is not None:
            timer.cancel()
            timer.join()  # it may be writing right now
        if self._behind:
            self.write()

    def write(self) -> None:
        """Write the file now."""
        begin = time.monotonic()
        self._behind = False
        try:
            with explain_write_errors(self.path, f"mma doctor {quote_path(self.path.parent)}"), in_turn(self.lock):
                with self.store.reading() as connection:
                    rows = read_current(connection, gone=True)
                write_atomically(self.path, render_labels(rows))
        except UserError:
            self._behind = True
            raise
        self._delay = max(DELAY, SHARE * (time.monotonic() - begin))

    def _write_later(self) -> None:
        with suppress(UserError):  # a full disk, say. Labels are safe without this file; it is tried again.
            self.write()
        with self._turn:
            self._timer = None
        if self._behind:
            self.touch()


KEPT = 5  # copies of all events, one before each round, in state/backups


def back_up_events(layout: Layout, number: int) -> None:
    """Copy labels.jsonl before a round; a few rounds are kept. The database can be made from any of these."""
    if not layout.log.exists():
        return
    with explain_write_errors(layout.backups, f"mma start {layout.folder}"):
        place = layout.backups / f"round-{number:06d}.jsonl"
        write_atomically(place, layout.log.read_bytes(), private=True)
        for old in sorted(layout.backups.glob("round-*.jsonl"))[:-KEPT]:
            old.unlink(missing_ok=True)
