"""What the runs of a grid reached, in one value that a notebook can ask: rows, tables, statistics, plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from mma.experiments.report.rows import Compute, CurvePoint, Result, RoundEnd, RoundSpending
from mma.settings import Settings

if TYPE_CHECKING:
    from mma.experiments.report.statistics import Difference
    from mma.experiments.report.tables import ReportTable


class SpendingPolicy(Settings):
    """How the runs of one method spend money."""

    policy: str  # split or buyer
    money: float
    label_price: float
    image_price: float
    initial_pool: int | None
    share: float | None = None  # of the money that goes into labels; None: the policy decides


class Description(Settings):
    """What a report must know of a grid beside its rows. It outlives changes of the settings' names."""

    title: str = ""
    about: str = ""  # a sentence
    scale: str = ""
    paper: str | None = None  # the paper's table to show beside ours
    label_steps: tuple[int, ...] = ()  # steps at which growing runs with the largest budget are given labels
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

        return differences(self, reference)

    def statistics(self) -> str:
        """Return the statistics as Markdown."""
        from mma.experiments.report.summary import as_markdown
        from mma.experiments.report.write import statistics

        return as_markdown(statistics(self))

    def plot(self, path: str | Path, which: str | None = None) -> Path:
        """Write one plot as the path's ending says (.png, .svg, .pdf); without `which`, the first that there is."""
        from mma.experiments.report.write import plot

        return plot(self, Path(path), which)

    def write(self, folder: str | Path, command: str = "") -> list[Path]:
        """Write the report into a folder: tables, statistics, plots, CSV files and one HTML page."""
        from mma.experiments.report.write import write_all

        return write_all(self, Path(folder), command)

    def __str__(self) -> str:
        return self.table().as_markdown()

    def _repr_html_(self) -> str:
        from mma.experiments.report.page import accuracy

        return accuracy(self.table())


def mean_accuracies(found: Results, budget: int | None = None) -> Mapping[str, float]:
    """Return each method's mean accuracy at a budget; without one, at its largest."""
    means: dict[str, float] = {}
    for method in found.methods:
        for each in found.budgets if budget is None else [budget]:
            values = found.accuracies(method, each)
            if values:
                means[method] = sum(values.values()) / len(values)
    return means
