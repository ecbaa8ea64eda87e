"""Secrets of the page: a token per start, and a session that outlives a restart so that an open page goes on."""

from __future__ import annotations

import hmac
import re
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from mma.files import write_atomically

BYTES = 32  # 256 bits
SESSION_DAYS = 7
SHAPE = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True)
class Keys:
    """The token is in the address of one start; the session is in the cookie it is swapped for."""

    token: str = field(repr=False)
    session: str = field(repr=False)

    def opens(self, token: str) -> bool:
        """Return whether this is the token of this start; takes equally long for every wrong one."""
        return same(token, self.token)

    def knows(self, session: str) -> bool:
        """Return whether this is the session of this project."""
        return same(session, self.session)


def same(one: str, other: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def new_keys(state: Path) -> Keys:
    """Make a token for this start; keep the session in `state`, so that a page survives a restart of the server."""
    return Keys(token=secrets.token_urlsafe(BYTES), session=stored_session(state / "session"))


def stored_session(path: Path) -> str:
    """Return the session kept in a file only its owner can read; a new one when it is missing, damaged or old."""
    if path.is_file() and time.time() - path.stat().st_mtime < SESSION_DAYS * 86_400:
        session = path.read_text("ascii", errors="replace")
        if SHAPE.fullmatch(session) and path.stat().st_mode & 0o077 == 0:
            return session
    session = secrets.token_urlsafe(BYTES)
    write_atomically(path, session, private=True)
    return session
