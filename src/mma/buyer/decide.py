"""The decision: weigh up mixes of labels and images for the money that is left, and buy this round's part of the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mma.buyer.belief import Belief, believe
from mma.buyer.situation import Bought, Measurement, Purchase, Situation, Terms, money_left

Floats = NDArray[np.float64]
SHARES = np.linspace(0.0, 1.0, 11)  # of the money for labels: the mixes to compare
PARTS = (0.25, 0.5, 0.75, 1.0)  # of the money: how much to spend when a point of accuracy has a price
LEARNABLE = 10  # held-out labels below which trying a purchase teaches nothing


def decide(terms: Terms, earlier: Sequence[Bought], now: Situation, rng: np.random.Generator) -> Purchase:
    """Return what to buy now. `earlier` are the purchases before this one, in order."""
    if any(bought.purchase.stop for bought in earlier):
        return Purchase(0, 0, True, "stopped before")
    limits = Limits.of(terms, earlier, now)
    if terms.share is not None:
        return split(terms, terms.share, limits, earlier, now)
    return buy(terms, limits, earlier, now, rng)


@dataclass(frozen=True)
class Limits:
    """What there is to spend, and what there is to buy."""

    money: float
    rounds: int  # chances to buy, this one included
    labels: int  # that may still be bought
    images: int  # that may still be bought

    @classmethod
    def of(cls, terms: Terms, earlier: Sequence[Bought], now: Situation) -> Limits:
        """Return what is left of the money, the rounds, the label budget and the pool."""
        return cls(
            money_left(terms, earlier),
            rounds=terms.purchases - now.number + 1,
            labels=min(terms.budget, now.images) - terms.held_out_labels - now.labels,
            images=terms.pool - now.images,
        )


def split(terms: Terms, share: float, limits: Limits, earlier: Sequence[Bought], now: Situation) -> Purchase:
    """Spend a fixed share of the money on labels and the rest on images, evenly over the rounds.

    Each round buys up to what is due by then in all, so that fractions of a label are not lost in rounding.
    """
    due, prices = terms.money * now.number / terms.purchases, terms.prices
    had = now.labels - terms.start, sum(bought.purchase.images for bought in earlier)
    labels, images = (
        int(affordable(np.array(due * part), price, most + count)) - count if part else 0
        for part, price, most, count in (
            (share, prices.label, limits.labels, had[0]),
            (1 - share, prices.image, limits.images, had[1]),
        )
    )
    return Purchase(labels, images, False, f"{share:.0%} of the money on labels, as set")


def buy(terms: Terms, limits: Limits, earlier: Sequence[Bought], now: Situation, rng: np.random.Generator) -> Purchase:
    """Buy this round's part of the best mix.

    In the first half of the rounds, classes without a label come first, because no image can help them; and with enough
    held-out labels it acts on one draw from its belief, so that it tries what it is unsure about (Thompson sampling). Later it
    acts on the best expectation.
    """
    history = [*(bought.before for bought in earlier), now]
    measured = next((entry.measured for entry in reversed(history) if entry.measured), None)
    belief, mixes = believe(history, rng, terms.classes), compare(terms, limits)
    factors = belief.factors(now.labels, now.images, mixes.labels, mixes.images)  # (DRAWS, M)
    error = 100 * (measured.error if measured else 0.5)
    worth = terms.value_per_point
    value = error * (1 - factors) * (worth or 1.0) - (mixes.cost if worth else 0.0)
    early = 2 * now.number <= terms.purchases
    explore = early and now.measured is not None and now.measured.labels >= LEARNABLE
    best = int(value.mean(axis=0).argmax())
    chosen = int(value[0].argmax()) if explore else best
    if value.mean(axis=0)[best] <= 0:
        return Purchase(0, 0, True, explain_stop(terms, limits, mixes))
    why = explain(now, measured, belief, mixes, error * factors.mean(axis=0), best, chosen)
    part = 1 / limits.rounds
    missing = now.missing_classes if early else 0  # a class not found by then may not exist
    if missing and (most := mixes.labels.max()):
        return Purchase(int(most * part + 1e-9), 0, False, f"labels first: {missing} classes have none; {why}")
    labels, images = int(mixes.labels[chosen] * part + 1e-9), int(mixes.images[chosen] * part + 1e-9)
    return Purchase(labels, images, False, why)


@dataclass(frozen=True, eq=False)
class Mixes:
    """Ways to spend the money that is left, one entry each."""

    share: Floats  # (M,) of the money, for labels
    labels: Floats  # (M,)
    images: Floats  # (M,)
    cost: Floats  # (M,)


def compare(terms: Terms, limits: Limits) -> Mixes:
    """Return the mixes of labels and images that the money can buy."""
    prices, parts = terms.prices, PARTS if terms.value_per_point else (1.0,)
    share, money = (a.ravel() for a in np.meshgrid(SHARES, limits.money * np.array(parts)))
    labels = affordable(money * share, prices.label, limits.labels)
    images = affordable(money - labels * prices.label, prices.image, limits.images) * (share < 1)
    return Mixes(share, labels, images, labels * prices.label + images * prices.image)


def affordable(money: Floats, price: float, most: int) -> Floats:
    """Return how many can be bought, at most `most`; what is free is taken whole."""
    if price * most == 0:
        return np.full(np.shape(money), float(most))
    # Never more than all of them, in money: dividing by a tiny price would overflow.
    count: Floats = np.floor(np.minimum(money, price * most) / price + 1e-9)
    return np.minimum(count, most)


def explain(
    now: Situation,
    measured: Measurement | None,
    belief: Belief,
    mixes: Mixes,
    errors: Floats,  # (M,) expected, in percent
    best: int,
    chosen: int,
) -> str:
    """Return the reasons in words: the measurement, the expectations, the exponents."""
    have = f"with {now.labels:,} labels and {now.images:,} images"
    found = f"nothing measured yet: judged by published tables, {have}"
    if measured is not None:
        found = f"{100 * measured.error:.1f} +- {100 * measured.spread:.1f} % missed on held-out labels {have}"
    ends = [np.abs(mixes.share - end).argmin() for end in (1.0, 0.0)]
    choice = f"{mixes.share[best]:.0%} of the money on labels is expected to be best ({errors[best]:.1f} %"
    against = f"all on labels {errors[ends[0]]:.1f} %, all on images {errors[ends[1]]:.1f} %)"
    trial = "" if best == chosen else f"; {mixes.share[chosen]:.0%} is tried, to learn"
    few_or_many = 1 if now.labels < belief.knee else 2
    slopes = [f"{belief.mean[i]:.2f} +- {belief.deviation[i]:.2f}" for i in (few_or_many, 3)]
    return f"{found}; {choice}, {against}{trial}; exponents: labels {slopes[0]}, images {slopes[1]}"


def explain_stop(terms: Terms, limits: Limits, mixes: Mixes) -> str:
    """Return why nothing is bought any more."""
    if not (mixes.labels + mixes.images).max():
        return f"stopped with {limits.money:.2f} left: it buys neither a label nor an image"
    worth = f" at {terms.value_per_point:g} per point of accuracy" if terms.value_per_point else ""
    return f"stopped with {limits.money:.2f} left: nothing is expected to be worth its price{worth}"
