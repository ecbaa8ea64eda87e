"""What the loop tells whoever watches it, and how a watcher asks it to stop. The default says nothing."""

from __future__ import annotations

import time
from typing import Any

from mma.growth import Round


class Watch:
    """Says nothing and never stops. The command line's watcher draws a live line; tests use this one."""

    stop: bool = False  # set it, and the run stores its state after the current step and returns

    def begin(self, *, step: int, end: int, rounds: tuple[Round, ...]) -> None:
        """Training is about to go from `step` towards `end`."""

    def stepped(self, step: int, labels: int) -> None:
        """A step was made."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """A row was added to the metrics."""

    def say(self, message: str) -> None:
        """Something a person should read."""

    def warn(self, message: str) -> None:
        """Something a person should act on."""


class Clock:
    """Tells when a state should be stored although none is scheduled: a kill should cost minutes, not hours."""

    def __init__(self, seconds: float = 300.0) -> None:
        self.seconds, self.last = seconds, time.monotonic()

    def due(self) -> bool:
        """Return whether it is time."""
        return time.monotonic() - self.last > self.seconds

    def reset(self) -> None:
        """Begin to count again."""
        self.last = time.monotonic()
