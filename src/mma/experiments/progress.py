"""What a person sees while a grid trains: which runs are done, how far the others are, how long the rest takes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mma.run import Run
from mma.text import Progress, duration, talk

if TYPE_CHECKING:
    from mma.experiments.plan import GridPlan


class GridProgress:
    """Follows the runs of a plan through their folders, and says on stderr how far they are, unless it is `quiet`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet, self.bar = quiet, Progress()

    def begin(self, plan: GridPlan) -> None:
        """Start with what is done already, and say what there is to do."""
        self.plan, self.begun = plan, time.monotonic()
        self.runs = {run.task.folder: run for run in plan.runs}
        self.done = {run.task.folder for run in plan.runs if run.status == "done"}
        self.failed: dict[Path, str] = {}
        self.running: dict[Path, tuple[int, float | None]] = {}  # how far, and accuracy of the last evaluation
        self.steps_made = 0
        self.counted, self.counted_at = 0, self.begun  # steps, and when they were seen first
        if not self.quiet:
            todo, saved = len(plan.todo), plan.steps_alone - plan.steps_shared
            shared = f"; shared trunks save {saved:,}" if saved else ""
            talk(
                f"{plan.folder}: {len(plan.runs)} runs, {len(self.done)} done, {todo} to do: {plan.steps_left:,} steps"
                f"{shared}. Ctrl-C stops at any time; the same command goes on."
            )
            self.bar.__enter__()

    def end_run(self, folder: Path, why: str | None) -> None:
        """Note and say that a run ended, with what it reached or why it failed."""
        self.running.pop(folder, None)
        self.steps_made += self.runs[folder].steps
        accuracy = None if why else accuracy_of(folder)
        text = "done" if accuracy is None else f"{accuracy:.2f} %"
        if why is None:
            self.done.add(folder)
        else:
            self.failed[folder], text = why, f"failed: {why}"
        if not self.quiet:
            talk(f"  [{len(self.done) + len(self.failed)}/{len(self.runs)}] {self.runs[folder].cell}: {text}")

    def update(self, running: set[Path]) -> None:
        """Say how far the runs under way are. Called about twice a second; what is not a terminal hears it twice a minute."""

        def describe() -> str:
            self.look(running)
            parts = [*(self.run_text(folder) for folder in self.running), self.remaining()]
            return "  " + "; ".join(part for part in parts if part)

        if not self.quiet:
            self.bar.update(self.counted, self.plan.steps_left, describe)

    def close(self) -> None:
        """Stop following."""
        if not self.quiet:
            self.bar.__exit__(None, None, None)

    def look(self, running: set[Path]) -> None:
        """Read how far the running runs are."""
        self.running = {}
        for folder in (folder for folder in sorted(running) if folder in self.runs):
            step, accuracy = last_evaluation(folder)  # long runs are stored more often than evaluated
            self.running[folder] = max([step, *Run(folder).checkpoint_steps()]), accuracy
        made = self.steps_made + sum(max(0, step - self.runs[f].begin) for f, (step, _) in self.running.items())
        if made != self.counted:
            self.counted, self.counted_at = made, time.monotonic()

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
