"""What a person sees of a grid: the plan before, a live table while it runs, plain lines where there is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mma.cli.terminal import console, is_terminal
from mma.experiments.progress import GridProgress, PlainProgress
from mma.run import Run
from mma.text import duration, printable

if TYPE_CHECKING:
    from mma.experiments.design import GridCell
    from mma.experiments.estimate import RunCost, Speed
    from mma.experiments.plan import GridPlan, PlannedRun

HEADINGS = ("method", "images", "labels", "runs", "seeds", "shares", "steps of one", "to train", "time of one")
LEFT = {"method", "seeds", "shares"}  # columns of words


def progress() -> GridProgress:
    """Return a live table for a terminal, plain lines for anything else."""
    return Board(console()) if is_terminal(sys.stderr) else PlainProgress()


class Board(GridProgress):
    """Draws a live table: one line per method, and one per run that is under way."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, auto_refresh=False, transient=True)

    def begin(self, plan: GridPlan) -> None:
        """Say what there is to do, and start drawing."""
        super().begin(plan)
        self.accuracies = {folder: self.accuracy(folder) for folder in self.done}
        self.console.print(escape(printable(self.first_line())), soft_wrap=True)
        self.live.start()

    def end_run(self, folder: Path, why: str | None) -> None:
        """Say how a run ended."""
        super().end_run(folder, why)
        self.accuracies[folder] = None if why else self.accuracy(folder)
        line = escape(printable(f"  {self.end_line(folder, why)}"))
        self.console.print(f"[red]{line}[/]" if why else line, soft_wrap=True)

    def update(self, running: set[Path]) -> None:
        """Draw the table anew."""
        self.look(running)
        self.live.update(self.draw(), refresh=True)

    def close(self) -> None:
        """Stop drawing."""
        self.live.stop()

    def accuracy(self, folder: Path) -> float | None:
        """Return what a finished run reached."""
        found = Run(folder).median_accuracy()
        return found[0] if found else None

    def draw(self) -> Group:
        """Return the table."""
        methods = Table(box=None, padding=(0, 1, 0, 0))
        for heading in ("method", "done", "", "accuracy so far, %"):
            methods.add_column(heading, header_style="bold")
        for method, group in groupby(self.plan.runs, lambda run: run.cell.method):
            methods.add_row(*self.method_line(method, list(group)))
        runs = [Text(f"  {self.run_text(folder)}", style="cyan") for folder in self.running]
        return Group(methods, *runs, Text(self.remaining(), style="dim"))

    def method_line(self, method: str, runs: list[PlannedRun]) -> tuple[Any, ...]:
        """Describe one method's runs."""
        folders = [run.task.folder for run in runs]
        done = [folder for folder in folders if folder in self.done]
        failures = sum(folder in self.failed for folder in folders)
        values = [value for folder in done if (value := self.accuracies.get(folder)) is not None]
        mean = f"{sum(values) / len(values):.2f}" if values else ""
        count = f"{len(done)}/{len(folders)}" + (f" [red]{failures} failed[/]" if failures else "")
        return escape(method), count, ProgressBar(total=len(folders), completed=len(done), width=20), mean


def plan_rows(plan: GridPlan, costs: Mapping[GridCell, RunCost]) -> dict[str, Any]:
    """Return the plan run by run, for programs."""
    runs = [
        {
            **vars(run.cell),
            "run": str(run.task.folder),
            "role": run.role,
            "status": run.status,
            "first step": run.begin,
            "last step": run.end,
            "seconds": round(0.0 if run.status == "done" else costs[run.cell].seconds, 1),
            "bytes": costs[run.cell].bytes,
        }
        for run in plan.runs
    ]
    steps = {"alone": plan.steps_alone, "shared": plan.steps_shared, "left": plan.steps_left}
    return {"experiment": plan.grid.experiment, "scale": plan.grid.scale, "steps": steps, "runs": runs}


