"""Read a column of a table: the total number of images that reaches a target accuracy."""

from __future__ import annotations

import numpy as np

from mma.cost.table import CostTable, Floats

ALREADY, NEVER = -np.inf, np.inf  # below the column's first total, beyond its last


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
    size = values.shape[-1]
    weight = np.concatenate([[0.0], np.cumsum(weights)])
    sums = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values * weights, axis=-1)], axis=-1)
    fit = np.empty_like(values)
    for i in range(size):
        ends = np.arange(i + 1, size + 1)
        means = [
            ((sums[..., ends] - sums[..., j, None]) / (weight[ends] - weight[j])).min(axis=-1) for j in range(i + 1)
        ]
        fit[..., i] = np.max(means, axis=0)
    return fit


def totals_needed(table: CostTable, accuracy: Floats, target: float, *, smooth: bool = False) -> Floats:
    """Return the total that reaches `target` at each label count: (..., T, L) -> (..., L), coded as in `first_reach`."""
    needed = []
    for column in range(len(table.labels)):
        rows = table.measured[:, column]
        values = accuracy[..., rows, column]
        if smooth:
            values = isotonic(values, _weights(table, column)[rows])
        totals = table.totals[rows].astype(np.float64)
        needed.append(_single(totals, values, target) if len(totals) == 1 else first_reach(totals, values, target))
    return np.stack(needed, axis=-1)


def _single(totals: Floats, values: Floats, target: float) -> Floats:
    """Return the answer for a column with a single measurement, where nothing can be interpolated."""
    value = values[..., 0]
    return np.where(value > target, ALREADY, np.where(value == target, totals[0], NEVER))


def _weights(table: CostTable, column: int) -> Floats:
    """Return inverse variances of the means; ones where the noise is unknown."""
    error = table.error[:, column]
    if np.isnan(error[table.measured[:, column]]).any():
        return np.ones(len(error))
    floor = max(float(np.nanmax(error)) * 1e-3, 1e-9)  # a cell whose runs agree exactly must not get infinite weight
    weights: Floats = 1 / np.maximum(error, floor) ** 2
    return weights
