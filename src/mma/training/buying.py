"""Rounds that are paid for: what the money buys is decided once, written down with its reasons, and kept."""

from __future__ import annotations

import numpy as np

from mma import buyer
from mma.buyer import Bought, Measurement, Situation, Terms
from mma.cost import Prices
from mma.files import Row
from mma.growth import Buyer, Round, Split
from mma.rng import rng
from mma.training.evaluate import probabilities
from mma.training.job import Job


def buy(job: Job, round: Round) -> None:
    """Decide what the round's money buys, unless that was decided already: what was paid for once does not change."""
    if any(row["round"] == round.index for row in job.run.read("purchases")):
        return
    job.run.append("purchases", lambda: [purchase(job, round)])
    job.watch.say(describe(job.run.purchases()[-1]))


def purchase(job: Job, round: Round) -> Row:
    """Return the row that says what is bought, what there was before, and why."""
    terms, earlier = terms_of(job), [buyer.from_row(row) for row in job.run.read("purchases")]
    labels = terms.start + labels_bought(job, round)
    images = len(job.pool_at(round.index))
    missing = terms.classes - len(classes_labeled(job))
    now = Situation(round.index, job.state.step, labels, images, measure(job), missing)
    chosen = buyer.decide(terms, earlier, now, rng(job.config.seed, "buyer", round.index))
    return buyer.as_row(terms, earlier, Bought(now, chosen))


def terms_of(job: Job) -> Terms:
    """Return the settings of the policy and the limits of the run."""
    growth, policy = job.config.growth, job.config.growth.spending
    assert policy is not None
    return Terms(
        Prices(policy.label_price, policy.image_price),
        policy.money,
        policy.purchases,
        start=growth.start,
        budget=growth.budget,
        pool=len(job.pool),
        classes=len(job.data.train.classes),
        share=policy.share if isinstance(policy, Split) else None,
        held_out_labels=policy.measured_by,
        value_per_point=policy.value_per_point if isinstance(policy, Buyer) else 0.0,
    )


def classes_labeled(job: Job) -> set[int]:
    """Return the classes that there is a label of to train with."""
    held = job.run.held_out()
    return {label for index, label in job.run.answers().items() if label >= 0 and index not in held}


def measure(job: Job) -> Measurement | None:
    """Return the teacher's error on the held-out labels; None when there are none."""
    held = job.run.held_out()
    known = {i: y for i, y in job.run.answers().items() if i in held and y >= 0}
    if not known:
        return None
    job.state.teacher.eval()
    views = job.views.at(job.state.step - 1)  # of the size it was trained with
    with job.computing():
        found = probabilities(job.state.teacher, views, np.array(list(known)))
    return buyer.measure(found, np.array(list(known.values())))


def labels_bought(job: Job, round: Round) -> int:
    """Return the labels bought to train with, up to and with a round."""
    return sum(row["labels"] for row in job.run.purchases(round.index))


def describe(row: Row) -> str:
    """Write a purchase in one line."""
    bought = f"{row['labels']:,} labels, {row['images']:,} images for {row['paid']:g}"
    return f"step {row['step']:,}: bought {bought}; {row['left']:g} left. {row['why']}"
