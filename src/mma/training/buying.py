"""Rounds that are paid for: what the money buys is decided once, written down with its reasons, and kept."""

from __future__ import annotations

import math

import numpy as np

from mma import cost
from mma.cost import Moment, Prices, Purchase, Purse
from mma.files import Row
from mma.growth import Buyer, Money, Round, Split
from mma.rng import rng
from mma.training.evaluate import probabilities
from mma.training.job import Job

LEARNABLE = 10  # labels to measure by, below which trying things teaches nothing


def buy(job: Job, round: Round) -> None:
    """Decide what the round's money buys, unless that was decided already: what was paid for once does not change."""
    if any(row["round"] == round.index for row in job.run.read("purchases")):
        return
    job.run.append("purchases", lambda: [purchase(job, round)])
    job.watch.say(describe(job.run.purchases()[-1]))


def purchase(job: Job, round: Round) -> Row:
    """Return the row that says what is bought, what there was before, and why."""
    have = (job.config.growth.start + labels_bought(job, round), len(job.pool_at(round.index)))
    found = measure(job)
    chosen = decide(job, round, have, found)
    paid = chosen.labels * prices_of(job).label + chosen.images * prices_of(job).image
    return {
        "round": round.index,
        "step": job.state.step,
        "labels": chosen.labels,
        "images": chosen.images,
        "paid": tidy(paid),
        "left": tidy(money_left(job) - paid),
        "stop": chosen.stop,
        "had": {"labels": have[0], "images": have[1]},
        "measured": found,
        "why": chosen.why,
    }


def decide(job: Job, round: Round, have: tuple[int, int], found: Row | None) -> Purchase:
    """Ask the policy."""
    growth, before, policy = job.config.growth, job.run.read("purchases"), policy_of(job)
    which = (round.index, policy.purchases)
    early = 2 * which[0] <= which[1]  # there is time to use what is learned
    if any(row["stop"] for row in before):
        return Purchase(0, 0, True, "stopped before")
    purse = Purse(
        prices_of(job),
        money_left(job),
        rounds=which[1] - which[0] + 1,
        labels=min(growth.budget - growth.held_out_labels, have[1] - growth.held_out_labels) - have[0],
        images=len(job.pool) - have[1],
        point=policy.value_per_point if isinstance(policy, Buyer) else 0.0,
        explore=early and found is not None and found["labels"] >= LEARNABLE,
    )
    if isinstance(policy, Split):
        bought = (have[0] - growth.start, sum(row["images"] for row in before))
        return cost.split(policy.money, policy.share, purse, which, bought)
    now = {"step": job.state.step, "had": {"labels": have[0], "images": have[1]}, "measured": found}
    history = [moment(row) for row in [*before, now] if row["measured"]]
    classes = len(job.data.train.classes)
    missing = classes - len(classes_seen(job)) if early else 0  # a class that is not found by then may not exist
    draw = rng(job.config.seed, "buyer", round.index)
    return cost.buy(have, history, purse, draw, classes=classes, missing=missing)


def classes_seen(job: Job) -> set[int]:
    """Return the classes that there is a label of to train with."""
    held = job.run.held_out()
    return {label for index, label in job.run.answers().items() if label >= 0 and index not in held}


def measure(job: Job) -> Row | None:
    """Return what the teacher misses on the labels held out for that; None when there are none."""
    held = job.run.held_out()
    known = {i: y for i, y in job.run.answers().items() if i in held and y >= 0}
    if not known:
        return None
    job.state.teacher.eval()
    labels = np.array(list(known.values()))
    views = job.views.at(job.state.step - 1)  # of the size it was trained with
    probs = probabilities(job.state.teacher, views, np.array(list(known)))
    # The probability that is not on the right class moves more smoothly than the count of wrong answers. Half a miss is
    # added, as if one more image had been seen: a few images without a miss do not make an error of zero.
    missed = float((1 - probs[np.arange(len(labels)), labels].astype(np.float64)).sum())
    error = (missed + 0.5) / (len(labels) + 1)
    return {
        "labels": len(labels),
        "accuracy": tidy(100 * float((probs.argmax(1) == labels).mean())),
        "error": tidy(error),
        "spread": tidy(math.sqrt(error * (1 - error) / (len(labels) + 1))),
    }


def moment(row: Row) -> Moment:
    """Read a measurement back."""
    had, found = row["had"], row["measured"]
    return Moment(row["step"], had["labels"], had["images"], found["error"], found["spread"])


def labels_bought(job: Job, round: Round) -> int:
    """Return the labels bought to train with, up to and with a round."""
    return sum(row["labels"] for row in job.run.purchases(round.index))


def money_left(job: Job) -> float:
    """Return what is left after all purchases, the labels to measure by included."""
    policy, prices = policy_of(job), prices_of(job)
    paid = [row["labels"] * prices.label + row["images"] * prices.image for row in job.run.read("purchases")]
    return policy.money - policy.measured_by * prices.label - math.fsum(paid)


def policy_of(job: Job) -> Money:
    """Return the policy that spends the money."""
    policy = job.config.growth.spending
    assert policy is not None
    return policy


def prices_of(job: Job) -> Prices:
    """Return what a label and an image cost."""
    return Prices(policy_of(job).label_price, policy_of(job).image_price)


def describe(row: Row) -> str:
    """Say a purchase in one line."""
    bought = f"{row['labels']:,} labels, {row['images']:,} images for {row['paid']:g}"
    return f"step {row['step']:,}: bought {bought}; {row['left']:g} left. {row['why']}"


def tidy(value: float) -> float:
    """Return a number as it is written: twelve digits say enough, and sums of prices read as people write them."""
    return float(f"{value:.12g}")
