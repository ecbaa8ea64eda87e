"""Sources of tables: the paper, a CSV of runs, a grid folder."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from mma import paper
from mma.cost.table import CellMean, CostTable, table_from_cells, table_from_runs
from mma.text import did_you_mean, printable

PAPER = "paper:"
PREFIX = "labeled-vs-unlabeled-"
GRID_FILE = "labeled-vs-unlabeled.csv"  # what a grid folder offers, in the CSV format below
COLUMNS = ("labels", "total", "accuracy")  # `seed` is optional


def paper_sources() -> list[str]:
    """Return the names of the paper's labeled-vs-unlabeled tables: paper:cifar10 and so on."""
    return [PAPER + name.removeprefix(PREFIX) for name in paper.experiments() if name.startswith(PREFIX)]


def open_table(source: str) -> CostTable:
    """Read a source: `paper:NAME`, a CSV of `labels,total,accuracy,seed`, or a folder with labeled-vs-unlabeled.csv."""
    if source.startswith(PAPER):
        return _paper_table(source)
    path = Path(source)
    if path.is_dir():
        if not (path / GRID_FILE).is_file():
            raise ValueError(
                f"The folder {printable(source)} has no {GRID_FILE}, so it is not a labeled-vs-unlabeled grid."
            )
        path = path / GRID_FILE
    if not path.is_file():
        hint = did_you_mean(PAPER + source.removeprefix(PAPER), paper_sources()) if "/" not in source else ""
        raise ValueError(
            f"There is no file or folder {printable(source)}.{hint} The paper's own: {', '.join(paper_sources())}."
        )
    return table_from_runs(printable(path.name), read_runs(path))


def _paper_table(source: str) -> CostTable:
    if source not in paper_sources():
        hint = did_you_mean(source, paper_sources())
        raise ValueError(f"There is no '{printable(source)}'.{hint} The paper measured {', '.join(paper_sources())}.")
    rows = paper.table(PREFIX + source.removeprefix(PAPER))
    return table_from_cells(source, [CellMean(r.labels, r.total, r.accuracy, r.std, paper.RUNS) for r in rows])


def read_runs(path: Path) -> list[tuple[int, int, float]]:
    """Read runs from a CSV with a heading line: labels, total, accuracy in percent, and seed if a cell has several."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{printable(path.name)} is not a text file in UTF-8. Save it as CSV, UTF-8.") from None
    reader = csv.DictReader(lines, skipinitialspace=True)
    _check_heading(printable(path.name), [name.strip() for name in reader.fieldnames or []])
    reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
    runs: list[tuple[int, int, float]] = []
    seen: dict[tuple[int, int, str], int] = {}
    for row in reader:
        where = f"{printable(path.name)}, line {reader.line_num}"
        labels, total = (_whole(row, name, where) for name in ("labels", "total"))
        key = labels, total, (row.get("seed") or "").strip()
        if key in seen:
            raise ValueError(
                f"{where} repeats line {seen[key]}: {labels:,} labels, {total:,} images, "
                f"{f'seed {printable(key[2])}' if key[2] else 'no seed'}. Give each run its own seed, or remove one."
            )
        seen[key] = reader.line_num
        runs.append((labels, total, _number(row, "accuracy", where)))
    return runs


def _check_heading(name: str, heading: list[str]) -> None:
    missing = [column for column in COLUMNS if column not in heading]
    if not missing:
        return
    found = f"its first line has {', '.join(map(repr, heading))}" if heading else "it is empty"
    hint = " The columns must be separated by commas." if len(heading) == 1 and set(heading[0]) & set(";\t") else ""
    raise ValueError(
        f"{name} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}: {found}.{hint} "
        "The heading is labels,total,accuracy,seed."
    )


def _number(row: dict[str, str], column: str, where: str) -> float:
    text = (row.get(column) or "").strip()
    if not text:
        raise ValueError(f"{where}: the {column} is missing. Fill it in, or leave the whole line out.")
    try:
        number = float(text)
    except ValueError:
        raise ValueError(
            f"{where}: the {column} '{printable(text)}' is not a number. Write it in digits, like 92.5."
        ) from None
    if not math.isfinite(number):
        raise ValueError(f"{where}: the {column} is {text}; a run that failed has no place here. Leave the line out.")
    return number


def _whole(row: dict[str, str], column: str, where: str) -> int:
    number = _number(row, column, where)
    if number != int(number):
        raise ValueError(f"{where}: the {column} {number:g} must be a whole number: it counts images.")
    return int(number)
