"""Compare methods whose runs pair by seed: intervals, tests, and what so few runs can show at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from mma.cost import first_reach
from mma.experiments.report.results import DIGITS, Results, RoundEnd
from mma.text import plural

LEVEL = 0.95
ALPHA = 0.05
EXACT = 20  # runs up to which every pattern of signs is counted; scipy counts them only without ties
REFERENCES = ("random", "MixMatch")
Verdict = Literal["better", "worse", "higher, not confirmed", "lower, not confirmed", "no difference shown"]


@dataclass(frozen=True)
class Difference:
    """A method against a reference at one budget and total, over the seeds both have."""

    method: str
    reference: str
    budget: int
    total: int
    n: int
    mean: float  # of the paired differences, in points of accuracy
    low: float  # 95 % interval, paired t
    high: float
    ranks: float  # sum of the signed ranks: > 0 when the ranks favour the method
    p: float  # Wilcoxon signed-rank, two-sided; 1 when every difference is 0
    holm: float = 1.0  # p corrected for all methods compared with this reference

    @property
    def verdict(self) -> Verdict:
        """Return what this shows. The corrected test decides; mean and ranks must agree in sign."""
        if self.mean * self.ranks <= 0:
            return "no difference shown"
        if self.holm <= ALPHA:
            return "better" if self.mean > 0 else "worse"
        if self.n > 1 and (self.low > 0 or self.high < 0):
            return "higher, not confirmed" if self.mean > 0 else "lower, not confirmed"
        return "no difference shown"

    @property
    def shown(self) -> bool:
        """Whether the corrected test shows a difference."""
        return self.verdict in ("better", "worse")


def pair_by_seed(ours: Mapping[int, float], theirs: Mapping[int, float]) -> np.ndarray:
    """Return ours - theirs for the seeds both have. (n,)

    Rounded as accuracies are: 91.2 - 91.0 and 90.4 - 90.2 are ties, which binary fractions would hide from the ranks.
    """
    return np.array([round(ours[seed] - theirs[seed], DIGITS) for seed in sorted(ours.keys() & theirs.keys())])


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean (Student's t); open when there is only one value."""
    if len(values) < 2:
        return -math.inf, math.inf
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return float(values.mean()) - half, float(values.mean()) + half


def signed_ranks(differences: np.ndarray) -> np.ndarray:
    """Return the rank of each absolute difference with the difference's sign; zeros are ranked, then left out (Pratt)."""
    ranks = np.sign(differences) * stats.rankdata(np.abs(differences))
    return np.asarray(ranks[differences != 0])


def wilcoxon(differences: np.ndarray) -> float:
    """Return the exact two-sided p of the signed-rank test."""
    ranks = signed_ranks(differences)
    if not len(ranks):
        return 1.0
    if len(ranks) > EXACT:
        return float(stats.wilcoxon(differences, zero_method="pratt", method="approx").pvalue)
    sums = np.zeros(1)
    for rank in np.abs(ranks):
        sums = np.concatenate([sums + rank, sums - rank])  # every pattern of signs is as likely
    return float(np.mean(np.abs(sums) >= abs(ranks.sum()) - 1e-9))


def holm(values: Sequence[float]) -> list[float]:
    """Correct p values for being many: the smallest is multiplied by their number, the next by one less, and so on."""
    order = np.argsort(values, kind="stable")
    corrected = np.empty(len(values))
    factors = np.arange(len(values), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(np.asarray(values)[order] * factors), 1.0)
    return corrected.tolist()


def differences(found: Results, reference: str) -> list[Difference]:
    """Compare every method with the reference in every column; Holm's correction counts all of these comparisons."""
    rows: list[Difference] = []
    for budget, total in dict.fromkeys((run.budget, run.total) for run in found.runs):
        theirs = found.accuracies(reference, budget, total)
        for method in found.methods:
            # Supervised looks at fewer images, so its total differs: it is compared at the same budget.
            ours = found.accuracies(method, budget, total if found.by_total else None)
            values = pair_by_seed(ours, theirs)
            if method != reference and len(values):
                ranks, mean = float(signed_ranks(values).sum()), float(values.mean())
                place = (method, reference, budget, total, len(values))
                rows.append(Difference(*place, mean, *interval(values), ranks, wilcoxon(values)))
    corrected = holm([row.p for row in rows])
    return [replace(row, holm=p) for row, p in zip(rows, corrected, strict=True)]


