"""Read results: from a grid folder with its runs, or from the CSV files of an exported report. No torch but to count FLOP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mma.experiments import folder as grids
from mma.experiments.design import Grid, GridCell
from mma.experiments.report.results import Description, Results, SpendingPolicy
from mma.experiments.report.rows import (
    COMPUTE,
    CURVES,
    DIGITS,
    FILES,
    ROUND,
    ROUNDS,
    RUNS,
    SPENDING,
    Compute,
    CurvePoint,
    Result,
    RoundEnd,
    RoundSpending,
    read_rows,
    to_csv,
)
from mma.files import Row, write_atomically
from mma.growth import Growth, Money, Sizes, Split
from mma.run import Run
from mma.text import printable

ABOUT = "about.json"  # of exported results: what the grid is, how it was made, and all its settings
MOST_LABEL_STEPS = 30  # more are not shown in a plot


def collect(folder: Path) -> Results:
    """Read a folder of results (with runs.csv) or a grid folder, or say why it is neither."""
    if (folder / RUNS).is_file():
        return from_csv(folder)
    if (folder / grids.FILE).is_file():
        return from_grid(folder)
    name = printable(str(folder))
    if not folder.is_dir():
        raise ValueError(f"there is no folder {name}. Start a grid with  mma grid EXPERIMENT --out {name}")
    raise ValueError(f"{name} is neither a grid (it has no {grids.FILE}) nor a folder of results (it has no {RUNS}).")


def from_grid(folder: Path) -> Results:
    """Read every run of a grid as far as it is."""
    grid, failures = grids.read(folder), grids.read_failures(folder)
    begun = {c: Run.open(folder / c.place) for c in grid.cells() if (folder / c.place / "config.json").exists()}
    runs = {c: result(grid, c, begun.get(c), failures.get(str(c.place))) for c in grid.cells()}
    done = [cell for cell, found in runs.items() if found.status == "done"]
    traces = {cell: [row for row in begun[cell].read("metrics") if row["accuracy"] is not None] for cell in done}
    sizes = [each for cell in done for each in round_results(runs[cell], begun[cell].growth(), traces[cell])]
    return Results(
        runs=in_order((*runs.values(), *sizes)) if sizes else tuple(runs.values()),
        rounds=tuple(row for cell in done for row in round_ends(runs[cell], begun[cell], traces[cell])),
        curves=tuple(curves(grid, traces)),
        spending=tuple(row for cell in done for row in spending(runs[cell], begun[cell], traces[cell])),
        compute=tuple(compute(grid)),
        description=describe(grid, begun),
        folder=folder,
    )


def describe(grid: Grid, begun: Mapping[GridCell, Run]) -> Description:
    """Return what the report says about the grid."""
    base, own = grid.base, grid.scale == "own"
    growths = {cell: run.growth() for cell, run in begun.items()}
    held_out = sorted({run.config()["data"]["validation"] for run in begun.values()} - {0})
    scored = f"{' or '.join(f'{n:,}' for n in held_out)} images held out of the pool" if held_out else "the test set"
    return Description(
        title=grid.experiment if own else f"{grid.experiment}, {grid.scale} scale",
        about=f"Preset {base['preset']} on {base['data']['name']}, {base['net']['name']} network, scored on {scored}.",
        scale=grid.scale,
        paper=grid.paper,
        label_steps=label_steps([growth for cell, growth in growths.items() if grid.methods[cell.method].grows]),
        families={name: method.family for name, method in grid.methods.items() if method.family},
        policies={c.method: describe_policy(growth.spending) for c, growth in growths.items() if growth.spending},
    )


def label_steps(growths: Sequence[Growth]) -> tuple[int, ...]:
    """Return the steps at which runs with the largest budget are given labels, if they are few enough to show."""
    largest = max(growths, key=lambda growth: growth.budget, default=None)
    steps = () if largest is None else tuple(round.begin for round in largest.rounds()[1:])
    return steps if len(steps) < MOST_LABEL_STEPS else ()


def describe_policy(policy: Money) -> SpendingPolicy:
    """Return how a run with this policy spends its money."""
    share = policy.share if isinstance(policy, Split) else None
    return SpendingPolicy(
        policy=policy.name, money=policy.money, label_price=policy.label_price, image_price=policy.image_price,
        initial_pool=policy.initial_pool, share=share,
    )  # fmt: skip


def result(grid: Grid, cell: GridCell, run: Run | None, failure: str | None) -> Result:
    """Return how one cell's run ended, or how far it is."""
    place = (cell.method, cell.budget, grid.total_of(cell), cell.seed)
    if run is None:
        return Result(*place, "failed" if failure else "not run", None, 0, 0, 0, failure or "")
    summary = run.summary()
    if summary["status"] == "done":
        median = run.median_accuracy()
        accuracy, count = median if median else (None, 0)
        return Result(
            *place, "done", accuracy, count, summary["step"], summary["labels"], "" if median else "no test set"
        )
    status = "running" if summary["busy"] else "failed" if failure else "interrupted"
    note = failure if failure and status == "failed" else f"{100 * summary['step'] // summary['steps']} %"
    return Result(*place, status, None, 0, summary["step"], summary["labels"], note)


