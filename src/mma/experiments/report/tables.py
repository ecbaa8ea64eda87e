"""Tables in the paper's layout: methods by budgets, or totals by budgets. One table, four ways to write it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mma import paper
from mma.data.tables import render_csv
from mma.experiments.report.results import Result, Results
from mma.experiments.report.statistics import differences, interval, reference_of, spread
from mma.text import plural

TOTALS = "images in total"
# By scale: why ours and the paper's numbers do not compare.
UNLIKE_THE_PAPER = {
    "lab": "; its networks and step counts are far larger than ours here, so only the order compares",
    "features": "; it trains from scratch, ours uses features learned from other images: only the order compares",
}


def plus_minus(mean: float, std: float | None, sign: str = " ± ") -> str:
    """Write a mean with its standard deviation; without one, the mean alone."""
    return f"{mean:.2f}" + ("" if std is None else f"{sign}{std:.2f}")


def mean_and_deviation(values: Sequence[float]) -> str:
    """Write the mean and standard deviation of some accuracies."""
    return plus_minus(float(np.mean(values)), spread(values))


def interval_text(low: float, high: float, digits: int = 2) -> str:
    """Write an interval of differences; `-` when it is open."""
    return f"{low:+,.{digits}f} to {high:+,.{digits}f}" if math.isfinite(low) else "-"


def paired_text(values: np.ndarray, digits: int = 2) -> str:
    """Write the mean of paired differences with its 95 % interval; `-` without any."""
    if not len(values):
        return "-"
    spread_of_mean = f" ({interval_text(*interval(values), digits)})" if len(values) > 1 else ""
    return f"{values.mean():+,.{digits}f}{spread_of_mean}"


@dataclass(frozen=True)
class TableCell:
    """One cell: what our runs reached, why some are missing, and the paper's number."""

    mean: float | None
    std: float | None  # divided by n - 1; None for a single run
    n: int
    missing: str  # "2 running", "not run", ...
    published: tuple[float, float] | None  # the paper's mean and std
    better: bool = False  # shown to be better than the reference


