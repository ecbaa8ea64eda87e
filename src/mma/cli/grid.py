"""`mma grid`: every table of the paper, or one of your own, as one command that can be interrupted at any time."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mma.cli.terminal import console, is_terminal
from mma.cli.train import Device, Inexact, Json, Settings
from mma.errors import UserError
from mma.experiments.progress import GridProgress, PlainProgress
from mma.machine import cores
from mma.run import Run
from mma.text import duration, printable

if TYPE_CHECKING:
    from mma.experiments.engines import EngineOptions
    from mma.experiments.estimate import RunCost, Speed
    from mma.experiments.grids import Grid, GridCell
    from mma.experiments.plan import GridPlan, PlannedRun
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
    str, typer.Option("--engine", help="local (processes here) or ray (a cluster; needs the extra ray).")
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
    from mma.experiments.engines import EngineOptions, check_engine
    from mma.experiments.options import GridOptions, read_axes
    from mma.experiments.run import find_or_open, write_report
    from mma.experiments.worker import TrainingOptions

    check_engine(engine)
    wanted = GridOptions(target, read_axes(axes or []), settings or (), seeds, methods, budgets, scale, features)
    new, folder = find_or_open(wanted, out)
    training = TrainingOptions(device, threads, inexact)
    options = EngineOptions(training, workers, ray_address, ray_cpus, ray_gpus, ray_retries)
    if dry_run:
        show_plan(new, folder, options, as_json=as_json)
        return
    train(new, folder, engine, options)
    show_results(write_report(folder), folder, as_json=as_json)


def train(new: Grid, folder: Path, engine: str, options: EngineOptions) -> None:
    """Train what is missing, with a live table on a terminal and plain lines elsewhere."""
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
    from mma.experiments.grids import read_failures

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
    from mma.experiments.estimate import costs
    from mma.experiments.run import plan_request

    plan = plan_request(new, folder)
    found, speeds = costs(plan, options.training)
    print(json.dumps(plan_rows(plan, found), indent=1) if as_json else plan_text(plan, found, speeds, options.workers))


# What a person sees of a grid: the plan before, a live table while it runs, plain lines where there is no terminal.

HEADINGS = ("method", "images", "labels", "runs", "seeds", "shares", "steps of one", "to train", "time of one")
LEFT = {"method", "seeds", "shares"}  # columns of words


def progress() -> GridProgress:
    """Return a live table for a terminal, plain lines for anything else."""
    return Board(console()) if is_terminal(sys.stderr) else PlainProgress()


class Board(GridProgress):
    """Draws a live table: one line per method, and one per run that is under way."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, auto_refresh=False, transient=True)

    def begin(self, plan: GridPlan) -> None:
        """Say what there is to do, and start drawing."""
        super().begin(plan)
        self.accuracies = {folder: self.accuracy(folder) for folder in self.done}
        self.console.print(escape(printable(self.first_line())), soft_wrap=True)
        self.live.start()

    def end_run(self, folder: Path, why: str | None) -> None:
        """Say how a run ended."""
        super().end_run(folder, why)
        self.accuracies[folder] = None if why else self.accuracy(folder)
        line = escape(printable(f"  {self.end_line(folder, why)}"))
        self.console.print(f"[red]{line}[/]" if why else line, soft_wrap=True)

    def update(self, running: set[Path]) -> None:
        """Draw the table anew."""
        self.look(running)
        self.live.update(self.draw(), refresh=True)

    def close(self) -> None:
        """Stop drawing."""
        self.live.stop()

    def accuracy(self, folder: Path) -> float | None:
        """Return what a finished run reached."""
        found = Run(folder).median_accuracy()
        return found[0] if found else None

    def draw(self) -> Group:
        """Return the table."""
        methods = Table(box=None, padding=(0, 1, 0, 0))
        for heading in ("method", "done", "", "accuracy so far, %"):
            methods.add_column(heading, header_style="bold")
        for method, group in groupby(self.plan.runs, lambda run: run.cell.method):
            methods.add_row(*self.method_line(method, list(group)))
        runs = [Text(f"  {self.run_text(folder)}", style="cyan") for folder in self.running]
        return Group(methods, *runs, Text(self.remaining(), style="dim"))

    def method_line(self, method: str, runs: list[PlannedRun]) -> tuple[Any, ...]:
        """Describe one method's runs."""
        folders = [run.task.folder for run in runs]
        done = [folder for folder in folders if folder in self.done]
        failures = sum(folder in self.failed for folder in folders)
        values = [value for folder in done if (value := self.accuracies.get(folder)) is not None]
        mean = f"{sum(values) / len(values):.2f}" if values else ""
        count = f"{len(done)}/{len(folders)}" + (f" [red]{failures} failed[/]" if failures else "")
        return escape(method), count, ProgressBar(total=len(folders), completed=len(done), width=20), mean


