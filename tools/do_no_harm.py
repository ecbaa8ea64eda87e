"""Is asking by `auto` ever worse than a random draw? `python tools/do_no_harm.py` writes results/do-no-harm/.

Every data set and budget of results/ that both were run on, with ten seeds at least, is a cell: the paired difference of
`auto` to random over the seeds. Pools of results/first-labels, some of them unbalanced photos, bring those of the first labels.
A cell fails when its 95 % interval lies below zero (not corrected for being one of many: it fails sooner), or when its mean is
below -0.5 points.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import first_labels

from mma.experiments.report.figures import (
    INK,
    PALE,
    draw_difference,
    in_house_style,
    new_figure,
    render,
    subtitle,
    view_of_differences,
)
from mma.experiments.report.results import collect
from mma.experiments.report.statistics import Difference, differences
from mma.experiments.report.tables import interval_text
from mma.files import write_atomically

RESULTS = Path(__file__).parents[1] / "results"
ASKING, REFERENCE = "auto", "random"
SEEDS = 10  # of a cell, at least
WORST = -0.5  # points that the mean of a cell may be below random
HARM = "#c0172b"
FIRST = "first-labels: "  # before the names of its pools
Cell = tuple[str, Difference]


def cells(results: Path) -> list[Cell]:
    """Return the difference of `auto` to random in every data set and budget, with the data set's name."""
    found = []
    for folder in sorted(path.parent for path in results.glob("*/about.json") if (path.parent / "runs.csv").is_file()):
        rows = differences(collect(folder), REFERENCE)
        found += [(folder.name, row) for row in rows if row.method == ASKING and row.n >= SEEDS]
    runs = first_labels.read_table(results / "first-labels" / "runs.csv")
    labels = {(row["pool"], row["per_class"]): row["labels"] for row in runs}
    for pool, what, size, _, _, row in first_labels.cells(runs):
        if what == "auto - random" and row.n >= SEEDS:
            found.append((f"{FIRST}{pool}", replace(row, budget=labels[pool, size])))
    return found


def fails(row: Difference) -> bool:
    """Tell whether a cell does harm."""
    return row.high < 0 or row.mean < WORST


def summary(found: list[Cell]) -> str:
    """Say how many cells gain, and name those that fail."""
    above = sum(row.low > 0 for _, row in found)
    bad = [f"{name}, {row.budget} labels" for name, row in found if fails(row)]
    return (
        f"{len(found)} cells. Above random with the whole 95 % interval: {above}. Mean above zero: "
        f"{sum(row.mean > 0 for _, row in found)}. Failing: {'; '.join(bad) or 'none'}."
    )


def as_markdown(found: list[Cell]) -> str:
    """Return one line per cell."""
    lines = [
        "| data | labels | n | `auto` - random | 95 % interval | shows | do no harm |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in found:
        verdict, kept = row.verdict, "**fails**" if fails(row) else "kept"
        span = interval_text(row.low, row.high)
        lines.append(f"| {name} | {row.budget} | {row.n} | {row.mean:+.2f} | {span} | {verdict} | {kept} |")
    return "\n".join(lines) + "\n"


@in_house_style
def draw(found: list[Cell]) -> Any:
    """Draw every cell with its interval, grouped by data set; those that fail have their name in red."""
    figure, (axes,) = new_figure("auto against random: do no harm", 1.8 + 0.17 * len(found))
    axes.axvline(0, color=INK, linewidth=1.0)
    for number, (_, row) in enumerate(found):
        draw_difference(axes, number, row)
    names = [name for name, _ in found]
    first = [number for number, name in enumerate(names) if name not in names[:number]]
    for begin, end in zip(first[::2], [*first[1::2], len(found)], strict=False):
        axes.axhspan(begin - 0.5, end - 0.5, color=PALE, alpha=0.25, linewidth=0)
    labels = [f"{name + ':  ' if number in first else ''}{row.budget:,}" for number, (name, row) in enumerate(found)]
    axes.set_yticks(range(len(found)), labels, fontsize=8)
    for tick, (_, row) in zip(axes.get_yticklabels(), found, strict=True):
        tick.set_color(HARM if fails(row) else INK)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="points of accuracy above random", xlim=view_of_differences([row for _, row in found]))
    counts = sorted({row.n for _, row in found})
    seeds = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
    note = "data set and labels; filled: shown by the corrected test of its table; red: fails"
    subtitle(axes, f"Mean and 95 % interval (paired t), {seeds} seeds; {note}", 52)
    return figure


def write(results: Path) -> Path:
    """Write the table and its figure."""
    found, out = cells(results), results / "do-no-harm"
    out.mkdir(exist_ok=True)
    text = f"# Does `auto` do harm?\n\n{(__doc__ or '').strip()}\n\n{summary(found)}\n\n{as_markdown(found)}"
    write_atomically(out / "README.md", text)
    figure = draw([each for each in found if not each[0].startswith(FIRST)])  # those of first-labels have tables
    write_atomically(out / "do-no-harm.png", render(figure, "png"))
    return out / "README.md"


if __name__ == "__main__":
    print(write(RESULTS))
