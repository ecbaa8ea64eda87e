"""The paper's tables as data: arXiv:1912.00594, every number with its standard deviation over five runs.

`budgets-*` are the accuracy tables by label budget, `labeled-vs-unlabeled-*` the ones by labeled and total images.
`total` counts the images a method could see, labeled or not; `Supervised` sees only its labeled ones.
"""

from __future__ import annotations

import csv
import difflib
from dataclasses import dataclass
from importlib.resources import files

RUNS = 5  # Paper: "Each experiment is repeated 5 times"


@dataclass(frozen=True)
class Row:
    """One cell of a table. `std` divides by the number of runs, as the five runs spelled out in a footnote show."""

    experiment: str
    method: str
    labels: int
    total: int
    accuracy: float
    std: float


def experiments() -> list[str]:
    """Names of all tables."""
    return sorted(entry.name.removesuffix(".csv") for entry in files(__name__).iterdir() if entry.name.endswith(".csv"))


def table(experiment: str) -> list[Row]:
    """The rows of one table, in the paper's order."""
    if experiment not in experiments():
        near = difflib.get_close_matches(experiment, experiments(), n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ValueError(f"The paper has no table '{experiment}'.{hint} There are: {', '.join(experiments())}.")
    text = files(__name__).joinpath(f"{experiment}.csv").read_text(encoding="utf-8")
    return [
        Row(r["experiment"], r["method"], int(r["labels"]), int(r["total"]), float(r["accuracy"]), float(r["std"]))
        for r in csv.DictReader(text.splitlines())
    ]
