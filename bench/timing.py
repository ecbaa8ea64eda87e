"""Seconds by the clock and of the processors."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(action: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds an action takes by the clock, and of all processors together."""
    begin, processor = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - begin, time.process_time() - processor
