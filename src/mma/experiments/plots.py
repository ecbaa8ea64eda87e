"""Plots that one wants to look at. matplotlib is imported on use, without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mma.experiments.compare import Outcome, curves
from mma.run import Run

COLORS = ("#7f7f7f", "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd")


def learning_curves(runs: Mapping[str, Sequence[Run]], results: Sequence[Outcome], title: str, path: Path) -> None:
    """Draw accuracy over steps (mean and range over seeds) beside each method's final accuracies."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), width_ratios=(3, 2), layout="constrained")
    for color, (method, each) in zip(COLORS, runs.items(), strict=False):
        steps, accuracy = curves(each)
        left.plot(steps, accuracy.mean(0), color=color, label=method, linewidth=1.8)
        left.fill_between(steps, accuracy.min(0), accuracy.max(0), color=color, alpha=0.13, linewidth=0)
    asked = sorted({row["step"] for each in runs.values() for run in each for row in run.read("queries")} - {0})
    for step in asked:
        left.axvline(step, color="black", alpha=0.25, linewidth=0.8, linestyle=":")
    left.set(
        xlabel="step (dotted: labels are added)", ylabel="test accuracy, %", title="While training: mean and range"
    )
    left.legend(loc="lower right", frameon=False)
    for row, (color, found) in enumerate(zip(COLORS, results, strict=False)):
        right.plot(found.accuracies, [row] * len(found.accuracies), "o", color=color, alpha=0.6, markersize=7)
        right.plot([found.mean] * 2, [row - 0.25, row + 0.25], color=color, linewidth=2.5)
    right.set_yticks(range(len(results)), [found.method for found in results])
    right.set(ylim=(len(results) - 0.4, -0.6), xlabel="test accuracy, %", title="Result: each seed, and the mean")
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
