"""Methods that differ in how much they compute: accuracy over arithmetic, a line per family of methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mma.experiments.report.numbers import difference_text, mean_and_deviation
from mma.experiments.report.plots import seeds_text
from mma.experiments.report.results import Results
from mma.experiments.report.style import in_house_style, legend_below, new_figure, style, subtitle
from mma.experiments.report.summary import Section

NEAR = 0.2  # runs within a fifth of each other's FLOP compute as much
Points = list[tuple[float, dict[int, float]]]  # (FLOP of a run, seed -> accuracy), from short to long


class Line(NamedTuple):
    """What the runs of one line have in common; they differ in length."""

    family: str
    budget: int
    total: int


def lines_of(found: Results) -> dict[Line, Points]:
    """Return the finished runs by family, labels and images."""
    lines: dict[Line, Points] = {}
    for row in found.compute:
        reached = found.accuracies(row.method, row.budget, row.total)
        if reached:
            line = Line(found.description.families.get(row.method, row.method), row.budget, row.total)
            lines.setdefault(line, []).append((row.flop, reached))
    return {line: sorted(points, key=lambda point: point[0]) for line, points in lines.items()}


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
    lines = lines_of(found)
    families, titles = list(dict.fromkeys(line.family for line in lines)), names(lines)
    heading = ["family", "FLOP", "n", "accuracy", *(f"minus {family} at as much" for family in families)]
    rows = [
        [
            *(titles[line], f"{flop:.2g}", str(len(reached)), mean_and_deviation(list(reached.values()))),
            *against(flop, line, reached, lines),
        ]
        for line, points in lines.items()
        for flop, reached in points
    ]
    remarks = [
        "FLOP: convolutions and matrix products of training steps, evaluations and queries, counted as `mma flop` does. "
        "As much: within a fifth. Differences are paired by seed; intervals of 95 % from the paired t distribution.",
    ]
    return [Section("Accuracy over compute", heading, rows, remarks)]


def against(flop: float, line: Line, reached: Mapping[int, float], lines: Mapping[Line, Points]) -> list[str]:
    """Compare with every family's run of as much arithmetic with the same labels and images, where it has one."""
    others = [line._replace(family=family) for family in dict.fromkeys(other.family for other in lines)]
    return ["-" if other == line or other not in lines else nearest(flop, reached, lines[other]) for other in others]


def nearest(flop: float, reached: Mapping[int, float], points: Points) -> str:
    """Compare with the nearest of some runs, if it is near enough."""
    there, other = min(points, key=lambda point: abs(np.log(point[0] / flop)))
    return difference_text(reached, other) if abs(there / flop - 1) <= NEAR else "-"


@in_house_style
def accuracy_over_compute(found: Results) -> Any | None:
    """Draw accuracy over FLOP (log x), a line per family: every seed as a dot, the mean as a line."""
    from matplotlib.ticker import LogLocator

    lines = lines_of(found)
    if not lines:
        return None
    figure, (axes,) = new_figure(f"{found.title}: accuracy over compute", 4.6)
    for line, title in names(lines).items():
        look, points = style(title), lines[line]
        for flop, reached in points:
            axes.plot([flop] * len(reached), list(reached.values()), ".", color=look.colour, alpha=0.5, markersize=8)
        means = [float(np.mean(list(reached.values()))) for _, reached in points]
        label = f"{title} ({seeds_text(len(reached) for _, reached in points)})"
        axes.plot([flop for flop, _ in points], means, linestyle=look.line, label=label, **look.marks())
    axes.set_xscale("log", subs=[])
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda value, _: power_of_ten(value))
    axes.set(xlabel="FLOP of one run", ylabel="accuracy, %")
    subtitle(
        axes, "A small dot for each seed, a large mark for their mean; a line for runs that differ in length alone"
    )
    legend_below(figure, axes)
    return figure


def power_of_ten(value: float) -> str:
    """Write a number like 2·10^13 for an axis."""
    exponent = int(np.floor(np.log10(value) + 1e-9))
    return f"${round(value / 10**exponent)}\\cdot10^{{{exponent}}}$"
