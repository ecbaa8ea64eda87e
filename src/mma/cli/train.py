"""`mma train` and `mma fork`: make a run and bring it to its end, from wherever it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mma.run import Run
    from mma.training.ranks import Ranks

Target = Annotated[str, typer.Argument(help="A preset (new run) or a run folder (go on with it).")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder of a new run. Default: runs/PRESET-ALGORITHM-QUERY-seedN.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change a setting of a new run.")
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
    """
    from mma.cli.live import Live, Stoppable
    from mma.data import load
    from mma.run import Run
    from mma.training.host import Host
    from mma.training.loop import train as train_run
    from mma.training.oracle import DatasetLabels

    on = Host(device, threads, compile or None)
    on.check()  # before a folder is made
    with together() as ranks:
        run = Run(Path(ranks.told(lambda: str(find_or_make(target, out, settings or []).folder))))
        again = f" mma train {run.folder}" if ranks.size == 1 else "the same torchrun command"
        with Live(run, again=again, tensorboard=tensorboard) if ranks.first else Stoppable() as live:
            data = load(ranks.told(run.config)["data"]["name"])
            train_run(
                run, DatasetLabels(data.train), until=until, watch=live, on=on, inexact=inexact, data=data, ranks=ranks
            )
        if ranks.first:
            report(run, again, as_json=as_json)


@contextmanager
def together() -> Iterator[Ranks]:
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


def find_or_make(target: str, out: Path | None, settings: list[str]) -> Run:
    """Open the run that `target` is, or make a new one from the preset it names."""
    from mma.config import change, from_json
    from mma.presets import PRESETS, preset
    from mma.run import Run

    if target not in PRESETS and Path(target).exists():
        run = Run.open(Path(target))
        if settings or out:
            raise ValueError(
                f"{target} is a run, and a run keeps its settings. Start a new one:  mma train PRESET --set ..."
            )
        return run
    config = change(preset(target), settings)
    folder = out or Path("runs") / f"{config.preset}-{config.algorithm.name}-{config.query}-seed{config.seed}"
    if (folder / "config.json").exists():
        run = Run.open(folder)
        if from_json(run.config()) != config:
            raise ValueError(
                f"{folder} holds a run with other settings. Choose another --out, or go on:  mma train {folder}"
            )
        return run
    return Run.create(folder, config.model_dump(mode="json"))


def report(run: Run, again: str, *, as_json: bool) -> None:
    """Say on stdout how things stand, and how to go on."""
    summary = run.summary()
    if as_json:
        print(json.dumps(summary))
        return
    match summary["status"]:
        case "done":
            print(f"{run.folder}: done. {verdict(run)}")
        case "waiting":
            print(f"{run.folder}: waiting for {len(run.unanswered())} labels. Then go on with {again}")
        case _:
            print(f"{run.folder}: stopped at step {summary['step']:,} of {summary['steps']:,}. Go on with {again}")


def verdict(run: Run) -> str:
    """Say the result of a finished run in a sentence."""
    labels = sum(row["label"] >= 0 for row in run.read("labels"))
    match run.result():
        case None:
            return f"{labels} labels; there is no test set to measure accuracy on."
        case accuracy, count:
            return f"{accuracy:.2f} % accuracy with {labels} labels (median of the last {count} evaluations)."


def fork(
    source: Annotated[Path, typer.Argument(help="The run to start from.")],
    budget: Annotated[int, typer.Option("--budget", min=1, help="Labels the new run may buy.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the new run.")],
) -> None:
    """Make a run with another budget out of a run's stored states: what they share is not trained again."""
    from mma.run import Run
    from mma.training.fork import fork as fork_run

    step = fork_run(Run.open(source), out, budget)
    print(f"{out}: starts from step {step:,} of {source}. Train it with  mma train {out}")
