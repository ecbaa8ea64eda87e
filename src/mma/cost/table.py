"""Mean accuracy by (labels, total images), with standard errors."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma import paper
from mma.data.tables import read_csv, refuse
from mma.errors import UserError
from mma.rng import rng
from mma.text import did_you_mean, printable

Floats = NDArray[np.float64]
OWN_STD = 3  # runs a cell needs to use its own spread; with fewer it gets the spread of the whole table


@dataclass(frozen=True)
class CellMean:
    """Mean accuracy in percent at one (labels, total), and its standard deviation (divided by `runs`)."""

    labels: int
    total: int
    accuracy: float
    std: float
    runs: int


@dataclass(frozen=True, eq=False)
class CostTable:
    """A grid of means; NaN where nothing was measured."""

    name: str
    labels: NDArray[np.int64]  # (L,) ascending
    totals: NDArray[np.int64]  # (T,) ascending; labeled + unlabeled images
    accuracy: Floats  # (T, L) percent
    error: Floats  # (T, L) standard error of each mean; NaN where it is unknown
    freedom: Floats  # (T, L) degrees of freedom behind that error
    notes: tuple[str, ...] = field(default=())

    @property
    def has_spread(self) -> bool:
        """Whether every mean has a standard error, so that intervals can be given."""
        return not np.isnan(self.error[self.measured]).any()

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Where there is a mean. (T, L)"""
        return ~np.isnan(self.accuracy)

    def best(self) -> tuple[int, int, float]:
        """Return labels, total and accuracy of the best cell."""
        row, column = np.unravel_index(np.nanargmax(self.accuracy), self.accuracy.shape)
        return int(self.labels[column]), int(self.totals[row]), float(self.accuracy[row, column])

    def draws(self, n: int, seed: int = 0) -> Floats:
        """Return n tables, every mean moved by its own error (Student's t); none where errors are unknown. (n, T, L)"""
        n = n if self.has_spread else 0
        noise = rng(seed, "cost", "draws").standard_t(np.maximum(self.freedom, 1), size=(n, *self.accuracy.shape))
        drawn: Floats = np.clip(self.accuracy + noise * self.error, 0, 100)
        return drawn


def table_from_runs(name: str, runs: Iterable[tuple[int, int, float]]) -> CostTable:
    """Return a table from single runs (labels, total, accuracy in percent); runs of one cell are averaged."""
    cells = defaultdict(list)
    for labels, total, accuracy in runs:
        cells[labels, total].append(accuracy)
    return table_from_cells(
        name, [CellMean(*key, float(np.mean(of)), float(np.std(of)), len(of)) for key, of in cells.items()]
    )


def table_from_cells(name: str, cells: Iterable[CellMean]) -> CostTable:
    """Return a table from means and standard deviations."""
    cells = list(cells)
    _check(name, cells)
    labels, totals = sorted({c.labels for c in cells}), sorted({c.total for c in cells})
    accuracy, error, freedom = (np.full((len(totals), len(labels)), np.nan) for _ in range(3))
    # The standard deviation of a single run over all cells; unknown when every cell has one run.
    pooled_freedom = sum(c.runs - 1 for c in cells)
    squares = sum(c.runs * c.std**2 for c in cells)
    pooled = float(np.sqrt(squares / pooled_freedom)) if pooled_freedom else float("nan")
    for cell in cells:
        at = totals.index(cell.total), labels.index(cell.labels)
        own = cell.runs >= OWN_STD
        accuracy[at] = cell.accuracy
        freedom[at] = cell.runs - 1 if own else pooled_freedom
        error[at] = cell.std / np.sqrt(cell.runs - 1) if own else pooled / np.sqrt(cell.runs)
    notes = tuple(_notes(cells, labels, totals, accuracy))
    return CostTable(name, np.array(labels), np.array(totals), accuracy, error, freedom, notes)


def _check(name: str, cells: list[CellMean]) -> None:
    """Refuse cells that would make the numbers meaningless."""
    if not cells:
        raise UserError(f"{name} has no measurements. Each row is one run: labels, total, accuracy, seed.")
    for c in cells:
        if c.labels < 1 or c.total < c.labels:
            raise UserError(
                f"{name}: {c.labels:,} labels among {c.total:,} images in total cannot be: `total` counts labeled and "
                "unlabeled images together, and there must be at least one label."
            )
        if not 0 <= c.accuracy <= 100:
            raise UserError(f"{name}: accuracy {c.accuracy:g} at {c.labels:,} labels is not a percentage.")
    if max(c.accuracy for c in cells) <= 1:
        raise UserError(
            f"{name}: every accuracy lies between 0 and 1, so these look like fractions. Write percent: multiply by 100."
        )
    for what, values in (("label count", {c.labels for c in cells}), ("total", {c.total for c in cells})):
        if len(values) == 1:
            raise UserError(
                f"{name} has only one {what} ({values.pop():,}): what labels are worth in images can only be read from "
                "at least two label counts at two or more totals. Measure some more."
            )


