"""The nouns of a purchase: the settings, what there is, what was measured, what is bought."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.cost import Prices


@dataclass(frozen=True)
class Terms:
    """The settings of a policy that buys, and the limits of its run."""

    prices: Prices
    money: float  # for everything bought after the start set, held-out labels included
    purchases: int  # rounds in which something may be bought
    start: int  # labels that are given
    budget: int  # labels there may be at most, held-out ones included
    pool: int  # images there are to have at most
    classes: int
    share: float | None = None  # of the money for labels; None: the buyer decides by itself
    held_out_labels: int = 0  # labels bought at the start to measure by
    value_per_point: float = 0.0  # money that one point of accuracy is worth; 0 = spend everything that helps


@dataclass(frozen=True)
class Measurement:
    """The error on held-out labels."""

    labels: int  # held-out labels it was measured on
    accuracy: float  # percent
    error: float  # mean probability that is not on the right class, 0 to 1
    spread: float  # standard error of `error`


@dataclass(frozen=True)
class Situation:
    """What a run has before a purchase."""

    number: int  # of the purchase, counted from 1
    step: int
    labels: int  # to train with
    images: int  # in the pool, labeled ones included
    measured: Measurement | None = None  # None without held-out labels
    missing_classes: int = 0  # classes without a label to train with


@dataclass(frozen=True)
class Purchase:
    """What to buy, and the reasons."""

    labels: int
    images: int
    stop: bool  # nothing more is worth its price
    why: str


@dataclass(frozen=True)
class Bought:
    """A purchase that was made, and what there was before it."""

    before: Situation
    purchase: Purchase


def measure(probs: NDArray[np.floating], labels: NDArray[np.int64]) -> Measurement:
    """Return the error of predictions (N, classes) on held-out labels (N,).

    The probability that is not on the right class changes more smoothly than the count of wrong answers. Half a miss is
    added, as if one more image had been seen: a few images without a miss do not mean that the error is zero.
    """
    right = probs[np.arange(len(labels)), labels].astype(np.float64)
    error = (float((1 - right).sum()) + 0.5) / (len(labels) + 1)
    return Measurement(
        len(labels),
        tidy(100 * float((probs.argmax(1) == labels).mean())),
        tidy(error),
        tidy(math.sqrt(error * (1 - error) / (len(labels) + 1))),
    )


def money_left(terms: Terms, earlier: Sequence[Bought]) -> float:
    """Return the money that is left after the held-out labels and all purchases."""
    paid = math.fsum(cost(terms.prices, bought.purchase) for bought in earlier)
    return terms.money - terms.held_out_labels * terms.prices.label - paid


def cost(prices: Prices, purchase: Purchase) -> float:
    """Return what a purchase costs."""
    return purchase.labels * prices.label + purchase.images * prices.image


def as_row(terms: Terms, earlier: Sequence[Bought], bought: Bought) -> dict[str, Any]:
    """Return a purchase as a JSON row: what is bought, what it costs, what there was before, and why."""
    before, purchase = bought.before, bought.purchase
    paid = cost(terms.prices, purchase)
    return {
        "round": before.number,
        "step": before.step,
        "labels": purchase.labels,
        "images": purchase.images,
        "paid": tidy(paid),
        "left": tidy(money_left(terms, earlier) - paid),
        "stop": purchase.stop,
        "had": {"labels": before.labels, "images": before.images},
        "measured": None if before.measured is None else asdict(before.measured),
        "why": purchase.why,
    }


def from_row(row: Mapping[str, Any]) -> Bought:
    """Return the purchase that `as_row` wrote."""
    measured = Measurement(**row["measured"]) if row["measured"] else None
    before = Situation(row["round"], row["step"], row["had"]["labels"], row["had"]["images"], measured)
    return Bought(before, Purchase(row["labels"], row["images"], row["stop"], row["why"]))


def tidy(value: float) -> float:
    """Round to 12 significant digits, so that sums of prices read as people write them."""
    return float(f"{value:.12g}")
