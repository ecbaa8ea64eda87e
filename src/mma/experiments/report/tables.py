"""How numbers are written in every table of a report."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mma import paper
from mma.data.tables import render_csv
from mma.experiments.report.results import Result, Results
from mma.experiments.report.statistics import differences, interval, pair_by_seed, reference_of, spread


def plus_minus(mean: float, std: float, sign: str = " ± ") -> str:
    """Write a mean with its standard deviation; without one (NaN), the mean alone."""
    return f"{mean:.2f}" + ("" if math.isnan(std) else f"{sign}{std:.2f}")


def mean_and_deviation(values: Sequence[float]) -> str:
    """Write the mean and standard deviation of some accuracies."""
    return plus_minus(float(np.mean(values)), spread(values))


def interval_text(low: float, high: float) -> str:
    """Write an interval of differences; `-` when it is open."""
    return f"{low:+.2f} to {high:+.2f}" if math.isfinite(low) else "-"


def difference_text(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """Write a paired difference with its 95 % interval."""
    values = pair_by_seed(ours, theirs)
    if not len(values):
        return "-"
    text = f"{values.mean():+.2f}"
    return f"{text} ({interval_text(*interval(values))})" if len(values) > 1 else text


# Tables in the paper's layout: methods by budgets, or totals by budgets. One table, four ways to write it.


@dataclass(frozen=True)
class TableCell:
    """One cell: what our runs reached, why some are missing, and the paper's number."""

    mean: float | None
    std: float  # divided by n - 1; NaN for a single run
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
        return tuple(f"{budget:,} labels" for budget in self.budgets)

    @property
    def same_n(self) -> bool:
        """Whether every cell with numbers has as many."""
        return len({cell.n for line in self.cells for cell in line if cell is not None and cell.n}) == 1

    def as_markdown(self) -> str:
        """Return the table as Markdown."""
        return as_markdown(self)

    def as_csv(self) -> str:
        """Return one line per cell, for programs."""
        return as_csv(self)

    def as_latex(self) -> str:
        """Return the table with booktabs rules."""
        return as_latex(self)

    def as_json(self) -> str:
        """Return the table as one JSON object."""
        return as_json(self)

    def __str__(self) -> str:
        return as_markdown(self)


def table(found: Results) -> ReportTable:
    """Arrange results as the paper does."""
    keys, corner = rows_of(found)
    published, better = published_numbers(found), shown_better(found)
    lines: list[tuple[TableCell | None, ...]] = []
    for _, belongs, key in keys:
        line: list[TableCell | None] = []
        for budget in found.budgets:
            runs = [run for run in found.runs if run.budget == budget and belongs(run)]
            theirs = published.get((key, budget))
            line.append(cell(runs, theirs, better=(key, budget) in better) if runs or theirs else None)
        lines.append(tuple(line))
    names = tuple(name for name, _, _ in keys)
    return ReportTable(corner, tuple(found.budgets), names, tuple(lines), found.title, notes(found, lines))


# By scale: why ours and the paper's numbers do not compare.
UNLIKE_THE_PAPER = {
    "lab": "; its networks and step counts are far larger than ours here, so only the order compares",
    "features": "; it trains from scratch, ours uses features learned from other images: only the order compares",
}
TOTALS = "images in total"
Key = tuple[str, Callable[[Result], bool], str]


def rows_of(found: Results) -> tuple[list[Key], str]:
    """Return the rows of the table, and what they are."""
    if found.weighs_images:
        return by_total(found), TOTALS
    return (by_both(found), "method and images") if found.by_total else (by_method(found), "method")


def by_method(found: Results) -> list[Key]:
    """Return one row per method."""

    def of(method: str) -> Callable[[Result], bool]:
        return lambda run: run.method == method

    return [(method, of(method), method) for method in found.methods]


def by_total(found: Results) -> list[Key]:
    """Return one row per number of images; Supervised stands where all of them are labeled."""

    def of(total: int) -> Callable[[Result], bool]:
        return lambda run: run.total == total

    return [(f"{total:,}", of(total), str(total)) for total in sorted({run.total for run in found.runs})]


def by_both(found: Results) -> list[Key]:
    """Return one row per method and number of images."""

    def of(method: str, total: int) -> Callable[[Result], bool]:
        return lambda run: (run.method, run.total) == (method, total)

    totals = sorted({run.total for run in found.runs})
    places = {(run.method, run.total) for run in found.runs}
    pairs = [(method, total) for method in found.methods for total in totals if (method, total) in places]
    return [(found.line(*pair), of(*pair), found.line(*pair)) for pair in pairs]


def published_numbers(found: Results) -> dict[tuple[str, int], tuple[float, float]]:
    """Return the paper's numbers by row and budget."""
    if found.description.paper is None:
        return {}
    rows = paper.table(found.description.paper)
    return {(str(r.total) if found.weighs_images else r.method, r.labels): (r.accuracy, r.std) for r in rows}


def shown_better(found: Results) -> set[tuple[str, int]]:
    """Return the methods and budgets that the corrected test shows to be better than the reference."""
    reference = reference_of(found)
    if reference is None or found.by_total:  # more images are no method to prefer
        return set()
    return {(row.method, row.budget) for row in differences(found, reference) if row.verdict == "better"}