def _notes(cells: list[CellMean], labels: list[int], totals: list[int], accuracy: Floats) -> Iterator[str]:
    """Return remarks on the data: gaps, missing noise, columns that fall."""
    gaps = [f"({labels[c]:,}, {totals[r]:,})" for r, c in np.argwhere(np.isnan(accuracy)) if totals[r] >= labels[c]]
    if gaps:
        yield f"No measurement at (labels, total) {', '.join(gaps)}: interpolation skips the gap."
    if all(c.runs == 1 for c in cells):
        yield "One run per cell: the noise is unknown, so there are no intervals. Add seeds."
    elif any(c.runs < OWN_STD for c in cells):
        yield f"Cells with fewer than {OWN_STD} runs get the spread of the whole table."
    for column, count in zip(accuracy.T, labels, strict=True):
        if (np.diff(column[~np.isnan(column)]) < 0).any():
            yield f"At {count:,} labels accuracy falls somewhere as images are added: see the rule above."


# Sources of tables: the paper, a CSV of runs, a grid folder.

PAPER = "paper:"
PREFIX = "labeled-vs-unlabeled-"
GRID_FILE = "labeled-vs-unlabeled.csv"  # what a grid folder offers, in the CSV format below
COLUMNS = ("labels", "total", "accuracy")  # `seed` is optional


def paper_sources() -> list[str]:
    """Return the names of the paper's labeled-vs-unlabeled tables: paper:cifar10 and so on."""
    return [PAPER + name.removeprefix(PREFIX) for name in paper.experiments() if name.startswith(PREFIX)]


def open_table(source: str) -> CostTable:
    """Read a source: `paper:NAME`, a CSV of `labels,total,accuracy,seed`, or a folder with labeled-vs-unlabeled.csv."""
    known, path = paper_sources(), Path(source)
    if source.startswith(PAPER):
        if source not in known:
            hint = did_you_mean(source, known)
            raise UserError(f"There is no '{printable(source)}'.{hint} The paper measured {', '.join(known)}.")
        rows = paper.table(PREFIX + source.removeprefix(PAPER))
        return table_from_cells(source, [CellMean(r.labels, r.total, r.accuracy, r.std, paper.RUNS) for r in rows])
    if path.is_dir():
        path = path / GRID_FILE
        if not path.is_file():
            raise UserError(
                f"The folder {printable(source)} has no {GRID_FILE}, so it is not a labeled-vs-unlabeled grid."
            )
    if not path.is_file():
        hint = did_you_mean(PAPER + source, known) if "/" not in source else ""
        raise UserError(f"There is no file or folder {printable(source)}.{hint} The paper's own: {', '.join(known)}.")
    return table_from_runs(printable(path.name), read_runs(path))


def read_runs(path: Path) -> list[tuple[int, int, float]]:
    """Read runs from a CSV with a heading line: labels, total, accuracy in percent, and seed if a cell has several."""
    table = read_csv(path, *COLUMNS)
    refuse(path, table.problems)
    runs: list[tuple[int, int, float]] = []
    seen: dict[tuple[int, int, str], int] = {}
    for line, row in table.rows:
        where = f"{printable(path.name)}, line {line}"
        try:
            labels, total, accuracy = (float(row[column]) for column in COLUMNS)
        except ValueError:
            raise UserError(
                f"{where}: {', '.join(COLUMNS)} must be numbers, as in 500,20000,92.5. Correct it."
            ) from None
        if not (labels.is_integer() and total.is_integer() and math.isfinite(accuracy)):
            raise UserError(
                f"{where}: labels and total count images, and accuracy is in percent; {row[COLUMNS[0]]},{row[COLUMNS[1]]},"
                f"{row[COLUMNS[2]]} cannot be. Correct it, or leave out the line of a run that failed."
            )
        key = int(labels), int(total), row.get("seed", "").strip()
        if key in seen:
            raise UserError(
                f"{where} repeats line {seen[key]}: {labels:,.0f} labels, {total:,.0f} images, "
                f"{f'seed {printable(key[2])}' if key[2] else 'no seed'}. Give each run its own seed, or remove one."
            )
        seen[key] = line
        runs.append((key[0], key[1], accuracy))
    return runs
