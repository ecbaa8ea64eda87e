"""Rows that differ in how much they compute, named "FAMILY @ LENGTH": accuracy over arithmetic, a line per family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import cycle, product
from typing import NamedTuple

import numpy as np

from mma.experiments.report import plots
from mma.experiments.report.collect import LENGTH, Arithmetic, Results
from mma.experiments.report.money import difference
from mma.experiments.report.statistics import spread
from mma.experiments.report.summary import Section

Points = list[tuple[float, dict[int, float]]]  # (FLOP of a run, seed -> accuracy), from short to long


class Line(NamedTuple):
    """What the runs of one line have in common; they differ in length."""

    family: str
    budget: int
    total: int


def families(found: Results) -> dict[Line, Points]:
    """Return the finished runs by family, labels and images."""
    lines: dict[Line, Points] = {}
    for row in found.arithmetic:
        reached = found.accuracies(row.method, row.budget, row.total)
        if reached:
            lines.setdefault(line_of(row), []).append((row.flop, reached))
    return {line: sorted(points, key=lambda point: point[0]) for line, points in lines.items()}


def line_of(row: Arithmetic) -> Line:
    """Return the line of a row. Its family is the part of its name before its length."""
    return Line(row.method.split(LENGTH)[0], row.budget, row.total)


def names(lines: Iterable[Line]) -> dict[Line, str]:
    """Name lines by their family, and by labels and images where these differ between lines."""
    lines = list(lines)
    budgets, totals = {line.budget for line in lines}, {line.total for line in lines}
    return {
        line: line.family
        + (f", {line.budget:,} labels" if len(budgets) > 1 else "")
        + (f", {line.total:,} images" if len(totals) > 1 else "")
        for line in lines
    }


def sections(found: Results) -> list[Section]:
    """Return one table: what each family reaches with how much arithmetic, and how far the others are at as much."""
    lines = families(found)
    others, called = list(dict.fromkeys(line.family for line in lines)), names(lines)
    heading = ["family", "FLOP", "n", "accuracy", *(f"minus {family} at as much" for family in others)]
    rows = [
        [called[line], f"{flop:.2g}", str(len(reached)), said(reached), *against(flop, line, reached, lines)]
        for line, points in lines.items()
        for flop, reached in points
    ]
    remarks = [
        "FLOP: convolutions and matrix products of training steps, evaluations and queries, counted as `mma flop` does. "
        "As much: within a fifth. Differences are paired by seed; intervals of 95 % from the paired t distribution.",
    ]
    return [("Accuracy over compute", heading, rows, remarks)]


def said(reached: Mapping[int, float]) -> str:
    """Write mean and spread."""
    values = list(reached.values())
    return f"{np.mean(values):.2f}" + (f" ± {spread(values):.2f}" if len(values) > 1 else "")


def against(flop: float, line: Line, reached: Mapping[int, float], lines: Mapping[Line, Points]) -> list[str]:
    """Compare with every family's run of as much arithmetic with the same labels and images, where it has one."""
    others = [line._replace(family=family) for family in dict.fromkeys(other.family for other in lines)]
    return ["-" if other == line or other not in lines else nearest(flop, reached, lines[other]) for other in others]


def nearest(flop: float, reached: Mapping[int, float], points: Points) -> str:
    """Compare with the nearest of some runs, if it is near enough."""
    there, other = min(points, key=lambda point: abs(np.log(point[0] / flop)))
    return difference(reached, other) if abs(there / flop - 1) <= 0.2 else "-"


def accuracy_over_compute(found: Results) -> bytes | None:
    """Draw accuracy over FLOP (log x), a line per family: every seed as a dot, the mean as a line."""
    lines = families(found)
    if not lines:
        return None
    drawn, (axes,) = plots.figure(8.0, 5.0)
    for (line, name), (style, colour) in zip(names(lines).items(), styles(), strict=False):  # styles never end
        points = lines[line]
        x = [flop for flop, _ in points]
        axes.plot(x, [np.mean(list(reached.values())) for _, reached in points], style, color=colour, label=name)
        for flop, reached in points:
            axes.plot([flop] * len(reached), list(reached.values()), "o", color=colour, markersize=5, alpha=0.7)
    axes.set_xscale("log")
    axes.set(xlabel="FLOP of the whole run", ylabel="accuracy, %")
    axes.legend(loc="best", frameon=False)
    return plots.png(drawn)


def styles() -> Iterator[tuple[str, str]]:
    """Return kinds of lines and their colours, without an end: solid first, then dashed and dotted."""
    return cycle(product(("-", "--", ":"), plots.COLORS[1:] + plots.COLORS[:1]))
