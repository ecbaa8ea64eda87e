"""`mma demo`: the main job, on real data that is already here, in a few minutes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mma.cli.train import Json
from mma.machine import cores

if TYPE_CHECKING:
    from mma.experiments.design import Grid
    from mma.experiments.report.results import Results

PASSIVE = "growth.policy=passive"
# What the preset `photos` does, with one view of each image: computing it takes ten seconds.
ON_FEATURES = (
    *("views=features", "views.crops=0", "net=head", "query=auto", "growth.start_set=coverage"),
    *("algorithm.weight=30", "algorithm.ramp=50", "algorithm.align=labels"),
    *("optim.lr=0.05", "optim.weight_decay=0.0", "growth.refresh_every=1", "growth.refresh_final=true"),
)
METHODS = {
    "Supervised": ("algorithm=supervised", PASSIVE),
    "MixMatch": (PASSIVE,),
    "random growth": ("query=random",),
    "MMA": ("query=diff2.aug-direct",),
    "on features": ON_FEATURES,
}
ABOUT = {
    "Supervised": "learns from the labeled images alone",
    "MixMatch": "also learns from all unlabeled images; labels drawn at once",
    "random growth": "MixMatch from {start} labels, grown by random picks",
    "MMA": "MixMatch from {start} labels, grown by what it is unsure about",
    "on features": "MixMatch on frozen features (lite0 and hog): start set and queries cover the pool",
}
NEXT = (
    ("mma train digits --set query=diff2.aug-kmeans", "one run, another query"),
    ("mma show digits", "every setting"),
    ("mma start PHOTOS", "label your own photos in the browser"),
    ("mma train photos --data PHOTOS", "photos that have labels: a sub-folder per class"),
    ("mma data list", "Fashion-MNIST, CIFAR-10, ..."),
)


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where the runs, the table and the plot go.")] = Path("demo"),
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repetitions of each method.")] = 5,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Runs at a time.")] = cores(),
    as_json: Json = False,
) -> None:
    """Compare five ways to spend 60 labels on real 8x8 digits: under 5 minutes on two cores. Needs no network."""
    from mma.cli.grid import train
    from mma.experiments.engines import EngineOptions
    from mma.experiments.folder import read_failures
    from mma.experiments.report.collect import from_grid
    from mma.presets import preset

    growth = preset("digits").growth
    train(five_ways(growth.budget, seeds), out, "local", EngineOptions(workers=workers))
    if failures := read_failures(out):
        raise ValueError("; ".join(f"{out / place}: {why}" for place, why in failures.items()))
    title = f"Real 8x8 digits, {growth.budget} labels: five ways to use them"
    table = write(from_grid(out), out, title)
    if as_json:
        print(json.dumps(table))
    else:
        show(table, out, growth.start)


def five_ways(budget: int, seeds: int) -> Grid:
    """Return the grid of all methods at one budget."""
    from mma.experiments.make import from_definition
    from mma.experiments.methods import Experiment, Method

    methods = {name: Method(settings=settings) for name, settings in METHODS.items()}
    definition = Experiment("five ways to spend labels", "digits", methods, (budget,), seeds=seeds)
    return from_definition("demo", "lab", definition)


def write(found: Results, out: Path, title: str) -> list[dict[str, Any]]:
    """Write the plot and the table, and return the table."""
    from mma.experiments.report.plots import learning_curves
    from mma.experiments.report.write import picture_files, write_files

    table = rows(found)
    pictures = picture_files({"learning-curves": learning_curves(found, title)})
    write_files(out, {**pictures, "table.json": json.dumps(table, indent=2) + "\n"})
    return table


def rows(found: Results) -> list[dict[str, Any]]:
    """Return one row per method."""
    from mma.experiments.report.tables import without_nan

    made, labels = found.table(), found.budgets[0]
    cells = [(name, row[0]) for name, row in zip(made.rows, made.cells, strict=True)]
    return [
        {"method": name, "labels": labels, "mean": cell.mean, "std": without_nan(cell.std), "n": cell.n}
        for name, cell in cells
        if cell
    ]


def show(table: list[dict[str, Any]], out: Path, start: int) -> None:
    """Print the table, where the plot is, and what to try next."""
    from mma.experiments.report.numbers import plus_minus

    print(f"{'method':<14} {'labels':>6}  {'accuracy, %':<14} what it does")
    for row in table:
        accuracy = plus_minus(row["mean"], float("nan") if row["std"] is None else row["std"])
        about = ABOUT[row["method"]].format(start=start)
        print(f"{row['method']:<14} {row['labels']:>6}  {accuracy:<14} {about}")
    print(f"\nmean ± standard deviation over {table[0]['n']} seeds, each the median of its last 20 evaluations")
    print(f"\nplot: {out}/learning-curves.png    runs: mma runs {out}\n\nTry next:", file=sys.stderr)
    for command, why in NEXT:
        print(f"  {command:<58} {why}", file=sys.stderr)
