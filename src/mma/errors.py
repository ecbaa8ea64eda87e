"""Errors that people can do something about. Any other exception is our own mistake and shows its traceback."""

from __future__ import annotations


class UserError(ValueError):
    """Something the person at the keyboard can mend; the message says what, why, and what to type."""


class TemporarilyUnavailable(UserError):
    """Something that fails now and may work later: a full disk, a database that is away, an index that is not done."""