def plan_rows(plan: GridPlan, costs: Mapping[GridCell, RunCost]) -> dict[str, Any]:
    """Return the plan run by run, for programs."""
    runs = [
        {
            **vars(run.cell),
            "run": str(run.task.folder),
            "role": run.role,
            "status": run.status,
            "first step": run.begin,
            "last step": run.end,
            "seconds": round(0.0 if run.status == "done" else costs[run.cell].seconds, 1),
            "bytes": costs[run.cell].bytes,
        }
        for run in plan.runs
    ]
    steps = {"alone": plan.steps_alone, "shared": plan.steps_shared, "left": plan.steps_left}
    return {"experiment": plan.grid.experiment, "scale": plan.grid.scale, "steps": steps, "runs": runs}


def plan_text(plan: GridPlan, costs: Mapping[GridCell, RunCost], speeds: Mapping[str, Speed], workers: int) -> str:
    """Return the plan: a line per method and budget, then the sums. Never wrapped or cut."""
    groups = groupby(plan.runs, lambda run: (run.cell.method, run.cell.total, run.cell.budget))
    lines = [plan_line(list(group), plan, costs) for _, group in groups]
    return "\n".join([*align([HEADINGS, *lines]), *plan_totals(plan, costs, speeds, workers)])


def align(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of words as lines of text: words on the left of their column, numbers on the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = ["<" if heading in LEFT else ">" for heading in lines[0]]
    texts = [[f"{part:{side}{width}}" for part, side, width in zip(line, sides, widths, strict=True)] for line in lines]
    return ["  ".join(parts).rstrip() for parts in texts]


def plan_line(runs: list[PlannedRun], plan: GridPlan, costs: Mapping[GridCell, RunCost]) -> tuple[str, ...]:
    """Describe the seeds of one method and budget."""
    first, left = runs[0], [run for run in runs if run.status != "done"]
    share = {"tail": f"from step {first.begin:,}", "trunk": "trunk", "alone": "-"}[first.role]
    return (
        first.cell.method,
        f"{plan.grid.total_of(first.cell):,}",
        f"{first.cell.budget:,}",
        f"{len(left)} of {len(runs)}" if 0 < len(left) < len(runs) else str(len(runs)),
        seeds_text([run.cell.seed for run in runs]),
        share if left else "done",
        f"{first.end:,}",
        f"{max((run.steps for run in left), default=0):,}",
        duration(max((costs[run.cell].seconds for run in left), default=0.0)),
    )


def seeds_text(seeds: list[int]) -> str:
    """Write seeds as a range where they are one."""
    full = seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}..{seeds[-1]}" if full else ",".join(map(str, seeds))


