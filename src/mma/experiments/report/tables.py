"""Tables in the paper's layout: methods by budgets, or totals by budgets. One table, four ways to write it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mma import paper
from mma.experiments.report.collect import Result, Results
from mma.experiments.report.statistics import spread

BEST = 2  # Paper: the two best of each column are highlighted.


@dataclass(frozen=True)
class Entry:
    """One cell: what our runs reached, why some are missing, and the paper's number."""

    mean: float | None
    std: float  # divided by n - 1; NaN for a single run
    n: int
    missing: str  # "2 running", "not run", ...
    published: tuple[float, float] | None  # the paper's mean and std
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows by columns. `entries[row][column]` is None where the design has no cell."""

    corner: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    entries: tuple[tuple[Entry | None, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()


def table(found: Results) -> Table:
    """Arrange results as the paper does."""
    keys = by_total(found) if found.by_total else by_method(found)
    published = of_paper(found)
    budgets = found.budgets
    rows: list[tuple[str, list[Entry | None]]] = []
    for name, belongs, their_key in keys:
        line: list[Entry | None] = []
        for budget in budgets:
            runs = [run for run in found.runs if run.budget == budget and belongs(run)]
            theirs = published.get((their_key, budget))
            line.append(entry(runs, theirs) if runs or theirs else None)
        rows.append((name, line))
    plain_lines = [line for _, line in rows]
    lines = plain_lines if found.by_total else bold(plain_lines)  # more images are no method to prefer
    corner = "images in total" if found.by_total else "method"
    columns = tuple(f"{budget:,} labels" for budget in budgets)
    names = tuple(name for name, _ in rows)
    return Table(corner, columns, names, tuple(tuple(line) for line in lines), found.title, notes(found, lines))


Key = tuple[str, Callable[[Result], bool], str]


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


def of_paper(found: Results) -> dict[tuple[str, int], tuple[float, float]]:
    """Return the paper's numbers by row and budget."""
    if found.grid is None or found.grid.paper is None:
        return {}
    rows = paper.table(found.grid.paper)
    return {(str(r.total) if found.by_total else r.method, r.labels): (r.accuracy, r.std) for r in rows}


def entry(runs: Sequence[Result], published: tuple[float, float] | None) -> Entry:
    """Put the runs of one cell together."""
    values = [run.accuracy for run in runs if run.status == "done" and run.accuracy is not None]
    mean = float(np.mean(values)) if values else None
    return Entry(mean, spread(values), len(values), missing(runs), published)


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


def bold(lines: list[list[Entry | None]]) -> list[list[Entry | None]]:
    """Mark the best two of each column that has more than two."""
    marked = [list(line) for line in lines]
    for column in range(len(lines[0]) if lines else 0):
        means = [
            (e.mean, row) for row, line in enumerate(lines) if (e := line[column]) is not None and e.mean is not None
        ]
        limit = sorted((round(mean, 2) for mean, _ in means), reverse=True)[:BEST][-1:] if len(means) > BEST else []
        for mean, row in means:
            found = lines[row][column]
            if limit and round(mean, 2) >= limit[0] and found is not None:
                marked[row][column] = replace(found, best=True)
    return marked


def notes(found: Results, lines: Sequence[Sequence[Entry | None]]) -> tuple[str, ...]:
    """Say how to read the table."""
    counts = sorted({entry.n for line in lines for entry in line if entry is not None and entry.n})
    n = f"n = {counts[0]}" if len(counts) == 1 else "n in brackets"
    last = sorted({run.evaluations for run in found.runs if run.status == "done" and run.evaluations})
    kept = (
        f", each the median of its last {'-'.join(map(str, dict.fromkeys((last[0], last[-1]))))} evaluations"
        if last
        else ""
    )
    best = "" if found.by_total else " Bold: the best two of a column."
    said = [f"Accuracy in %, mean ± standard deviation over seeds ({n}){kept}.{best}"]
    if any(entry and entry.published for line in lines for entry in line):
        lab = found.grid is not None and found.grid.scale != "paper"
        other = (
            "; its networks and step counts are far larger than ours here, so only the order compares" if lab else ""
        )
        said.append(f"[paper: ...] is the paper's own number; its deviation divides by n, ours by n - 1{other}.")
    failures = [run for run in found.runs if run.status == "failed"]
    said += [f"Failed: {run.method}, {run.budget} labels, seed {run.seed}: {run.note}" for run in failures[:20]]
    return tuple(said)


