"""What the runs of a grid reached, as one value: read from a grid folder or from CSV files, each with one kind of row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, TypeAdapter, ValidationError

from mma.data.tables import read_csv, refuse, render_csv
from mma.errors import UserError
from mma.experiments import grids
from mma.experiments.grids import Grid, GridCell
from mma.files import Row, write_atomically
from mma.growth import Sizes
from mma.run import Run
from mma.settings import Settings
from mma.text import did_you_mean, printable, render_template

if TYPE_CHECKING:
    from mma.experiments.report.statistics import Difference
    from mma.experiments.report.tables import ReportTable


ROUND = "a round of a longer run"  # the note of a result that is no run of its own
DIGITS = 6  # decimals of a stored accuracy: enough for any test set, and the same on every machine


@dataclass(frozen=True)
class TableRow:
    """The place of a row in the table: every kind of row begins with it."""

    method: str
    budget: int
    total: int


@dataclass(frozen=True)
class Result(TableRow):
    """One run: its place in the table and how it ended."""

    seed: int
    status: str  # done, running, interrupted, failed, not run
    accuracy: float | None  # median of the last evaluations, percent
    evaluations: int
    steps: int
    labels: int
    note: str = ""  # how far it is, or why it failed

    @property
    def place(self) -> tuple[str, int, int, int]:
        """Where the run stands in the table."""
        return self.method, self.budget, self.total, self.seed


@dataclass(frozen=True)
class RoundEnd(TableRow):
    """The last evaluation of one round of one run."""

    seed: int
    labels: int
    step: int
    accuracy: float
    missed: int | None = None  # classes without a label
    asked: int | None = None  # images asked about by then, with those that nobody could tell


@dataclass(frozen=True)
class CurvePoint(TableRow):
    """Mean accuracy while training, over the seeds of one method, budget and total."""

    step: int
    mean: float


@dataclass(frozen=True)
class RoundSpending(TableRow):
    """One round of a run that spends money: the money spent by then, what it bought, and the accuracy at its end."""

    seed: int
    round: int
    spent: float
    labels: int  # the start set included
    images: int
    accuracy: float  # of the last round: the run's result


@dataclass(frozen=True)
class Compute(TableRow):
    """The floating-point operations of one run of a method."""

    flop: float


FILES: dict[str, type] = {
    "runs.csv": Result,
    "rounds.csv": RoundEnd,
    "curves.csv": CurvePoint,
    "spending.csv": RoundSpending,
    "compute.csv": Compute,
}
RUNS, ROUNDS, CURVES, SPENDING, COMPUTE = FILES


def read_rows(path: Path, kind: type) -> tuple[Any, ...]:
    """Read rows of one kind, or say which line is wrong. No file, no rows."""
    if not path.is_file():
        return ()
    table, columns = read_csv(path), fields(kind)
    refuse(path, table.problems)
    for one in columns:  # a column with a default may be missing: results that are older than the column are still read
        if one.default is MISSING and one.name not in table.columns:
            names = ",".join(each.name for each in columns)
            raise UserError(f"{path} lacks the column {one.name}. Its heading must be {names}.")
    texts = [one.name for one in columns if one.type == "str"]  # an empty cell of another column is None
    rows, reader = list[Any](), TypeAdapter[Any](kind)
    for line, row in table.rows:
        found = {one.name: row[one.name] for one in columns if one.name in table.columns}
        try:
            rows.append(reader.validate_python({k: v if v or k in texts else None for k, v in found.items()}))
        except ValidationError:
            raise UserError(f"{path}, line {line} is damaged: {printable(str(row))}") from None
    return tuple(rows)


class SpendingPolicy(Settings):
    """How the runs of one method spend money."""

    policy: str  # split or buyer
    money: float
    label_price: float
    image_price: float
    initial_pool: int | None
    share: float | None = None  # of the money that goes into labels; None: the policy decides


SPENT = set(SpendingPolicy.model_fields) - {"policy"}


class Description(Settings):
    """What a report must know of a grid beside its rows. It outlives changes of the settings' names."""

    title: str = ""
    about: str = ""  # a sentence
    scale: str = ""
    paper: str | None = None  # the paper's table to show beside ours
    label_steps: tuple[int, ...] = ()  # steps at which growing runs with the largest budget are given labels
    algorithms: str = ""  # a sentence: what differs between them, in a grid of one's own
    families: dict[str, str] = Field(default_factory=dict)  # method -> family, for those that have one
    policies: dict[str, SpendingPolicy] = Field(default_factory=dict)  # of methods that spend money


