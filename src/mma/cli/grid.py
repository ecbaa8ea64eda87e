"""`mma grid`: every table of the paper, or one of your own, as one command that can be interrupted at any time."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mma.cli.train import Device, Inexact, Json, Settings
from mma.machine import cores

if TYPE_CHECKING:
    from mma.experiments.design import Grid
    from mma.experiments.engines import EngineOptions
    from mma.experiments.report.results import Results

Target = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="An experiment, a preset with --axis, or a grid folder.")
]
Scale = Annotated[str | None, typer.Option(help="paper, or lab: what two cores can do. Default: paper if it has that.")]
Seeds = Annotated[str | None, typer.Option(metavar="N|A..B", help="Repetitions: 5 means seeds 1 to 5.")]
Methods = Annotated[str | None, typer.Option(metavar="A,B", help="Only these rows of the table.")]
Budgets = Annotated[str | None, typer.Option(metavar="N,M", help="Other label budgets than the table's.")]
Axes = Annotated[
    list[str] | None,
    typer.Option(
        "--axis", metavar="PATH=VALUES", help="Vary a setting of a preset: query=random,max-direct seed=1..5."
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        "--features", metavar="BACKBONE", help="A table of the paper on features of this backbone: lite0, hog."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="The grid's folder. Default: grids/EXPERIMENT-SCALE.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan, with time and disk on this machine, and stop.")
]
EngineName = Annotated[
    str, typer.Option("--engine", help="local (processes here) or ray (a cluster; needs mma-learn[ray]).")
]
Workers = Annotated[int, typer.Option(min=1, help="Runs at a time on this machine.")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads of each new run.")]
Address = Annotated[str | None, typer.Option("--ray-address", help="Of a Ray cluster. Default: start one here.")]
Cpus = Annotated[float, typer.Option("--ray-cpus", min=0.0, help="CPUs of each Ray task.")]
Gpus = Annotated[float, typer.Option("--ray-gpus", min=0.0, help="GPUs of each Ray task.")]
Retries = Annotated[int, typer.Option("--ray-retries", min=0, help="Times a task is begun again when its node dies.")]


def grid(
    target: Target,
    scale: Scale = None,
    seeds: Seeds = None,
    methods: Methods = None,
    budgets: Budgets = None,
    axes: Axes = None,
    settings: Settings = None,
    features: Backbone = None,
    out: Out = None,
    dry_run: DryRun = False,
    engine: EngineName = "local",
    workers: Workers = cores(),
    device: Device = None,
    threads: Threads = 1,
    inexact: Inexact = False,
    ray_address: Address = None,
    ray_cpus: Cpus = 1.0,
    ray_gpus: Gpus = 0.0,
    ray_retries: Retries = 10,
    as_json: Json = False,
) -> None:
    """Run an experiment: many runs, shared trunks, one table. The same command goes on after any interruption."""
    from mma.experiments.axes import read_axes
    from mma.experiments.engines import EngineOptions, check_engine
    from mma.experiments.engines.worker import TrainingOptions
    from mma.experiments.run import find_or_open, write_report

    check_engine(engine)
    new, folder = find_or_open(
        target, out, scale=scale, seeds=seeds, methods=methods, budgets=budgets,
        axes=read_axes(axes or []), settings=settings or [], features=features,
    )  # fmt: skip
    training = TrainingOptions(device, threads, inexact)
    options = EngineOptions(training, workers, ray_address, ray_cpus, ray_gpus, ray_retries)
    if dry_run:
        show_plan(new, folder, options, as_json=as_json)
        return
    train(new, folder, engine, options)
    show_results(write_report(folder), folder, as_json=as_json)


def train(new: Grid, folder: Path, engine: str, options: EngineOptions) -> None:
    """Train what is missing, with a live table on a terminal and plain lines elsewhere."""
    from mma.cli.board import progress
    from mma.experiments.run import train_missing

    with stop_on_signals():
        train_missing(new, folder, engine, options, progress(), command())


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """End with a sentence after Ctrl-C (code 130) or SIGTERM (code 143), when every run's state is stored."""

    def terminate(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt as stop:
        print(f"\nstopped; the state of every run is stored. Go on with  {command()}", file=sys.stderr)
        raise typer.Exit(143 if isinstance(stop, Terminated) else 130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def command() -> str:
    """Return the command line as it was typed."""
    return shlex.join(["mma", *sys.argv[1:]])


def show_results(found: Results, folder: Path, *, as_json: bool) -> None:
    """Print the table, and list what failed with the way to try again."""
    from mma.experiments.folder import read_failures

    table = found.table()
    print(table.as_json() if as_json else table.as_markdown())
    failures = read_failures(folder)
    for place, why in failures.items():
        print(f"failed: {folder / place}: {why}\n  try it alone:  mma train {folder / place}", file=sys.stderr)
    print(f"report: {folder}/report/report.html   statistics: mma report {folder}", file=sys.stderr)
    if failures:
        print(f"{len(failures)} runs failed; the others are done. Try again with  {command()}", file=sys.stderr)
        raise typer.Exit(1)


def show_plan(new: Grid, folder: Path, options: EngineOptions, *, as_json: bool) -> None:
    """Print what would be run."""
    from mma.cli.board import plan_rows, plan_text
    from mma.experiments.estimate import costs
    from mma.experiments.run import plan_request

    plan = plan_request(new, folder)
    found, speeds = costs(plan, options.training)
    print(json.dumps(plan_rows(plan, found), indent=1) if as_json else plan_text(plan, found, speeds, options.workers))
