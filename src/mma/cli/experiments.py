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
from mma.text import duration, plural, printable, render_template

if TYPE_CHECKING:
    from mma.cost import CostTable, Exchange, Interval
    from mma.experiments.estimate import RunCost, Speed
    from mma.experiments.grids import GridCell
    from mma.experiments.plan import GridPlan
    from mma.experiments.report.results import Results


Target = Annotated[str, Argument(metavar="EXPERIMENT", help="An experiment, a preset with --axis, or a grid folder.")]
Scale = Annotated[str | None, Option(help="paper, or lab: what two cores can do. Default: paper if it has that.")]
Axes = Annotated[list[str] | None, Option("--axis", metavar="PATH=VALUES", help="Vary a preset: query=random,auto.")]
Backbone = Annotated[str | None, Option(metavar="BACKBONE", help="A table of the paper on features: lite0, hog.")]
DryRun = Annotated[bool, Option("--dry-run", help="Print the plan, with time and disk on this machine, and stop.")]
EngineName = Annotated[str, Option(help="local (processes here) or ray (a cluster; needs the extra ray).")]
Workers = Annotated[int, Option(min=1, help="Runs at a time on this machine.")]
Address = Annotated[str | None, Option(help="Of a Ray cluster. Default: start one here.")]
Retries = Annotated[int, Option(min=0, help="Times a task is begun again when its node dies.")]


