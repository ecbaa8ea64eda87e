"""What a person sees of a grid: the plan before, a live table while it runs, plain lines where there is no terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mma.cli.live import span
from mma.run import Run

if TYPE_CHECKING:
    from mma.experiments.engines import Options
    from mma.experiments.estimate import Cost, Speed
    from mma.experiments.grid import Cell
    from mma.experiments.plan import Entry, Plan


WIDTH = 120


class Board:
    """Follows the runs of a plan through their folders."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.console = plan, Console(stderr=True, highlight=False)
        self.entries = {entry.job.folder: entry for entry in plan.entries}
        self.done = {entry.job.folder for entry in plan.entries if entry.status == "done"}
        self.reached = {folder: found[0] for folder in self.done if (found := Run(folder).result())}
        self.failed: dict[Path, str] = {}
        self.running: dict[Path, tuple[int, float | None]] = {}
        self.made, self.begin = 0, time.monotonic()
        self.live = Live(console=self.console, auto_refresh=False, transient=True)

    def __enter__(self) -> Board:
        todo, total = len(self.plan.todo), len(self.plan.entries)
        saved = (
            f"; shared trunks save {self.plan.alone - self.plan.shared:,}" if self.plan.alone > self.plan.shared else ""
        )
        self.console.print(
            f"{escape(str(self.plan.folder))}: {total} runs, {total - todo} done, {todo} to do: {self.plan.left:,} steps"
            f"{saved}. Ctrl-C stops at any time; the same command goes on."
        )
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()

    def ended(self, folder: Path, why: str | None) -> None:
        """Note that a run ended, and say so."""
        self.running.pop(folder, None)
        entry = self.entries[folder]
        self.made += entry.steps
        name = escape(f"{entry.cell.method}, {entry.cell.budget} labels, seed {entry.cell.seed}")
        if why is None:
            self.done.add(folder)
            found = Run(folder).result()
            self.reached |= {folder: found[0]} if found else {}
            text = f"{name}: {found[0]:.2f} %" if found else f"{name}: done"
        else:
            self.failed[folder] = why
            text = f"[red]{name}: failed: {escape(why)}[/]"
        self.console.print(f"  [{len(self.done) + len(self.failed)}/{len(self.entries)}] {text}", soft_wrap=True)

    def tick(self, running: set[Path]) -> None:
        """Look at the runs that are under way and draw the table anew."""
        if self.console.is_terminal:
            self.running = {folder: last_row(folder) for folder in sorted(running) if folder in self.entries}
            self.live.update(self.drawn(), refresh=True)

    def drawn(self) -> Group:
        """Return one line per method, and one per run that is under way."""
        methods = Table(box=None, padding=(0, 1, 0, 0))
        for heading in ("method", "done", "", "accuracy so far, %"):
            methods.add_column(heading, header_style="bold")
        for method, group in groupby(self.plan.entries, lambda entry: entry.cell.method):
            methods.add_row(*self.method_line(method, list(group)))
        runs = [Text.from_markup(self.run_line(folder)) for folder in self.running]
        return Group(methods, *runs, Text(self.remaining(), style="dim"))

    def method_line(self, method: str, entries: list[Entry]) -> tuple[Any, ...]:
        """Describe one method's runs."""
        folders = [entry.job.folder for entry in entries]
        ended = [folder for folder in folders if folder in self.done]
        bad = sum(folder in self.failed for folder in folders)
        results = [self.reached[folder] for folder in ended if folder in self.reached]
        mean = f"{sum(results) / len(results):.2f}" if results else ""
        count = f"{len(ended)}/{len(folders)}" + (f" [red]{bad} failed[/]" if bad else "")
        return escape(method), count, ProgressBar(total=len(folders), completed=len(ended), width=20), mean

    def run_line(self, folder: Path) -> str:
        """Describe one run under way."""
        entry, (step, accuracy) = self.entries[folder], self.running[folder]
        reached = "" if accuracy is None else f"  {accuracy:.2f} %"
        where = escape(f"{entry.cell.method} {entry.cell.budget} labels seed {entry.cell.seed}")
        return f"  [cyan]{where}[/]  step {step:,}/{entry.end:,}{reached}"

    def remaining(self) -> str:
        """Say how long the rest takes at the pace so far."""
        under_way = sum(max(0, step - self.entries[f].begin) for f, (step, _) in self.running.items())
        made, spent = self.made + under_way, time.monotonic() - self.begin
        if not made or spent < 5:
            return ""
        left = (self.plan.left - made) * spent / made
        return f"about {span(max(left, 0))} left at this pace ({made / spent:.1f} steps/s)"


def last_row(folder: Path) -> tuple[int, float | None]:
    """Return step and accuracy of the last whole row of a run's metrics, reading only the end of the file."""
    path = Run(folder).path("metrics")
    if not path.exists():
        return 0, None
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - 8_192))
        lines = file.read().split(b"\n")[:-1]
    try:
        row = json.loads(lines[-1])
    except (IndexError, ValueError):  # nothing yet, or a row longer than what was read
        return 0, None
    return int(row["step"]), row["accuracy"]


