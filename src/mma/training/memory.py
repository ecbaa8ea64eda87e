"""Memory that a step frees is kept for the next one, instead of going back to the system and being cleared again."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # names of the C library's settings in <malloc.h>
LARGEST = 32 << 20  # bytes; the C library accepts no more, and larger blocks go back to the system as before
KEPT = (1 << 31) - 1  # bytes of free memory at the end of the heap that stay with the process
GROWTH = 64 << 20  # bytes the heap grows by


def keep_memory() -> bool:
    """Let the C library keep freed blocks. False where it is not glibc: nothing but speed depends on it.

    A step allocates and frees the same activations again and again. By default each of them may be unmapped when it is
    freed, and the next step pays for a page fault per 4 KB: up to a fifth of its time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    settings = ((MMAP_THRESHOLD, LARGEST), (TRIM_THRESHOLD, KEPT), (TOP_PAD, GROWTH))
    return all(mallopt(name, value) == 1 for name, value in settings)
