"""Places where the worker died before: what killed it twice is not tried a third time. No torch."""

from __future__ import annotations

import json
from pathlib import Path

from mma.files import read_json, write_atomically

MOST = 2


class Attempts:
    """A note on disk of what was begun and has not ended, so that it outlives the process that died of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, place: str) -> bool:
        """Note that `place` is tried now. False: it was tried twice and never ended."""
        counts = self.counts()
        if counts.get(place, 0) >= MOST:
            return False
        self._write({**counts, place: counts.get(place, 0) + 1})
        return True

    def end(self, place: str) -> None:
        """Note that what was tried is done, or given up."""
        counts = self.counts()
        if counts.pop(place, None) is not None:
            self._write(counts)

    def counts(self) -> dict[str, int]:
        """Return how often each place was begun and not ended."""
        try:
            found = read_json(self.path)
        except (OSError, ValueError):  # no note, or one that is damaged: then nothing is known
            return {}
        return {place: count for place, count in found.items() if isinstance(count, int)}

    def _write(self, counts: dict[str, int]) -> None:
        if counts:
            write_atomically(self.path, json.dumps(counts) + "\n")
        else:
            self.path.unlink(missing_ok=True)
