"""`mma grid`: every table of the paper, or one of your own, as one command that can be interrupted at any time."""

from __future__ import annotations

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
    from mma.experiments.engines import Options
    from mma.experiments.grid import Cell, Grid
    from mma.experiments.plan import Plan

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
    from mma.experiments.engines import ENGINES, Options
    from mma.experiments.engines.worker import Means

    if engine not in ENGINES:
        raise ValueError(f"no engine '{engine}'. There are: {', '.join(ENGINES)}.")
    asked = {"--scale": scale, "--seeds": seeds, "--methods": methods, "--budgets": budgets}
    new, folder = find_or_make(target, asked, axes or [], settings or [], out)
    options = Options(Means(device, threads, inexact), workers, ray_address, ray_cpus, ray_gpus, ray_retries)
    if dry_run:
        show_plan(new, folder, options, as_json=as_json)
        return
    with stop_on_signals():
        carry_out(new, folder, engine, options)
    finish(folder, as_json=as_json)


def find_or_make(
    target: str, asked: dict[str, str | None], axes: list[str], settings: list[str], out: Path | None
) -> tuple[Grid, Path]:
    """Return the grid that the options describe, and its folder. Nothing is written yet."""
    from mma.experiments import make
    from mma.experiments.catalogue import EXPERIMENTS

    given = [name for name, value in asked.items() if value is not None]
    seeds, methods, budgets = asked["--seeds"], asked["--methods"], asked["--budgets"]
    if axes:
        wrong = [name for name in given if name != "--seeds"]
        if wrong:
            raise ValueError(f"{wrong[0]} belongs to an experiment's own table; with --axis every axis is yours.")
        new = make.from_axes(target, axes, settings, seeds)
    elif target in EXPERIMENTS:
        new = make.from_experiment(
            target, asked["--scale"], seeds=seeds, methods=methods, budgets=budgets, settings=settings
        )
    elif Path(target).is_dir():
        return as_it_is(target, changed=bool(given or settings or out)), Path(target)
    else:
        raise ValueError(make.unknown(target))
    return new, out or make.default_folder(new)


def as_it_is(target: str, *, changed: bool) -> Grid:
    """Open a grid to go on with it; options that would change it are refused."""
    from mma.experiments import grid as grids

    if changed:
        raise ValueError(
            f"{target} is a grid, and a grid goes on as it is. Add to it with the command that made it and --out {target}."
        )
    return grids.read(Path(target))


def carry_out(new: Grid, folder: Path, name: str, options: Options) -> None:
    """Do what is missing. The folder is ours alone while this lasts."""
    from mma.cli.board import Board
    from mma.data import load
    from mma.experiments import grid as grids
    from mma.experiments.engines import engine, finish_all
    from mma.experiments.plan import plan
    from mma.experiments.report.write import remember

    load(new.base["data"]["name"])  # says how to get the data, before a hundred runs fail to find it
    with grids.locked(folder):
        whole = grids.adopt(folder, new)
        remember(folder, command())
        todo = plan(whole, folder, wanted(whole, new))
        failures = grids.read_failures(folder)

        def ended(place: Path, why: str | None) -> None:
            note(folder, failures, place, why)
            board.ended(place, why)

        with Board(todo) as board:
            if todo.todo:
                finish_all([entry.job for entry in todo.todo], engine(name, options), board.tick, ended)


def note(folder: Path, failures: dict[str, str], place: Path, why: str | None) -> None:
    """Write down why a run failed, or forget why it once did."""
    from mma.experiments import grid as grids

    key = str(place.relative_to(folder))
    failures.pop(key, None)
    if why is not None:
        failures[key] = why
    grids.write_failures(folder, failures)


def wanted(whole: Grid, new: Grid) -> list[Cell]:
    """Return the cells that this command is about: all of the folder's when it was started by its folder."""
    return sorted({cell for request in new.requests for cell in whole.cells(request)}, key=whole.cells().index)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Turn SIGTERM into Ctrl-C, and Ctrl-C into a sentence: everything is stored, and the same command goes on."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nstopped; every run is stored as far as it came. Go on with  {command()}", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def command() -> str:
    """Return the command line as it was typed."""
    return shlex.join(["mma", *sys.argv[1:]])


def finish(folder: Path, *, as_json: bool) -> None:
    """Write the report, print the table, and list what failed with the way to try again."""
    from mma.experiments import grid as grids
    from mma.experiments.report import tables
    from mma.experiments.report.collect import from_grid
    from mma.experiments.report.write import LABELED_VS_UNLABELED, for_cost, write_all
    from mma.run import write_whole

    found = from_grid(folder)
    write_all(found, folder / "report", f"mma report {folder}")
    if found.by_total:
        write_whole(folder / LABELED_VS_UNLABELED, for_cost(found))
    print(tables.FORMATS["json" if as_json else "md"](tables.table(found)))
    failures = grids.read_failures(folder)
    for place, why in failures.items():
        print(f"failed: {folder / place}: {why}\n  try it alone:  mma train {folder / place}", file=sys.stderr)
    print(f"report: {folder}/report/report.html   statistics: mma report {folder}", file=sys.stderr)
    if failures:
        print(f"{len(failures)} runs failed; the others are done. Try again with  {command()}", file=sys.stderr)
        raise typer.Exit(1)


def show_plan(new: Grid, folder: Path, options: Options, *, as_json: bool) -> None:
    """Print what would be run."""
    import json

    from mma.cli.board import plan_rows, print_plan
    from mma.experiments import grid as grids
    from mma.experiments.estimate import costs
    from mma.experiments.plan import plan

    whole = grids.merged(grids.read(folder), new, folder) if (folder / grids.FILE).exists() else new
    made: Plan = plan(whole, folder, wanted(whole, new))
    found, speeds = costs(made, options.means)
    if as_json:
        print(json.dumps(plan_rows(made, found), indent=1))
    else:
        print_plan(made, found, speeds, options)