@dataclass(frozen=True)
class ReportTable:
    """Rows by label budgets. `cells[row][column]` is None where the design has no cell."""

    corner: str  # what the rows are
    budgets: tuple[int, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[TableCell | None, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The headings of the columns."""
        return tuple(plural(budget, "label") for budget in self.budgets)

    @property
    def same_n(self) -> bool:
        """Whether every cell with numbers has as many."""
        return len({cell.n for line in self.cells for cell in line if cell is not None and cell.n}) == 1

    def as_markdown(self) -> str:
        """Return the table as Markdown, columns aligned so that it reads in a terminal too."""

        def write(mean: float, std: float | None, bold: bool) -> str:
            return f"**{plus_minus(mean, std)}**" if bold else plus_minus(mean, std)

        named = zip(self.rows, self.cells, strict=True)
        lines = [[escape(name), *(escape(self._text(cell, write)) for cell in row)] for name, row in named]
        body = markdown_table([[self.corner, *self.columns], *lines])
        return f"### {self.title}\n\n{body}\n\n" + "\n".join(f"{note}  " for note in self.notes) + "\n"

    def as_csv(self) -> str:
        """Return one line per cell, for programs."""
        lines: list[list[Any]] = [
            [self.corner, "labels", "mean", "std", "n", "missing", "paper mean", "paper std", "better"]
        ]
        for name, budget, cell in self._filled():
            ours = ["" if value is None else f"{value:.4f}" for value in (cell.mean, cell.std)]
            theirs = ["", ""] if cell.published is None else [f"{value:.2f}" for value in cell.published]
            row_name = name.replace(",", "") if self.corner == TOTALS else name
            lines.append([row_name, budget, *ours, cell.n, cell.missing, *theirs, int(cell.better)])
        return render_csv(lines).decode()

    def as_latex(self) -> str:
        """Return the table with booktabs rules, as in the paper."""

        def write(mean: float, std: float | None, bold: bool) -> str:
            shown = plus_minus(mean, std, "\\pm")
            return f"$\\mathbf{{{shown}}}$" if bold else f"${shown}$"

        heading = " & ".join([tex(self.corner), *map(tex, self.columns)])
        lines = [f"\\begin{{tabular}}{{l{' r' * len(self.columns)}}}", "\\toprule", f"{heading} \\\\ \\midrule"]
        for name, row in zip(self.rows, self.cells, strict=True):
            cells = [self._text(cell, write).replace("%", "\\%") for cell in row]
            lines.append(" & ".join([tex(name), *cells]) + " \\\\")
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", *(f"% {note}" for note in self.notes)]) + "\n"

    def as_json(self) -> str:
        """Return the table as one JSON object."""
        rows = [{"row": name, "labels": budget, **vars(cell)} for name, budget, cell in self._filled()]
        found = {"title": self.title, "cells": rows, "notes": self.notes}
        return json.dumps(found, indent=1, ensure_ascii=False) + "\n"

    def __str__(self) -> str:
        return self.as_markdown()

    def _filled(self) -> list[tuple[str, int, TableCell]]:
        lines = zip(self.rows, self.cells, strict=True)
        return [(n, b, cell) for n, row in lines for b, cell in zip(self.budgets, row, strict=True) if cell is not None]

    def _text(self, cell: TableCell | None, write: Callable[[float, float | None, bool], str]) -> str:
        """Write one cell for people; `write` turns mean, deviation and boldness into text."""
        if cell is None:
            return "-"
        parts = []
        if cell.mean is not None:
            parts.append(write(cell.mean, cell.std, cell.better) + ("" if self.same_n else f" (n={cell.n})"))
        if cell.missing:
            parts.append(f"({cell.missing})" if parts else cell.missing)
        if cell.published is not None:
            parts.append(f"[paper: {write(*cell.published, False)}]")
        return " ".join(parts)


FORMATS: dict[str, Callable[[ReportTable], str]] = {
    "md": ReportTable.as_markdown,
    "csv": ReportTable.as_csv,
    "latex": ReportTable.as_latex,
    "json": ReportTable.as_json,
}


def table(found: Results) -> ReportTable:
    """Arrange results as the paper does: a row per method, per number of images, or per both where both vary."""
    corner = TOTALS if found.weighs_images else "method and images" if found.by_total else "method"

    def key(method: str, total: int) -> str:  # Supervised stands where all images are labeled
        return str(total) if found.weighs_images else found.line(method, total)

    places = dict.fromkeys((run.method, run.total) for run in found.runs)
    by_size = sorted(places, key=lambda place: (0 if found.weighs_images else found.methods.index(place[0]), place[1]))
    keys = list(dict.fromkeys(key(*place) for place in by_size))
    groups: dict[tuple[str, int], list[Result]] = {}
    for run in found.runs:
        groups.setdefault((key(run.method, run.total), run.budget), []).append(run)
    published: dict[tuple[str, int], tuple[float, float]] = {}
    for row in paper.table(found.description.paper) if found.description.paper is not None else ():
        published[str(row.total) if found.weighs_images else row.method, row.labels] = row.accuracy, row.std
    better = shown_better(found)

    def cell(place: tuple[str, int]) -> TableCell | None:
        runs, theirs = groups.get(place, []), published.get(place)
        if not runs and not theirs:
            return None
        values = [run.accuracy for run in runs if run.status == "done" and run.accuracy is not None]
        mean = float(np.mean(values)) if values else None
        return TableCell(mean, spread(values), len(values), missing(runs), theirs, place in better)

    cells = tuple(tuple(cell((key, budget)) for budget in found.budgets) for key in keys)
    names = tuple(f"{int(key):,}" for key in keys) if found.weighs_images else tuple(keys)
    return ReportTable(corner, tuple(found.budgets), names, cells, found.title, notes(found, cells))


def shown_better(found: Results) -> set[tuple[str, int]]:
    """Return the methods and budgets that the corrected test shows to be better than the reference."""
    reference = reference_of(found)
    if reference is None or found.by_total:  # more images are no method to prefer
        return set()
    return {(row.method, row.budget) for row in differences(found, reference) if row.verdict == "better"}


def missing(runs: Sequence[Result]) -> str:
    """Say why a cell has fewer numbers than runs."""
    if not runs:
        return "not asked for"
    reasons = [
        run.note or "no accuracy" if run.status == "done" else run.status for run in runs if run.accuracy is None
    ]
    if len(reasons) == len(runs) and len(set(reasons)) == 1:
        return reasons[0]
    return ", ".join(f"{count} {reason}" for reason, count in Counter(reasons).items())


def notes(found: Results, lines: Sequence[Sequence[TableCell | None]]) -> tuple[str, ...]:
    """Return how to read the table."""
    cells = [cell for line in lines for cell in line if cell is not None]
    counts = sorted({cell.n for cell in cells if cell.n})
    n = f"n = {counts[0]}" if len(counts) == 1 else "n in brackets"
    ends = sorted({run.evaluations for run in found.runs if run.status == "done" and run.evaluations})
    median = "-".join(map(str, dict.fromkeys((ends[0], ends[-1])))) if ends else ""
    median = f", each the median of its last {median} evaluations" if median else ""
    reference, bold = reference_of(found), ""
    if reference is not None and not found.by_total and len(found.methods) > 1:
        bold = f" No method is shown to be better than {reference}, so nothing is bold."
        if shown_better(found):
            bold = f" Bold: better than {reference} by the corrected signed-rank test."
    texts = [f"Accuracy in %, mean ± standard deviation over seeds ({n}){median}.{bold}"]
    if any(cell.published for cell in cells):
        other = UNLIKE_THE_PAPER.get(found.description.scale, "")
        texts.append(f"[paper: ...] is the paper's own number; its deviation divides by n, ours by n - 1{other}.")
    texts += [found.description.algorithms] if found.description.algorithms else []
    failures = [run for run in found.runs if run.status == "failed"]
    texts += [f"Failed: {run.method}, {run.budget} labels, seed {run.seed}: {run.note}" for run in failures[:20]]
    return tuple(texts)


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table whose columns line up."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines]
    return "\n".join([rows[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rows[1:]])


def escape(name: str) -> str:
    """Keep a name from breaking a Markdown table."""
    return name.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def tex(name: str) -> str:
    """Keep a name from being read as a command."""
    special = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in name)
