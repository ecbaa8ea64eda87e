"""What of this machine is ours to use."""

from __future__ import annotations

import os


def cores() -> int:
    """Return how many cores this process may use; a scheduler or container may allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
