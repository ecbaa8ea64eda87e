"""Is asking helping here? Models from queried labels against models from as many random ones, on the same images. No torch.

Random labels are those of random picks and, crosswise, of the audit: one half of it trains a model that the other half
tests. These models are thrown away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from mma.cost import first_reach, isotonic
from mma.rng import rng

LEAST_RANDOM = 40  # random labels to train on before anything is compared
LEAST_TESTED = 50  # audit labels
DRAWS = 3  # different sets of queried labels
NARROW = 10.0  # points: a wider interval around no difference says nothing and is not shown
LEVEL = 0.99  # compared again after every training: luck would reach 95 % too easily
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Fit = Callable[[Ints, Ints], Ints]  # rows to train on, rows to test on -> predicted classes of the latter


@dataclass(frozen=True)
class QueryBenefit:
    """The answer, and what it rests on. `difference` is in points, queried minus random, with its 99 % interval."""

    answer: Literal["saved", "no difference shown yet", "worse"]
    sentence: str
    size: int = 0  # labels on either side
    tested: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    saved: int | None = None  # labels, of all that were queried

    @property
    def speaks(self) -> bool:
        """Whether there is something to say: a difference, or that there can only be a small one."""
        narrow = self.low is not None and self.high is not None and self.high - self.low <= NARROW
        return self.answer != "no difference shown yet" or narrow

    @property
    def fallback(self) -> bool:
        """Whether to ask for coverage instead."""
        return self.answer == "worse"


NOT_COMPARED = QueryBenefit("no difference shown yet", "Not compared yet.")


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Labeled images by where they came from: rows of one array. The class and the near-duplicates of each row. (N,)"""

    queried: Ints
    random: Ints
    audit: Ints
    labels: Ints
    groups: NDArray[np.str_]


def compare(rows: LabeledRows, fit: Fit, seed: int = 0, *, switch: bool = True) -> QueryBenefit:
    """Compare models from equally many queried and random labels on audit images neither trained on.

    `switch`: whether the project asks for coverage where queried labels are worse.
    """
    halves = split_by_group(rows.audit, rows.groups, seed)
    queried = (rows.queried, rows.queried)
    random = tuple(np.concatenate([rows.random, other]) for other in reversed(halves))
    size, tested = min(len(rows.queried), *map(len, random)), len(rows.audit)
    if size < LEAST_RANDOM or tested < LEAST_TESTED:
        missing = f"Not compared yet: it takes {LEAST_RANDOM} labels that were asked for, as many random ones, and "
        missing += f"{LEAST_TESTED} answers about audit photos (now {size} and {tested})."
        return QueryBenefit("no difference shown yet", missing, size, tested)

    def hits(sources: Sequence[Ints], size: int) -> Floats:
        """Return how often each audit image is right, over models from different sets of `size` labels. (N,)"""
        shares = []
        for source, test in zip(sources, halves, strict=True):
            draws = [np.sort(rng(seed, "set", draw).permutation(source)[:size]) for draw in range(DRAWS)]
            right = [fit(chosen, test) == rows.labels[test] for chosen in draws]
            shares.append(np.mean(right, axis=0, dtype=np.float64))
        return np.concatenate(shares)

    random_hits = hits(random, size)
    values = hits(queried, size) - random_hits
    # Near-duplicates count together.
    _, number = np.unique(rows.groups[np.concatenate(halves)], return_inverse=True)
    off = np.bincount(number, weights=values - values.mean())
    error = math.sqrt(len(off) / max(len(off) - 1, 1) * float((off**2).sum())) / len(values)
    mean, half = float(values.mean()), float(norm.ppf((1 + LEVEL) / 2)) * error
    mean, low, high = 100 * mean, 100 * (mean - half), 100 * (mean + half)
    numbers = (
        f"A model from {size} labels that were asked for, against one from {size} random labels: {mean:+.1f} points "
        f"({low:+.1f} to {high:+.1f})"
    )
    basis = (size, tested, mean, low, high)
    if low > 0:
        # How few queried labels are as good as the random ones? That ratio is taken to hold for all queried labels.
        sizes = np.unique(np.round(size * np.linspace(0.25, 1.0, 6)).astype(np.int64))
        reached = isotonic(np.array([hits(queried, int(few)).mean() for few in sizes]), np.ones(len(sizes)))
        enough = float(first_reach(sizes.astype(np.float64), reached, float(random_hits.mean())))
        saved = round(len(rows.queried) * (size / float(np.clip(enough, sizes[0], size)) - 1))
        return QueryBenefit("saved", f"Asking saved about {saved} labels. {numbers}.", *basis, saved)
    if high < 0:
        way_out = "fallback = true in mma.toml asks about photos that stand for many others"
        way_out = "photos that stand for many others are asked about instead" if switch else way_out
        return QueryBenefit("worse", f"Asking is worse here than chance: {way_out}. {numbers}.", *basis)
    return QueryBenefit("no difference shown yet", f"Asking makes no difference that can be seen. {numbers}.", *basis)


def split_by_group(audit: Ints, groups: NDArray[np.str_], seed: int) -> tuple[Ints, Ints]:
    """Halve the audit; near-duplicates stay together."""
    names = np.unique(groups[audit])
    inside = np.isin(groups[audit], names[rng(seed, "halves").permutation(len(names))[: len(names) // 2]])
    return audit[inside], audit[~inside]
