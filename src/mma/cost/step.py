"""The next purchase from a starting point: labels, or images for the same money."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mma.cost.advice import Prices
from mma.cost.columns import first_reach
from mma.cost.exchange import DRAWS, LEVEL, Interval, interval
from mma.cost.surface import Forecast, Surface, fit_surface
from mma.cost.table import CostTable, Floats


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


def next_step(table: CostTable, at: tuple[int, int], prices: Prices, *, draws: int = DRAWS, seed: int = 0) -> Next:
    """Compare labels with images for the same money, from `at` (labels, total).

    Accuracies are interpolated inside the table and forecast by the fitted surface outside.
    """
    labels, total = at
    if not 1 <= labels <= total:
        raise ValueError(
            f"{labels:,} labels among {total:,} images in total cannot be. Give LABELS,TOTAL, like 500,20000."
        )
    amounts = _amounts(table, at, prices)
    places = {"labels": (labels + amounts["labels"], total), "images": (labels, total + amounts["images"])}
    reach = [at, *places.values()]
    surface = None  # needed, and fitted, only past the edge
    if np.isnan([_interpolate(table, table.accuracy, place) for place in reach]).any():
        surface = fit_surface(table, draws=draws // 5, seed=seed)
    steps, gains = [], {}
    for what, to in places.items():
        gain, gains[what], beyond = _gain(table, surface, at, to, draws, seed)
        cost = amounts[what] * (prices.label if what == "labels" else prices.image)
        instead = None if beyond else _equivalent(table, at, gain, what)
        steps.append(Step(what, amounts[what], cost, gain, interval(gains[what], LEVEL), instead, beyond))
    steps.sort(key=lambda step: (step.price_of_a_point, -step.gain))
    here = surface.forecast(*at) if surface is not None else None
    now = float(_interpolate(table, table.accuracy, at))
    accuracy = here.accuracy if here is not None and np.isnan(now) else now
    return Next(labels, total, accuracy, (steps[0], steps[1]), _agreement(steps, gains), here)


def _amounts(table: CostTable, at: tuple[int, int], prices: Prices) -> dict[str, int]:
    """Return numbers of labels and images that cost the same, up to the next count or total measured."""
    labels, total = at
    most = {"labels": min(_next(table.labels, labels), total) - labels, "images": _next(table.totals, total) - total}
    if most["labels"] == 0:
        raise ValueError(
            f"All {total:,} images are labeled: there is nothing left to label. Only more images can help."
        )
    costs = most["labels"] * prices.label, most["images"] * prices.image
    if min(costs) == 0:
        return most  # one of them is free: as far as the next measurement
    money = min(costs)
    return {"labels": max(round(money / prices.label), 1), "images": max(round(money / prices.image), 1)}


def _agreement(steps: list[Step], gains: dict[str, Floats]) -> float | None:
    """Return the share of draws in which the first step gains more per money than the second."""
    first, second = (gains[step.what] for step in steps)
    n = min(len(first), len(second))
    # gain / cost compared without dividing, since a step may be free
    return float(np.mean(first[:n] * steps[1].cost >= second[:n] * steps[0].cost)) if n else None


def _next(measured: NDArray[np.int64], now: int) -> int:
    """Return the next larger value measured; 1.5 times `now` past the last one."""
    larger = measured[measured > now]
    return int(larger[0]) if len(larger) else now + max(now // 2, 1)


def _gain(
    table: CostTable, surface: Surface | None, at: tuple[int, int], to: tuple[int, int], draws: int, seed: int
) -> tuple[float, Floats, bool]:
    """Return the gain in points from `at` to `to`, its draws, and whether the surface was used."""
    both = [_interpolate(table, table.accuracy, point) for point in (at, to)]
    if surface is None or not np.isnan(both).any():
        drawn = table.draws(draws, seed) if table.has_spread else np.empty((0, *table.accuracy.shape))
        return float(both[1] - both[0]), _interpolate(table, drawn, to) - _interpolate(table, drawn, at), False
    points = np.array([at, to], dtype=np.float64)
    figure, drawn = surface.predict(points), surface.predict_draws(points)
    return float(figure[1] - figure[0]), drawn[:, 1] - drawn[:, 0], True


def _column(table: CostTable, accuracy: Floats, labels: int) -> Floats:
    """Return the column (..., T) at any label count by linear interpolation; NaN outside the table."""
    right = int(np.searchsorted(table.labels, labels))
    if right == len(table.labels) or (right == 0 and table.labels[0] != labels):
        return np.full(accuracy.shape[:-1], np.nan)
    if table.labels[right] == labels:
        return accuracy[..., right]
    part = (labels - table.labels[right - 1]) / (table.labels[right] - table.labels[right - 1])
    mixed: Floats = (1 - part) * accuracy[..., right - 1] + part * accuracy[..., right]
    return mixed


def _interpolate(table: CostTable, accuracy: Floats, point: tuple[int, int]) -> Floats:
    """Return the accuracy (...) at (labels, total) by bilinear interpolation; NaN outside the table."""
    column = _column(table, accuracy, point[0])
    below = int(np.searchsorted(table.totals, point[1], side="right")) - 1
    if below < 0 or point[1] > table.totals[-1]:
        return np.full(column.shape[:-1], np.nan)
    if table.totals[below] == point[1]:
        return column[..., below]
    part = (point[1] - table.totals[below]) / (table.totals[below + 1] - table.totals[below])
    mixed: Floats = (1 - part) * column[..., below] + part * column[..., below + 1]
    return mixed


def _equivalent(table: CostTable, at: tuple[int, int], gain: float, what: str) -> float | None:
    """Return how many of the other kind bring the same gain; None if the table does not reach it."""
    if what == "labels":
        line, places, start = _column(table, table.accuracy, at[0]), table.totals, at[1]
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
