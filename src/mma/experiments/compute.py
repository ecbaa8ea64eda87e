"""Rows that differ in how much they compute, named "FAMILY @ LENGTH": accuracy over arithmetic, a line per family."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mma.experiments import plots
from mma.experiments.money import difference
from mma.experiments.results import LENGTH, Arithmetic, Results
from mma.experiments.statistics import spread
from mma.experiments.summary import Section

Family = list[tuple[float, dict[int, float]]]  # (FLOP of a run, seed -> accuracy), from short to long


def families(found: Results) -> dict[str, Family]:
    """Return the finished runs by family."""
    lines: dict[str, Family] = {}
    for row in found.arithmetic:
        reached = found.accuracies(row.method, row.budget, row.total)
        if reached:
            lines.setdefault(family_of(row), []).append((row.flop, reached))
    return {name: sorted(points, key=lambda point: point[0]) for name, points in lines.items()}


def family_of(row: Arithmetic) -> str:
    """Return the part of a row's name before its length."""
    return row.method.split(LENGTH)[0]


def sections(found: Results) -> list[Section]:
    """Return one table: what each family reaches with how much arithmetic, and how far the others are at as much."""
    lines = families(found)
    heading = ["family", "FLOP", "n", "accuracy", *(f"minus {name} at as much" for name in lines)]
    rows = [
        [name, f"{flop:.2g}", str(len(reached)), said(reached), *against(flop, name, reached, lines)]
        for name, points in lines.items()
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


def against(flop: float, family: str, reached: Mapping[int, float], lines: Mapping[str, Family]) -> list[str]:
    """Compare with every family's run of as much arithmetic, where it has one."""
    return ["-" if name == family else nearest(flop, reached, points) for name, points in lines.items()]


def nearest(flop: float, reached: Mapping[int, float], points: Family) -> str:
    """Compare with the nearest of some runs, if it is near enough."""
    there, other = min(points, key=lambda point: abs(np.log(point[0] / flop)))
    return difference(reached, other) if abs(there / flop - 1) <= 0.2 else "-"


def accuracy_over_compute(found: Results) -> bytes | None:
    """Draw accuracy over FLOP (log x), a line per family: every seed as a dot, the mean as a line."""
    lines = families(found)
    if not lines:
        return None
    drawn, (axes,) = plots.figure(8.0, 5.0)
    for (name, points), colour in zip(lines.items(), plots.COLORS[1:] + plots.COLORS[:1], strict=False):
        x = [flop for flop, _ in points]
        axes.plot(x, [np.mean(list(reached.values())) for _, reached in points], "-", color=colour, label=name)
        for flop, reached in points:
            axes.plot([flop] * len(reached), list(reached.values()), "o", color=colour, markersize=5, alpha=0.7)
    axes.set_xscale("log")
    axes.set(xlabel="FLOP of the whole run", ylabel="accuracy, %")
    axes.legend(loc="best", frameon=False)
    return plots.png(drawn)