def plan_totals(
    plan: GridPlan, costs: Mapping[GridCell, RunCost], speeds: Mapping[str, Speed], workers: int
) -> list[str]:
    """Return what all of it costs, and what that rests on."""
    seconds = sum(costs[run.cell].seconds for run in plan.todo)
    rough = any(not speed.full_batch for speed in speeds.values())
    basis = "a few steps of each kind of run" + (", with small batches where full ones are slow" if rough else "")
    return [
        f"{len(plan.runs)} runs ({len(plan.runs) - len(plan.todo)} done), {plan.steps_left:,} steps to train.",
        sharing_text(plan),
        f"About {duration(seconds)} on one worker, {duration(seconds / workers)} on {workers}, measured here "
        f"with {basis}; about {size_text(sum(cost.bytes for cost in costs.values()))} on disk.",
        *long_ramps(plan),
    ]


def long_ramps(plan: GridPlan) -> list[str]:
    """Return a note for every algorithm whose unlabeled weight would still rise when its run ends."""
    notes = []
    for run in {run.config.algorithm.name: run for run in plan.runs}.values():
        ramp = getattr(run.config.algorithm, "ramp", 0)
        if ramp > run.end:
            notes.append(
                f"Note: the unlabeled weight of {run.config.algorithm.name} rises over {ramp:,} steps, longer than the run "
                f"of {run.end:,}: set algorithm.ramp."
            )
    return notes


def sharing_text(plan: GridPlan) -> str:
    """Say what shared trunks save, in all and among the runs that can share."""
    saved = plan.steps_alone - plan.steps_shared
    if not saved:
        return "Nothing is shared: every method has one budget, or draws it at the start."
    alone = sum(run.end for run in plan.runs if run.config.growth.policy.grows)
    return (
        f"Each alone: {plan.steps_alone:,} steps. With shared trunks: {plan.steps_shared:,}, a factor of "
        f"{plan.steps_alone / plan.steps_shared:.2f}; among the runs that grow {alone:,} and {alone - saved:,}, a factor of "
        f"{alone / (alone - saved):.2f}."
    )


