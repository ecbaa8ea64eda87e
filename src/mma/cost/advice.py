"""What to buy: the cheapest mix of labels and images that reaches a target, and the next purchase from where one stands.

An image is paid for once, whether it is labeled or not; a label is paid for on top. So a mix costs
`label price x labels + image price x total`. The paper prices a labeled image as a whole (c_l = label + image) and counts
unlabeled ones apart (c_u = image): the same sum, and so the same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.cost.exchange import (
    ALREADY,
    DRAWS,
    LEVEL,
    Exchange,
    Interval,
    check_target,
    default_targets,
    exchange,
    first_reach,
    interval,
    totals_needed,
)
from mma.cost.surface import Forecast, fit_surface
from mma.cost.table import CostTable, Floats
from mma.errors import UserError


@dataclass(frozen=True)
class Prices:
    """The price of one label and of one image."""

    label: float
    image: float

    def __post_init__(self) -> None:
        for name, price in (("label", self.label), ("image", self.image)):
            if not (math.isfinite(price) and price >= 0):
                raise UserError(f"The price of one {name} is {price:g}; it must be 0 or more.")
        if self.label == self.image == 0:
            raise UserError("Labels and images are both free: there is nothing to weigh up. Give at least one price.")

    def of(self, labels: int, images: int) -> float:
        """Return what so many labels and images cost."""
        return labels * self.label + images * self.image


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
) -> list[Mix]:
    """Return the mixes that reach `target` at the label counts measured, cheapest first.

    Between two counts the images needed and the cost are linear, so no mix between them can be cheaper than both. With a
    starting point `at` (labels, total) only what is bought on top is paid.
    """
    check_target(table, target)
    have = at or (0, 0)
    if have[0] > table.labels[-1]:
        raise UserError(
            f"You have {have[0]:,} labels, more than anything measured in {table.name} ({table.labels[-1]:,}): no mix "
            "can be read from it. Leave out the target to see a forecast of the next step."
        )
    needed = totals_needed(table, table.accuracy, target, smooth=smooth)
    labels, already, totals, costs = _options(table, needed, prices, have)
    *_, drawn = _options(table, totals_needed(table, table.draws(draws), target, smooth=smooth), prices, have)
    best = np.where(np.isfinite(drawn).any(axis=1), drawn.argmin(axis=1), -1)  # -1: no mix reaches it in this draw
    wins = [float(np.mean(best == i)) if len(best) else None for i in range(len(labels))]
    mixes = [
        Mix(int(labels[i]), int(totals[i]), float(costs[i]), interval(drawn[:, i]), wins[i], bool(already[i]))
        for i in np.flatnonzero(np.isfinite(costs))
    ]
    return sorted(mixes, key=lambda mix: mix.cost)


def _options(
    table: CostTable, needed: Floats, prices: Prices, have: tuple[int, int]
) -> tuple[Floats, NDArray[np.bool_], Floats, Floats]:
    """Return label counts (K,), where the smallest total is enough, the totals they need and the costs (..., K)."""
    labels = table.labels.astype(np.float64)
    smallest = np.array([table.totals[table.measured[:, i]][0] for i in range(len(labels))], dtype=np.float64)
    if labels[0] < have[0] and have[0] not in labels:  # buying no label is an option too
        right = int(np.searchsorted(labels, have[0]))
        before, after = needed[..., right - 1], needed[..., right]
        # Next to a column that does not reach the target nothing can be interpolated: take the worse of the two.
        known = np.isfinite(before) & np.isfinite(after)
        with np.errstate(invalid="ignore"):
            mixed = np.where(known, _at(labels, needed, have[0]), np.maximum(before, after))
        labels, needed = np.insert(labels, right, have[0]), np.insert(needed, right, mixed, axis=-1)
        smallest = np.insert(smallest, right, max(smallest[right - 1], smallest[right]))
    ahead = labels >= have[0]
    labels, smallest, needed = labels[ahead], smallest[ahead], needed[..., ahead]
    totals = np.maximum(np.ceil(np.where(needed == ALREADY, smallest, needed) - 1e-6), have[1])
    with np.errstate(invalid="ignore"):  # price 0 times an infinite total
        images = np.where(np.isinf(totals), np.inf, prices.image * (totals - have[1]))
    return labels, needed == ALREADY, totals, prices.label * (labels - have[0]) + images


# The next purchase from a starting point: labels, or images for the same money.


@dataclass(frozen=True)
class Step:
    """A possible purchase and its expected gain."""

    what: str  # "labels" or "images"
    amount: int
    cost: float
    gain: float  # points of accuracy
    interval: Interval | None
    instead: float | None  # number of the other kind with the same gain; None if not in the table
    beyond: bool  # forecast by the surface, outside the table

    @property
    def price_of_a_point(self) -> float:
        """Money per point of accuracy; infinite without a gain."""
        return self.cost / self.gain if self.gain > 0 else math.inf


@dataclass(frozen=True)
class Next:
    """The two possible purchases from a starting point, the better one first."""

    labels: int
    total: int
    accuracy: float
    steps: tuple[Step, Step]
    agreement: float | None  # share of draws in which the first is the better one
    here: Forecast | None  # the surface at the starting point, if it was needed


def next_step(table: CostTable, at: tuple[int, int], prices: Prices, *, draws: int = DRAWS) -> Next:
    """Compare labels with images for the same money, from `at` (labels, total).

    Accuracies are interpolated inside the table and forecast by the fitted surface outside.
    """
    labels, total = at
    if not 1 <= labels <= total:
        raise UserError(f"{labels:,} labels among {total:,} images cannot be. Give LABELS,TOTAL, like 500,20000.")
    # Numbers of labels and images that cost the same, up to the next count or total measured.
    amounts = {"labels": min(_next(table.labels, labels), total) - labels, "images": _next(table.totals, total) - total}
    if amounts["labels"] == 0:
        raise UserError(f"All {total:,} images are labeled: there is nothing left to label. Only more images can help.")
    if (money := min(amounts["labels"] * prices.label, amounts["images"] * prices.image)) > 0:  # neither is free
        amounts = {"labels": max(round(money / prices.label), 1), "images": max(round(money / prices.image), 1)}
    places = {"labels": (labels + amounts["labels"], total), "images": (labels, total + amounts["images"])}
    reach = [at, *places.values()]
    surface = None  # needed, and fitted, only past the edge
    if np.isnan([_interpolate(table, table.accuracy, place) for place in reach]).any():
        surface = fit_surface(table, draws=draws // 5)
    steps, gains = [], {}
    for what, to in places.items():
        both = [_interpolate(table, table.accuracy, point) for point in (at, to)]
        beyond = surface is not None and bool(np.isnan(both).any())
        if surface is None or not beyond:
            tables = table.draws(draws)
            gains[what] = _interpolate(table, tables, to) - _interpolate(table, tables, at)
        else:
            points = np.array([at, to], dtype=np.float64)
            both, drawn = list(surface.predict(points)), surface.predict_draws(points)
            gains[what] = drawn[:, 1] - drawn[:, 0]
        gain = float(both[1] - both[0])
        cost = amounts[what] * (prices.label if what == "labels" else prices.image)
        instead = None if beyond else _equivalent(table, at, gain, what)
        steps.append(Step(what, amounts[what], cost, gain, interval(gains[what]), instead, beyond))
    steps.sort(key=lambda step: (step.price_of_a_point, -step.gain))
    here = surface.forecast(*at) if surface is not None else None
    now = float(_interpolate(table, table.accuracy, at))
    accuracy = here.accuracy if here is not None and np.isnan(now) else now
    first, second = (gains[step.what] for step in steps)
    n = min(len(first), len(second))
    # gain / cost compared without dividing, since a step may be free
    agreement = float(np.mean(first[:n] * steps[1].cost >= second[:n] * steps[0].cost)) if n else None
    return Next(labels, total, accuracy, (steps[0], steps[1]), agreement, here)


def _next(measured: NDArray[np.int64], now: int) -> int:
    """Return the next larger value measured; 1.5 times `now` past the last one."""
    return int(min(measured[measured > now], default=now + max(now // 2, 1)))


def _at(places: NDArray[Any], values: Floats, place: float) -> Floats:
    """Return values (..., K) measured at `places` (K,) at any place by linear interpolation; NaN outside of them."""
    right = int(np.searchsorted(places, place))
    if right == len(places) or place < places[0]:
        return np.full(values.shape[:-1], np.nan)
    if places[right] == place:
        return values[..., right]
    part = (place - places[right - 1]) / (places[right] - places[right - 1])
    mixed: Floats = (1 - part) * values[..., right - 1] + part * values[..., right]
    return mixed


def _interpolate(table: CostTable, accuracy: Floats, point: tuple[int, int]) -> Floats:
    """Return the accuracy (...) at (labels, total) by bilinear interpolation; NaN outside the table."""
    return _at(table.totals, _at(table.labels, accuracy, point[0]), point[1])


def _equivalent(table: CostTable, at: tuple[int, int], gain: float, what: str) -> float | None:
    """Return how many of the other kind bring the same gain; None if the table does not reach it."""
    if what == "labels":
        line, places, start = _at(table.labels, table.accuracy, at[0]), table.totals, at[1]
    else:
        line = np.array([_interpolate(table, table.accuracy, (int(count), at[1])) for count in table.labels])
        places, start = table.labels, at[0]
    ahead = ~np.isnan(line) & (places > start)
    if gain <= 0 or not ahead.any():
        return None
    now = float(_interpolate(table, table.accuracy, at))
    here = np.concatenate([[now], line[ahead]])
    reach = float(first_reach(np.concatenate([[start], places[ahead]]), here, now + gain))
    return reach - start if np.isfinite(reach) else None


# Everything that `mma cost` computes, as one value and as JSON.

RAW = "raw: the first step up a column that ends at or above the target"
SMOOTH = "isotonic: each column is replaced by the closest one that never falls, then read the same way"


@dataclass(frozen=True)
class Analysis:
    """The analysis of one table."""

    source: str
    rule: str
    level: float  # of the intervals
    draws: int  # behind the intervals; 0 when the noise is unknown
    notes: tuple[str, ...]
    targets: tuple[Exchange, ...]
    prices: Prices | None
    mixes: tuple[tuple[Mix, ...], ...]  # per target, cheapest first; without prices none
    next: Next | None  # with prices and a starting point


def ask(
    table: CostTable,
    targets: Sequence[float] = (),
    *,
    prices: Prices | None = None,
    at: tuple[int, int] | None = None,
    smooth: bool = False,
    draws: int = DRAWS,
) -> Analysis:
    """Return exchange rates for each target; with prices the cheapest mixes; with a starting point the next step."""
    if at is not None and prices is None:
        raise UserError("What to buy next depends on prices: give --label-price and --image-price along with --at.")
    chosen = list(targets) or default_targets(table)
    return Analysis(
        source=table.name,
        rule=SMOOTH if smooth else RAW,
        level=LEVEL,
        draws=draws if table.has_spread else 0,
        notes=table.notes,
        targets=tuple(exchange(table, t, smooth=smooth, draws=draws) for t in chosen),
        prices=prices,
        mixes=tuple(
            tuple(cheapest(table, target, prices, at=at, smooth=smooth, draws=draws))
            for target in (chosen if prices and (targets or not at) else ())
            if prices
        ),
        next=next_step(table, at, prices, draws=draws) if at and prices else None,
    )


DERIVED = ("unlabeled", "price_of_a_point", "beyond")  # properties that are numbers of the answer too


def as_json(value: Any) -> Any:
    """Return plain lists, dicts and numbers; infinite numbers become None."""
    if is_dataclass(value) and not isinstance(value, type):
        derived = [name for name in DERIVED if isinstance(getattr(type(value), name, None), property)]
        return {name: as_json(getattr(value, name)) for name in (*(one.name for one in fields(value)), *derived)}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
