"""Make one table (printed) and one figure from rounds.csv here and in ../photos-signs:  python summary.py"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

HERE = Path(__file__).parent
NAMES = {"lite0+hog": "photos (lite0+hog, chosen)", "hog": "photos (hog)", "lite0": "photos (lite0)"}
DRAWN = {  # colour, marker, line
    "photos (lite0)": ("tab:gray", "v", "-"),
    "photos (hog)": ("tab:orange", "s", "-"),
    "photos (lite0+hog, chosen)": ("tab:blue", "o", "-"),
    "from scratch, aligned to the labels, 2,000 steps (earlier)": ("tab:green", "x", ""),
    "from scratch, without the head's guesses": ("tab:olive", "D", "--"),
    "photos-deep": ("tab:red", "P", "--"),
}


def read_rounds() -> pd.DataFrame:
    """Return method, seed, labels and accuracy of all runs on the test folder."""
    heads = pd.read_csv(HERE.parent / "photos-signs" / "rounds.csv")
    heads["method"] = heads.method.map(NAMES)
    deep = pd.read_csv(HERE / "rounds.csv")
    columns = ["method", "seed", "labels", "accuracy"]
    return pd.concat([heads[columns], deep[deep.method.isin(DRAWN)][columns]])


def table(rows: pd.DataFrame) -> str:
    """Return mean accuracy ± standard deviation over seeds, and how many there were, in Markdown."""
    wanted = [12, 40, 48, 68, 96, 152, 208, 264, 300]
    lines = ["| labels | " + " | ".join(map(str, wanted)) + " | seeds |", "|---" * (len(wanted) + 2) + "|"]
    for method in DRAWN:
        mine = rows[rows.method == method]
        groups = {labels: group.accuracy for labels, group in mine.groupby("labels")}
        cells = [cell(groups[labels]) if labels in groups else "" for labels in wanted]
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {mine.seed.nunique()} |")
    return "\n".join(lines)


def cell(values: pd.Series) -> str:
    """Return mean ± standard deviation."""
    return f"{values.mean():.1f} ± {values.std():.1f}" if len(values) > 1 else f"{values.mean():.1f} (one)"


def figure(rows: pd.DataFrame) -> plt.Figure:
    """Draw accuracy over labels: lines are means, dashed on pixels; points are single runs."""
    drawn, axis = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
    for method, (color, marker, line) in DRAWN.items():
        mine = rows[rows.method == method]
        if line:
            mean = mine.groupby("labels").accuracy.mean()
            axis.plot(mean.index, mean, color=color, marker=marker, linestyle=line, label=method)
        else:
            axis.scatter(mine.labels, mine.accuracy, color=color, marker=marker, s=60, zorder=3, label=method)
    axis.axhline(98, color="black", linewidth=0.8, linestyle=":")
    axis.annotate("goal for photos-deep: 98", (12, 98), xytext=(0, 3), textcoords="offset points", fontsize=8)
    axis.set(xlabel="labels", ylabel="accuracy on the test folder, %", ylim=(50, 101))
    axis.set_title(
        "Photos of 12 traffic signs: 2,568 in the pool, 1,080 to test; 5 seeds unless the table says fewer", fontsize=9
    )
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right", fontsize=8)
    return drawn


def main() -> None:
    """Print the table and write the figure."""
    rows = read_rounds()
    print(table(rows))
    figure(rows).savefig(HERE / "accuracy-over-labels.png", dpi=130)


if __name__ == "__main__":
    main()
