"""`mma train` and `mma fork`: create a run, or go on with one, and train it to its end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from typer import Argument, Option

from mma.cli.terminal import Progress, talk, warn
from mma.errors import UserError
from mma.growth import Round
from mma.run import Run, Watch, check_vacant
from mma.shares import describe_accuracy
from mma.text import duration, install_hint, plural, printable

if TYPE_CHECKING:
    from mma.data import DataSet
    from mma.training.job import RunSetup
    from mma.training.processes import Group


WAITING = 3  # exit code of a run that waits for labels

Out = Annotated[Path | None, Option(help="Folder of a new run. Default: runs/PRESET-ALGORITHM-QUERY-seedN.")]
Settings = Annotated[list[str] | None, Option("--set", metavar="PATH=VALUE", help="Change a setting of a new run.")]
Photos = Annotated[Path | None, Option(metavar="DIR", help="A folder of photos to train on; never changed.")]
TestPhotos = Annotated[Path | None, Option(metavar="DIR", help="Photos to test on, in the same classes.")]
LabelsFrom = Annotated[Path | None, Option(metavar="RUN", help="Start a new run with the labels that another run has.")]
Until = Annotated[int | None, Option(min=1, metavar="STEP", help="Stop after this step; go on later.")]
Device = Annotated[str | None, Option(help="cpu, cuda, cuda:N, mps, or auto: as before, else cuda, mps or cpu.")]
Threads = Annotated[int | None, Option(min=1, help="CPU threads per process. Default: as before, or what suits.")]
Compile = Annotated[bool, Option("--compile", help="Compile the network (torch.compile): slow start, faster steps.")]
TensorBoard = Annotated[bool, Option("--tensorboard", help="Also write RUN/tensorboard (needs the extra tensorboard).")]
Inexact = Annotated[bool, Option("--inexact", help="Go on although host or versions changed.")]
Json = Annotated[bool, Option("--json", help="Print the outcome as JSON.")]


def train(
    target: Annotated[str, Argument(help="A preset (new run) or a run folder (go on with it).")],
    data: Photos = None,
    test: TestPhotos = None,
    labels_from: LabelsFrom = None,
    out: Out = None,
    settings: Settings = None,
    until: Until = None,
    device: Device = None,
    threads: Threads = None,
    compile: Compile = False,
    tensorboard: TensorBoard = False,
    inexact: Inexact = False,
    as_json: Json = False,
) -> None:
    """Train a preset, or go on with a run. Ctrl-C stops cleanly; the same command goes on where it stopped.

    On several devices:  torchrun --nproc-per-node N -m mma train ...

    Exit codes: 0 done, 3 waiting for labels, 130 stopped by Ctrl-C, 143 stopped by SIGTERM.
    """
    from mma.config import config_of
    from mma.data import load_data
    from mma.extensions import command
    from mma.training.host import Host
    from mma.training.job import choose_deep_preset
    from mma.training.loop import train as train_run

    on = Host(device, threads, compile or None)
    on.check()  # before a folder is made
    if tensorboard:
        require_tensorboard()
    if target == "photos-deep" and labels_from and not any(setting.startswith("net=") for setting in settings or []):
        target, why = choose_deep_preset(Run.open(labels_from))  # the one that the labels of the other run favour
        talk(f"{target}: {why}.")
    # The labels of the other run, unless settings say more.
    given = ["growth.start=1", "growth.budget=1"] if labels_from else []
    chosen = with_photos(target, data, test, [*given, *(settings or [])])
    loaded: list[RunSetup] = []  # what a new run was checked with
    with all_processes() as group:
        run = Run(Path(group.from_first(lambda: str(open_or_create(target, out, chosen, labels_from, loaded).folder))))
        again = f" {command()} train {quote(str(run.folder))}" if group.size == 1 else "the same torchrun command"
        with Live(run, again=again, tensorboard=tensorboard) if group.first else SignalWatch() as watch:
            setup = loaded[0] if loaded else None
            images = setup.data if setup else load_data(group.from_first(lambda: config_of(run).data.name))
            train_run(run, until=until, watch=watch, on=on, inexact=inexact, data=images, setup=setup)
        if group.first:
            report(run, images, again, as_json=as_json)
    # Of several processes, one that fails would make torchrun begin again; torchrun has a code of its own.
    if group.size == 1:
        raise typer.Exit(exit_code(run, watch.signal))


@contextmanager
def all_processes() -> Iterator[Group]:
    """Join the other processes of torchrun, if there are any. The first speaks; another says what it alone knows."""
    from mma.training.processes import OtherProcessFailed, joined

    with joined() as group:
        try:
            yield group
        except UserError as error:
            if group.first:
                raise
            if isinstance(error, OtherProcessFailed):
                group.wait_for_first()
                raise typer.Exit(1) from None
            raise UserError(f"rank {group.rank}: {error}") from error


def with_photos(target: str, folder: Path | None, test: Path | None, settings: list[str]) -> list[str]:
    """Read a folder of photos, if one is given, and return the settings with its name as the data set."""
    if folder is None:
        if test is not None:
            raise UserError("--test goes with --data: give the folder of photos to train on as well.")
        return settings
    from mma.cli.data import remarks
    from mma.config import change
    from mma.data import get_folder, photo_options
    from mma.presets import preset

    existing_run(target, changed=True)
    side = change(preset(target), settings).net.photo_side()
    found = get_folder(folder, photo_options(folder, test, side))
    for line in remarks(found) if os.environ.get("RANK", "0") == "0" else []:  # of several processes the first speaks
        talk(line)
    return [f"data.name={found.name}", *settings]


def existing_run(target: str, *, changed: bool) -> Run | None:
    """Open the run that `target` is, unless its settings are to be changed; None for a name that is no folder's."""
    from mma.presets import PRESETS

    if target in PRESETS or not Path(target).exists():
        return None
    run = Run.open(Path(target))
    if changed:
        raise UserError(
            f"{target} is a run, and a run keeps its settings. Go on with  mma train {quote(target)}  alone, or start a new "
            "run:  mma train PRESET --out NEW"
        )
    return run