@dataclass(frozen=True)
class Results:
    """Everything a report needs. `mma.grid` and `mma.report` return it."""

    runs: tuple[Result, ...]
    rounds: tuple[RoundEnd, ...] = ()
    curves: tuple[CurvePoint, ...] = ()
    spending: tuple[RoundSpending, ...] = ()  # of runs that spend money
    compute: tuple[Compute, ...] = ()  # of methods that differ in length
    description: Description = field(default_factory=Description)
    folder: Path = field(default=Path(), compare=False)
    reference: str | None = None  # the method that others are compared with; None: those that `references` names

    def against(self, reference: str) -> Results:
        """Return the same results, compared with one of their methods."""
        if reference not in self.methods:
            hint, listed = did_you_mean(reference, self.methods), ", ".join(map(printable, self.methods))
            raise UserError(f"there is no method '{printable(reference)}' here.{hint} There are: {listed}.")
        return replace(self, reference=reference)

    @property
    def title(self) -> str:
        """The grid's name."""
        return self.description.title or self.folder.resolve().name

    @property
    def methods(self) -> list[str]:
        """Methods in the order of the table."""
        return list(dict.fromkeys(run.method for run in self.runs))

    @property
    def budgets(self) -> list[int]:
        """Budgets, ascending."""
        return sorted({run.budget for run in self.runs})

    @property
    def by_total(self) -> bool:
        """Whether this is a labeled-vs-unlabeled table: more than one total, beside Supervised's own."""
        return len({run.total for run in self.runs if run.total > run.budget}) > 1

    @property
    def learners(self) -> list[str]:
        """Methods that learn from unlabeled images."""
        return list(dict.fromkeys(run.method for run in self.runs if run.total > run.budget))

    @property
    def weighs_images(self) -> bool:
        """Whether `mma cost` can weigh labels against images here: one method, trained with several totals."""
        return self.by_total and len(self.learners) == 1

    def line(self, method: str, total: int) -> str:
        """Name the line of a plot that a run belongs to: by its method, by its total, or by both where both vary."""
        if not self.by_total:
            return method
        return f"{total:,} images" if self.weighs_images else f"{method}, {total:,} images"

    def accuracies(self, method: str, budget: int, total: int | None = None) -> dict[int, float]:
        """Return seed -> accuracy of the finished runs in one cell; `total` may be left out where there is one."""
        return {
            run.seed: run.accuracy
            for run in self.runs
            if (run.method, run.budget) == (method, budget)
            and total in (None, run.total)
            and run.status == "done"
            and run.accuracy is not None
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per run: `pandas.DataFrame(results.rows())` is a table of all runs."""
        return [asdict(run) for run in self.runs]

    def table(self) -> ReportTable:
        """Return accuracies by method and budget; `print` it, or use its `as_markdown()`, `as_csv()`, `as_latex()`."""
        from mma.experiments.report.tables import table

        return table(self)

    def differences(self, reference: str = "random") -> list[Difference]:
        """Return every method's paired difference to the reference, with interval, p values and verdict."""
        from mma.experiments.report.statistics import differences

        return differences(self.against(reference), reference)

    def statistics(self) -> str:
        """Return the statistics as Markdown."""
        from mma.experiments.report.summary import as_markdown, sections

        return as_markdown(sections(self))

    def plot(self, path: str | Path, which: str | None = None) -> Path:
        """Write one plot as the path's ending says (.png, .svg, .pdf); without `which`, the first that there is."""
        from mma.experiments.report.figures import NO_DATES, render
        from mma.experiments.report.write import draw

        path, drawn = Path(path), draw(self)
        kind, name = path.suffix.removeprefix("."), which or next(iter(drawn), "")
        if kind not in NO_DATES:
            raise UserError(f"{printable(str(path))}: a plot ends in {', '.join(f'.{one}' for one in NO_DATES)}.")
        if name not in drawn:
            raise UserError(f"these results have no plot '{printable(name)}'. They have: {', '.join(drawn) or 'none'}.")
        write_atomically(path, render(drawn[name], kind))
        return path

    def write(self, folder: str | Path, command: str = "") -> list[Path]:
        """Write the report into a folder: tables, statistics, plots, CSV files and one HTML page."""
        from mma.experiments.report.write import write_all

        return write_all(self, Path(folder), command)

    def __str__(self) -> str:
        return self.table().as_markdown()

    def _repr_html_(self) -> str:
        from mma.experiments.report.tables import plus_minus

        return render_template("accuracy_table.html", table=self.table(), plus_minus=plus_minus)


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
        raise UserError(f"there is no folder {name}. Start a grid with  mma grid EXPERIMENT --out {name}")
    raise UserError(f"{name} is neither a grid (it has no {grids.FILE}) nor a folder of results (it has no {RUNS}).")


def from_grid(folder: Path) -> Results:
    """Read every run of a grid as far as it is."""
    grid, failures = grids.read(folder), grids.read_failures(folder)
    begun = {c: Run.open(folder / c.place) for c in grid.cells() if (folder / c.place / "config.json").exists()}
    runs = {c: result(grid, c, begun.get(c), failures.get(str(c.place))) for c in grid.cells()}
    done = [cell for cell, found in runs.items() if found.status == "done"]
    traces = {cell: [row for row in begun[cell].read("metrics") if row["accuracy"] is not None] for cell in done}
    each = [(runs[cell], begun[cell], {row["round"]: row for row in traces[cell]}) for cell in done]
    sizes = [row for one in each for row in round_results(*one)]
    results = [*runs.values(), *sizes]
    if sizes:  # as a table has them: methods as they come, budgets from small to large
        order = list(dict.fromkeys(run.method for run in results))
        results.sort(key=lambda run: (order.index(run.method), run.total, run.budget, run.seed))
    return Results(
        runs=tuple(results),
        rounds=tuple(row for one in each for row in round_ends(*one)),
        curves=mean_curves(
            (cell.method, cell.budget, grid.total_of(cell), cell.seed, row["step"], row["accuracy"])
            for cell, metrics in traces.items()
            for row in metrics
        ),
        spending=tuple(row for one in each for row in spending(*one)),
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
    # Steps at which runs with the largest budget are given labels, if they are few enough to show.
    growing = [growth for cell, growth in growths.items() if grid.methods[cell.method].grows]
    rounds = max(growing, key=lambda growth: growth.budget).rounds() if growing else ()
    return Description(
        title=grid.experiment if own else f"{grid.experiment}, {grid.scale} scale",
        about=f"Preset {base['preset']} on {base['data']['name']}, {base['net']['name']} network, scored on {scored}.",
        scale=grid.scale,
        algorithms=grids.compare_algorithms(run.config() for run in begun.values()) if own else "",
        paper=grid.paper,
        label_steps=tuple(round.begin for round in rounds[1:]) if len(rounds) <= MOST_LABEL_STEPS else (),
        families={name: method.family for name, method in grid.methods.items() if method.family},
        policies={
            cell.method: SpendingPolicy(policy=policy.name, **policy.model_dump(include=SPENT))
            for cell, growth in growths.items()
            if (policy := growth.spending)
        },
    )


def result(grid: Grid, cell: GridCell, run: Run | None, failure: str | None) -> Result:
    """Return how one cell's run ended, or how far it is."""
    place = (cell.method, cell.budget, grid.total_of(cell), cell.seed)
    if run is None:
        return Result(*place, "failed" if failure else "not run", None, 0, 0, 0, failure or "")
    summary = run.summary()
    status, far = summary["status"], (summary["step"], summary["labels"])
    if status == "done":
        accuracy = summary["median_accuracy"]
        return Result(*place, status, accuracy, summary["median_of"], *far, "no test set" if accuracy is None else "")
    status = "failed" if failure and status != "running" else "running" if status == "running" else "interrupted"
    note = failure if failure and status == "failed" else f"{100 * summary['step'] // summary['steps']} %"
    return Result(*place, status, None, 0, *far, note)


# What a finished run shows beside its result; `last` is the last evaluation of each of its rounds.


def round_ends(found: Result, run: Run, last: Mapping[int, Row]) -> Iterator[RoundEnd]:
    """Return the last evaluation of each round, how many classes have no label then, and how many images were asked about."""
    first_asked = {i: row["round"] for row in reversed(run.read("queries")) for i in row["indices"]}
    answers = [(first_asked[index], label) for index, label in run.answers().items()]  # read once: they can be many
    for number, row in last.items():
        known = [label for asked, label in answers if asked <= number]
        missed = len(row["guesses"]) - len({label for label in known if label >= 0}) if row.get("guesses") else None
        yield RoundEnd(*found.place, row["labels"], row["step"], row["accuracy"], missed, len(known))


def round_results(found: Result, run: Run, last: Mapping[int, Row]) -> Iterator[Result]:
    """Return a result for every size of a run that starts anew in each round: it is what a run with that budget ends with."""
    growth = run.growth()
    if isinstance(growth.policy, Sizes) and growth.refresh_every == 1 and found.accuracy is not None:
        for row in last.values():
            if row["labels"] < found.budget:
                place = (found.method, row["labels"], found.total, found.seed)
                yield Result(*place, "done", row["accuracy"], 1, row["step"], row["labels"], ROUND)


def spending(found: Result, run: Run, last: Mapping[int, Row]) -> Iterator[RoundSpending]:
    """Return money, labels, images and accuracy at the end of each round; nothing where no money is spent."""
    growth = run.growth()
    policy = growth.spending
    if policy is None or found.accuracy is None:
        return
    labels, images = growth.start, policy.initial_pool or found.total
    left = policy.money - growth.held_out_labels * policy.label_price
    first = {"round": 0, "left": left, "labels": growth.held_out_labels, "images": 0}
    for bought in [first, *run.purchases()]:
        labels, images, number = labels + bought["labels"], images + bought["images"], bought["round"]
        if number in last:
            accuracy = found.accuracy if number == max(last) else last[number]["accuracy"]
            spent = round(policy.money - bought["left"], DIGITS)
            yield RoundSpending(*found.place, number, spent, labels, images, accuracy)


def mean_curves(points: Iterable[tuple[str, int, int, int, int, float]]) -> tuple[CurvePoint, ...]:
    """Return means over seeds at the steps that all of them have, from (method, budget, total, seed, step, accuracy)."""
    groups: dict[tuple[str, int, int], dict[int, dict[int, float]]] = {}
    for method, budget, total, seed, step, accuracy in points:
        groups.setdefault((method, budget, total), {}).setdefault(seed, {})[step] = accuracy
    return tuple(
        CurvePoint(*place, step, round(sum(each[step] for each in seeds.values()) / len(seeds), DIGITS))
        for place, seeds in groups.items()
        for step in sorted(set.intersection(*(set(each) for each in seeds.values())))
    )


def curves_of_rounds(rounds: Iterable[RoundEnd]) -> tuple[CurvePoint, ...]:
    """Return the same for runs that are evaluated at the ends of rounds only: curves.csv would repeat rounds.csv."""
    return mean_curves((row.method, row.budget, row.total, row.seed, row.step, row.accuracy) for row in rounds)


def compute(grid: Grid) -> Iterator[Compute]:
    """Count the FLOP of one run of every method that has a length."""
    cells = {(cell.method, cell.budget, cell.total): cell for cell in grid.cells() if grid.methods[cell.method].steps}
    for cell in cells.values():
        from mma.experiments.estimate import flop
        from mma.experiments.options import config_of

        yield Compute(cell.method, cell.budget, grid.total_of(cell), flop(config_of(grid, cell)).total)


def write_csv(folder: Path, found: Results) -> None:
    """Write the rows that `from_csv` reads."""
    more = {CURVES: found.curves, SPENDING: found.spending, COMPUTE: found.compute}
    if found.curves == curves_of_rounds(found.rounds):
        del more[CURVES]
    for name, each in {RUNS: found.runs, ROUNDS: found.rounds, **{n: e for n, e in more.items() if e}}.items():
        columns = [one.name for one in fields(FILES[name])]
        lines = ([getattr(row, column) for column in columns] for row in each)
        write_atomically(folder / name, render_csv([columns, *lines]))


def from_csv(folder: Path) -> Results:
    """Read exported results; only runs.csv must be there."""
    path = folder / ABOUT
    try:
        about = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        description = Description.model_validate_json(json.dumps(about.get("description", {})))
    except (ValidationError, ValueError, AttributeError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise UserError(f"{path} is damaged ({why}). Restore it from a copy.") from None
    runs, rounds, points, money, counted = (read_rows(folder / name, kind) for name, kind in FILES.items())
    return Results(runs, rounds, points or curves_of_rounds(rounds), money, counted, description, folder)
