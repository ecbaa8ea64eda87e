"""What runs reached, as rows: read from a grid folder, written to CSV files, and read from those again. No torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from mma.experiments import grid as grids
from mma.experiments.grid import Cell, Grid
from mma.run import Row, Run, write_whole
from mma.text import printable

RUNS, ROUNDS, CURVES, SPENDING = "runs.csv", "rounds.csv", "curves.csv", "spending.csv"
ARITHMETIC = "compute.csv"
LENGTH = " @ "  # in the name of a row that is one length of several


@dataclass(frozen=True)
class Result:
    """One run: its place in the table and what became of it."""

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


@dataclass(frozen=True)
class CurvePoint:
    """Accuracy while training, over the seeds of one method, budget and total."""

    method: str
    budget: int
    total: int
    step: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Spending:
    """One round of a run that spends money: what was spent by then, what there was, and the accuracy at its end."""

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
class Arithmetic:
    """How much one row of a comparison over compute asks for."""

    method: str
    budget: int
    total: int
    flop: float  # of a whole run


@dataclass(frozen=True)
class Results:
    """Everything a report needs."""

    runs: tuple[Result, ...]
    rounds: tuple[RoundEnd, ...] = ()
    curves: tuple[CurvePoint, ...] = ()
    grid: Grid | None = None  # None: a runs.csv without a grid.json beside it
    folder: Path = field(default=Path(), compare=False)
    spending: tuple[Spending, ...] = ()  # of runs that spend money
    arithmetic: tuple[Arithmetic, ...] = ()  # of rows that differ in length

    def accuracies(self, method: str, budget: int, total: int | None = None) -> dict[int, float]:
        """Return seed -> accuracy of the finished runs in one cell; `total` may be left out where there is one."""
        return {
            run.seed: run.accuracy
            for run in self.runs
            if (run.method, run.budget) == (method, budget)
            and total in (None, run.total)
            and run.status == "done"
            and run.accuracy is not None
        }

    @property
    def title(self) -> str:
        """What was compared, by name."""
        if self.grid is None:
            return self.folder.resolve().name
        scale = "" if self.grid.scale == "own" else f", {self.grid.scale} scale"
        return f"{self.grid.experiment}{scale}"

    @property
    def methods(self) -> list[str]:
        """Methods in the order of the table."""
        return list(dict.fromkeys(run.method for run in self.runs))

    @property
    def budgets(self) -> list[int]:
        """Budgets, ascending."""
        return sorted({run.budget for run in self.runs})

    @property
    def by_total(self) -> bool:
        """Whether this is a labeled-vs-unlabeled table: more than one total, beside Supervised's own."""
        return len({run.total for run in self.runs if run.total > run.budget}) > 1


def collect(folder: Path) -> Results:
    """Read a results folder (with runs.csv) or a grid folder, or say why it is neither."""
    if (folder / RUNS).is_file():
        return from_csv(folder)
    if not (folder / grids.FILE).is_file():
        name = printable(str(folder))
        raise ValueError(
            f"{name} is neither a grid (it has no {grids.FILE}) nor a folder of results (it has no {RUNS})."
            if folder.is_dir()
            else f"there is no folder {name}."
        )
    return from_grid(folder)


def from_grid(folder: Path) -> Results:
    """Read every run of a grid as far as it is."""
    grid, failures = grids.read(folder), grids.read_failures(folder)
    runs: list[Result] = []
    rounds: list[RoundEnd] = []
    traces: dict[Cell, list[Row]] = {}
    spending: list[Spending] = []
    for cell in grid.cells():
        run = Run(folder / cell.place)
        begun = (run.folder / "config.json").exists()
        metrics = Run.open(run.folder).read("metrics") if begun else []
        measured = [row for row in metrics if row["accuracy"] is not None]
        found = result(grid, cell, run if begun else None, failures.get(str(cell.place)))
        runs.append(found)
        if found.status == "done":
            rounds += round_ends(found, measured)
            traces[cell] = measured
            spending += spent(found, run, measured)
    points = tuple(curves(grid, traces))
    return Results(tuple(runs), tuple(rounds), points, grid, folder, tuple(spending), tuple(arithmetic(grid)))


def result(grid: Grid, cell: Cell, run: Run | None, failure: str | None) -> Result:
    """Say what became of one cell."""
    place = (cell.method, cell.budget, grid.total_of(cell), cell.seed)
    if run is None:
        return Result(*place, "failed" if failure else "not run", None, 0, 0, 0, failure or "")
    summary = run.summary()
    if summary["status"] == "done":
        reached = run.result()
        accuracy, count = reached if reached else (None, 0)
        note = "" if reached else "no test set"
        return Result(*place, "done", accuracy, count, summary["step"], summary["labels"], note)
    status = "failed" if failure and not summary["busy"] else "running" if summary["busy"] else "interrupted"
    far = f"{100 * summary['step'] // summary['steps']} %"
    note = failure if failure and status == "failed" else far
    return Result(*place, status, None, 0, summary["step"], summary["labels"], note)


