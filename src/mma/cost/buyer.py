"""The buyer: spends money on labels or on more images, round by round, from what it saw happen so far.

It believes that the error follows power laws, error = e0 x labels^a x images^b x steps^c, which is a straight line in
logarithms; `a` is one number for few labels per class and another for many. What it expects of the exponents before it has
seen anything was published: the paper's three tables, and for few labels the errors of MixMatch in arXiv:2001.07685. Each
measurement of its own then moves that (Bayesian linear regression, in closed form). While there is time to use what is
learned, it draws one set of exponents from this belief and acts on the plan that is best for them, so it tries what it
is unsure about (Thompson sampling); later it acts on the plan with the best expectation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from mma.cost.advice import Prices
from mma.cost.sources import open_table, paper_sources
from mma.cost.table import Floats

SHARES = np.linspace(0.0, 1.0, 11)  # of the money, for labels: the mixes that are weighed up
PARTS = (0.25, 0.5, 0.75, 1.0)  # of the money: how much of it is worth spending when a point of accuracy has a price
DRAWS = 500
KNEE = 25  # labels per class: below, a label is worth much more than above
# Errors of MixMatch in percent at 4 and at 25 labels per class: CIFAR-10, SVHN, CIFAR-100 (arXiv:2001.07685, table 2).
FEW_LABELS = ((47.54, 11.05), (42.55, 3.98), (67.61, 39.94))
DOUBT = 2.0  # another data set may differ from the paper's by more than its three tables do from each other
TRAINING = (-0.3, 0.3)  # exponent of the steps and its deviation: errors fall while training, by how much is unknown
ROUGH = 0.05  # relative; no power law is truer than this
PAIRED = 0.5  # of a measurement's spread; the rest is the luck of the held-out images, the same in every measurement


@dataclass(frozen=True)
class Moment:
    """What one had and what was measured then: the share of held-out labels that is missed, and how sure that is."""

    step: int
    labels: int
    images: int
    error: float  # 0 to 1
    spread: float  # standard error of `error`


@dataclass(frozen=True)
class Purse:
    """What there is to spend, and what there is to buy."""

    prices: Prices
    money: float
    rounds: int  # chances to buy, this one included
    labels: int  # labels that may be bought at most
    images: int  # images that may be bought at most
    point: float = 0.0  # what one point of accuracy is worth; 0 = spend everything that helps
    explore: bool = True  # there is time to use what is learned by trying


@dataclass(frozen=True)
class Purchase:
    """What to buy now, and why."""

    labels: int
    images: int
    stop: bool  # nothing more is worth its price
    why: str


@dataclass(frozen=True, eq=False)
class Belief:
    """Exponents of the power laws as they may be: mean, deviation, and draws of those of labels and images."""

    mean: Floats  # (5,) error, few labels, many labels, images, steps
    deviation: Floats  # (5,)
    draws: Floats  # (DRAWS, 3)
    knee: float  # labels at which few become many

    def factors(self, have: tuple[int, int], labels: Floats, images: Floats) -> Floats:
        """(DRAWS, M) what the error is multiplied by when so many labels and images are added."""
        before, after = (logs(np.asarray(count, np.float64), self.knee) for count in (have[0], have[0] + labels))
        grown = [*(x - y for x, y in zip(after, before, strict=True)), np.log1p(images / have[1])]
        factors: Floats = np.exp(self.draws @ np.stack(np.broadcast_arrays(*grown)))
        return factors


def logs(labels: Floats, knee: float) -> tuple[Floats, Floats]:
    """Return the logarithm of labels in two parts: up to the knee, and beyond it."""
    return np.log(np.minimum(labels, knee)), np.log(np.maximum(labels, knee))


@cache
def published_exponents() -> tuple[Floats, Floats]:
    """Return mean and deviation, over three data sets each, of the exponents of few labels, many labels and images."""
    few = [math.log(many / few) / math.log(25 / 4) for few, many in FEW_LABELS]
    found = []
    for source in paper_sources():
        table = open_table(source)
        use = table.measured & (table.totals[:, None] > table.labels[None, :])
        rows, columns = np.nonzero(use)
        x = np.stack([np.ones(len(rows)), np.log(table.labels[columns]), np.log(table.totals[rows])], axis=1)
        found.append(np.linalg.lstsq(x, np.log(100 - table.accuracy[use]), rcond=None)[0][1:])
    every = np.column_stack([few, found])
    return every.mean(axis=0), every.std(axis=0, ddof=1)


def believe(history: Sequence[Moment], rng: np.random.Generator, classes: int = 10) -> Belief:
    """Return what to believe after `history`, which may be empty."""
    exponents, deviations = published_exponents()
    mean = np.array([math.log(0.5), *exponents, TRAINING[0]])
    precision = np.diag(1 / np.array([2.0, *(DOUBT * deviations), TRAINING[1]]) ** 2)
    knee = float(KNEE * classes)
    if history:
        x, y, sure = _straight(history, knee)
        before, precision = precision, precision + (x * sure[:, None]).T @ x
        mean = np.linalg.solve(precision, before @ mean + (x * sure[:, None]).T @ y)
    covariance = np.linalg.inv(precision)
    drawn = rng.multivariate_normal(mean, covariance, DRAWS, method="cholesky")[:, 1:4]
    drawn[:, :2] = np.minimum(drawn[:, :2], 0.0)  # more labels never hurt; more images may
    return Belief(mean, np.sqrt(np.diag(covariance)), drawn, knee)


def _straight(history: Sequence[Moment], knee: float) -> tuple[Floats, Floats, Floats]:
    """Return rows, log errors and their precisions, relative to the first moment."""
    few, many = logs(np.array([m.labels for m in history], np.float64), knee)
    images, steps = (np.log([getattr(m, name) for m in history]) for name in ("images", "step"))
    x = np.stack([few, many, images, steps], axis=1)
    error = np.array([max(m.error, 1e-4) for m in history])
    spread = PAIRED * np.array([m.spread for m in history]) / error
    return np.column_stack([np.ones(len(x)), x - x[0]]), np.log(error), 1 / (spread**2 + ROUGH**2)


@dataclass(frozen=True, eq=False)
class Plans:
    """Ways to spend the money that is left, one entry each."""

    share: Floats  # (M,) of the money, for labels
    labels: Floats  # (M,)
    images: Floats  # (M,)
    cost: Floats  # (M,)


def plans(purse: Purse) -> Plans:
    """Return the mixes that can be had."""
    parts = PARTS if purse.point else (1.0,)
    share, money = (a.ravel() for a in np.meshgrid(SHARES, purse.money * np.array(parts)))
    labels = affordable(money * share, purse.prices.label, purse.labels)
    images = affordable(money - labels * purse.prices.label, purse.prices.image, purse.images) * (share < 1)
    return Plans(share, labels, images, labels * purse.prices.label + images * purse.prices.image)


def affordable(money: Floats, price: float, most: int) -> Floats:
    """Return how many can be had for this money; what is free is taken whole."""
    if price * most == 0:
        return np.full(np.shape(money), float(most))
    # Never more than all of them, in money: dividing by a price next to nothing would overflow.
    count: Floats = np.floor(np.minimum(money, price * most) / price + 1e-9)
    return np.minimum(count, most)


def buy(
    have: tuple[int, int],
    history: Sequence[Moment],
    purse: Purse,
    rng: np.random.Generator,
    *,
    classes: int = 10,
    missing: int = 0,
) -> Purchase:
    """Decide what this round's part of the money buys, with `have` = (labels, images) there are.

    `missing` classes have no label yet: no image can mend that, so labels come first.
    """
    belief, options = believe(history, rng, classes), plans(purse)
    factors = belief.factors(have, options.labels, options.images)  # (DRAWS, M)
    error = 100 * (history[-1].error if history else 0.5)
    value = error * (1 - factors) * (purse.point or 1.0) - (options.cost if purse.point else 0.0)
    expected = int(value.mean(axis=0).argmax())
    tried = int(value[0].argmax()) if purse.explore else expected
    if value.mean(axis=0)[expected] <= 0:
        return Purchase(0, 0, True, _stopped(purse, options))
    part = 1 / purse.rounds
    why = _reasons(have, history, belief, options, error * factors.mean(axis=0), expected, tried)
    if missing and (most := options.labels.max()):
        return Purchase(int(most * part + 1e-9), 0, False, f"labels first: {missing} classes have none; {why}")
    labels, images = int(options.labels[tried] * part + 1e-9), int(options.images[tried] * part + 1e-9)
    return Purchase(labels, images, False, why)


def _reasons(
    have: tuple[int, int],
    history: Sequence[Moment],
    belief: Belief,
    options: Plans,
    errors: Floats,
    expected: int,
    tried: int,
) -> str:
    """Say in plain words what was weighed up."""
    seen = (
        f"{100 * history[-1].error:.1f} +- {100 * history[-1].spread:.1f} % missed on held-out labels with {have[0]:,} "
        f"labels and {have[1]:,} images"
        if history
        else f"nothing measured yet: judged by published tables, with {have[0]:,} labels and {have[1]:,} images"
    )
    ends = [np.abs(options.share - end).argmin() for end in (1.0, 0.0)]
    choice = f"{options.share[expected]:.0%} of the money on labels is expected to be best ({errors[expected]:.1f} %"
    against = f"all on labels {errors[ends[0]]:.1f} %, all on images {errors[ends[1]]:.1f} %)"
    trial = "" if expected == tried else f"; {options.share[tried]:.0%} is tried, to learn"
    few_or_many = 1 if have[0] < belief.knee else 2
    slopes = [f"{belief.mean[i]:.2f} +- {belief.deviation[i]:.2f}" for i in (few_or_many, 3)]
    return f"{seen}; {choice}, {against}{trial}; exponents: labels {slopes[0]}, images {slopes[1]}"


def _stopped(purse: Purse, options: Plans) -> str:
    """Say why nothing is bought any more."""
    if not (options.labels + options.images).max():
        return f"stopped with {purse.money:.2f} left: it buys neither a label nor an image"
    worth = f" at {purse.point:g} per point of accuracy" if purse.point else ""
    return f"stopped with {purse.money:.2f} left: nothing is expected to be worth its price{worth}"


def split(budget: float, share: float, purse: Purse, round: tuple[int, int], bought: tuple[int, int]) -> Purchase:
    """Spend a fixed share of `budget` on labels and the rest on images, evenly over the rounds.

    `round` is (which, of how many), `bought` what earlier rounds brought: fractions of a label are not lost in rounding.
    """
    due = budget * round[0] / round[1]
    labels, images = (
        int(affordable(np.array(due * part), price, most + had)) - had if part else 0
        for part, price, most, had in (
            (share, purse.prices.label, purse.labels, bought[0]),
            (1 - share, purse.prices.image, purse.images, bought[1]),
        )
    )
    return Purchase(labels, images, False, f"{share:.0%} of the money on labels, as set")
