"""`mma grid`, `report`, `demo`, `cost`: every table of the paper or one of your own, and what a label is worth."""

from __future__ import annotations

import json
import math
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from mma.children import cores
from mma.cli.terminal import align
from mma.cli.train import Device, Inexact, Json, Settings
from mma.errors import UserError
from mma.text import duration, plural, printable

if TYPE_CHECKING:
    from mma.cost import Analysis, CostTable, Exchange, Interval
    from mma.experiments.estimate import RunCost, Speed
    from mma.experiments.grids import GridCell
    from mma.experiments.plan import GridPlan
    from mma.experiments.report.results import Results


Target = Annotated[str, Argument(metavar="EXPERIMENT", help="An experiment, a preset with --axis, or a grid folder.")]
Scale = Annotated[str | None, Option(help="paper, or lab: what two cores can do. Default: paper if it has that.")]
Seeds = Annotated[str | None, Option(metavar="N|A..B", help="Repetitions: 5 means seeds 1 to 5.")]
Methods = Annotated[str | None, Option(metavar="A,B", help="Only these rows of the table.")]
Budgets = Annotated[str | None, Option(metavar="N,M", help="Other label budgets than the table's.")]
Axes = Annotated[
    list[str] | None,
    Option("--axis", metavar="PATH=VALUES", help="Vary a setting of a preset: query=random,max-direct seed=1..5."),
]
Backbone = Annotated[
    str | None,
    Option("--features", metavar="BACKBONE", help="A table of the paper on features of this backbone: lite0, hog."),
]
Out = Annotated[Path | None, Option("--out", help="The grid's folder. Default: grids/EXPERIMENT-SCALE.")]
DryRun = Annotated[bool, Option("--dry-run", help="Print the plan, with time and disk on this machine, and stop.")]
EngineName = Annotated[str, Option("--engine", help="local (processes here) or ray (a cluster; needs the extra ray).")]
Workers = Annotated[int, Option("--workers", min=1, help="Runs at a time on this machine.")]
Threads = Annotated[int, Option(min=1, help="CPU threads of each new run.")]
Address = Annotated[str | None, Option("--ray-address", help="Of a Ray cluster. Default: start one here.")]
Cpus = Annotated[float, Option("--ray-cpus", min=0.0, help="CPUs of each Ray task.")]
Gpus = Annotated[float, Option("--ray-gpus", min=0.0, help="GPUs of each Ray task.")]
Retries = Annotated[int, Option("--ray-retries", min=0, help="Times a task is begun again when its node dies.")]


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
    from mma.experiments.engines import EngineOptions, TrainingOptions, check_engine
    from mma.experiments.estimate import costs
    from mma.experiments.options import GridOptions, read_axes
    from mma.experiments.progress import GridProgress
    from mma.experiments.run import find_or_open, plan_request, train_missing, write_report

    check_engine(engine)
    wanted = GridOptions(target, read_axes(axes or []), settings or (), seeds, methods, budgets, scale, features)
    new, folder = find_or_open(wanted, out)
    training = TrainingOptions(device, threads, inexact)
    options = EngineOptions(training, workers, ray_address, ray_cpus, ray_gpus, ray_retries)
    if dry_run:
        plan = plan_request(new, folder)
        needed, speeds = costs(plan, training)
        print(json.dumps(plan_rows(plan, needed), indent=1) if as_json else plan_text(plan, needed, speeds, workers))
        return
    with stop_on_signals():
        train_missing(new, folder, engine, options, GridProgress(), command())
    show_results(write_report(folder), folder, as_json=as_json)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """End with a sentence after Ctrl-C (code 130) or SIGTERM (code 143), when every run's state is stored."""

    def terminate(*_: object) -> None:
        raise KeyboardInterrupt(143)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt as stop:
        print(f"\nstopped; the state of every run is stored. Go on with  {command()}", file=sys.stderr)
        raise typer.Exit(stop.args[0] if stop.args else 130) from None
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
        print(
            f"{plural(len(failures), 'run')} failed; the others are done. Try again with  {command()}", file=sys.stderr
        )
        raise typer.Exit(1)


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


