"""The C library is told to keep memory, and that it is not glibc is no error."""

from __future__ import annotations

import ctypes
import sys

from mma.training import host as memory


def test_every_setting_is_accepted_by_glibc():
    glibc = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    assert memory.keep_memory() or not glibc


def test_another_system_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not memory.keep_memory()
