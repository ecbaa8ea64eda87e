"""What to buy next while a run trains: labels, images, or nothing. numpy only; `decide` is the one entry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.cost import Prices, open_table, paper_sources


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
    paid = math.fsum(terms.prices.of(bought.purchase.labels, bought.purchase.images) for bought in earlier)
    return terms.money - terms.held_out_labels * terms.prices.label - paid


def as_row(terms: Terms, earlier: Sequence[Bought], bought: Bought) -> dict[str, Any]:
    """Return a purchase as a JSON row: what is bought, what it costs, what there was before, and why."""
    before, purchase = bought.before, bought.purchase
    paid = terms.prices.of(purchase.labels, purchase.images)
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


# What the buyer expects of labels and images.
# The error follows power laws, error = e0 x labels^a x images^b x steps^c: a straight line in logarithms. The exponent `a` is
# one number for few labels per class and another for many. The prior of the exponents comes from published numbers: the
# paper's three tables, and for few labels the errors of MixMatch in arXiv:2001.07685. Measurements of the run update it by
# Bayesian linear regression in closed form.

Floats = NDArray[np.float64]
DRAWS = 500
KNEE = 25  # labels per class: below it a label is worth much more than above
# Errors of MixMatch in percent at 4 and at 25 labels per class: CIFAR-10, SVHN, CIFAR-100 (arXiv:2001.07685, table 2).
FEW_LABELS = ((47.54, 11.05), (42.55, 3.98), (67.61, 39.94))
DOUBT = 2.0  # another data set may differ from the paper's by more than its three tables do from each other
TRAINING = (-0.3, 0.3)  # exponent of the steps and its deviation: errors fall while training, by how much is unknown
ROUGH = 0.05  # relative error of any power law
PAIRED = 0.5  # of a measurement's spread; the rest comes from which images are held out, the same every time


@dataclass(frozen=True, eq=False)
class Belief:
    """Exponents of the power laws: mean, deviation, and draws of those of labels and images."""

    mean: Floats  # (5,) error, few labels, many labels, images, steps
    deviation: Floats  # (5,)
    draws: Floats  # (DRAWS, 3)
    knee: float  # number of labels at which few become many

    def factors(self, labels: int, images: int, more_labels: Floats, more_images: Floats) -> Floats:
        """Return by what the error is multiplied when labels and images are added. (DRAWS, M)"""
        before, after = (split_logs(np.asarray(n, np.float64), self.knee) for n in (labels, labels + more_labels))
        growth = [*(x - y for x, y in zip(after, before, strict=True)), np.log1p(more_images / images)]
        factors: Floats = np.exp(self.draws @ np.stack(np.broadcast_arrays(*growth)))
        return factors


def split_logs(labels: Floats, knee: float) -> tuple[Floats, Floats]:
    """Return the logarithm of the labels in two parts: up to the knee, and beyond it."""
    return np.log(np.minimum(labels, knee)), np.log(np.maximum(labels, knee))


@cache
def published_exponents() -> tuple[Floats, Floats]:
    """Return mean and deviation, over three data sets each, of the exponents of few labels, many labels and images."""
    few = [math.log(many / few) / math.log(25 / 4) for few, many in FEW_LABELS]
    fits = []
    for source in paper_sources():
        table = open_table(source)
        use = table.measured & (table.totals[:, None] > table.labels[None, :])
        rows, columns = np.nonzero(use)
        x = np.stack([np.ones(len(rows)), np.log(table.labels[columns]), np.log(table.totals[rows])], axis=1)
        fits.append(np.linalg.lstsq(x, np.log(100 - table.accuracy[use]), rcond=None)[0][1:])
    every = np.column_stack([few, fits])
    return every.mean(axis=0), every.std(axis=0, ddof=1)


def believe(history: Sequence[Situation], rng: np.random.Generator, classes: int = 10) -> Belief:
    """Return the belief after `history`, of which entries without a measurement are left out."""
    exponents, deviations = published_exponents()
    mean = np.array([math.log(0.5), *exponents, TRAINING[0]])
    precision = np.diag(1 / np.array([2.0, *(DOUBT * deviations), TRAINING[1]]) ** 2)
    knee = float(KNEE * classes)
    if any(entry.measured for entry in history):
        x, y, sure = regression_rows(history, knee)
        before, precision = precision, precision + (x * sure[:, None]).T @ x
        mean = np.linalg.solve(precision, before @ mean + (x * sure[:, None]).T @ y)
    covariance = np.linalg.inv(precision)
    draws = rng.multivariate_normal(mean, covariance, DRAWS, method="cholesky")[:, 1:4]
    draws[:, :2] = np.minimum(draws[:, :2], 0.0)  # more labels never hurt; more images may
    return Belief(mean, np.sqrt(np.diag(covariance)), draws, knee)


def regression_rows(history: Sequence[Situation], knee: float) -> tuple[Floats, Floats, Floats]:
    """Return regressors relative to the first measurement, log errors and their precisions."""
    found = [(entry, entry.measured) for entry in history if entry.measured]
    few, many = split_logs(np.array([entry.labels for entry, _ in found], np.float64), knee)
    images, steps = (np.log([getattr(entry, name) for entry, _ in found]) for name in ("images", "step"))
    x = np.stack([few, many, images, steps], axis=1)
    error = np.array([max(measured.error, 1e-4) for _, measured in found])
    spread = PAIRED * np.array([measured.spread for _, measured in found]) / error
    return np.column_stack([np.ones(len(x)), x - x[0]]), np.log(error), 1 / (spread**2 + ROUGH**2)


# The decision: weigh up mixes of labels and images for the money that is left, and buy this round's part of the best.

SHARES = np.linspace(0.0, 1.0, 11)  # of the money for labels: the mixes to compare
PARTS = (0.25, 0.5, 0.75, 1.0)  # of the money: how much to spend when a point of accuracy has a price
LEARNABLE = 10  # held-out labels below which trying a purchase teaches nothing


def decide(terms: Terms, earlier: Sequence[Bought], now: Situation, rng: np.random.Generator) -> Purchase:
    """Return what to buy now. `earlier` are the purchases before this one, in order."""
    if any(bought.purchase.stop for bought in earlier):
        return Purchase(0, 0, True, "stopped before")
    limits = Limits(
        money_left(terms, earlier),
        rounds=terms.purchases - now.number + 1,
        labels=min(terms.budget, now.images) - terms.held_out_labels - now.labels,
        images=terms.pool - now.images,
    )
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


def split(terms: Terms, share: float, limits: Limits, earlier: Sequence[Bought], now: Situation) -> Purchase:
    """Spend a fixed share of the money on labels and the rest on images, evenly over the rounds.

    Each round buys up to what is due by then in all, so that fractions of a label are not lost in rounding.
    """
    due, prices = terms.money * now.number / terms.purchases, terms.prices
    had = now.labels - terms.start, sum(bought.purchase.images for bought in earlier)
    parts = (share, prices.label, limits.labels, had[0]), (1 - share, prices.image, limits.images, had[1])
    labels, images = (
        int(affordable(np.array(due * part), price, most + count)) - count if part else 0
        for part, price, most, count in parts
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
        price = f" at {worth:g} per point of accuracy" if worth else ""
        nothing = "it buys neither a label nor an image"
        if (mixes.labels + mixes.images).max():
            nothing = f"nothing is expected to be worth its price{price}"
        return Purchase(0, 0, True, f"stopped with {limits.money:.2f} left: {nothing}")
    # The reasons: the measurement, the expectations, the exponents.
    have = f"with {now.labels:,} labels and {now.images:,} images"
    why = f"nothing measured yet: judged by published tables, {have}"
    if measured is not None:
        why = f"{100 * measured.error:.1f} +- {100 * measured.spread:.1f} % missed on held-out labels {have}"
    errors = error * factors.mean(axis=0)  # (M,) expected, in percent
    on_labels, on_images = (errors[np.abs(mixes.share - end).argmin()] for end in (1.0, 0.0))
    why += (
        f"; {mixes.share[best]:.0%} of the money on labels is expected to be best ({errors[best]:.1f} %, all on labels "
    )
    why += f"{on_labels:.1f} %, all on images {on_images:.1f} %)"
    why += "" if best == chosen else f"; {mixes.share[chosen]:.0%} is tried, to learn"
    few_or_many = 1 if now.labels < belief.knee else 2
    slopes = [f"{belief.mean[i]:.2f} +- {belief.deviation[i]:.2f}" for i in (few_or_many, 3)]
    why += f"; exponents: labels {slopes[0]}, images {slopes[1]}"
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