HEADINGS = ("method", "images", "labels", "runs", "seeds", "shares", "steps of one", "to train", "time of one")
LEFT = {"method", "seeds", "shares"}  # columns of words


def plan_text(plan: GridPlan, costs: Mapping[GridCell, RunCost], speeds: Mapping[str, Speed], workers: int) -> str:
    """Return the plan: a line per method and budget, then the sums. Never wrapped or cut."""
    lines = []
    for _, group in groupby(plan.runs, lambda run: (run.cell.method, run.cell.total, run.cell.budget)):
        runs = list(group)
        first, left, seeds = runs[0], [run for run in runs if run.status != "done"], [run.cell.seed for run in runs]
        whole = len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1))
        share = {"tail": f"from step {first.begin:,}", "trunk": "trunk", "alone": "-"}[first.role]
        lines.append(
            (
                first.cell.method,
                f"{plan.grid.total_of(first.cell):,}",
                f"{first.cell.budget:,}",
                f"{len(left)} of {len(runs)}" if 0 < len(left) < len(runs) else str(len(runs)),
                f"{seeds[0]}..{seeds[-1]}" if whole else ",".join(map(str, seeds)),
                share if left else "done",
                f"{first.end:,}",
                f"{max((run.steps for run in left), default=0):,}",
                duration(max((costs[run.cell].seconds for run in left), default=0.0)),
            )
        )
    table = align([HEADINGS, *lines], [heading not in LEFT for heading in HEADINGS])
    seconds, size = sum(costs[run.cell].seconds for run in plan.todo), sum(cost.bytes for cost in costs.values())
    # What all of it costs, what shared trunks save, and what that rests on.
    rough = any(not speed.full_batch for speed in speeds.values())
    basis = "a few steps of each kind of run" + (", with small batches where full ones are slow" if rough else "")
    shared = "Nothing is shared: every method has one budget, or draws it at the start."
    if saved := plan.steps_alone - plan.steps_shared:
        grown = sum(run.end for run in plan.runs if run.config.growth.policy.grows)
        shared = (
            f"Each alone: {plan.steps_alone:,} steps. With shared trunks: {plan.steps_shared:,}, a factor of "
            f"{plan.steps_alone / plan.steps_shared:.2f}; among the runs that grow {grown:,} and {grown - saved:,}, a factor "
            f"of {grown / (grown - saved):.2f}."
        )
    ramps = {run.config.algorithm.name: (getattr(run.config.algorithm, "ramp", 0), run.end) for run in plan.runs}
    notes = [
        f"Note: the unlabeled weight of {name} rises over {ramp:,} steps, longer than the run of {end:,}: set algorithm.ramp."
        for name, (ramp, end) in ramps.items()
        if ramp > end
    ]
    sums = [
        f"{plural(len(plan.runs), 'run')} ({len(plan.runs) - len(plan.todo)} done), {plan.steps_left:,} steps to train.",
        shared,
        f"About {duration(seconds)} on one worker, {duration(seconds / workers)} on {workers}, measured here "
        f"with {basis}; about {size / 1e6:,.1f} MB on disk.",
        *notes,
    ]
    return "\n".join([*table, *sums])


