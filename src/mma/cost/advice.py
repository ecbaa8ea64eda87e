"""What to buy: the cheapest mix that reaches a target.

An image is paid for once, whether it is labeled or not; a label is paid for on top. So a mix costs
`label price x labels + image price x total`. The paper prices a labeled image as a whole (c_l = label + image) and counts
unlabeled ones apart (c_u = image): the same sum, and so the same decisions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mma.cost.columns import ALREADY, totals_needed
from mma.cost.exchange import DRAWS, Interval, check_target, interval
from mma.cost.table import Floats, Table


@dataclass(frozen=True)
class Prices:
    """Money for one label, and for one more image."""

    label: float
    image: float

    def __post_init__(self) -> None:
        for name, price in (("label", self.label), ("image", self.image)):
            if not (math.isfinite(price) and price >= 0):
                raise ValueError(f"The price of one {name} is {price:g}; it must be 0 or more.")
        if self.label == self.image == 0:
            raise ValueError(
                "Labels and images are both free, so there is nothing to weigh up. Give at least one price."
            )


@dataclass(frozen=True)
class Plan:
    """One mix that reaches the target. From a starting point, `cost` is what is still to be paid."""

    labels: int
    total: int
    cost: float
    interval: Interval | None  # of the cost
    cheapest: float | None  # share of draws in which this mix is the cheapest one
    at_most: bool  # the column's smallest total is already enough: fewer images may do


def cheapest(
    table: Table,
    target: float,
    prices: Prices,
    *,
    at: tuple[int, int] | None = None,
    smooth: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Plan]:
    """Mixes that reach `target`, cheapest first, at the label counts measured.

    Between two counts both the images needed and the cost are straight lines, so no mix between them can be cheaper than
    both. From a starting point `at` (labels, total), what is there is paid for and cannot be given back.
    """
    check_target(table, target)
    have = at or (0, 0)
    if have[0] > table.labels[-1]:
        raise ValueError(
            f"You have {have[0]:,} labels, more than anything measured in {table.name} ({table.labels[-1]:,}): no plan "
            "can be read from it. Leave out the target to see a forecast of the next step."
        )
    options = _options(table, totals_needed(table, table.accuracy, target, smooth=smooth), prices, have)
    drawn = np.empty((0, len(options.labels)))
    if table.has_spread:
        redrawn = totals_needed(table, table.draws(draws, seed), target, smooth=smooth)
        drawn = _options(table, redrawn, prices, have).costs
    return _ranked(options, drawn)


@dataclass(frozen=True, eq=False)
class Options:
    """The label counts one can go to, with the totals they need and what that costs; any number of draws in front."""

    labels: Floats  # (K,)
    already: NDArray[np.bool_]  # (..., K) the smallest total measured is above the target
    totals: Floats  # (..., K) infinite where the target is not reached
    costs: Floats  # (..., K)


def _options(table: Table, needed: Floats, prices: Prices, have: tuple[int, int]) -> Options:
    labels = table.labels.astype(np.float64)
    smallest = np.array([table.totals[table.measured[:, i]][0] for i in range(len(labels))], dtype=np.float64)
    if labels[0] < have[0] and have[0] not in labels:  # staying at one's own count is an option too
        labels, smallest, needed = _with_own(labels, smallest, needed, have[0])
    ahead = labels >= have[0]
    labels, smallest, needed = labels[ahead], smallest[ahead], needed[..., ahead]
    totals = np.maximum(np.ceil(np.where(needed == ALREADY, smallest, needed) - 1e-6), have[1])
    with np.errstate(invalid="ignore"):  # images for nothing, and never enough of them: 0 x inf
        images = np.where(np.isinf(totals), np.inf, prices.image * (totals - have[1]))
    return Options(labels, needed == ALREADY, totals, prices.label * (labels - have[0]) + images)


def _with_own(labels: Floats, smallest: Floats, needed: Floats, own: int) -> tuple[Floats, Floats, Floats]:
    """The same with a column for the user's own label count, on the straight line between its neighbours."""
    right = int(np.searchsorted(labels, own))
    part = (own - labels[right - 1]) / (labels[right] - labels[right - 1])
    before, after = needed[..., right - 1], needed[..., right]
    with np.errstate(invalid="ignore"):
        line = (1 - part) * before + part * after
    # Next to a column that is out of reach there is no line: the worse of the two is a safe answer.
    mixed = np.where(np.isfinite(before) & np.isfinite(after), line, np.maximum(before, after))
    return (
        np.insert(labels, right, own),
        np.insert(smallest, right, max(smallest[right - 1], smallest[right])),
        np.insert(needed, right, mixed, axis=-1),
    )


def _ranked(options: Options, drawn: Floats) -> list[Plan]:
    best = np.where(np.isfinite(drawn).any(axis=1), drawn.argmin(axis=1), -1)  # -1: no mix reaches it in this draw
    plans = [
        Plan(
            int(options.labels[i]),
            int(options.totals[i]),
            float(options.costs[i]),
            interval(drawn[:, i]),
            float(np.mean(best == i)) if len(best) else None,
            bool(options.already[i]),
        )
        for i in np.flatnonzero(np.isfinite(options.costs))
    ]
    return sorted(plans, key=lambda plan: plan.cost)
