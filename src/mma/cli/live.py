"""What a person sees while a run trains: a bar on a terminal, plain lines elsewhere. All on stderr."""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType
from typing import Any, Self

from mma.cli.terminal import Progress, talk, warn
from mma.growth import Round
from mma.run import Run
from mma.text import duration
from mma.training.watch import Watch

WARM_UP = 1  # steps before the clock starts: the first one allocates
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalWatch(Watch):
    """Stops a run, with its state stored, on Ctrl-C or SIGTERM."""

    signal: int | None = None  # the one that asked to stop

    def __enter__(self) -> Self:
        self.handlers = {number: signal.signal(number, self.handle) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Stop after this step the first time; at once the second time (as safe, but the last steps are lost)."""
        if self.stop and number == signal.SIGTERM:
            return  # a scheduler and torchrun may both send it
        if self.stop:
            raise KeyboardInterrupt
        self.stop, self.signal = True, number
        self.say("stopping after this step; once more to stop at once")


class Live(SignalWatch):
    """Shows progress, new numbers, each warning once, and an estimate of the time from measured steps."""

    def __init__(self, run: Run, *, again: str, tensorboard: bool = False) -> None:
        self.run, self.again = run, again
        self.board = open_board(run) if tensorboard else None
        self.progress = Progress()
        self.clock_start: tuple[int, float] | None = None  # step and time
        self.end, self.numbers, self.speed, self.has_estimate = 0, "", 0.0, False
        self.warnings: set[str] = set()

    def __enter__(self) -> Self:
        self.progress.__enter__()
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        super().__exit__(kind, error, tb)
        self.progress.__exit__(kind, error, tb)
        self.estimate()  # a run stopped after a few steps still says what the whole would take
        if self.board is not None:
            self.board.close()

    def begin(self, *, step: int, end: int, rounds: tuple[Round, ...]) -> None:
        """Show where the run is."""
        self.end, self.first_step = end, step
        labels = f"{rounds[0].labels} -> {rounds[-1].labels}" if len(rounds) > 1 else f"{rounds[0].labels}"
        self.say(f"{self.run.folder}: step {step:,} of {end:,}, {labels} labels, {len(rounds)} rounds")

    def stepped(self, step: int, labels: int) -> None:
        """Measure the speed and show the progress."""
        now = time.monotonic()
        if self.clock_start is None and step - self.first_step >= WARM_UP:
            self.clock_start = (step, now)
        if self.clock_start is None or step <= self.clock_start[0]:
            return
        steps, seconds = step - self.clock_start[0], now - self.clock_start[1]
        self.speed = steps / seconds
        if seconds > 5 or steps >= 20:
            self.estimate()
        self.progress.update(step, self.end, lambda: self.describe(step, labels))

    def describe(self, step: int, labels: int) -> str:
        """Return where the run is, in one line."""
        pace = f"{self.speed:.1f} steps/s" if self.speed >= 1 else f"{1 / self.speed:.1f} s/step"
        left = duration((self.end - step) / self.speed)
        line = f"step {step:,}/{self.end:,}, {pace}, {left} left, {labels} labels"
        return f"{line}, {self.numbers}" if self.numbers else line

    def estimate(self) -> None:
        """Say once, from measured steps, how long the whole takes."""
        if self.has_estimate or not self.speed:
            return
        self.has_estimate = True
        import torch

        where = f"{torch.get_num_threads()} threads" if not torch.cuda.is_available() else "this device"
        steps = self.end - self.first_step
        self.say(
            f"{1 / self.speed:.2g} s per step on {where}: the {steps:,} steps to go take about {duration(steps / self.speed)}, "
            f"without evaluations and queries. Ctrl-C stops at any time; go on with {self.again}"
        )

    def evaluated(self, row: dict[str, Any]) -> None:
        """Show the new numbers and warnings."""
        losses = ", ".join(f"{name} {value:.3g}" for name, value in row["loss"].items())
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.2f} % accuracy, "
        self.numbers = accuracy + losses  # the losses last: on a narrow terminal they are cut off first
        for warning in row["warnings"]:
            self.warn(warning)
        if self.board is not None:
            write_row(self.board, row)

    def say(self, message: str) -> None:
        """Print a line above the bar."""
        talk(message)

    def warn(self, message: str) -> None:
        """Print a warning, once for each kind."""
        kind = message.split(":")[0].lstrip("0123456789% ")
        if kind not in self.warnings:
            self.warnings.add(kind)
            warn(message)


def require_tensorboard() -> Any:
    """Return TensorBoard's writer class, or say how to install it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("--tensorboard needs TensorBoard: pip install 'mma-learn[tensorboard]'") from None
    return SummaryWriter


def open_board(run: Run) -> Any:
    """Open TensorBoard's event file with the rows there are already."""
    writer = require_tensorboard()(str(run.folder / "tensorboard"), purge_step=0)
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
