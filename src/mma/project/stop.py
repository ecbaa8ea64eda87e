"""When to stop labeling: each rule has a name, and the card says which one fired and why. No torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mma.project.forecast import Gain

SMALL_GAIN = 0.5  # points: a band that ends below it promises nothing worth the work
STABLE = 0.99  # kappa between two models from which on their answers count as the same (Bloodgood and Vijay-Shanker)
STABLE_FOR = 3  # comparisons in a row


@dataclass(frozen=True)
class StopCard:
    """A reason to stop."""

    rule: str
    why: str


@dataclass(frozen=True)
class StopSituation:
    """What the rules look at. Accuracies in percent."""

    labels: int
    left: int  # images that can still be asked about
    budget: int | None = None
    target: float | None = None
    accuracy_low: float | None = None  # lower end of a verdict's interval; None before there is one
    gain: Gain | None = None
    agreement: tuple[float, ...] = ()  # kappa of each model with the one before it, latest last
    point_value: float | None = None  # money that a point of accuracy is worth
    point_price: float | None = None  # what a point costs now


def stop_card(now: StopSituation) -> StopCard | None:
    """Return the first rule that fires, the most certain one first; None: go on."""
    for rule in (_nothing_left, _budget, _target, _flat, _price, _stable):
        if card := rule(now):
            return card
    return None


def _nothing_left(now: StopSituation) -> StopCard | None:
    return StopCard("nothing left", "every image has an answer.") if now.left == 0 and now.labels else None


def _budget(now: StopSituation) -> StopCard | None:
    if now.budget is None or now.labels < now.budget:
        return None
    return StopCard("budget", f"{now.labels:,} of {now.budget:,} labels are given.")


def _target(now: StopSituation) -> StopCard | None:
    if now.target is None or now.accuracy_low is None or now.accuracy_low < now.target:
        return None
    return StopCard(
        "target", f"the accuracy is {now.accuracy_low:.1f} % or more (95 %), and the target is {now.target:g} %."
    )


def _flat(now: StopSituation) -> StopCard | None:
    if now.gain is None or now.accuracy_low is None or now.gain.high >= SMALL_GAIN:
        return None
    return StopCard(
        "flat curve", f"the next {now.gain.more} labels bring {now.gain.high:.1f} points at most (90 % band)."
    )


def _price(now: StopSituation) -> StopCard | None:
    if now.point_value is None or now.point_price is None or now.point_price <= now.point_value:
        return None
    return StopCard(
        "price", f"a point of accuracy now costs {now.point_price:.2f}, and is worth {now.point_value:.2f}."
    )


def _stable(now: StopSituation) -> StopCard | None:
    last = now.agreement[-STABLE_FOR:]
    if len(last) < STABLE_FOR or min(last) < STABLE or now.accuracy_low is None:
        return None
    return StopCard(
        "stable answers", f"the last {STABLE_FOR} trainings changed almost no answer (kappa {min(last):.3f})."
    )


def kappa(one: NDArray[np.int64], other: NDArray[np.int64], classes: int) -> float:
    """Return Cohen's kappa of two sets of answers to the same questions: 1 = the same, 0 = as by chance."""
    table = np.zeros((classes, classes))
    np.add.at(table, (one, other), 1.0)
    if not len(one):
        return float("nan")
    table /= len(one)
    chance = float(table.sum(0) @ table.sum(1))
    return 1.0 if chance >= 1.0 else (float(np.trace(table)) - chance) / (1.0 - chance)
