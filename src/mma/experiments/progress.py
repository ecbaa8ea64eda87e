"""What a person sees while a grid trains: which runs are done, how far the others are, how long the rest takes."""

from __future__ import annotations

import json
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from mma.run import Run
from mma.text import duration, printable

if TYPE_CHECKING:
    from rich.console import Console, Group

    from mma.experiments.plan import GridPlan

INTERVAL = 30.0  # seconds between lines about runs under way


class GridProgress:
    """Follows the runs of a plan through their folders. This one keeps count and prints nothing."""

    def begin(self, plan: GridPlan) -> None:
        """Start with what is done already."""
        self.plan, self.begun = plan, time.monotonic()
        self.runs = {run.task.folder: run for run in plan.runs}
        self.done = {run.task.folder for run in plan.runs if run.status == "done"}
        self.failed: dict[Path, str] = {}
        self.running: dict[Path, tuple[int, float | None]] = {}  # how far, and accuracy of the last evaluation
        self.steps_made = 0
        self.counted, self.counted_at = 0, self.begun  # steps, and when they were seen first

    def end_run(self, folder: Path, why: str | None) -> None:
        """Note that a run ended, and why it failed."""
        self.running.pop(folder, None)
        self.steps_made += self.runs[folder].steps
        if why is None:
            self.done.add(folder)
        else:
            self.failed[folder] = why

    def update(self, running: set[Path]) -> None:
        """Look at the runs that are under way. Called about twice a second."""

    def close(self) -> None:
        """Stop following."""

    def look(self, running: set[Path]) -> None:
        """Read how far the running runs are."""
        self.running = {}
        for folder in (folder for folder in sorted(running) if folder in self.runs):
            step, accuracy = last_evaluation(folder)  # long runs are stored more often than evaluated
            self.running[folder] = max([step, *Run(folder).checkpoint_steps()]), accuracy
        made = self.steps_made + sum(max(0, step - self.runs[f].begin) for f, (step, _) in self.running.items())
        if made != self.counted:
            self.counted, self.counted_at = made, time.monotonic()

    def first_line(self) -> str:
        """Say what there is to do."""
        plan, todo = self.plan, len(self.plan.todo)
        saved = plan.steps_alone - plan.steps_shared
        return (
            f"{plan.folder}: {len(plan.runs)} runs, {len(plan.runs) - todo} done, {todo} to do: {plan.steps_left:,} steps"
            f"{f'; shared trunks save {saved:,}' if saved else ''}. Ctrl-C stops at any time; the same command goes on."
        )

    def end_line(self, folder: Path, why: str | None) -> str:
        """Say how a run ended."""
        count = f"[{len(self.done) + len(self.failed)}/{len(self.runs)}] {self.runs[folder].cell}"
        if why is not None:
            return f"{count}: failed: {why}"
        accuracy = accuracy_of(folder)
        return f"{count}: done" if accuracy is None else f"{count}: {accuracy:.2f} %"

    def run_text(self, folder: Path) -> str:
        """Say how far a run is."""
        run, (step, accuracy) = self.runs[folder], self.running[folder]
        return f"{run.cell}: step {step:,} of {run.end:,}" + ("" if accuracy is None else f", {accuracy:.2f} %")

    def remaining(self) -> str:
        """Say how long the rest takes at the pace so far; nothing before there is a pace."""
        # Runs tell their steps minutes apart. What they have made since then is unknown, so the pace is that of then.
        passed = self.counted_at - self.begun
        if not self.counted or passed < 5:
            return ""
        end = self.counted_at + (self.plan.steps_left - self.counted) * passed / self.counted
        return f"about {duration(max(0.0, end - time.monotonic()))} left at {self.counted / passed:.1f} steps/s"


class PlainProgress(GridProgress):
    """Prints plain lines to stderr: one per run that ended, and one every half minute."""

    def begin(self, plan: GridPlan) -> None:
        """Say what there is to do."""
        super().begin(plan)
        self.last_line = time.monotonic()
        self.say(self.first_line())

    def end_run(self, folder: Path, why: str | None) -> None:
        """Say how a run ended."""
        super().end_run(folder, why)
        self.say(f"  {self.end_line(folder, why)}")

    def update(self, running: set[Path]) -> None:
        """Say how far the running runs are, every half minute."""
        if time.monotonic() - self.last_line >= INTERVAL:
            self.look(running)
            texts = [self.run_text(folder) for folder in self.running]
            self.say("  " + "; ".join(part for part in (*texts, self.remaining()) if part))

    def say(self, line: str) -> None:
        """Print one line, however long."""
        self.last_line = time.monotonic()
        print(printable(line), file=sys.stderr, flush=True)


class Board(GridProgress):
    """Draws a live table: one line per method, and one per run that is under way."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self.console = console
        self.live = Live(console=console, auto_refresh=False, transient=True)

    def begin(self, plan: GridPlan) -> None:
        """Say what there is to do, and start drawing."""
        super().begin(plan)
        self.accuracies = {folder: accuracy_of(folder) for folder in self.done}
        self.console.print(escape(printable(self.first_line())), soft_wrap=True)
        self.live.start()

    def end_run(self, folder: Path, why: str | None) -> None:
        """Say how a run ended."""
        super().end_run(folder, why)
        self.accuracies[folder] = None if why else accuracy_of(folder)
        line = escape(printable(f"  {self.end_line(folder, why)}"))
        self.console.print(f"[red]{line}[/]" if why else line, soft_wrap=True)

    def update(self, running: set[Path]) -> None:
        """Draw the table anew."""
        self.look(running)
        self.live.update(self.draw(), refresh=True)

    def close(self) -> None:
        """Stop drawing."""
        self.live.stop()

    def draw(self) -> Group:
        """Return the table."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        methods = Table(box=None, padding=(0, 1, 0, 0))
        for heading in ("method", "done", "", "accuracy so far, %"):
            methods.add_column(heading, header_style="bold")
        for method, group in groupby(self.plan.runs, lambda run: run.cell.method):
            folders = [run.task.folder for run in group]
            done = [folder for folder in folders if folder in self.done]
            failures = sum(folder in self.failed for folder in folders)
            values = [value for folder in done if (value := self.accuracies.get(folder)) is not None]
            mean = f"{sum(values) / len(values):.2f}" if values else ""
            count = f"{len(done)}/{len(folders)}" + (f" [red]{failures} failed[/]" if failures else "")
            bar = ProgressBar(total=len(folders), completed=len(done), width=20)
            methods.add_row(escape(method), count, bar, mean)
        runs = [Text(f"  {self.run_text(folder)}", style="cyan") for folder in self.running]
        return Group(methods, *runs, Text(self.remaining(), style="dim"))


def accuracy_of(folder: Path) -> float | None:
    """Return what a finished run reached."""
    median = Run(folder).median_accuracy()
    return median[0] if median else None


def last_evaluation(folder: Path) -> tuple[int, float | None]:
    """Return step and accuracy of the last complete row of a run's metrics, reading only the end of the file."""
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
