"""What a strategy returns."""

from __future__ import annotations

from dataclasses import dataclass

from mma.query.candidates import Floats, Ints


@dataclass(frozen=True, eq=False)
class Picks:
    """Rows of the candidates, the most wanted first, with what each is worth and why they were picked."""

    rows: Ints  # (n,) each once
    scores: Floats  # (n,) finite, never rising
    why: str = ""  # one sentence