def plan_rows(plan: Plan, costs: Mapping[Cell, Cost]) -> dict[str, Any]:
    """Return the plan run by run, for programs."""
    runs = [
        {
            **vars(entry.cell),
            "run": str(entry.job.folder),
            "role": entry.role,
            "status": entry.status,
            "first step": entry.begin,
            "last step": entry.end,
            "seconds": round(0.0 if entry.status == "done" else costs[entry.cell].seconds, 1),
            "bytes": costs[entry.cell].bytes,
        }
        for entry in plan.entries
    ]
    steps = {"alone": plan.alone, "shared": plan.shared, "left": plan.left}
    return {"experiment": plan.grid.experiment, "scale": plan.grid.scale, "steps": steps, "runs": runs}


def print_plan(plan: Plan, costs: Mapping[Cell, Cost], speeds: Mapping[str, Speed], options: Options) -> None:
    """Print the plan: a line per method and budget, then what it sums up to."""
    wide = max(Console().width, WIDTH)  # a file or a pipe says it is 80 wide, and would cut numbers off
    console = Console(highlight=False, soft_wrap=True, width=wide)
    shown = Table(box=None, padding=(0, 1, 0, 0))
    headings = ("method", "images", "labels", "runs", "seeds", "shares", "steps of one", "to train", "time of one")
    for number, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if number in (0, 4, 5) else "right", header_style="bold", no_wrap=True)
    for _, group in groupby(plan.entries, lambda e: (e.cell.method, e.cell.total, e.cell.budget)):
        shown.add_row(*plan_line(list(group), plan, costs))
    console.print(shown)
    seconds = sum(costs[entry.cell].seconds for entry in plan.todo)
    disk = sum(cost.bytes for cost in costs.values())
    for line in plan_totals(plan, seconds, disk, speeds, options):
        console.print(line, markup=False)


def plan_line(entries: list[Entry], plan: Plan, costs: Mapping[Cell, Cost]) -> tuple[str, ...]:
    """Describe the seeds of one method and budget."""
    first, left = entries[0], [entry for entry in entries if entry.status != "done"]
    seeds = [entry.cell.seed for entry in entries]
    span_of = f"{seeds[0]}..{seeds[-1]}" if seeds == list(range(seeds[0], seeds[-1] + 1)) else ",".join(map(str, seeds))
    share = {"tail": f"from step {first.begin:,}", "trunk": "trunk", "alone": "-"}[first.role]
    count = f"{len(left)} of {len(entries)}" if 0 < len(left) < len(entries) else str(len(entries))
    return (
        escape(first.cell.method),
        f"{plan.grid.total_of(first.cell):,}",
        f"{first.cell.budget:,}",
        count,
        span_of,
        share if left else "done",
        f"{first.end:,}",
        f"{max((entry.steps for entry in left), default=0):,}",
        span(max((costs[entry.cell].seconds for entry in left), default=0.0)),
    )


def plan_totals(plan: Plan, seconds: float, disk: int, speeds: Mapping[str, Speed], options: Options) -> list[str]:
    """Say what the whole costs, and what that rests on."""
    done = len(plan.entries) - len(plan.todo)
    rough = any(not speed.whole for speed in speeds.values())
    basis = "a few steps of each kind of run" + (", of small batches where whole ones are slow" if rough else "")
    lines = [
        f"{len(plan.entries)} runs ({done} done), {plan.left:,} steps to train.",
        sharing(plan),
        f"About {ages(seconds)} on one worker, {ages(seconds / options.workers)} on {options.workers}, measured here "
        f"with {basis}; about {size(disk)} on disk.",
    ]
    for entry in {e.config.algorithm.name: e for e in plan.entries}.values():
        ramp = getattr(entry.config.algorithm, "ramp", 0)
        if ramp > entry.end:
            lines.append(
                f"Note: {entry.config.algorithm.name} brings its unlabeled weight up over {ramp:,} steps, longer than the "
                f"run of {entry.end:,}: set algorithm.ramp."
            )
    return lines


def sharing(plan: Plan) -> str:
    """Say what shared trunks save, in all and among the runs that can share."""
    if plan.alone == plan.shared:
        return "Nothing is shared: every method has one budget, or draws it at the start."
    growing = [entry for entry in plan.entries if not entry.config.passive]
    alone = sum(entry.end for entry in growing)
    shared = alone - (plan.alone - plan.shared)
    return (
        f"Each alone: {plan.alone:,} steps. With shared trunks: {plan.shared:,}, a factor of {plan.alone / plan.shared:.2f}; "
        f"among the runs that grow {alone:,} and {shared:,}, a factor of {alone / shared:.2f}."
    )


def ages(seconds: float) -> str:
    """Say a duration that may be years."""
    years = seconds / (365.25 * 86_400)
    return f"{years:.1f} years" if years >= 2 else span(seconds)


def size(count: int) -> str:
    """Say a number of bytes in the unit a person would use."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"