def cell(runs: Sequence[Result], published: tuple[float, float] | None, *, better: bool) -> TableCell:
    """Put the runs of one cell together."""
    values = [run.accuracy for run in runs if run.status == "done" and run.accuracy is not None]
    mean = float(np.mean(values)) if values else None
    return TableCell(mean, spread(values), len(values), missing(runs), published, better)


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
    texts = [f"Accuracy in %, mean ± standard deviation over seeds ({n}){evaluations_text(found)}.{bold_text(found)}"]
    if any(cell.published for cell in cells):
        other = UNLIKE_THE_PAPER.get(found.description.scale, "")
        texts.append(f"[paper: ...] is the paper's own number; its deviation divides by n, ours by n - 1{other}.")
    failures = [run for run in found.runs if run.status == "failed"]
    texts += [f"Failed: {run.method}, {run.budget} labels, seed {run.seed}: {run.note}" for run in failures[:20]]
    return tuple(texts)


def evaluations_text(found: Results) -> str:
    """Say how many evaluations each number is the median of."""
    counts = sorted({run.evaluations for run in found.runs if run.status == "done" and run.evaluations})
    if not counts:
        return ""
    return f", each the median of its last {'-'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} evaluations"


def bold_text(found: Results) -> str:
    """Say what bold numbers are, or that nothing is shown."""
    reference = reference_of(found)
    if reference is None or found.by_total or len(found.methods) < 2:
        return ""
    if not shown_better(found):
        return f" No method is shown to be better than {reference}, so nothing is bold."
    return f" Bold: better than {reference} by the corrected signed-rank test."


def text(cell: TableCell | None, same_n: bool, write: Callable[[float, float, bool], str]) -> str:
    """Write one cell for people; `write` turns mean, deviation and boldness into text."""
    if cell is None:
        return "-"
    parts = []
    if cell.mean is not None:
        parts.append(write(cell.mean, cell.std, cell.better) + ("" if same_n else f" (n={cell.n})"))
    if cell.missing:
        parts.append(f"({cell.missing})" if parts else cell.missing)
    if cell.published is not None:
        parts.append(f"[paper: {write(*cell.published, False)}]")
    return " ".join(parts)


def in_markdown(mean: float, std: float, bold: bool) -> str:
    """Write a number for Markdown and terminals."""
    return f"**{plus_minus(mean, std)}**" if bold else plus_minus(mean, std)


def in_latex(mean: float, std: float, bold: bool) -> str:
    """Write a number for LaTeX."""
    shown = plus_minus(mean, std, "\\pm")
    return f"$\\mathbf{{{shown}}}$" if bold else f"${shown}$"


def as_markdown(found: ReportTable) -> str:
    """Write the table as Markdown, columns aligned so that it reads in a terminal too."""
    lines = [[found.corner, *found.columns]]
    for name, row in zip(found.rows, found.cells, strict=True):
        lines.append([escape(name), *(escape(text(cell, found.same_n, in_markdown)) for cell in row)])
    body = align(lines)
    return f"### {found.title}\n\n{body}\n\n" + "\n".join(f"{note}  " for note in found.notes) + "\n"


def align(lines: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table whose columns line up."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = [
        "| " + " | ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([rows[0], rule, *rows[1:]])


def escape(name: str) -> str:
    """Keep a name from breaking a Markdown table."""
    return name.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def as_csv(found: ReportTable) -> str:
    """Write one line per cell, for programs."""
    heading = [found.corner, "labels", "mean", "std", "n", "missing", "paper mean", "paper std", "better"]
    lines: list[list[Any]] = [heading]
    for name, row in zip(found.rows, found.cells, strict=True):
        for budget, cell in zip(found.budgets, row, strict=True):
            if cell is not None:
                mean = "" if cell.mean is None else f"{cell.mean:.4f}"
                std = "" if math.isnan(cell.std) else f"{cell.std:.4f}"
                theirs = ["", ""] if cell.published is None else [f"{value:.2f}" for value in cell.published]
                row_name = name.replace(",", "") if found.corner == TOTALS else name
                lines.append([row_name, budget, mean, std, cell.n, cell.missing, *theirs, int(cell.better)])
    return render_csv(lines).decode()


def as_latex(found: ReportTable) -> str:
    """Write the table with booktabs rules, as in the paper."""
    lines = [f"\\begin{{tabular}}{{l{' r' * len(found.columns)}}}", "\\toprule"]
    heading = " & ".join([tex(found.corner), *map(tex, found.columns)])
    lines += [f"{heading} \\\\ \\midrule"]
    for name, row in zip(found.rows, found.cells, strict=True):
        cells = [text(cell, found.same_n, in_latex).replace("%", "\\%") for cell in row]
        lines.append(" & ".join([tex(name), *cells]) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", *(f"% {note}" for note in found.notes)]) + "\n"


def tex(name: str) -> str:
    """Keep a name from being read as a command."""
    special = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in name)


def as_json(found: ReportTable) -> str:
    """Write the table as one JSON object."""
    rows = [
        {"row": name, "labels": budget, **{k: without_nan(v) for k, v in vars(cell).items()}}
        for name, row in zip(found.rows, found.cells, strict=True)
        for budget, cell in zip(found.budgets, row, strict=True)
        if cell is not None
    ]
    return json.dumps({"title": found.title, "cells": rows, "notes": found.notes}, indent=1, ensure_ascii=False) + "\n"


def without_nan(value: object) -> object:
    """Return None for NaN, which JSON does not have."""
    return None if isinstance(value, float) and math.isnan(value) else value


FORMATS: dict[str, Callable[[ReportTable], str]] = {
    "md": as_markdown,
    "csv": as_csv,
    "latex": as_latex,
    "json": as_json,
}