def open_or_create(
    target: str, out: Path | None, settings: list[str], labels_from: Path | None, loaded: list[RunSetup]
) -> Run:
    """Open the run that `target` is, or create a new one from the preset it names; its setup is added to `loaded`."""
    from mma.config import change, config_of
    from mma.presets import preset
    from mma.training.job import new_run, prepare, with_labels_of

    if run := existing_run(target, changed=bool(settings or out or labels_from)):
        return run
    source = None if labels_from is None else Run.open(labels_from)
    config = change(preset(target), settings)
    config = config if source is None else with_labels_of(config, source)
    asks = config.query if config.growth.policy.name == "count" else config.growth.policy.name
    folder = out or Path("runs") / f"{config.preset}-{config.algorithm.name}-{asks}-seed{config.seed}"
    if (folder / "config.json").exists():
        run = Run.open(folder)
        if config_of(run) != config:
            raise UserError(
                f"{folder} holds a run with other settings. Choose another --out, or go on:  mma train {folder}"
            )
        return run
    check_vacant(folder)
    loaded.append(prepare(config, say=talk))
    return new_run(config, folder, labels_from=source, setup=loaded[0])


def report(run: Run, data: DataSet, again: str, *, as_json: bool) -> None:
    """Say on stdout how things stand, and how to go on."""
    from mma.training.ask import CANNOT_TELL, QUESTIONS

    summary = run.summary()
    if as_json:
        print(json.dumps(summary))
        return
    text = f"stopped at step {summary['step']:,} of {summary['steps']:,}. Go on with {again}"
    if summary["status"] == "waiting":
        fill_in = f"Fill in the column label of {run.folder / QUESTIONS} ({CANNOT_TELL} where you cannot tell)."
        text = f"waiting for {plural(len(run.unanswered()), 'label')}. {fill_in} Then go on with {again}"
    elif summary["status"] == "done":
        images = int(run.config()["data"]["validation"] or (data.test.labels >= 0).sum())  # that are tested
        text = f"done. {summary['labels']} labels; there is no test set to measure accuracy on."
        if summary["accuracy"] is not None:  # of the model that the run hands out
            tested, labels = f"step {summary['step']:,}, {images:,} test images", plural(summary["labels"], "label")
            text = f"done. {describe_accuracy(summary['accuracy'], images)} with {labels} (last model: {tested})."
            if summary["median_of"] > 1:
                text += f" Median of the last {summary['median_of']} evaluations: {summary['median_accuracy']:.2f} %."
    print(printable(f"{run.folder}: {text}"))


