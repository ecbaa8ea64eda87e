"""What a person sees while a run trains: one live line on a terminal, a few plain lines elsewhere. All on stderr."""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from mma.growth import Round
from mma.run import Run
from mma.training.watch import Watch

WARM = 1  # steps before the clock starts: the first one allocates


class Stoppable(Watch):
    """Turns Ctrl-C and SIGTERM into a clean stop."""

    def __enter__(self) -> Self:
        self.handlers = {s: signal.signal(s, self.asked_to_stop) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    def asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        """Stop after this step the first time; at once the second time (as safe, but the last steps are lost)."""
        if self.stop and number == signal.SIGTERM:
            return  # a scheduler and torchrun may both send it
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True
        self.say("stopping after this step; once more to stop at once")


class Live(Stoppable):
    """Draws the live line and prints an honest estimate of the time."""

    def __init__(self, run: Run, *, again: str, tensorboard: bool = False) -> None:
        self.run, self.again, self.console = run, again, Console(stderr=True)
        self.board = board(run) if tensorboard else None
        self.progress = Progress(
            BarColumn(bar_width=12),
            TextColumn("{task.fields[text]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.first: tuple[int, float] | None = None
        self.end, self.last, self.drawn, self.told, self.speed = 0, "", 0.0, False, 0.0
        self.seen: set[str] = set()

    def __enter__(self) -> Self:
        self.progress.start()
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        super().__exit__(kind, error, tb)
        self.progress.stop()
        self.estimate()  # a run stopped after a few steps still says what the whole would take
        if self.board is not None:
            self.board.close()

    def begin(self, *, step: int, end: int, rounds: tuple[Round, ...]) -> None:
        """Show where the run is."""
        self.end = end
        self.task = self.progress.add_task("train", total=end, completed=step, text="")
        self.first_step = step
        labels = f"{rounds[0].labels} -> {rounds[-1].labels}" if len(rounds) > 1 else f"{rounds[0].labels}"
        self.say(f"{self.run.folder}: step {step:,} of {end:,}, {labels} labels, {len(rounds)} rounds")

    def stepped(self, step: int, labels: int) -> None:
        """Move the line, a few times a second."""
        now = time.monotonic()
        if self.first is None and step - self.first_step >= WARM:
            self.first = (step, now)
        if self.first is None or step <= self.first[0]:
            return
        self.speed = speed = (step - self.first[0]) / (now - self.first[1])
        if now - self.first[1] > 5 or step - self.first[0] >= 20:
            self.estimate()
        if now - self.drawn > 0.2:
            self.drawn = now
            left = span((self.end - step) / speed)
            pace = f"{speed:.1f} steps/s" if speed >= 1 else f"{1 / speed:.1f} s/step"
            text = f"{step:,}/{self.end:,} {pace}, {left} left, {labels} labels {self.last}"
            self.progress.update(self.task, completed=step, text=text)

    def estimate(self) -> None:
        """Say once, from measured steps, how long the whole takes."""
        if self.told or not self.speed:
            return
        self.told = True
        import torch

        where = f"{torch.get_num_threads()} threads" if not torch.cuda.is_available() else "this device"
        steps = self.end - self.first_step
        self.say(
            f"{1 / self.speed:.2g} s per step on {where}: the {steps:,} steps to go take about {span(steps / self.speed)}, "
            f"without evaluations and queries. Ctrl-C stops at any time; go on with {self.again}"
        )

    def evaluated(self, row: dict[str, Any]) -> None:
        """Show the new numbers; say each warning once."""
        losses = ", ".join(f"{name} {value:.3g}" for name, value in row["loss"].items())
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.2f} %, "
        self.last = accuracy + losses  # the losses last: on a narrow terminal they are cut off first
        for warning in row["warnings"]:
            self.warn(warning)
        if self.board is not None:
            write_row(self.board, row)

    def say(self, message: str) -> None:
        """Print a line above the bar."""
        self.console.print(escape(message), highlight=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        """Print a line that stands out, once for each kind of warning."""
        kind = message.split(":")[0].lstrip("0123456789% ")
        if kind in self.seen:
            return
        self.seen.add(kind)
        self.console.print(f"[yellow]warning:[/] {escape(message)}", highlight=False, soft_wrap=True)


def span(seconds: float) -> str:
    """Say a duration in the unit a person would use."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def board(run: Run) -> Any:
    """Open TensorBoard's event file with the rows there are already."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("--tensorboard needs TensorBoard: pip install 'mma-learn[tensorboard]'") from None
    writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=0)
    for row in run.read("metrics"):
        write_row(writer, row)
    return writer


def write_row(writer: Any, row: dict[str, Any]) -> None:
    """Write one row of the metrics as TensorBoard scalars."""
    scalars = {f"loss/{name}": value for name, value in row["loss"].items()} | {"labels": row["labels"]}
    if row["accuracy"] is not None:
        scalars["accuracy"] = row["accuracy"]
    for name, value in scalars.items():
        writer.add_scalar(name, value, row["step"])