def references(found: Results) -> list[str]:
    """Return what methods are compared with: as asked for, else random and MixMatch, else the first of several methods."""
    if found.reference is not None:
        return [found.reference]
    usual = [name for name in REFERENCES if name in found.methods]
    return usual or (found.methods[:1] if len(found.methods) > 1 else [])


def reference_of(found: Results) -> str | None:
    """Return the one method that tables and plots compare with: as asked for, else random, else MixMatch, else none."""
    return found.reference or next((name for name in REFERENCES if name in found.methods), None)


def what_wilcoxon_can_show(rows: Sequence[Difference]) -> str:
    """Say in a sentence whether the test could show anything with so few runs and so many comparisons."""
    n, count = max(row.n for row in rows), len(rows)
    least = min(1.0, 2.0 * 0.5**n)  # where all signs are alike
    begin = f"With {plural(n, 'pair')} the smallest p"
    if least > ALPHA:
        return (
            f"{begin} the signed-rank test can give is {least:.3g}: it cannot show a difference at "
            f"{ALPHA:g}, whatever the runs say. It takes 6 pairs for one comparison. Read the intervals, as hints."
        )
    if least * count > ALPHA:
        return (
            f"{begin} is {least:.3g}, and {count} comparisons are corrected for: a single method "
            f"cannot reach {ALPHA:g} here unless most others differ as clearly. Fewer methods or more seeds would help."
        )
    return f"{begin} is {least:.3g}; corrected for {plural(count, 'comparison')} it can still reach {ALPHA:g}."


def spread(values: Sequence[float]) -> float | None:
    """Return the standard deviation of a sample (divided by n - 1); None for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


# What curves over budgets say: their area, and the labels that a method saves. All of it is paired by seed.


def common_budgets(found: Results) -> list[int]:
    """Return the budgets that several methods have. In a table of the paper, one method alone goes further."""
    return [b for b in found.budgets if len([m for m in found.methods if found.accuracies(m, b)]) > 1]


def curves_by_seed(found: Results, method: str) -> dict[int, list[float]]:
    """Return seed -> accuracies at the common budgets, for the seeds that have all of them."""
    each = [found.accuracies(method, budget) for budget in common_budgets(found)]
    seeds = sorted(set.intersection(*(set(one) for one in each))) if each else []
    return {seed: [one[seed] for one in each] for seed in seeds}


def area(budgets: Sequence[int], accuracies: Sequence[float]) -> float:
    """Return the mean height of a curve over log labels."""
    x, y = np.log(budgets), np.array(accuracies)
    return float(((y[1:] + y[:-1]) / 2 * np.diff(x)).sum() / (x[-1] - x[0]))


def areas(found: Results) -> dict[str, dict[int, float]]:
    """Return method -> seed -> the mean accuracy over the common budgets, on a logarithmic axis; seeds that have all count."""
    budgets, found_areas = common_budgets(found), {}
    for method in found.methods if len(budgets) > 1 and not found.by_total else ():
        if curves := curves_by_seed(found, method):
            found_areas[method] = {seed: area(budgets, curve) for seed, curve in curves.items()}
    return found_areas


def labels_needed(budgets: Sequence[int], means: Sequence[float], target: float) -> float | None:
    """Return the labels at which the curve first reaches the target, log-linear between budgets; None if it never does.

    The smallest budget is returned when it is enough already; fewer may do.
    """
    if max(means) < target:
        return None
    if means[0] >= target:
        return float(budgets[0])
    return math.exp(first_reach(np.log(budgets), np.array(means), target))


def labels_saved(found: Results, reference: str, budget: int) -> dict[str, np.ndarray]:
    """Return how many labels fewer a method needs for what the reference reaches with `budget`, for each shared seed.

    A curve that never gets there counts as if it needed the largest budget: the saving is then at most what is said.
    """
    theirs, budgets = found.accuracies(reference, budget), common_budgets(found)
    rows = {}
    for method in (method for method in found.methods if method != reference):
        ours = curves_by_seed(found, method)
        shared = sorted(ours.keys() & theirs.keys())
        needed = [labels_needed(budgets, ours[seed], theirs[seed]) for seed in shared]
        if shared:
            rows[method] = budget - np.array([float(budgets[-1]) if labels is None else labels for labels in needed])
    return rows


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