def round_ends(found: Result, metrics: Sequence[Mapping[str, Any]]) -> Iterable[RoundEnd]:
    """Return the last evaluation of each round."""
    last = {row["round"]: row for row in metrics}
    place = (found.method, found.budget, found.total, found.seed)
    return [RoundEnd(*place, row["labels"], row["step"], row["accuracy"]) for row in last.values()]


def spent(found: Result, run: Run, metrics: Sequence[Mapping[str, Any]]) -> Iterable[Spending]:
    """Return what a run had spent, and what it reached, at the end of each round; nothing where no money is spent."""
    growth = run.growth()
    if not growth.for_money or found.accuracy is None:
        return []
    last = {row["round"]: row["accuracy"] for row in metrics}
    visible = found.total if growth.visible is None else growth.visible
    first = {"round": 0, "left": growth.money - growth.check * growth.label_price, "labels": growth.check, "images": 0}
    rows, labels, images = [], growth.start, visible
    for bought in [first, *run.purchases()]:
        labels, images = labels + bought["labels"], images + bought["images"]
        accuracy = found.accuracy if bought["round"] == max(last) else last.get(bought["round"])
        if accuracy is not None:
            place = (found.method, found.budget, found.total, found.seed, bought["round"])
            rows.append(Spending(*place, rounded(growth.money - bought["left"]), labels, images, accuracy))
    return rows


def curves(grid: Grid, traces: Mapping[Cell, Sequence[Mapping[str, Any]]]) -> Iterable[CurvePoint]:
    """Return mean, lowest and highest accuracy over seeds at every evaluation that all of them have."""
    groups: dict[tuple[str, int, int], list[dict[int, float]]] = {}
    for cell, metrics in traces.items():
        place = (cell.method, cell.budget, grid.total_of(cell))
        groups.setdefault(place, []).append({row["step"]: row["accuracy"] for row in metrics})
    for place, seeds in groups.items():
        for step in sorted(set.intersection(*(set(each) for each in seeds))):
            values = [each[step] for each in seeds]
            yield CurvePoint(*place, step, rounded(np.mean(values)), min(values), max(values))


def arithmetic(grid: Grid) -> Iterable[Arithmetic]:
    """Count what a run of every row with a length asks for."""
    cells = {(cell.method, cell.budget, cell.total): cell for cell in grid.cells() if LENGTH in cell.method}
    for cell in cells.values():
        from mma.experiments.flops import flop  # with torch, which nothing else here needs
        from mma.experiments.make import config_of

        yield Arithmetic(cell.method, cell.budget, grid.total_of(cell), flop(config_of(grid, cell)).total)


def rounded(value: Any) -> float:
    """Return a number as it is written to files: more digits than anyone reads, the same on every machine."""
    return round(float(value), 6)


def to_csv(rows: Sequence[Any], kind: type) -> str:
    """Return rows of one kind as CSV, with a heading."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [one.name for one in fields(kind)]
    writer.writerow(names)
    writer.writerows(["" if (v := getattr(row, name)) is None else v for name in names] for row in rows)
    return text.getvalue()


def write_csv(folder: Path, found: Results) -> None:
    """Write the files that `from_csv` reads."""
    write_whole(folder / RUNS, to_csv(found.runs, Result))
    write_whole(folder / ROUNDS, to_csv(found.rounds, RoundEnd))
    write_whole(folder / CURVES, to_csv(found.curves, CurvePoint))
    if found.spending:
        write_whole(folder / SPENDING, to_csv(found.spending, Spending))
    if found.arithmetic:
        write_whole(folder / ARITHMETIC, to_csv(found.arithmetic, Arithmetic))
    if found.grid is not None:
        grids.write(folder, found.grid)


def from_csv(folder: Path) -> Results:
    """Read results that were written before; only runs.csv must be there."""
    grid = grids.read(folder) if (folder / grids.FILE).is_file() else None
    runs = read_rows(folder / RUNS, Result)
    rounds, points = read_rows(folder / ROUNDS, RoundEnd), read_rows(folder / CURVES, CurvePoint)
    spending = read_rows(folder / SPENDING, Spending)
    counted = read_rows(folder / ARITHMETIC, Arithmetic)
    return Results(tuple(runs), tuple(rounds), tuple(points), grid, folder, tuple(spending), tuple(counted))


def read_rows(path: Path, kind: type) -> list[Any]:
    """Read rows of one kind, or say which line is wrong."""
    if not path.is_file():
        return []
    reader = csv.DictReader(path.read_text("utf-8").splitlines())
    names = [one.name for one in fields(kind)]
    missing = [name for name in names if name not in (reader.fieldnames or [])]
    if missing:
        raise ValueError(f"{path} lacks the column {missing[0]}. Its heading must be {','.join(names)}.")
    rows = []
    for row in reader:
        try:
            rows.append(kind(**{one.name: READ[str(one.type)](row[one.name]) for one in fields(kind)}))
        except (ValueError, TypeError):
            raise ValueError(f"{path}, line {reader.line_num} is damaged: {printable(str(row))}") from None
    return rows


READ: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "float | None": lambda text: float(text) if text else None,
}