def exit_code(run: Run, signal: int | None) -> int:
    """Return 0 for a run that is done or reached --until, 128 + N for one stopped by signal N, 3 for one that waits."""
    status = run.status()
    if signal is not None and status != "done":
        return 128 + signal
    return WAITING if status == "waiting" else 0


def fork(
    source: Annotated[Path, Argument(help="The run to start from.")],
    budget: Annotated[int, Option(min=1, help="Labels the new run may buy.")],
    out: Annotated[Path, Option(help="Folder of the new run.")],
) -> None:
    """Make a run with another budget out of a run's stored states: what they share is not trained again."""
    from mma.extensions import command
    from mma.training.checkpoint import fork as fork_run

    step = fork_run(Run.open(source), out, budget)
    again = f"{command()} train {quote(str(out))}"
    print(printable(f"{out}: starts from step {step:,} of {source}. Train it with  {again}"))


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
        self.board = require_tensorboard()(str(run.folder / "tensorboard"), purge_step=0) if tensorboard else None
        for row in run.read("metrics") if tensorboard else []:  # the rows there are already
            self.write_scalars(row)
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
        few = f"{rounds[0].labels} -> " if len(rounds) > 1 else ""
        labels = few + plural(rounds[-1].labels, "label")
        self.say(f"{self.run.folder}: step {step:,} of {end:,}, {labels}, {plural(len(rounds), 'round')}")
        if step == 0 and (smaller := self.smaller_budgets(rounds)):
            keep = f"--set growth.budgets=[{','.join(map(str, smaller[:3]))}]"
            self.say(f"a run that  mma fork  can later make into one with fewer labels keeps their states:  {keep}")

    def smaller_budgets(self, rounds: tuple[Round, ...]) -> list[int]:
        """Return budgets that share steps with this run, which keeps no state that they could start from."""
        from mma.config import change, config_of
        from mma.training.checkpoint import shared_end

        config, kept = config_of(self.run), self.run.growth().kept_steps()
        budgets = [round.labels for round in rounds[1:-1]] if config.growth.policy.grows else []
        ends = {n: shared_end(config, change(config, [f"growth.budget={n}"])) for n in budgets}
        return [n for n, end in ends.items() if end and not any(step <= end for step in kept)]

    def stepped(self, step: int, labels: int) -> None:
        """Measure the speed and show the progress in one line."""

        def describe() -> str:
            pace = f"{self.speed:.1f} steps/s" if self.speed >= 1 else f"{1 / self.speed:.1f} s/step"
            left = duration((self.end - step) / self.speed)
            line = f"step {step:,}/{self.end:,}, {pace}, {left} left, {plural(labels, 'label')}"
            return f"{line}, {self.numbers}" if self.numbers else line

        now = time.monotonic()
        if self.clock_start is None and step - self.first_step >= WARM_UP:
            self.clock_start = (step, now)
        if self.clock_start is None or step <= self.clock_start[0]:
            return
        steps, seconds = step - self.clock_start[0], now - self.clock_start[1]
        self.speed = steps / seconds
        if seconds > 5 or steps >= 20:
            self.estimate()
        self.progress.update(step, self.end, describe)

    def estimate(self) -> None:
        """Say once, from measured steps, how long the whole takes."""
        if self.has_estimate or not self.speed:
            return
        self.has_estimate = True
        import torch

        where = f"{plural(torch.get_num_threads(), 'thread')}" if not torch.cuda.is_available() else "this device"
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
        self.write_scalars(row)

    def write_scalars(self, row: dict[str, Any]) -> None:
        """Write one row of the metrics for TensorBoard, if it is wanted."""
        found = {f"loss/{name}": value for name, value in row["loss"].items()}
        found |= {name: row[name] for name in ("labels", "accuracy") if row[name] is not None}
        if self.board is not None:
            for name, value in found.items():
                self.board.add_scalar(name, value, row["step"])

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
        raise UserError(f"--tensorboard needs TensorBoard:  {install_hint('tensorboard')}") from None
    return SummaryWriter