def text(entry: Entry | None, same: bool, write: Callable[[float, float, bool], str]) -> str:
    """Write one cell for people; `write` turns mean, deviation and boldness into text."""
    if entry is None:
        return "-"
    parts = []
    if entry.mean is not None:
        parts.append(write(entry.mean, entry.std, entry.best) + ("" if same else f" (n={entry.n})"))
    if entry.missing:
        parts.append(f"({entry.missing})" if parts else entry.missing)
    if entry.published is not None:
        parts.append(f"[paper: {write(*entry.published, False)}]")
    return " ".join(parts)


def plain(mean: float, std: float, best: bool) -> str:
    """Write a number for Markdown and terminals."""
    shown = f"{mean:.2f}" + ("" if math.isnan(std) else f" ± {std:.2f}")
    return f"**{shown}**" if best else shown


def in_math(mean: float, std: float, best: bool) -> str:
    """Write a number for LaTeX."""
    shown = f"{mean:.2f}" + ("" if math.isnan(std) else f"\\pm{std:.2f}")
    return f"$\\mathbf{{{shown}}}$" if best else f"${shown}$"


def same_n(found: Table) -> bool:
    """Return whether every cell with numbers has as many."""
    return len({e.n for line in found.entries for e in line if e is not None and e.n}) == 1


def as_markdown(found: Table) -> str:
    """Write the table as Markdown, columns aligned so that it reads in a terminal too."""
    same = same_n(found)
    lines = [[found.corner, *found.columns]]
    for name, row in zip(found.rows, found.entries, strict=True):
        lines.append([escaped(name), *(escaped(text(entry, same, plain)) for entry in row)])
    body = aligned(lines)
    return f"### {found.title}\n\n{body}\n\n" + "\n".join(f"{note}  " for note in found.notes) + "\n"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table whose columns line up."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = [
        "| " + " | ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([rows[0], rule, *rows[1:]])


def escaped(name: str) -> str:
    """Keep a name from breaking a Markdown table."""
    return name.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def as_csv(found: Table) -> str:
    """Write one line per cell, for programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([found.corner, "labels", "mean", "std", "n", "missing", "paper mean", "paper std", "best"])
    for name, row in zip(found.rows, found.entries, strict=True):
        for column, e in zip(found.columns, row, strict=True):
            if e is not None:
                numbers = ["" if e.mean is None else f"{e.mean:.4f}", "" if math.isnan(e.std) else f"{e.std:.4f}"]
                theirs = ["", ""] if e.published is None else [f"{value:.2f}" for value in e.published]
                labels = column.removesuffix(" labels").replace(",", "")
                row_name = name if found.corner == "method" else name.replace(",", "")
                writer.writerow([row_name, labels, *numbers, e.n, e.missing, *theirs, int(e.best)])
    return out.getvalue()


def as_latex(found: Table) -> str:
    """Write the table with booktabs rules, as in the paper."""
    same = same_n(found)
    lines = [f"\\begin{{tabular}}{{l{' r' * len(found.columns)}}}", "\\toprule"]
    heading = " & ".join([tex(found.corner), *map(tex, found.columns)])
    lines += [f"{heading} \\\\ \\midrule"]
    for name, row in zip(found.rows, found.entries, strict=True):
        cells = [text(entry, same, in_math).replace("%", "\\%") for entry in row]
        lines.append(" & ".join([tex(name), *cells]) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", *(f"% {note}" for note in found.notes)]) + "\n"


def tex(name: str) -> str:
    """Keep a name from being read as a command."""
    special = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in name)


def as_json(found: Table) -> str:
    """Write the table as one JSON object."""
    rows = [
        {"row": name, "column": column, **{k: clean(v) for k, v in vars(entry).items()}}
        for name, row in zip(found.rows, found.entries, strict=True)
        for column, entry in zip(found.columns, row, strict=True)
        if entry is not None
    ]
    return json.dumps({"title": found.title, "cells": rows, "notes": found.notes}, indent=1, ensure_ascii=False) + "\n"


def clean(value: object) -> object:
    """JSON has no NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


FORMATS: dict[str, Callable[[Table], str]] = {
    "md": as_markdown,
    "csv": as_csv,
    "latex": as_latex,
    "json": as_json,
}
