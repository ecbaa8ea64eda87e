"""labels.csv in the project folder: the labels in force, for people and other programs. Never behind when we end."""

from __future__ import annotations

import atexit
import threading
import time
from contextlib import suppress
from pathlib import Path

from mma.files import explain_write_errors, in_turn, write_atomically
from mma.project.exchange.rows import read_current
from mma.project.exchange.tables import render_csv
from mma.project.store import Store
from mma.text import quote_path

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
                write_atomically(self.path, render_csv(rows))
        except ValueError:
            self._behind = True
            raise
        self._delay = max(DELAY, SHARE * (time.monotonic() - begin))

    def _write_later(self) -> None:
        with suppress(ValueError):  # a full disk, say. Labels are safe without this file; it is tried again.
            self.write()
        with self._turn:
            self._timer = None
        if self._behind:
            self.touch()
