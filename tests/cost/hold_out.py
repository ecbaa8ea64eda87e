"""How well a surface predicts cells that it was not fitted to: what docs/cost.md tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mma.cost import CostTable, fit_surface
from mma.cost.exchange import LEVEL
from mma.cost.surface import FORMS


@dataclass(frozen=True)
class HeldOut:
    """The error of forecasts for held-out cells, against the guess that nothing changes from the nearest cell."""

    table: str
    held: str  # "most images" or "most labels"
    value: int
    cells: int
    miss: float  # mean absolute error, points
    unchanged: float  # the same for the guess "no change from the nearest cell"
    within: float  # share of cells inside their 90 % interval


HELD = ("most images", "most labels")


def hold_out(
    table: CostTable, held: str, *, forms: Sequence[str] = tuple(FORMS), draws: int = 200, seed: int = 0
) -> HeldOut:
    """Fit without the largest total ("most images") or label count ("most labels"), and predict those cells."""
    assert held in HELD
    rows = held == "most images"
    value = int((table.totals if rows else table.labels)[-1])
    gone = np.zeros(table.accuracy.shape, dtype=bool)
    gone[(-1, slice(None)) if rows else (slice(None), -1)] = True
    gone &= table.measured & (table.totals[:, None] > table.labels[None, :])
    kept = np.where(gone, np.nan, table.accuracy)
    surface = fit_surface(replace(table, accuracy=kept), forms=forms, draws=draws, seed=seed)
    where = np.argwhere(gone)
    points = np.stack([table.labels[where[:, 1]], table.totals[where[:, 0]]], axis=1).astype(np.float64)
    truth, before = table.accuracy[gone], kept[(-2, slice(None)) if rows else (slice(None), -2)][where[:, int(rows)]]
    drawn = surface.predict_draws(points)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return HeldOut(
        table.name,
        held,
        value,
        len(truth),
        miss=float(np.abs(surface.predict(points) - truth).mean()),
        unchanged=float(np.nanmean(np.abs(before - truth))),
        within=float(np.mean((truth >= low) & (truth <= high))),
    )
