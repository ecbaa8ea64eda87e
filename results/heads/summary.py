"""Turn runs.csv, cifar10.csv and calibration.csv into tables (printed) and a figure:  python results/heads/summary.py"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from scipy import stats

HERE = Path(__file__).parent
COLORS = {
    "logistic regression": ("black", "o"),
    "self-training": ("tab:green", "^"),
    "mean-teacher": ("tab:purple", "v"),
    "freematch": ("tab:brown", "s"),
    "mixmatch": ("tab:red", "P"),
}


def interval(values: pd.Series) -> float:
    """Return half the width of the 95 % interval of a mean (Student's t)."""
    return float(stats.t.ppf(0.975, len(values) - 1) * values.sem()) if len(values) > 1 else float("nan")


def cell(values: pd.Series) -> str:
    """Return mean and interval."""
    return f"{values.mean():.1f}" + (f" ± {interval(values):.1f}" if len(values) > 1 else "")


def table(rows: pd.DataFrame, row: str, column: str, value: str = "accuracy") -> str:
    """Return a table in Markdown: mean ± interval."""
    made = rows.pivot_table(index=row, columns=column, values=value, aggfunc=cell, sort=False)
    lines = ["| | " + " | ".join(map(str, made.columns)) + " |", "|---" * (len(made.columns) + 1) + "|"]
    lines += [
        "| " + " | ".join([str(name), *map(str, cells)]) + " |"
        for name, cells in zip(made.index, made.to_numpy(), strict=True)
    ]
    return "\n".join(lines)


def differences(rows: pd.DataFrame, method: str, base: str = "logistic regression") -> str:
    """Return what a method adds to another with the same labels, in points."""
    pairs = rows.pivot_table(index=["data", "per_class", "seed"], columns="method", values="accuracy")
    gained = (pairs[method] - pairs[base]).rename("accuracy").reset_index()
    return table(gained, "data", "per_class")


def figure(rows: pd.DataFrame) -> plt.Figure:
    """Draw accuracy over labels per class, a panel for each data set."""
    names = list(rows.data.unique())
    drawn, axes = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3.4), layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        for method, (color, marker) in COLORS.items():
            found = rows[(rows.data == name) & (rows.method == method)].groupby("per_class").accuracy
            axis.errorbar(
                found.mean().index,
                found.mean(),
                found.apply(interval),
                color=color,
                marker=marker,
                ms=4,
                lw=1.2,
                capsize=2,
            )
        axis.set(xscale="log", title=name.removeprefix("folder:"), xlabel="labels per class", xticks=[1, 4, 16, 64])
        axis.set_xticklabels(["1", "4", "16", "64"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy, %")
    axes[-1].legend(list(COLORS), fontsize=7, loc="lower right")
    return drawn


def main() -> None:
    """Print every table and write the figure."""
    rows = pd.read_csv(HERE / "runs.csv")
    for name, part in rows.groupby("data", sort=False):
        print(f"\n{name}: {part.backbone.iloc[0]}\n\n{table(part, 'method', 'per_class')}")
    for method in ("self-training", "mean-teacher", "freematch", "mixmatch"):
        print(f"\n{method} - logistic regression, points\n\n{differences(rows, method)}")
    checked = pd.read_csv(HERE / "calibration.csv")
    for value in ("raw_ece", "ece"):
        print(f"\nmixmatch, {value}\n\n{table(checked, 'data', 'per_class', value)}")
    print(f"\nprocessor seconds\n\n{table(rows, 'method', 'per_class', 'processor')}")
    frozen = pd.read_csv(HERE / "cifar10.csv")
    frozen["row"] = frozen.backbone + ", " + frozen.method
    print(f"\nCIFAR-10\n\n{table(frozen, 'row', 'labels').replace('nan', '')}")
    figure(rows).savefig(HERE / "heads.png", dpi=150)


if __name__ == "__main__":
    main()