def size_text(count: int) -> str:
    """Write a number of bytes in the unit a person would use."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


# `mma report`: tables, statistics, plots and one page about a grid or about exported results.


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A grid folder, or a folder of results with runs.csv.")],
    format: Annotated[str, typer.Option("--format", help="md (with statistics), csv, latex or json.")] = "md",
    plots: Annotated[bool, typer.Option("--plots", help="Draw the plots into DIR/report.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Write plots and the page DIR/report/report.html.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write everything into this folder.")] = None,
) -> None:
    """Print the table and statistics; write plots and a page that needs nothing else."""
    from mma.experiments.report.results import collect
    from mma.experiments.report.tables import FORMATS
    from mma.experiments.report.write import as_text, write_all, write_pictures

    if format not in FORMATS:
        raise UserError(f"no format '{format}'. There are: {', '.join(FORMATS)}.")
    found = collect(folder)
    paths: list[Path] = []
    if out is not None:
        paths = write_all(found, out, command())
    elif plots or html:
        paths = write_pictures(found, folder / "report", page_too=html)
    print(as_text(found) if format == "md" else FORMATS[format](found.table()), end="")
    for path in paths:
        print(f"wrote {path}", file=sys.stderr)


# `mma demo`: the main job, on real data that is already here, in a few minutes.

PASSIVE = "growth.policy=passive"
# What the preset `photos` does, with one view of each image: computing it takes ten seconds.
ON_FEATURES = (
    *("views=features", "views.crops=0", "net=head", "query=auto", "growth.start_set=coverage"),
    *("algorithm.weight=30", "algorithm.ramp=50", "algorithm.align=labels"),
    *("optim.lr=0.05", "optim.weight_decay=0.0", "growth.refresh_every=1", "growth.refresh_final=true"),
)
METHODS = {
    "Supervised": ("algorithm=supervised", PASSIVE),
    "MixMatch": (PASSIVE,),
    "random growth": ("query=random",),
    "MMA": ("query=diff2.aug-direct",),
    "on features": ON_FEATURES,
}
ABOUT = {
    "Supervised": "learns from the labeled images alone",
    "MixMatch": "also learns from all unlabeled images; labels drawn at once",
    "random growth": "MixMatch from {start} labels, grown by random picks",
    "MMA": "MixMatch from {start} labels, grown by what it is unsure about",
    "on features": "MixMatch on frozen features (lite0 and hog): start set and queries cover the pool",
}
NEXT = (
    ("mma train digits --set query=diff2.aug-kmeans", "one run, another query"),
    ("mma show digits", "every setting"),
    ("mma start PHOTOS", "label your own photos in the browser"),
    ("mma train photos --data PHOTOS", "photos that have labels: a sub-folder per class"),
    ("mma data list", "Fashion-MNIST, CIFAR-10, ..."),
)


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where the runs, the table and the plot go.")] = Path("demo"),
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repetitions of each method.")] = 5,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Runs at a time.")] = cores(),
    as_json: Json = False,
) -> None:
    """Compare five ways to spend 60 labels on real 8x8 digits: under 5 minutes on two cores. Needs no network."""
    from mma.experiments.engines import EngineOptions
    from mma.experiments.grids import read_failures
    from mma.experiments.report.results import from_grid
    from mma.presets import preset

    growth = preset("digits").growth
    train(five_ways(growth.budget, seeds), out, "local", EngineOptions(workers=workers))
    if failures := read_failures(out):
        raise UserError("; ".join(f"{out / place}: {why}" for place, why in failures.items()))
    title = f"Real 8x8 digits, {growth.budget} labels: five ways to use them"
    table = write(from_grid(out), out, title)
    if as_json:
        print(json.dumps(table))
    else:
        show(table, out, growth.start)


def five_ways(budget: int, seeds: int) -> Grid:
    """Return the grid of all methods at one budget."""
    from mma.experiments.methods import Experiment, Method
    from mma.experiments.options import GridOptions, experiment_grid

    methods = {name: Method(settings=settings) for name, settings in METHODS.items()}
    definition = Experiment("five ways to spend labels", "digits", methods, (budget,), seeds=seeds)
    return experiment_grid("lab", definition, GridOptions("demo"))


def write(found: Results, out: Path, title: str) -> list[dict[str, Any]]:
    """Write the plot and the table, and return the table."""
    from mma.experiments.report.figures import learning_curves
    from mma.experiments.report.write import picture_files, write_files

    table = rows(found)
    pictures = picture_files({"learning-curves": learning_curves(found, title)})
    write_files(out, {**pictures, "table.json": json.dumps(table, indent=2) + "\n"})
    return table


def rows(found: Results) -> list[dict[str, Any]]:
    """Return one row per method."""
    from mma.experiments.report.tables import without_nan

    made, labels = found.table(), found.budgets[0]
    cells = [(name, row[0]) for name, row in zip(made.rows, made.cells, strict=True)]
    return [
        {"method": name, "labels": labels, "mean": cell.mean, "std": without_nan(cell.std), "n": cell.n}
        for name, cell in cells
        if cell
    ]


def show(table: list[dict[str, Any]], out: Path, start: int) -> None:
    """Print the table, where the plot is, and what to try next."""
    from mma.experiments.report.tables import plus_minus

    print(f"{'method':<14} {'labels':>6}  {'accuracy, %':<14} what it does")
    for row in table:
        accuracy = plus_minus(row["mean"], float("nan") if row["std"] is None else row["std"])
        about = ABOUT[row["method"]].format(start=start)
        print(f"{row['method']:<14} {row['labels']:>6}  {accuracy:<14} {about}")
    print(f"\nmean ± standard deviation over {table[0]['n']} seeds, each the median of its last 20 evaluations")
    print(f"\nplot: {out}/learning-curves.png    runs: mma runs {out}\n\nTry next:", file=sys.stderr)
    for command, why in NEXT:
        print(f"  {command:<58} {why}", file=sys.stderr)
