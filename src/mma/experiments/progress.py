"""What a person sees while a grid trains: which runs are done, how far the others are, how long the rest takes."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mma.errors import UserError
from mma.files import Row
from mma.run import Run
from mma.text import Progress, duration, plural, talk

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
        self.ended = len(plan.runs) - len(plan.todo)
        self.running: dict[Path, tuple[int, float | None]] = {}  # how far, and accuracy of the last evaluation
        self.steps_made = 0
        self.counted, self.counted_at = 0, self.begun  # steps, and when they were seen first
        if not self.quiet:
            saved = plan.steps_alone - plan.steps_shared
            shared = f"; shared trunks save {saved:,}" if saved else ""
            talk(
                f"{plan.folder}: {plural(len(plan.runs), 'run')}, {self.ended} done, {len(plan.todo)} to do: "
                f"{plan.steps_left:,} steps{shared}. Ctrl-C stops at any time; the same command goes on."
            )
            self.bar.__enter__()

    def end_run(self, folder: Path, why: str | None) -> None:
        """Note and say that a run ended, with what it reached or why it failed."""
        self.running.pop(folder, None)
        self.steps_made += self.runs[folder].steps
        self.ended += 1
        if not self.quiet:
            median = None if why else Run(folder).median_accuracy()
            text = f"failed: {why}" if why else f"{median[0]:.2f} %" if median else "done"
            talk(f"  [{self.ended}/{len(self.runs)}] {self.runs[folder].cell}: {text}")

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
        """Read how far the running runs are. Long runs are stored more often than evaluated."""
        self.running = {}
        for folder in sorted(running & self.runs.keys()):
            rows = list[Row]()
            with suppress(UserError):  # a damaged file fails its own run, and no other
                rows = Run(folder).read("metrics")
            step, accuracy = (rows[-1]["step"], rows[-1]["accuracy"]) if rows else (0, None)
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
