"""The exchange rate: how many images one more label saves at equal accuracy, read from the columns of a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from mma.cost.table import CostTable, Floats
from mma.errors import UserError

ALREADY, NEVER = -np.inf, np.inf  # below the column's first total, beyond its last
DRAWS = 1_000
LEVEL = 0.9  # of every interval


def first_reach(totals: Floats, accuracy: Floats, target: float) -> Floats:
    """Return the total at which a column first reaches `target`: (T,), (..., T) -> (...).

    Columns are noisy and may fall. The rule: go up the totals and interpolate the first step that ends at or above the
    target. Returns ALREADY (-inf) when the first total is above the target, since fewer images might do but were not
    measured, and NEVER (inf) when no total reaches it.
    """
    reached = accuracy >= target
    row = np.maximum(reached.argmax(axis=-1), 1)[..., None]
    after = np.take_along_axis(accuracy, row, axis=-1)[..., 0]
    before = np.take_along_axis(accuracy, row - 1, axis=-1)[..., 0]
    # Paper: the appendix weighs *accuracies* of the two rows, which gives back the target itself.
    # Differs: the same weights on the numbers of images, which is what is asked for.
    rise = np.where(after == before, 1.0, after - before)
    part = np.where(after == before, 0.0, (target - before) / rise)
    totals_ = np.asarray(totals, dtype=np.float64)
    between = totals_[row[..., 0] - 1] + part * (totals_[row[..., 0]] - totals_[row[..., 0] - 1])
    return np.where(accuracy[..., 0] > target, ALREADY, np.where(reached.any(axis=-1), between, NEVER))


def isotonic(values: Floats, weights: Floats) -> Floats:
    """Return the closest non-decreasing column by weighted least squares: (..., T), (T,) -> (..., T).

    The min-max formula (fit_i = max over j <= i of min over k >= i of the mean of j..k) works on many draws at once and
    gives the result of pooling adjacent violators.
    """
    weight = np.concatenate([[0.0], np.cumsum(weights)])
    sums = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values * weights, axis=-1)], axis=-1)
    fit = np.empty_like(values)
    for i in range(values.shape[-1]):
        ends = np.arange(i + 1, values.shape[-1] + 1)
        means = [(sums[..., ends] - sums[..., j, None]) / (weight[ends] - weight[j]) for j in range(i + 1)]
        fit[..., i] = np.max([each.min(axis=-1) for each in means], axis=0)
    return fit


def totals_needed(table: CostTable, accuracy: Floats, target: float, *, smooth: bool = False) -> Floats:
    """Return the total that reaches `target` at each label count: (..., T, L) -> (..., L), coded as in `first_reach`."""
    needed = []
    for column in range(len(table.labels)):
        rows = table.measured[:, column]
        values, totals = accuracy[..., rows, column], table.totals[rows].astype(np.float64)
        if smooth:
            error = table.error[rows, column]
            floor = max(float(np.nanmax(error, initial=0)) * 1e-3, 1e-9)  # agreeing runs have no infinite weight
            known = not np.isnan(error).any()
            values = isotonic(values, 1 / np.maximum(error, floor) ** 2 if known else np.ones(len(error)))
        if len(totals) == 1:  # nothing can be interpolated: beyond it lies a step that never reaches anything
            totals, values = np.append(totals, totals), np.concatenate([values, np.full_like(values, -np.inf)], axis=-1)
        needed.append(first_reach(totals, values, target))
    return np.stack(needed, axis=-1)


class Status(StrEnum):
    """Whether a column reaches the target."""

    REACHED = "reached"
    ALREADY = "already reached with the smallest total"
    NEVER = "not reached"


@dataclass(frozen=True)
class Interval:
    """The interval that holds a number in 90 % of the draws (tables with every mean moved by its error).

    An end is infinite where draws do not reach the target (or reach it below the first total).
    """

    low: float
    high: float
    share: float  # of draws with a finite number


@dataclass(frozen=True)
class ImagesNeeded:
    """The number of images needed to reach the target with this many labels; None if outside the measured range."""

    labels: int
    status: Status
    total: int | None
    smallest: int  # the column's first total: an upper bound when it is already enough
    interval: Interval | None  # of `total`
    already: float | None  # share of draws whose first total is above the target
    missed: float | None  # share of draws that never reach it

    @property
    def unlabeled(self) -> int | None:
        """`total` without the labeled images."""
        return None if self.total is None else self.total - self.labels


@dataclass(frozen=True)
class Ratio:
    """Images saved per label between two neighbouring label counts; None if either has no `total`."""

    fewer: int
    more: int
    totals: float | None  # in images, labeled or not
    unlabeled: float | None  # in unlabeled images, the paper's c_ratio: 1 more, since a labeled image leaves U
    totals_interval: Interval | None
    unlabeled_interval: Interval | None
    finding: str  # a remark in words, or ""


@dataclass(frozen=True)
class Exchange:
    """Images needed and ratios for one target accuracy."""

    target: float
    needs: tuple[ImagesNeeded, ...]
    ratios: tuple[Ratio, ...]


def exchange(table: CostTable, target: float, *, smooth: bool = False, draws: int = DRAWS) -> Exchange:
    """Return the images that each label count needs, and what labels are worth. `smooth`: isotonic columns."""
    check_target(table, target)
    needed = totals_needed(table, table.accuracy, target, smooth=smooth)  # (L,)
    drawn = totals_needed(table, table.draws(draws), target, smooth=smooth)  # (draws, L)
    needs = tuple(
        ImagesNeeded(
            labels=int(table.labels[i]),
            status={ALREADY: Status.ALREADY, NEVER: Status.NEVER}.get(float(value), Status.REACHED),
            # A hair less: interpolation may leave a whole number a little too large.
            total=math.ceil(value - 1e-6) if np.isfinite(value) else None,
            smallest=int(table.totals[table.measured[:, i]][0]),
            interval=interval(mine),
            already=float(np.mean(mine == ALREADY)) if len(mine) else None,
            missed=float(np.mean(mine == NEVER)) if len(mine) else None,
        )
        for i, (value, mine) in enumerate(zip(needed, drawn.T, strict=True))
    )
    both = np.concatenate([needed[None], drawn])  # (1 + draws, L)
    pairs = [(table.labels[i : i + 2].tolist(), both[:, i : i + 2]) for i in range(len(needed) - 1)]
    return Exchange(target, needs, tuple(_ratio(counts, totals) for counts, totals in pairs))


def check_target(table: CostTable, target: float) -> None:
    """Refuse a target that no cell reaches, or that is not a percentage."""
    labels, total, best = table.best()
    if not 0 < target <= 100:
        raise UserError(f"A target of {target:g} is not an accuracy in percent. Give one up to {best:g}.")
    if target <= 1 < np.nanmin(table.accuracy):
        raise UserError(f"A target of {target:g} looks like a fraction. Write percent: {100 * target:g}.")
    if target > best:
        raise UserError(
            f"Nothing measured in {table.name} reaches {target:g} %: the best is {best:g} % at {labels:,} labels and "
            f"{total:,} images in total. Give a target up to that; for what more data might bring, see the forecast."
        )


def default_targets(table: CostTable, most: int = 5) -> list[float]:
    """Return up to `most` measured accuracies, evenly spread, at which two neighbouring label counts can be compared."""
    measured = np.unique(table.accuracy[table.measured])
    known = {float(t): np.isfinite(totals_needed(table, table.accuracy, float(t))) for t in measured}
    compared = [target for target, columns in known.items() if (columns[:-1] & columns[1:]).any()]
    if not compared:
        return [table.best()[2]]
    picks = np.unique(np.linspace(0, len(compared) - 1, min(most, len(compared))).round().astype(int))
    return [compared[i] for i in picks]


def interval(values: Floats, level: float = LEVEL) -> Interval | None:
    """Return the middle `level` of the values, NaN left out; None when both ends are infinite."""
    ordered = np.sort(values[~np.isnan(values)])
    if len(ordered) == 0:
        return None
    # Use order statistics: interpolating with infinity is undefined.
    last = len(ordered) - 1
    low, high = (float(ordered[round(last * q)]) for q in ((1 - level) / 2, (1 + level) / 2))
    if np.isinf(low) and np.isinf(high):
        return None
    return Interval(low, high, float(np.isfinite(values).mean()))


def _ratio(counts: list[int], totals: Floats) -> Ratio:
    """Compare two neighbouring label counts by the totals they need: those measured (row 0), and those of every draw."""
    fewer, more = counts
    with np.errstate(invalid="ignore"):  # inf - inf: NaN
        saved = (totals[:, 0] - totals[:, 1]) / (more - fewer)
    value, spread, finding = float(saved[0]) if np.isfinite(saved[0]) else None, interval(saved[1:]), ""
    if value is None:
        why = {ALREADY: "has it at its smallest total already", NEVER: "does not reach it"}
        reasons = [f"{count:,} {why[total]}" for count, total in zip(counts, totals[0], strict=True) if total in why]
        finding = f"no ratio, {', '.join(reasons)}"
    elif value < 0:
        unsure = "" if spread is not None and spread.high < 0 else ", not shown"
        finding = f"below 0 on totals: {more:,} labels need more images than {fewer:,}{unsure}"
    # Paper: c_ratio is written on |U|, but "20x" at 500 labels is the one on totals. Both are given.
    unlabeled = None if value is None else value + 1
    return Ratio(fewer, more, value, unlabeled, spread, interval(saved[1:] + 1), finding)
