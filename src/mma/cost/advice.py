"""The cheapest mix of labels and images that reaches a target accuracy.

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
from mma.cost.table import CostTable, Floats


@dataclass(frozen=True)
class Prices:
    """The price of one label and of one image."""

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
class Mix:
    """A mix that reaches the target. With a starting point, `cost` is only what must still be bought."""

    labels: int
    total: int
    cost: float
    interval: Interval | None  # of the cost
    cheapest: float | None  # share of draws in which this mix is the cheapest one
    at_most: bool  # the smallest total measured already reaches the target: fewer images may do


def cheapest(
    table: CostTable,
    target: float,
    prices: Prices,
    *,
    at: tuple[int, int] | None = None,
    smooth: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Mix]:
    """Return the mixes that reach `target` at the label counts measured, cheapest first.

    Between two counts the images needed and the cost are linear, so no mix between them can be cheaper than both. With a
    starting point `at` (labels, total) only what is bought on top is paid.
    """
    check_target(table, target)
    have = at or (0, 0)
    if have[0] > table.labels[-1]:
        raise ValueError(
            f"You have {have[0]:,} labels, more than anything measured in {table.name} ({table.labels[-1]:,}): no mix "
            "can be read from it. Leave out the target to see a forecast of the next step."
        )
    options = _options(table, totals_needed(table, table.accuracy, target, smooth=smooth), prices, have)
    drawn = np.empty((0, len(options.labels)))
    if table.has_spread:
        redrawn = totals_needed(table, table.draws(draws, seed), target, smooth=smooth)
        drawn = _options(table, redrawn, prices, have).costs
    return _rank(options, drawn)


@dataclass(frozen=True, eq=False)
class MixCosts:
    """Label counts, the totals they need and the costs; arrays may have draws as leading dimensions."""

    labels: Floats  # (K,)
    already: NDArray[np.bool_]  # (..., K) the smallest total measured is above the target
    totals: Floats  # (..., K) infinite where the target is not reached
    costs: Floats  # (..., K)


def _options(table: CostTable, needed: Floats, prices: Prices, have: tuple[int, int]) -> MixCosts:
    labels = table.labels.astype(np.float64)
    smallest = np.array([table.totals[table.measured[:, i]][0] for i in range(len(labels))], dtype=np.float64)
    if labels[0] < have[0] and have[0] not in labels:  # buying no label is an option too
        labels, smallest, needed = _add_own_count(labels, smallest, needed, have[0])
    ahead = labels >= have[0]
    labels, smallest, needed = labels[ahead], smallest[ahead], needed[..., ahead]
    totals = np.maximum(np.ceil(np.where(needed == ALREADY, smallest, needed) - 1e-6), have[1])
    with np.errstate(invalid="ignore"):  # price 0 times an infinite total
        images = np.where(np.isinf(totals), np.inf, prices.image * (totals - have[1]))
    return MixCosts(labels, needed == ALREADY, totals, prices.label * (labels - have[0]) + images)


def _add_own_count(labels: Floats, smallest: Floats, needed: Floats, own: int) -> tuple[Floats, Floats, Floats]:
    """Add a column for the user's own label count, interpolated between its neighbours."""
    right = int(np.searchsorted(labels, own))
    part = (own - labels[right - 1]) / (labels[right] - labels[right - 1])
    before, after = needed[..., right - 1], needed[..., right]
    with np.errstate(invalid="ignore"):
        line = (1 - part) * before + part * after
    # Next to a column that does not reach the target nothing can be interpolated: take the worse of the two.
    mixed = np.where(np.isfinite(before) & np.isfinite(after), line, np.maximum(before, after))
    return (
        np.insert(labels, right, own),
        np.insert(smallest, right, max(smallest[right - 1], smallest[right])),
        np.insert(needed, right, mixed, axis=-1),
    )


def _rank(options: MixCosts, drawn: Floats) -> list[Mix]:
    best = np.where(np.isfinite(drawn).any(axis=1), drawn.argmin(axis=1), -1)  # -1: no mix reaches it in this draw
    mixes = [
        Mix(
            int(options.labels[i]),
            int(options.totals[i]),
            float(options.costs[i]),
            interval(drawn[:, i]),
            float(np.mean(best == i)) if len(best) else None,
            bool(options.already[i]),
        )
        for i in np.flatnonzero(np.isfinite(options.costs))
    ]
    return sorted(mixes, key=lambda mix: mix.cost)
