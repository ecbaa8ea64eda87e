"""The paper's tables as data: arXiv:1912.00594, every number with its standard deviation over five runs.

`budgets-*` are the accuracy tables by label budget, `labeled-vs-unlabeled-*` the ones by labeled and total images.
`total` counts the images a method could see, labeled or not; `Supervised` sees only its labeled ones.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

from mma.errors import UserError
from mma.text import did_you_mean, printable

RUNS = 5  # Paper: "Each experiment is repeated 5 times"


@dataclass(frozen=True)
class PaperCell:
    """One cell of a table. `std` divides by the number of runs, as a footnote with all five runs of one cell shows."""

    experiment: str
    method: str
    labels: int
    total: int
    accuracy: float
    std: float


def experiments() -> list[str]:
    """Return the names of all tables."""
    return sorted(entry.name.removesuffix(".csv") for entry in files(__name__).iterdir() if entry.name.endswith(".csv"))


def table(experiment: str) -> list[PaperCell]:
    """Return the cells of one table, in the paper's order."""
    if experiment not in experiments():
        hint = did_you_mean(experiment, experiments())
        raise UserError(
            f"The paper has no table '{printable(experiment)}'.{hint} There are: {', '.join(experiments())}."
        )
    text = files(__name__).joinpath(f"{experiment}.csv").read_text(encoding="utf-8")
    return [
        PaperCell(
            r["experiment"], r["method"], int(r["labels"]), int(r["total"]), float(r["accuracy"]), float(r["std"])
        )
        for r in csv.DictReader(text.splitlines())
    ]