def report(
    folder: Annotated[Path, Argument(metavar="DIR", help="A grid folder, or a folder of results with runs.csv.")],
    format: Annotated[str, Option("--format", help="md (with statistics), csv, latex or json.")] = "md",
    html: Annotated[bool, Option("--html", help="Write everything into DIR/report.")] = False,
    out: Annotated[Path | None, Option("--out", help="Write everything into this folder.")] = None,
    reference: Annotated[
        str | None,
        Option("--reference", metavar="METHOD", help="Compare with this row. Default: random, MixMatch."),
    ] = None,
    check: Annotated[bool, Option("--check", help="Train one run again here, and compare its accuracy.")] = False,
    seed: Annotated[int, Option("--seed", help="The run's seed, with --check.")] = 1,
    method: Annotated[str | None, Option("--method", help="Its row, with --check. Default: the first.")] = None,
) -> None:
    """Print the table and statistics; write plots and a page that needs nothing else. Or check a number of it."""
    if check:
        from mma.experiments.run import check as train_again

        checked = train_again(folder, seed, method)
        print(checked)
        raise typer.Exit(0 if checked.equal else 1)
    from mma.experiments.report.results import collect
    from mma.experiments.report.tables import FORMATS
    from mma.experiments.report.write import write_all

    if format not in FORMATS:
        raise UserError(f"no format '{format}'. There are: {', '.join(FORMATS)}.")
    found = collect(folder) if reference is None else collect(folder).against(reference)
    print(FORMATS[format](found.table()), end="")
    if format == "md":
        print(f"\n{found.statistics()}", end="")
    for path in write_all(found, out or folder / "report", command()) if out or html else ():
        print(f"wrote {path}", file=sys.stderr)


PASSIVE = "growth.policy=passive"
# What the preset `photos` does, with one view of each image: computing it takes ten seconds.
ON_FEATURES = (
    *("views=features", "views.crops=0", "net=head", "query=auto", "growth.start_set=coverage"),
    *("algorithm.weight=30", "algorithm.ramp=50", "algorithm.align=shares", "algorithm.temperature=0.7"),
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
    ("", "mma train digits --set query=diff2.aug-kmeans", "one run, another query"),
    ("", "mma show digits", "every setting"),
    ("", "mma start PHOTOS", "label your own photos in the browser"),
    ("", "mma train photos --data PHOTOS", "photos that have labels: a sub-folder per class"),
    ("", "mma data list", "Fashion-MNIST, CIFAR-10, ..."),
)


def demo(
    out: Annotated[Path, Option("--out", help="Where the runs, the table and the plot go.")] = Path("demo"),
    seeds: Annotated[int, Option("--seeds", min=1, help="Repetitions of each method.")] = 5,
    workers: Workers = cores(),
    as_json: Json = False,
) -> None:
    """Compare five ways to spend 60 labels on real 8x8 digits: under 5 minutes on two cores. Needs no network."""
    from mma.experiments.engines import EngineOptions
    from mma.experiments.grids import read_failures
    from mma.experiments.methods import Experiment, Method
    from mma.experiments.options import GridOptions, experiment_grid
    from mma.experiments.progress import GridProgress
    from mma.experiments.report.figures import learning_curves
    from mma.experiments.report.results import from_grid
    from mma.experiments.report.tables import plus_minus
    from mma.experiments.report.write import picture_files
    from mma.experiments.run import train_missing
    from mma.files import write_atomically
    from mma.presets import preset

    growth = preset("digits").growth
    methods = {name: Method(settings=settings) for name, settings in METHODS.items()}
    ways = Experiment("five ways to spend labels", "digits", methods, (growth.budget,), seeds=seeds)
    made = experiment_grid("lab", ways, GridOptions("demo"))
    with stop_on_signals():
        train_missing(made, out, "local", EngineOptions(workers=workers), GridProgress(), command())
    if failures := read_failures(out):
        raise UserError("; ".join(f"{out / place}: {why}" for place, why in failures.items()))
    results = from_grid(out)
    made_table = results.table()
    cells = [(name, cell) for name, (cell, *_) in zip(made_table.rows, made_table.cells, strict=True) if cell]
    table = [{"method": m, "labels": growth.budget, "mean": c.mean, "std": c.std, "n": c.n} for m, c in cells]
    title = f"Real 8x8 digits, {growth.budget} labels: five ways to use them"
    write_atomically(out / "table.json", json.dumps(table, indent=2) + "\n")
    for file, data in picture_files({"learning-curves": learning_curves(results, title)}).items():
        write_atomically(out / file, data)
    if as_json:
        print(json.dumps(table))
        return
    rows = [["method", "labels", "accuracy, %", "what it does"]]
    for name, cell in cells:
        accuracy = plus_minus(cell.mean or 0.0, cell.std)
        rows.append([name, str(growth.budget), accuracy, ABOUT[name].format(start=growth.start)])
    print("\n".join(align(rows, [False, True, False, False])))
    n = plural(cells[0][1].n, "seed")
    print(f"\nmean ± standard deviation over {n}, each the median of its last 20 evaluations")
    print(f"\nplot: {out}/learning-curves.png    runs: mma runs {out}\n\nTry next:", file=sys.stderr)
    print("\n".join(align(NEXT, [False] * 3)), file=sys.stderr)


