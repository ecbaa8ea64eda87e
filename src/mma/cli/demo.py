"""`mma demo`: the main job, on real data that is already here, in a few minutes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mma.cli.train import Json
from mma.machine import cores

if TYPE_CHECKING:
    from mma.experiments.grid import Grid
    from mma.experiments.report.collect import Results

METHODS = {
    "Supervised": ("algorithm=supervised", "query=passive"),
    "MixMatch": ("query=passive",),
    "random growth": ("query=random",),
    "MMA": ("query=diff2.aug-direct",),
}


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where the runs, the table and the plot go.")] = Path("demo"),
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repetitions of each method.")] = 5,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Runs at a time.")] = cores(),
    as_json: Json = False,
) -> None:
    """Compare four ways to spend 60 labels on real 8x8 digits: under 5 minutes on two cores."""
    from mma.cli.grid import carry_out, stop_on_signals
    from mma.experiments import grid as grids
    from mma.experiments.engines import Options
    from mma.experiments.report.collect import from_grid
    from mma.presets import preset

    growth = preset("digits").growth
    with stop_on_signals():
        carry_out(four_ways(growth.budget, seeds), out, "local", Options(workers=workers))
    if failed := grids.read_failures(out):
        raise ValueError("; ".join(f"{out / place}: {why}" for place, why in failed.items()))
    title = f"Real 8x8 digits, {growth.budget} labels: four ways to use them ({seeds} seeds)"
    table = write(from_grid(out), out, title)
    print(json.dumps(table)) if as_json else show(table, out, growth.start)


def four_ways(budget: int, seeds: int) -> Grid:
    """Return the grid of all methods at one budget."""
    from mma.experiments.make import from_definition
    from mma.experiments.methods import Experiment, Method

    methods = {name: Method(settings=settings) for name, settings in METHODS.items()}
    definition = Experiment("four ways to spend labels", "digits", methods, (budget,), seeds=seeds)
    return from_definition("demo", "lab", definition)


def write(found: Results, out: Path, title: str) -> list[dict[str, Any]]:
    """Write the plot and the table, and return the table."""
    from mma.experiments.report.plots import learning_curves
    from mma.experiments.report.write import asked
    from mma.run import write_whole

    drawn = learning_curves(found, title, asked(found))
    assert drawn is not None
    write_whole(out / "learning-curves.png", drawn)
    table = rows(found)
    write_whole(out / "table.json", json.dumps(table, indent=2) + "\n")
    return table


def rows(found: Results) -> list[dict[str, Any]]:
    """Return one row per method."""
    from mma.experiments.report.tables import clean, table

    made, labels = table(found), found.budgets[0]
    entries = [(name, row[0]) for name, row in zip(made.rows, made.entries, strict=True)]
    return [
        {"method": name, "labels": labels, "mean": e.mean, "std": clean(e.std), "n": e.n} for name, e in entries if e
    ]


def show(results: Sequence[dict[str, Any]], out: Path, start: int) -> None:
    """Print the table, where the plot is, and what to try next."""
    from rich.console import Console
    from rich.table import Table

    what = {
        "Supervised": "learns from the labeled images alone",
        "MixMatch": "also learns from all unlabeled images; labels drawn at once",
        "random growth": f"MixMatch from {start} labels, grown by random picks",
        "MMA": f"MixMatch from {start} labels, grown by what it is unsure about",
    }
    table = Table("method", "labels", "accuracy, %", "what it does", box=None, header_style="bold")
    for found in results:
        deviation = "" if found["std"] is None else f" ± {found['std']:.2f}"
        accuracy = f"{found['mean']:.2f}{deviation}"
        table.add_row(found["method"], str(found["labels"]), accuracy, what[found["method"]])
    console = Console(soft_wrap=True)
    console.print(table)
    seeds = results[0]["n"]
    console.print(f"\nmean ± standard deviation over {seeds} seeds, each the median of its last 20 evaluations")
    console.print(f"plot: {out}/learning-curves.png    runs: mma runs {out}")
    console.print("\nTry next:")
    for command, why in NEXT:
        console.print(f"  {command:<58} {why}", highlight=False, markup=False)


NEXT = (
    ("mma train digits --set query=diff2.aug-kmeans", "one run, another query"),
    ("mma show digits", "every setting"),
    ("mma data get folder --from PHOTOS --name mine", "your own photos, then:"),
    ("mma train folder --set data.name=folder:mine", "train on them"),
    ("mma data list", "Fashion-MNIST, CIFAR-10, ..."),
)
