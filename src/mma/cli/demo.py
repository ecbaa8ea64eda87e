"""`mma demo`: the main job, on real data that is already here, in a few minutes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mma.cli.train import Json

if TYPE_CHECKING:
    from mma.experiments.compare import Outcome
    from mma.run import Run

METHODS = {
    "Supervised": ["algorithm=supervised", "query=passive"],
    "MixMatch": ["query=passive"],
    "random growth": ["query=random"],
    "MMA": ["query=diff2.aug-direct"],
}


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where the runs, the table and the plot go.")] = Path("demo"),
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repetitions of each method.")] = 5,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Runs at a time.")] = os.cpu_count() or 1,
    as_json: Json = False,
) -> None:
    """Compare four ways to spend 60 labels on real 8x8 digits: under 5 minutes on two cores."""
    from mma.experiments.compare import outcomes, prepare
    from mma.experiments.engine import finish_all
    from mma.experiments.plots import learning_curves
    from mma.presets import preset

    base = preset("digits")
    growth = base.growth
    runs = prepare(base, METHODS, range(1, seeds + 1), out)
    with bars(runs) as tick:
        failed = finish_all([run for each in runs.values() for run in each], workers, tick)
    if failed:
        raise ValueError("; ".join(f"{folder}: {why}" for folder, why in failed.items()))
    results = outcomes(runs)
    title = f"Real 8x8 digits, {growth.budget} labels: four ways to use them ({seeds} seeds)"
    learning_curves(runs, results, title, out / "learning-curves.png")
    table = [
        {"method": r.method, "labels": r.labels, "mean": r.mean, "std": r.std, "n": len(r.accuracies)} for r in results
    ]
    (out / "table.json").write_text(json.dumps(table, indent=2) + "\n")
    print(json.dumps(table)) if as_json else show(results, out, growth.start)


class bars:
    """One bar per method on a terminal, fed from the run folders; a line now and then elsewhere."""

    def __init__(self, runs: Mapping[str, Sequence[Run]]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.runs, self.console = runs, Console(stderr=True)
        count = sum(len(each) for each in runs.values())
        self.console.print(f"training {count} runs on real 8x8 digits (stop with Ctrl-C; the same command goes on)")
        columns = (
            TextColumn("{task.description:>14}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
        )
        self.progress = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.tasks = {method: self.progress.add_task(method, total=1.0, text="") for method in runs}
        self.told = 0

    def __enter__(self) -> Callable[[], None]:
        self.progress.start()
        return self.tick

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def tick(self) -> None:
        """Look at the folders and move the bars."""
        done = 0
        for method, each in self.runs.items():
            rows = [run.read("metrics") for run in each]
            end = each[0].growth().rounds()[-1].end
            made = sum(found[-1]["step"] if found else 0 for found in rows) / (end * len(each))
            finished = sum(bool(found) and found[-1]["step"] == end for found in rows)
            done += finished
            self.progress.update(self.tasks[method], completed=made, text=f"{finished}/{len(each)} runs")
        if not self.console.is_terminal and done > self.told:
            self.console.print(f"  {done} runs done")
        self.told = done


def show(results: Sequence[Outcome], out: Path, start: int) -> None:
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
        table.add_row(found.method, str(found.labels), f"{found.mean:.2f} ± {found.std:.2f}", what[found.method])
    console = Console(soft_wrap=True)
    console.print(table)
    seeds = len(results[0].accuracies)
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