def cost(
    source: Annotated[
        str,
        Argument(
            metavar="SOURCE",
            help="paper:cifar10, paper:cifar100, paper:svhn-extra, a CSV of labels,total,accuracy,seed, or a grid folder.",
        ),
    ],
    target: Annotated[list[float] | None, Option(help="Accuracy to reach, in percent. May be repeated.")] = None,
    label_price: Annotated[float | None, Option(help="Money for one label.")] = None,
    image_price: Annotated[float | None, Option(help="Money for one more image, labeled or not.")] = None,
    at: Annotated[str | None, Option(metavar="LABELS,TOTAL", help="What you have now, like 500,20000.")] = None,
    isotonic: Annotated[bool, Option("--isotonic", help="Read columns that never fall, fitted to the data.")] = False,
    plot: Annotated[
        Path | None,
        Option(help="Draw into this .png, .svg or .pdf file; a .png gets an .svg and a .pdf beside it."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say how many unlabeled images a label is worth, and with prices what to buy."""
    import mma.cost

    if plot is not None:
        from mma.cost.plots import check_path

        check_path(plot)
    prices, place = None, None
    if (label_price is None) != (image_price is None):
        missing = "--label-price" if label_price is None else "--image-price"
        raise UserError(f"One price alone decides nothing: give {missing} too (0 if it is free).")
    if label_price is not None and image_price is not None:
        prices = mma.cost.Prices(label_price, image_price)
    table = cost_table(source)
    if at is not None:
        if not re.fullmatch(r"\s*-?[\d_]+\s*,\s*-?[\d_]+\s*", at):
            raise UserError(f"--at is LABELS,TOTAL in whole numbers, like 500,20000; '{printable(at)}' is not.")
        labels, total = (int(part.replace("_", "")) for part in at.split(","))
        place = labels, total
    answer = mma.cost.ask(table, target or [], prices=prices, at=place, smooth=isotonic)
    if plot is not None:
        from mma.cost.plots import cost_figure

        cost_figure(plot, table, answer.targets, prices, at=place, smooth=isotonic)
    if as_json:
        print(json.dumps(mma.cost.as_json(answer), indent=2))
    else:
        print("\n".join(answer_lines(answer)))
        if plot is not None:
            print(f"Drawn: {printable(str(plot))}")


def cost_table(source: str) -> CostTable:
    """Read a source; of a grid folder, the runs that are done."""
    from mma.cost import open_table, table_from_runs

    folder = Path(source)
    if not (folder / "grid.json").is_file() or (folder / "labeled-vs-unlabeled.csv").is_file():
        return open_table(source)
    from mma.experiments.report.results import collect

    found = collect(folder)
    done = [(r.budget, r.total, r.accuracy) for r in found.runs if r.status == "done" and r.accuracy is not None]
    if not found.weighs_images or not done:
        several = f"several methods learn from its images: {', '.join(found.learners)}"
        why = (
            "none of its runs is done"
            if not done
            else several
            if found.by_total
            else "all its runs have the same images"
        )
        raise UserError(
            f"{printable(source)} says nothing about images against labels: {why}. A grid that does:  "
            "mma grid labeled-vs-unlabeled-cifar10, or any preset with  --axis data.total=...  and  --axis growth.budget=..."
            " and nothing else varied but the seed"
        )
    return table_from_runs(printable(folder.name), done)


def answer_lines(answer: Analysis) -> Iterator[str]:
    """Write the answer: the rule, for each target what labels are worth and the cheapest mixes, and what to buy next."""
    yield f"{answer.source}  {answer.rule}"
    yield from (f"  {note}" for note in answer.notes)
    for k, found in enumerate(answer.targets):
        yield from ("", f"To reach {found.target:g} %", *exchange_lines(found, f"{answer.level:.0%} of draws"))
        mixes = answer.mixes[k] if answer.mixes else ()
        more = " more" if answer.next is not None else ""  # from a starting point only what is still to be paid counts
        for number, mix in enumerate(mixes):
            sure = "" if mix.cheapest is None else f", cheapest in {mix.cheapest:.0%} of draws"
            total = f"{'at most ' * mix.at_most}{mix.total:,} images in total"
            yield f"  {'then    ' if number else 'cheapest'} {mix.labels:,} labels, {total}: {mix.cost:,.2f}{more}{sure}"
        if answer.mixes and not mixes:
            place = "" if answer.next is None else f" with {answer.next.labels:,} labels or more"
            smoothed = answer.rule.startswith("isotonic")
            way_out = "Give a lower target" + (" or leave out --isotonic." if smoothed else ".")
            yield f"  No mix{place} reaches {found.target:g} %{' after smoothing' * smoothed}. {way_out}"
    if (following := answer.next) is None:
        return
    yield f"\nFrom {following.labels:,} labels, {following.total:,} images ({following.accuracy:.2f} %)"
    for k, step in enumerate(following.steps):
        point = f"{step.price_of_a_point:,.2f} per point" if step.gain > 0 else "no gain"
        spread = f" ({interval_text(step.interval, '+.2f')})" if step.interval else ""
        other = "images" if step.what == "labels" else "labels"
        instead = f"; as much as {step.instead:,.0f} {other}" if step.instead is not None else ""
        what = (
            f"{step.amount:,} more {step.what} for {step.cost:,.2f}: {step.gain:+.2f} points{spread}, {point}{instead}"
        )
        yield f"  {'not ' if k else 'next'} {what}{'; a forecast, beyond the table' * step.beyond}"
    if following.agreement is not None:
        yield f"  The first is the better buy in {following.agreement:.0%} of draws."
    if following.here is not None and following.here.beyond:
        yield f"  Fitted surface: {following.here}"


def exchange_lines(found: Exchange, spread: str) -> list[str]:
    """Write the table of one target, and below it what is remarkable."""
    rows = [
        ["", "images", "", "", "a label", "", "on un-"],
        ["labels", "in total", spread, "unlabeled", "saves", spread],
    ]
    rows[1].append("labeled")
    remarks = []
    for need, ratio in zip(found.needs, [*found.ratios, None], strict=True):
        few = "not reached" if need.status == "not reached" else f"under {need.smallest:,}"
        total, unlabeled = (few, "-") if need.total is None else (f"{need.total:,}", f"{need.unlabeled:,}")
        rate = ["", "", ""]
        if ratio is not None:
            saved, beside = ("-" if value is None else f"{value:z.1f}" for value in (ratio.totals, ratio.unlabeled))
            rate = [saved, interval_text(ratio.totals_interval, "z.1f"), beside]
            remarks += [f"  {ratio.fewer:,} to {ratio.more:,}: {ratio.finding}."] if ratio.finding else []
        if need.missed:
            remarks.append(f"  {need.labels:,} labels: not reached in {need.missed:.0%} of draws.")
        rows.append([f"{need.labels:,}", total, interval_text(need.interval, ",.0f"), unlabeled, *rate])
    return [*align(rows, [True] * 7), *remarks]


def interval_text(interval: Interval | None, style: str) -> str:
    """Write an interval, each end as `style` says; `-` where there is none."""
    if interval is None:
        return "-"
    low, high = (format(end, style) if math.isfinite(end) else "open" for end in (interval.low, interval.high))
    return f"{low} to {high}"