def round_ends(found: Result, run: Run, metrics: Sequence[Mapping[str, Any]]) -> Iterable[RoundEnd]:
    """Return the last evaluation of each round, how many classes have no label then, and how many images were asked about."""
    last = {row["round"]: row for row in metrics}
    place = (found.method, found.budget, found.total, found.seed)
    first_asked = {i: row["round"] for row in reversed(run.read("queries")) for i in row["indices"]}
    answers = [(first_asked[index], label) for index, label in run.answers().items()]  # read once: they can be many
    for number, row in last.items():
        known = [label for asked, label in answers if asked <= number]
        named = {label for label in known if label >= 0}
        missed = len(row["guesses"]) - len(named) if row.get("guesses") else None
        yield RoundEnd(*place, row["labels"], row["step"], row["accuracy"], missed, len(known))


def in_order(runs: Sequence[Result]) -> tuple[Result, ...]:
    """Return results as a table has them: methods as they come, budgets from small to large."""
    methods = list(dict.fromkeys(run.method for run in runs))
    return tuple(sorted(runs, key=lambda run: (methods.index(run.method), run.total, run.budget, run.seed)))


def round_results(found: Result, growth: Growth, metrics: Sequence[Mapping[str, Any]]) -> Iterator[Result]:
    """Return a result for every size of a run that starts anew in each round: it is what a run with that budget ends with."""
    if not isinstance(growth.policy, Sizes) or growth.refresh_every != 1 or found.accuracy is None:
        return
    last = {row["round"]: row for row in metrics}
    for row in last.values():
        if row["labels"] < found.budget:
            place = (found.method, row["labels"], found.total, found.seed)
            yield Result(*place, "done", row["accuracy"], 1, row["step"], row["labels"], ROUND)


def spending(found: Result, run: Run, metrics: Sequence[Mapping[str, Any]]) -> Iterator[RoundSpending]:
    """Return money, labels, images and accuracy at the end of each round; nothing where no money is spent."""
    growth = run.growth()
    policy = growth.spending
    if policy is None or found.accuracy is None:
        return
    last = {row["round"]: row["accuracy"] for row in metrics}
    labels, images = growth.start, policy.initial_pool or found.total
    left = policy.money - policy.measured_by * policy.label_price
    first = {"round": 0, "left": left, "labels": policy.measured_by, "images": 0}
    for bought in [first, *run.purchases()]:
        labels, images = labels + bought["labels"], images + bought["images"]
        accuracy = found.accuracy if bought["round"] == max(last) else last.get(bought["round"])
        if accuracy is not None:
            place = (found.method, found.budget, found.total, found.seed, bought["round"])
            yield RoundSpending(*place, round(policy.money - bought["left"], DIGITS), labels, images, accuracy)


def curves(grid: Grid, traces: Mapping[GridCell, Sequence[Row]]) -> Iterator[CurvePoint]:
    """Return the mean accuracy over seeds at every evaluation that all of them have."""
    groups: dict[tuple[str, int, int], list[dict[int, float]]] = {}
    for cell, metrics in traces.items():
        place = (cell.method, cell.budget, grid.total_of(cell))
        groups.setdefault(place, []).append({row["step"]: row["accuracy"] for row in metrics})
    return mean_curves(groups)


def curves_of_rounds(rounds: Iterable[RoundEnd]) -> Iterator[CurvePoint]:
    """Return the same for runs that are evaluated at the ends of rounds only: curves.csv would repeat rounds.csv."""
    groups: dict[tuple[str, int, int], dict[int, dict[int, float]]] = {}
    for row in rounds:
        seeds = groups.setdefault((row.method, row.budget, row.total), {})
        seeds.setdefault(row.seed, {})[row.step] = row.accuracy
    return mean_curves({place: list(seeds.values()) for place, seeds in groups.items()})


def mean_curves(groups: Mapping[tuple[str, int, int], Sequence[Mapping[int, float]]]) -> Iterator[CurvePoint]:
    """Return the mean over seeds (each: step -> accuracy) at the steps that all seeds of a group have."""
    for place, seeds in groups.items():
        for step in sorted(set.intersection(*(set(each) for each in seeds))):
            yield CurvePoint(*place, step, round(sum(each[step] for each in seeds) / len(seeds), DIGITS))


def compute(grid: Grid) -> Iterator[Compute]:
    """Count the FLOP of one run of every method that has a length."""
    cells = {(cell.method, cell.budget, cell.total): cell for cell in grid.cells() if grid.methods[cell.method].steps}
    for cell in cells.values():
        from mma.experiments.flops import flop  # with torch, which nothing else here needs
        from mma.experiments.make import config_of

        yield Compute(cell.method, cell.budget, grid.total_of(cell), flop(config_of(grid, cell)).total)


def write_csv(folder: Path, found: Results) -> None:
    """Write the rows that `from_csv` reads."""
    more = {CURVES: found.curves, SPENDING: found.spending, COMPUTE: found.compute}
    if found.curves == tuple(curves_of_rounds(found.rounds)):
        del more[CURVES]
    for name, each in {RUNS: found.runs, ROUNDS: found.rounds, **{n: e for n, e in more.items() if e}}.items():
        write_atomically(folder / name, to_csv(each, FILES[name]))


def from_csv(folder: Path) -> Results:
    """Read exported results; only runs.csv must be there."""
    path = folder / ABOUT
    try:
        about = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        description = Description.model_validate_json(json.dumps(about.get("description", {})))
    except (ValidationError, ValueError, AttributeError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ValueError(f"{path} is damaged ({why}). Restore it from a copy.") from None
    runs, rounds, points, money, counted = (read_rows(folder / name, kind) for name, kind in FILES.items())
    if not points:
        points = tuple(curves_of_rounds(rounds))
    return Results(runs, rounds, points, money, counted, description, folder)
