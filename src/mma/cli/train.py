"""`mma train` and `mma fork`: create a run, or go on with one, and train it to its end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from mma.interval import describe_accuracy
from mma.text import printable

if TYPE_CHECKING:
    from mma.data import DataSet
    from mma.files import Row
    from mma.run import Run
    from mma.training.ranks import Ranks

WAITING = 3  # exit code of a run that waits for labels

Target = Annotated[str, typer.Argument(help="A preset (new run) or a run folder (go on with it).")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder of a new run. Default: runs/PRESET-ALGORITHM-QUERY-seedN.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change a setting of a new run.")
]
Photos = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="A folder of photos to train on; it is read, never changed."),
]
TestPhotos = Annotated[
    Path | None,
    typer.Option("--test", metavar="DIR", help="Photos to test on, in the same classes as those of --data."),
]
LabelsFrom = Annotated[
    Path | None,
    typer.Option("--labels-from", metavar="RUN", help="Start a new run with the labels that another run has."),
]
Until = Annotated[int | None, typer.Option("--until", min=1, metavar="STEP", help="Stop after this step; go on later.")]
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N. Default: as before, else cpu.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="CPU threads per process. Default: as before, else what suits the network."),
]
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile the network (torch.compile): slow start, faster steps.")
]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Also write RUN/tensorboard (needs mma-learn[tensorboard]).")
]
Inexact = Annotated[bool, typer.Option("--inexact", help="Go on although host or versions changed.")]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]


def train(
    target: Target,
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
    from mma.cli.live import Live, SignalWatch, require_tensorboard
    from mma.config import config_of
    from mma.data import load_data
    from mma.extensions import command
    from mma.run import Run
    from mma.training.host import Host
    from mma.training.loop import train as train_run

    on = Host(device, threads, compile or None)
    on.check()  # before a folder is made
    if tensorboard:
        require_tensorboard()
    target = suitable_preset(target, labels_from, settings or [])
    given = (
        ["growth.start=1", "growth.budget=1"] if labels_from else []
    )  # those of the other run, unless settings say more
    chosen = with_photos(target, data, test, [*given, *(settings or [])])
    with team() as ranks:
        run = Run(Path(ranks.from_first_rank(lambda: str(open_or_create(target, out, chosen, labels_from).folder))))
        again = f" {command()} train {quote(str(run.folder))}" if ranks.size == 1 else "the same torchrun command"
        with Live(run, again=again, tensorboard=tensorboard) if ranks.first else SignalWatch() as watch:
            images = load_data(ranks.from_first_rank(lambda: config_of(run).data.name))
            train_run(run, until=until, watch=watch, on=on, inexact=inexact, data=images, ranks=ranks)
        if ranks.first:
            report(run, images, again, as_json=as_json)
    # Of several processes, one that fails would make torchrun begin again; torchrun has a code of its own.
    if ranks.size == 1:
        raise typer.Exit(exit_code(run, watch.signal))


@contextmanager
def team() -> Iterator[Ranks]:
    """Join the other processes of torchrun, if there are any. The first speaks; another says what it alone knows."""
    from mma.training.ranks import Elsewhere, joined

    with joined() as ranks:
        try:
            yield ranks
        except ValueError as error:
            if ranks.first:
                raise
            if isinstance(error, Elsewhere):
                ranks.wait_for_first()
                raise typer.Exit(1) from None
            raise ValueError(f"rank {ranks.rank}: {error}") from error


def suitable_preset(target: str, labels_from: Path | None, settings: list[str]) -> str:
    """Return the preset that the labels of another run favour, where the user leaves the choice to us."""
    if target != "photos-deep" or labels_from is None or any(setting.startswith("net=") for setting in settings):
        return target
    from mma.cli.terminal import talk
    from mma.run import Run
    from mma.training.given import choose_deep_preset

    chosen, why = choose_deep_preset(Run.open(labels_from))
    talk(f"{chosen}: {why}.")
    return chosen


def with_photos(target: str, folder: Path | None, test: Path | None, settings: list[str]) -> list[str]:
    """Read a folder of photos, if one is given, and return the settings with its name as the data set."""
    if folder is None:
        if test is not None:
            raise ValueError("--test goes with --data: give the folder of photos to train on as well.")
        return settings
    from mma.cli.data import remarks
    from mma.cli.terminal import talk
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
    from mma.run import Run

    if target in PRESETS or not Path(target).exists():
        return None
    run = Run.open(Path(target))
    if changed:
        raise ValueError(
            f"{target} is a run, and a run keeps its settings. Go on with  mma train {quote(target)}  alone, or start a new "
            "run:  mma train PRESET --out NEW"
        )
    return run


def open_or_create(target: str, out: Path | None, settings: list[str], labels_from: Path | None = None) -> Run:
    """Open the run that `target` is, or create a new one from the preset it names."""
    from mma.cli.terminal import talk
    from mma.config import change, config_of
    from mma.presets import preset
    from mma.run import Run
    from mma.training.begin import new_run
    from mma.training.given import with_labels_of

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
            raise ValueError(
                f"{folder} holds a run with other settings. Choose another --out, or go on:  mma train {folder}"
            )
        return run
    return new_run(config, folder, say=talk, labels_from=source)


def report(run: Run, data: DataSet, again: str, *, as_json: bool) -> None:
    """Say on stdout how things stand, and how to go on."""
    summary = run.summary()
    if as_json:
        print(json.dumps(summary))
        return
    match summary["status"]:
        case "done":
            text = f"done. {result(summary, count_test_images(run, data))}"
        case "waiting":
            text = f"waiting for {len(run.unanswered())} labels. {how_to_answer(run)} Then go on with {again}"
        case _:
            text = f"stopped at step {summary['step']:,} of {summary['steps']:,}. Go on with {again}"
    print(printable(f"{run.folder}: {text}"))


def how_to_answer(run: Run) -> str:
    """Say where to write the labels that a run waits for."""
    from mma.training.oracle import CANNOT_TELL, QUESTIONS

    return f"Fill in the column label of {run.folder / QUESTIONS} ({CANNOT_TELL} where you cannot tell)."


def result(summary: Row, images: int) -> str:
    """Return the result of a finished run in a sentence: the accuracy of the model it hands out."""
    labels = summary["labels"]
    if summary["accuracy"] is None:
        return f"{labels} labels; there is no test set to measure accuracy on."
    at = f"step {summary['step']:,}, {images:,} test images"
    return f"{describe_accuracy(summary['accuracy'], images)} with {labels} labels ({at})."


def count_test_images(run: Run, data: DataSet) -> int:
    """Return the number of images that accuracy is measured on."""
    return int(run.config()["data"]["validation"] or (data.test.labels >= 0).sum())


def exit_code(run: Run, signal: int | None) -> int:
    """Return 0 for a run that is done or reached --until, 128 + N for one stopped by signal N, 3 for one that waits."""
    status = run.status()
    if signal is not None and status != "done":
        return 128 + signal
    return WAITING if status == "waiting" else 0


def fork(
    source: Annotated[Path, typer.Argument(help="The run to start from.")],
    budget: Annotated[int, typer.Option("--budget", min=1, help="Labels the new run may buy.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the new run.")],
) -> None:
    """Make a run with another budget out of a run's stored states: what they share is not trained again."""
    from mma.run import Run
    from mma.training.fork import fork as fork_run

    step = fork_run(Run.open(source), out, budget)
    print(printable(f"{out}: starts from step {step:,} of {source}. Train it with  mma train {quote(str(out))}"))