def plan_text(plan: GridPlan, costs: Mapping[GridCell, RunCost], speeds: Mapping[str, Speed], workers: int) -> str:
    """Return the plan: a line per method and budget, then the sums. Never wrapped or cut."""
    groups = groupby(plan.runs, lambda run: (run.cell.method, run.cell.total, run.cell.budget))
    lines = [plan_line(list(group), plan, costs) for _, group in groups]
    return "\n".join([*align([HEADINGS, *lines]), *plan_totals(plan, costs, speeds, workers)])


def align(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of words as lines of text: words on the left of their column, numbers on the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = ["<" if heading in LEFT else ">" for heading in lines[0]]
    texts = [[f"{part:{side}{width}}" for part, side, width in zip(line, sides, widths, strict=True)] for line in lines]
    return ["  ".join(parts).rstrip() for parts in texts]


def plan_line(runs: list[PlannedRun], plan: GridPlan, costs: Mapping[GridCell, RunCost]) -> tuple[str, ...]:
    """Describe the seeds of one method and budget."""
    first, left = runs[0], [run for run in runs if run.status != "done"]
    share = {"tail": f"from step {first.begin:,}", "trunk": "trunk", "alone": "-"}[first.role]
    return (
        first.cell.method,
        f"{plan.grid.total_of(first.cell):,}",
        f"{first.cell.budget:,}",
        f"{len(left)} of {len(runs)}" if 0 < len(left) < len(runs) else str(len(runs)),
        seeds_text([run.cell.seed for run in runs]),
        share if left else "done",
        f"{first.end:,}",
        f"{max((run.steps for run in left), default=0):,}",
        duration(max((costs[run.cell].seconds for run in left), default=0.0)),
    )


def seeds_text(seeds: list[int]) -> str:
    """Write seeds as a range where they are one."""
    full = seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}..{seeds[-1]}" if full else ",".join(map(str, seeds))


def plan_totals(
    plan: GridPlan, costs: Mapping[GridCell, RunCost], speeds: Mapping[str, Speed], workers: int
) -> list[str]:
    """Return what all of it costs, and what that rests on."""
    seconds = sum(costs[run.cell].seconds for run in plan.todo)
    rough = any(not speed.full_batch for speed in speeds.values())
    basis = "a few steps of each kind of run" + (", with small batches where full ones are slow" if rough else "")
    return [
        f"{len(plan.runs)} runs ({len(plan.runs) - len(plan.todo)} done), {plan.steps_left:,} steps to train.",
        sharing_text(plan),
        f"About {duration(seconds)} on one worker, {duration(seconds / workers)} on {workers}, measured here "
        f"with {basis}; about {size_text(sum(cost.bytes for cost in costs.values()))} on disk.",
        *long_ramps(plan),
    ]


def long_ramps(plan: GridPlan) -> list[str]:
    """Return a note for every algorithm whose unlabeled weight would still rise when its run ends."""
    notes = []
    for run in {run.config.algorithm.name: run for run in plan.runs}.values():
        ramp = getattr(run.config.algorithm, "ramp", 0)
        if ramp > run.end:
            notes.append(
                f"Note: the unlabeled weight of {run.config.algorithm.name} rises over {ramp:,} steps, longer than the run "
                f"of {run.end:,}: set algorithm.ramp."
            )
    return notes


def sharing_text(plan: GridPlan) -> str:
    """Say what shared trunks save, in all and among the runs that can share."""
    saved = plan.steps_alone - plan.steps_shared
    if not saved:
        return "Nothing is shared: every method has one budget, or draws it at the start."
    alone = sum(run.end for run in plan.runs if run.config.growth.policy.grows)
    return (
        f"Each alone: {plan.steps_alone:,} steps. With shared trunks: {plan.steps_shared:,}, a factor of "
        f"{plan.steps_alone / plan.steps_shared:.2f}; among the runs that grow {alone:,} and {alone - saved:,}, a factor of "
        f"{alone / (alone - saved):.2f}."
    )


def size_text(count: int) -> str:
    """Write a number of bytes in the unit a person would use."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"
