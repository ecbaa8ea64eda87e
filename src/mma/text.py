"""Names that come from files, made safe to show in a terminal."""

from __future__ import annotations

import unicodedata


def printable(name: str) -> str:
    r"""Write control, direction-changing and undecodable characters as escapes: the escape key shows as \x1b."""
    return "".join(_escaped(character) for character in name)


def _escaped(character: str) -> str:
    # C*: control, format (text direction), surrogate (undecodable byte), private, unassigned. Zl, Zp: line separators.
    if unicodedata.category(character)[0] == "C" or unicodedata.category(character) in ("Zl", "Zp"):
        return character.encode("unicode_escape").decode("ascii")
    return character
