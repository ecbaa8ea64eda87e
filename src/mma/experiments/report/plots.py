"""Plots that one wants to look at, made from results alone. matplotlib is imported on use, without a display."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mma.experiments.report.collect import CurvePoint, Results
from mma.experiments.report.statistics import spread

FEW = 8  # methods that a plot with a legend can tell apart; more are drawn pale behind these
COLORS = ("#4d4d4d", "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#17becf")
PALE = "#b8b8b8"
FIRST = ("Supervised", "MixMatch", "random")  # always shown in colour
Curve = dict[int, list[float]]  # labels -> accuracies over seeds


def figure(width: float, height: float, columns: int = 1, ratios: Sequence[float] | None = None) -> tuple[Any, Any]:
    """Return an empty figure in the house style."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height), layout="constrained", dpi=130)
    axes = drawn.subplots(1, columns, width_ratios=ratios, squeeze=False)[0]
    for one in axes:
        one.grid(alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
    return drawn, axes


def png(drawn: Any) -> bytes:
    """Return a figure as a file, the same bytes every time."""
    data = io.BytesIO()
    drawn.savefig(data, format="png", metadata={"Software": None})
    return data.getvalue()


def coloured(methods: Sequence[str], means: Mapping[str, float]) -> dict[str, str]:
    """Give colours to the references and the best of the others; all others are pale."""
    best = sorted((m for m in methods if m not in FIRST), key=lambda m: -means.get(m, 0.0))
    kept = [m for m in FIRST if m in methods]
    kept += [] if len(methods) <= FEW else best[: FEW - len(kept)]
    shown = list(methods) if len(methods) <= FEW else kept
    return dict(zip(sorted(shown, key=lambda m: (m not in FIRST, list(methods).index(m))), COLORS, strict=False))


def graded(names: Sequence[str]) -> dict[str, str]:
    """Give names that have an order colours that have one."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    last = max(len(names) - 1, 1)
    return {name: to_hex(colormaps["viridis"](0.92 * k / last)) for k, name in enumerate(names)}


def final_means(found: Results) -> dict[str, float]:
    """Return each method's mean at its largest budget (and over totals)."""
    means: dict[str, float] = {}
    for method in found.methods:
        values = [list(found.accuracies(method, budget).values()) for budget in found.budgets]
        filled = [each for each in values if each]
        if filled:
            means[method] = float(np.mean(filled[-1]))
    return means


def accuracy_over_labels(found: Results) -> bytes | None:
    """Draw accuracy over labels (log x), mean and one standard deviation. With one budget: while growing."""
    grown = len(found.budgets) < 2
    curves = growing_curves(found) if grown else budget_curves(found)
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return None
    drawn, (axes,) = figure(8.5, 5.2)
    colours = graded(list(curves)) if found.by_total else coloured(list(curves), final_means(found))
    for name in sorted(curves, key=lambda name: name in colours):  # pale ones first, behind
        draw_curve(axes, name, curves[name], colours.get(name))
    axes.set_xscale("log")
    ticks = sorted({labels for curve in curves.values() for labels in curve})
    axes.set_xticks(ticks if len(ticks) < 12 else ticks[:: len(ticks) // 8], minor=False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.minorticks_off()
    what = "at the end of each round" if grown else "at the end of each run"
    axes.set(xlabel="labels", ylabel="accuracy, %")
    axes.set_title(f"Accuracy over labels, {what}: mean ± std over seeds", loc="left", fontsize=11)
    legend(axes, len(curves) > len(colours))
    return png(drawn)


def draw_curve(axes: Any, name: str, curve: Curve, colour: str | None) -> None:
    """Draw one method; a pale one without its band."""
    x = sorted(curve)
    mean = np.array([np.mean(curve[labels]) for labels in x])
    axes.plot(x, mean, "o-", color=colour or PALE, label=name if colour else None, linewidth=1.8 if colour else 0.9,
              markersize=5 if colour else 3)  # fmt: skip
    if colour:
        std = np.nan_to_num(np.array([spread(curve[labels]) for labels in x]))
        axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.12, linewidth=0)


def legend(axes: Any, pale: bool) -> None:
    """Put the legend beside the plot, where it covers nothing."""
    if pale:
        axes.plot([], [], color=PALE, linewidth=0.9, label="the others")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def budget_curves(found: Results) -> dict[str, Curve]:
    """Return accuracy by budget; one curve per total where there are several."""
    curves: dict[str, Curve] = {}
    for run in found.runs:
        if run.status == "done" and run.accuracy is not None:
            name = f"{run.total:,} images" if found.by_total else run.method
            curves.setdefault(name, {}).setdefault(run.budget, []).append(run.accuracy)
    return curves


def growing_curves(found: Results) -> dict[str, Curve]:
    """Return accuracy at the end of each round; a method that does not grow is a point."""
    curves: dict[str, Curve] = {}
    for row in found.rounds:
        curves.setdefault(row.method, {}).setdefault(row.labels, []).append(row.accuracy)
    return curves


def learning_curves(found: Results, title: str = "", asked: Sequence[int] = ()) -> bytes | None:
    """Draw accuracy over steps (mean and range over seeds) beside each method's final accuracies."""
    shared = [b for b in found.budgets if len({p.method for p in found.curves if p.budget == b}) > 1]
    budget = max(shared or [p.budget for p in found.curves], default=0)  # the largest that methods can be compared at
    points = [p for p in found.curves if p.budget == budget]
    if not points or found.by_total:
        return None
    methods = [m for m in found.methods if any(p.method == m for p in points)]
    means = {m: float(np.mean(list(found.accuracies(m, budget).values()))) for m in methods}
    colours = coloured(methods, means)
    drawn, (left, right) = figure(12, max(4.6, 1.2 + 0.27 * len(methods)), 2, (3, 2))
    for method in sorted(methods, key=lambda m: m in colours):
        draw_steps(left, method, [p for p in points if p.method == method], colours.get(method))
    for step in asked:
        left.axvline(step, color="black", alpha=0.25, linewidth=0.8, linestyle=":")
    note = " (dotted: labels are added)" if asked else ""
    left.set(xlabel=f"step{note}", ylabel="accuracy, %", title="While training: mean and range")
    low = float(np.percentile([p.low for p in points], 10))
    left.set_ylim(bottom=max(0.0, low - 10))  # the first evaluations would squeeze everything into the upper edge
    if len(methods) > len(colours):
        left.plot([], [], color=PALE, linewidth=0.9, label="the others")
    left.legend(loc="lower right", frameon=False)
    draw_finals(right, {m: list(found.accuracies(m, budget).values()) for m in methods}, colours)
    drawn.suptitle(title or f"{found.title}: {budget:,} labels")
    return png(drawn)


def draw_steps(axes: Any, method: str, points: Sequence[CurvePoint], colour: str | None) -> None:
    """Draw one method's learning curve."""
    steps = [p.step for p in points]
    axes.plot(steps, [p.mean for p in points], color=colour or PALE, label=method if colour else None,
              linewidth=1.8 if colour else 0.7)  # fmt: skip
    if colour:
        axes.fill_between(
            steps, [p.low for p in points], [p.high for p in points], color=colour, alpha=0.1, linewidth=0
        )


def draw_finals(axes: Any, reached: Mapping[str, Sequence[float]], colours: Mapping[str, str]) -> None:
    """Draw each run's result as a dot and each mean as a bar."""
    for row, (method, values) in enumerate(reached.items()):
        colour = colours.get(method, "#888888")
        axes.plot(values, [row] * len(values), "o", color=colour, alpha=0.6, markersize=6)
        axes.plot([float(np.mean(values))] * 2, [row - 0.32, row + 0.32], color=colour, linewidth=2.5)
    axes.set_yticks(range(len(reached)), list(reached))
    axes.set(ylim=(len(reached) - 0.4, -0.6), xlabel="accuracy, %", title="Result: each seed, and the mean")
