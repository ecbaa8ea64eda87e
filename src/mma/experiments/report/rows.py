"""The rows of a report and their CSV files: one kind of row per file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from mma.text import printable

ROUND = "a round of a longer run"  # the note of a result that is no run of its own
DIGITS = 6  # decimals of a stored accuracy: enough for any test set, and the same on every machine


@dataclass(frozen=True)
class Result:
    """One run: its place in the table and how it ended."""

    method: str
    budget: int
    total: int
    seed: int
    status: str  # done, running, interrupted, failed, not run
    accuracy: float | None  # median of the last evaluations, percent
    evaluations: int
    steps: int
    labels: int
    note: str = ""  # how far it is, or why it failed


@dataclass(frozen=True)
class RoundEnd:
    """The last evaluation of one round of one run."""

    method: str
    budget: int
    total: int
    seed: int
    labels: int
    step: int
    accuracy: float
    missed: int | None = None  # classes without a label
    asked: int | None = None  # images asked about by then, with those that nobody could tell


@dataclass(frozen=True)
class CurvePoint:
    """Mean accuracy while training, over the seeds of one method, budget and total."""

    method: str
    budget: int
    total: int
    step: int
    mean: float


@dataclass(frozen=True)
class RoundSpending:
    """One round of a run that spends money: the money spent by then, what it bought, and the accuracy at its end."""

    method: str
    budget: int
    total: int
    seed: int
    round: int
    spent: float
    labels: int  # the start set included
    images: int
    accuracy: float  # of the last round: the run's result


@dataclass(frozen=True)
class Compute:
    """The floating-point operations of one run of a method."""

    method: str
    budget: int
    total: int
    flop: float


FILES: dict[str, type] = {
    "runs.csv": Result,
    "rounds.csv": RoundEnd,
    "curves.csv": CurvePoint,
    "spending.csv": RoundSpending,
    "compute.csv": Compute,
}
RUNS, ROUNDS, CURVES, SPENDING, COMPUTE = FILES


def to_csv(rows: Sequence[Any], kind: type) -> str:
    """Return rows of one kind as CSV, with a heading."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [one.name for one in fields(kind)]
    writer.writerow(names)
    writer.writerows(["" if (v := getattr(row, name)) is None else v for name in names] for row in rows)
    return text.getvalue()


def read_rows(path: Path, kind: type) -> tuple[Any, ...]:
    """Read rows of one kind, or say which line is wrong. No file, no rows."""
    if not path.is_file():
        return ()
    reader = csv.DictReader(path.read_text("utf-8").splitlines())
    names = [one.name for one in fields(kind)]
    there = [one for one in fields(kind) if one.name in (reader.fieldnames or [])]
    # A column with a default may be missing: results that are older than the column are still read.
    missing = [one.name for one in fields(kind) if one not in there and one.default is MISSING]
    if missing:
        raise ValueError(f"{path} lacks the column {missing[0]}. Its heading must be {','.join(names)}.")
    rows = []
    for row in reader:
        try:
            rows.append(kind(**{one.name: PARSERS[str(one.type)](row[one.name]) for one in there}))
        except (ValueError, TypeError):
            raise ValueError(f"{path}, line {reader.line_num} is damaged: {printable(str(row))}") from None
    return tuple(rows)


PARSERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "int | None": lambda text: int(text) if text else None,
    "float | None": lambda text: float(text) if text else None,
}
