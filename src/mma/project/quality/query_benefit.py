"""Is asking helping here? Models from queried labels against models from as many random ones, on the same images. No torch.

Random labels are those of random picks and, crosswise, of the audit: one half of it trains a model that the other half
tests. These models are made for the comparison and thrown away; no model in use sees an audit label.
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
LEVEL = 0.99  # asked again after every training, so that 95 % would be too easily reached by luck
Ints = NDArray[np.int64]
Answer = Literal["saved", "no difference shown yet", "worse"]
Fit = Callable[[Ints, Ints], Ints]  # rows to train on, rows to test on -> predicted classes of the latter


@dataclass(frozen=True)
class Helping:
    """The answer, and what it rests on. `difference` is in points, queried minus random, with its 99 % interval."""

    answer: Answer
    sentence: str
    size: int = 0  # labels on either side
    tested: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    saved: int | None = None  # labels, of all that were queried

    @property
    def fallback(self) -> bool:
        """Whether to ask for coverage instead."""
        return self.answer == "worse"


NOT_COMPARED = Helping("no difference shown yet", "not compared yet.")


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Labeled images by where they came from: rows of one array, and the near-duplicate group of each row."""

    queried: Ints
    random: Ints
    audit: Ints
    labels: dict[int, int]  # row -> class
    groups: dict[int, str]  # row -> near-duplicates


class Comparison:
    """Queried against random labels: two halves of the audit, each tested by models that may train on the other one."""

    def __init__(self, rows: LabeledRows, fit: Fit, seed: int) -> None:
        self.rows, self.fit, self.seed = rows, fit, seed
        self.halves = split_by_group(rows.audit, rows.groups, seed)
        self.queried = (rows.queried, rows.queried)
        self.random = tuple(np.concatenate([rows.random, self.halves[1 - side]]) for side in (0, 1))
        self.size = min(len(rows.queried), *map(len, self.random))

    def hits(self, sources: Sequence[Ints], size: int) -> NDArray[np.float64]:
        """Return how often each audit image is right, over models from different sets of `size` labels. (N,)"""
        found = []
        for source, test in zip(sources, self.halves, strict=True):
            truth = np.array([self.rows.labels[int(row)] for row in test])
            draws = [np.sort(rng(self.seed, "set", draw).permutation(source)[:size]) for draw in range(DRAWS)]
            found.append(np.mean([self.fit(chosen, test) == truth for chosen in draws], axis=0, dtype=np.float64))
        return np.concatenate(found)

    def labels_saved(self) -> int:
        """Return how many random labels more the queried ones are worth.

        It is found how few queried labels are as good as the random ones; that ratio is taken to hold for all of them.
        """
        goal = float(self.hits(self.random, self.size).mean())
        sizes = np.unique(np.round(self.size * np.linspace(0.25, 1.0, 6)).astype(np.int64))
        reached = np.array([self.hits(self.queried, int(few)).mean() for few in sizes])
        enough = float(first_reach(sizes.astype(np.float64), isotonic(reached, np.ones(len(sizes))), goal))
        enough = float(np.clip(enough, sizes[0], self.size))
        return round(len(self.rows.queried) * (self.size / enough - 1))


def compare(rows: LabeledRows, fit: Fit, seed: int = 0, *, switch: bool = True) -> Helping:
    """Compare models from equally many queried and random labels on audit images neither trained on.

    `switch` says whether the project asks for coverage where queried labels are worse.
    """
    both = Comparison(rows, fit, seed)
    size, tested = both.size, len(rows.audit)
    if size < LEAST_RANDOM or tested < LEAST_TESTED:
        missing = f"it takes {LEAST_RANDOM} queried and as many random labels, and {LEAST_TESTED} audit labels"
        sentence = f"not compared yet: {missing} (now {size} and {tested})."
        return Helping("no difference shown yet", sentence, size, tested)
    gain = both.hits(both.queried, size) - both.hits(both.random, size)
    mean, half = clustered_interval(gain, [rows.groups[int(row)] for part in both.halves for row in part])
    mean, low, high = 100 * mean, 100 * (mean - half), 100 * (mean + half)
    numbers = f"{size} queried labels against {size} random ones: {mean:+.1f} points ({low:+.1f} to {high:+.1f})"
    basis = (size, tested, mean, low, high)
    if low > 0:
        saved = both.labels_saved()
        return Helping("saved", f"asking saved about {saved} labels. {numbers}.", *basis, saved)
    if high < 0:
        way_out = "switching to coverage" if switch else "fallback = true in mma.toml would switch to coverage"
        return Helping("worse", f"asking is worse here than chance: {way_out}. {numbers}.", *basis)
    return Helping("no difference shown yet", f"no difference shown yet. {numbers}.", *basis)


def split_by_group(audit: Ints, groups: dict[int, str], seed: int) -> tuple[Ints, Ints]:
    """Halve the audit so that near-duplicates stay together."""
    names = sorted({groups[int(row)] for row in audit})
    first = {names[i] for i in rng(seed, "halves").permutation(len(names))[: len(names) // 2]}
    inside = np.array([groups[int(row)] in first for row in audit], np.bool_)
    return audit[inside], audit[~inside]


def clustered_interval(values: NDArray[np.float64], groups: Sequence[str]) -> tuple[float, float]:
    """Return the mean and half the width of its interval; near-duplicates count together."""
    _, number = np.unique(groups, return_inverse=True)
    off = np.bincount(number, weights=values - values.mean())
    many = len(off)
    error = math.sqrt(many / max(many - 1, 1) * float((off**2).sum())) / len(values)
    return float(values.mean()), float(norm.ppf((1 + LEVEL) / 2)) * error
