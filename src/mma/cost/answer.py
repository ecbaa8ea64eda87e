"""Everything that `mma cost` computes, as one value and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from mma.cost.advice import Mix, Prices, cheapest
from mma.cost.exchange import DRAWS, LEVEL, Exchange, default_targets, exchange
from mma.cost.step import Next, next_step
from mma.cost.table import CostTable

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
    seed: int = 0,
) -> Analysis:
    """Return exchange rates for each target; with prices the cheapest mixes; with a starting point the next step."""
    if at is not None and prices is None:
        raise ValueError("What to buy next depends on prices: give --label-price and --image-price along with --at.")
    chosen = list(targets) or default_targets(table)
    return Analysis(
        source=table.name,
        rule=SMOOTH if smooth else RAW,
        level=LEVEL,
        draws=draws if table.has_spread else 0,
        notes=table.notes,
        targets=tuple(exchange(table, t, smooth=smooth, draws=draws, seed=seed) for t in chosen),
        prices=prices,
        mixes=_mixes(table, [] if at and not targets else chosen, prices, at, smooth=smooth, draws=draws, seed=seed),
        next=next_step(table, at, prices, draws=draws, seed=seed) if at and prices else None,
    )


def _mixes(
    table: CostTable,
    targets: list[float],
    prices: Prices | None,
    at: tuple[int, int] | None,
    *,
    smooth: bool,
    draws: int,
    seed: int,
) -> tuple[tuple[Mix, ...], ...]:
    if prices is None:
        return ()
    return tuple(tuple(cheapest(table, t, prices, at=at, smooth=smooth, draws=draws, seed=seed)) for t in targets)


def as_json(value: Any) -> Any:
    """Return plain lists, dicts and numbers; infinite numbers become None."""
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
        extra = {
            name: as_json(getattr(value, name))
            for name in _PROPERTIES
            if isinstance(getattr(type(value), name, None), property)
        }
        return {**named, **extra}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


_PROPERTIES = ("unlabeled", "price_of_a_point", "beyond")  # derived numbers to include