def grid(
    target: Target,
    scale: Scale = None,
    seeds: Annotated[str | None, Option(metavar="N|A..B", help="Repetitions: 5 means seeds 1 to 5.")] = None,
    methods: Annotated[str | None, Option(metavar="A,B", help="Only these rows of the table.")] = None,
    budgets: Annotated[str | None, Option(metavar="N,M", help="Other label budgets than the table's.")] = None,
    axes: Axes = None,
    settings: Settings = None,
    features: Backbone = None,
    out: Annotated[Path | None, Option(help="The grid's folder. Default: grids/EXPERIMENT-SCALE.")] = None,
    dry_run: DryRun = False,
    engine: EngineName = "local",
    workers: Workers = cores(),
    device: Device = None,
    threads: Annotated[int, Option(min=1, help="CPU threads of each new run.")] = 1,
    inexact: Inexact = False,
    ray_address: Address = None,
    ray_cpus: Annotated[float, Option(min=0.0, help="CPUs of each Ray task.")] = 1.0,
    ray_gpus: Annotated[float, Option(min=0.0, help="GPUs of each Ray task.")] = 0.0,
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
        shown = plan_text(plan, needed, speeds, workers)
        print(json.dumps(plan_rows(plan, needed), indent=1) + "\n" if as_json else shown, end="")
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
    from mma.experiments.grids import compare_algorithms

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
    values = {  # what all of it costs, what shared trunks save, and what that rests on
        "seconds": sum(costs[run.cell].seconds for run in plan.todo),
        "size": sum(cost.bytes for cost in costs.values()),
        "saved": plan.steps_alone - plan.steps_shared,
        "grown": sum(run.end for run in plan.runs if run.config.growth.policy.grows),
        "rough": any(not speed.full_batch for speed in speeds.values()),
        "ramps": {run.config.algorithm.name: (getattr(run.config.algorithm, "ramp", 0), run.end) for run in plan.runs},
        "algorithms": compare_algorithms(run.config.model_dump(mode="json") for run in plan.runs),
    }
    helpers = {"f": format, "plural": plural, "duration": duration}
    return render_template("plan.txt", lines=table, plan=plan, workers=workers, **values, **helpers)


def report(
    folder: Annotated[Path, Argument(metavar="DIR", help="A grid folder, or a folder of results with runs.csv.")],
    format: Annotated[str, Option(help="md (with statistics), csv, latex or json.")] = "md",
    html: Annotated[bool, Option("--html", help="Write everything into DIR/report.")] = False,
    out: Annotated[Path | None, Option(help="Write everything into this folder.")] = None,
    reference: Annotated[str | None, Option(metavar="METHOD", help="Compare with it, not random or MixMatch.")] = None,
    check: Annotated[bool, Option("--check", help="Train one run again here, and compare its accuracy.")] = False,
    seed: Annotated[int, Option(help="The run's seed, with --check.")] = 1,
    method: Annotated[str | None, Option(help="Its row, with --check. Default: the first.")] = None,
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


def demo(
    out: Annotated[Path, Option(help="Where the runs, the table and the plot go.")] = Path("demo"),
    seeds: Annotated[int, Option(min=1, help="Repetitions of each method.")] = 5,
    workers: Workers = cores(),
    as_json: Json = False,
) -> None:
    """Compare five ways to spend 60 labels on real 8x8 digits: under 5 minutes on two cores. Needs no network."""
    from mma.experiments.catalogue import CATALOGUE
    from mma.experiments.engines import EngineOptions
    from mma.experiments.grids import read_failures
    from mma.experiments.options import GridOptions, grid_from_options
    from mma.experiments.progress import GridProgress
    from mma.experiments.report.figures import learning_curves
    from mma.experiments.report.results import from_grid
    from mma.experiments.report.tables import plus_minus
    from mma.experiments.report.write import picture_files
    from mma.experiments.run import train_missing
    from mma.files import write_atomically

    made = grid_from_options(GridOptions("demo", seeds=seeds))
    with stop_on_signals():
        train_missing(made, out, "local", EngineOptions(workers=workers), GridProgress(), command())
    if failures := read_failures(out):
        raise UserError("; ".join(f"{out / place}: {why}" for place, why in failures.items()))
    results = from_grid(out)
    table, (labels,) = results.table(), results.budgets
    cells = [
        (name, cell) for name, (cell,) in zip(table.rows, table.cells, strict=True) if cell and cell.mean is not None
    ]
    rows = [{"method": m, "labels": labels, "mean": c.mean, "std": c.std, "n": c.n} for m, c in cells]
    write_atomically(out / "table.json", json.dumps(rows, indent=2) + "\n")
    curves = learning_curves(results, f"Real 8x8 digits, {labels} labels: five ways to use them")
    for file, data in picture_files({"learning-curves": curves}).items():
        write_atomically(out / file, data)
    if as_json:
        print(json.dumps(rows))
        return
    does = {name: way["does"] for name, way in CATALOGUE["demo"]["lab"]["ways"].items()}
    lines = [[name, str(labels), plus_minus(cell.mean or 0.0, cell.std), does[name]] for name, cell in cells]
    print("\n".join(align([["method", "labels", "accuracy, %", "what it does"], *lines], [False, True, False, False])))
    n = plural(cells[0][1].n, "seed")
    print(f"\nmean ± standard deviation over {n}, each the median of its last 20 evaluations")
    print(render_template("demo.txt", out=str(out)), end="", file=sys.stderr)


def cost(
    source: Annotated[str, Argument(help="paper:cifar10, paper:cifar100, paper:svhn-extra, a CSV or a grid folder.")],
    target: Annotated[list[float] | None, Option(help="Accuracy to reach, in percent. May be repeated.")] = None,
    label_price: Annotated[float | None, Option(help="Money for one label.")] = None,
    image_price: Annotated[float | None, Option(help="Money for one more image, labeled or not.")] = None,
    at: Annotated[str | None, Option(metavar="LABELS,TOTAL", help="What you have now, like 500,20000.")] = None,
    isotonic: Annotated[bool, Option("--isotonic", help="Read columns that never fall, fitted to the data.")] = False,
    plot: Annotated[Path | None, Option(help="Draw into this .png (and an .svg and .pdf), .svg or .pdf.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say how many unlabeled images a label is worth, and with prices what to buy."""
    import mma.cost

    if plot is not None:
        from mma.cost.plots import check_path

        check_path(plot)
    prices, place = None, None
    if label_price is not None and image_price is not None:
        prices = mma.cost.Prices(label_price, image_price)
    elif label_price is not None or image_price is not None:
        missing = "--label-price" if label_price is None else "--image-price"
        raise UserError(f"One price alone decides nothing: give {missing} too (0 if it is free).")
    table = cost_table(source)
    if at is not None:
        found = re.fullmatch(r"\s*(-?[\d_]+)\s*,\s*(-?[\d_]+)\s*", at)
        if not found:
            raise UserError(f"--at is LABELS,TOTAL in whole numbers, like 500,20000; '{printable(at)}' is not.")
        place = int(found[1]), int(found[2])
    answer = mma.cost.ask(table, target or [], prices=prices, at=place, smooth=isotonic)
    if plot is not None:
        from mma.cost.plots import cost_figure

        cost_figure(plot, table, answer.targets, prices, at=place, smooth=isotonic)
    if as_json:
        print(json.dumps(mma.cost.as_json(answer), indent=2))
    else:
        tables = [exchange_lines(found, f"{answer.level:.0%} of draws") for found in answer.targets]
        values = {"answer": answer, "tables": tables, "smooth": isotonic, "f": format, "interval_text": interval_text}
        print(render_template("cost.txt", **values), end="")
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
    why = "" if found.weighs_images else "all its runs have the same images"
    if found.by_total and not found.weighs_images:
        why = f"several methods learn from its images: {', '.join(found.learners)}"
    if why := why if done else "none of its runs is done":
        raise UserError(
            f"{printable(source)} says nothing about images against labels: {why}. A grid that does:  "
            "mma grid labeled-vs-unlabeled-cifar10, or any preset with  --axis data.total=...  and  --axis growth.budget=..."
            " and nothing else varied but the seed"
        )
    return table_from_runs(printable(folder.name), done)


def exchange_lines(found: Exchange, spread: str) -> list[str]:
    """Write the table of one target, and below it what is remarkable."""
    heading = ["labels", "in total", spread, "unlabeled", "saves", spread, "labeled"]
    rows, remarks = [["", "images", "", "", "a label", "", "on un-"], heading], []
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
