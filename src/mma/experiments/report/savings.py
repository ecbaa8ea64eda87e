"""What asking well saves: paired areas under the curves, labels saved against random, classes without a label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mma.experiments.report.results import Results
from mma.experiments.report.rows import RoundEnd
from mma.experiments.report.statistics import area, common_budgets, interval, labels_needed


@dataclass(frozen=True)
class Saving:
    """A method against random over the seeds both have: a mean with its 95 % interval."""

    method: str
    n: int
    mean: float
    low: float
    high: float


def curves_by_seed(found: Results, method: str) -> dict[int, list[float]]:
    """Return seed -> accuracies at the common budgets, for the seeds that have all of them."""
    each = [found.accuracies(method, budget) for budget in common_budgets(found)]
    seeds = sorted(set.intersection(*(set(one) for one in each))) if each else []
    return {seed: [one[seed] for one in each] for seed in seeds}


def saving(method: str, values: Sequence[float]) -> Saving:
    """Describe paired values."""
    low, high = interval(np.array(values))
    return Saving(method, len(values), float(np.mean(values)), low, high)


def area_differences(found: Results, reference: str) -> list[Saving]:
    """Return each method's area under its curve minus the reference's, paired by seed."""
    theirs, budgets = curves_by_seed(found, reference), common_budgets(found)
    rows = []
    for method in found.methods if len(budgets) > 1 and not found.by_total else ():
        ours = curves_by_seed(found, method)
        shared = sorted(ours.keys() & theirs.keys())
        values = [area(budgets, ours[seed]) - area(budgets, theirs[seed]) for seed in shared]
        if method != reference and values:
            rows.append(saving(method, values))
    return rows


def labels_saved(found: Results, reference: str, budget: int) -> list[Saving]:
    """Return how many labels fewer a method needs for what the reference reaches with `budget`, paired by seed.

    A curve that never gets there counts as if it needed the largest budget: the saving is then at most what is said.
    """
    theirs, budgets = found.accuracies(reference, budget), common_budgets(found)
    rows = []
    for method in found.methods:
        ours = curves_by_seed(found, method)
        shared = sorted(ours.keys() & theirs.keys())
        values = [budget - needed(budgets, ours[seed], theirs[seed]) for seed in shared]
        if method != reference and values:
            rows.append(saving(method, values))
    return rows


def needed(budgets: Sequence[int], accuracies: Sequence[float], target: float) -> float:
    """Return the labels at which a curve reaches the target; the largest budget if it does not."""
    labels = labels_needed(budgets, accuracies, target)
    return float(budgets[-1]) if labels is None else labels


def classes_missed(found: Results) -> dict[str, dict[int, float]]:
    """Return the mean number of classes without a label, by method and labels."""
    return mean_by_labels(found, lambda row: row.missed)


def questions_wasted(found: Results) -> dict[str, dict[int, float]]:
    """Return the mean number of images asked about that nobody could tell, by method and labels."""
    return mean_by_labels(found, lambda row: None if row.asked is None else row.asked - row.labels)


def mean_by_labels(found: Results, of: Callable[[RoundEnd], int | None]) -> dict[str, dict[int, float]]:
    """Return means over seeds of what `of` says about the rounds of each method's runs with its largest budget."""
    groups: dict[str, dict[int, list[int]]] = {}
    lines = [(found.line(row.method, row.total), row) for row in sorted(found.rounds, key=lambda row: row.budget)]
    largest = {line: row.budget for line, row in lines}
    for line, row in lines:
        value = of(row)
        if value is not None and row.budget == largest[line]:
            groups.setdefault(line, {}).setdefault(row.labels, []).append(value)
    return {m: {labels: float(np.mean(v)) for labels, v in sorted(each.items())} for m, each in groups.items()}
