"""Growing the labeled set: choose images, ask, write down what was asked and answered."""

from __future__ import annotations

from functools import partial

import numpy as np

from mma.data import start_set
from mma.growth import Round
from mma.query import Candidates, Query, Selection
from mma.rng import rng
from mma.run import CHECK
from mma.training.buying import buy, labels_bought
from mma.training.evaluate import candidates
from mma.training.job import Job
from mma.training.oracle import Oracle, Selective
from mma.training.stream import seen


def grow(job: Job, round: Round, oracle: Oracle) -> bool:
    """Bring the labeled set to the round's size. False while answers are missing: call again later."""
    if job.config.growth.for_money and round.index:
        buy(job, round)
    while True:
        if not answered(job, oracle, round):
            return False
        train, check = missing(job, round)
        free = job.ranks.index(partial(answerable, oracle, free_images(job, round.index)))
        if not len(free) or train + check == 0:
            if short := train + check:
                labeled = sum(label >= 0 for label in job.run.answers(round.index).values())
                job.watch.warn(f"no more labels to be had: {labeled} instead of {labeled + short}")
            return True
        # Declined images leave the round short, so it asks again, for as many as are missing.
        row = choose(job, round, free, min(train, len(free))) if train else to_measure(job, round, free, check)
        job.run.append("queries", [row])


def missing(job: Job, round: Round) -> tuple[int, int]:
    """Return how many labels the round still lacks to train with, and to measure by."""
    growth, held = job.config.growth, job.run.held_out()
    given = [index for index, label in job.run.answers(round.index).items() if label >= 0]
    measured = sum(index in held for index in given)
    size = growth.start + labels_bought(job, round) if growth.for_money else round.labels
    return max(size - len(given) + measured, 0), max(growth.check - measured, 0)


def to_train(job: Job, round: Round) -> dict[int, int]:
    """Return the labels a round trains with. Those to measure by join in the last one: then nothing is decided any more."""
    last = round.index == job.rounds[-1].index
    held = set() if last else job.run.held_out()
    labels = {i: y for i, y in job.run.answers(round.index).items() if y >= 0 and i not in held}
    if not labels:
        raise ValueError(
            f"{job.run.folder} has no label to train with: all images asked about were declined, or have no label. Start a new "
            "run with data that has labels, or with more of its images (data.total)."
        )
    return labels


def answerable(oracle: Oracle, free: np.ndarray) -> np.ndarray:
    """Return those of the images that it makes sense to ask this oracle about."""
    return oracle.answerable(free) if isinstance(oracle, Selective) else free


def free_images(job: Job, upto: int | None = None) -> np.ndarray:
    """Return the images that nobody was asked about in rounds up to `upto`."""
    asked = job.run.answers(upto)
    return np.setdiff1d(job.pool_at(upto), np.fromiter(asked, np.int64, len(asked)), assume_unique=True)


def answered(job: Job, oracle: Oracle, round: Round) -> bool:
    """Ask for what has no answer yet and write down what comes back. True when nothing is open."""
    open_ = job.run.unanswered()
    if not open_:
        return True
    # Only the first process asks; the pairs are for JSON, which has no numbers as keys.
    answers = dict(job.ranks.told(lambda: list(oracle.ask(open_, round.index).items())))
    classes = len(job.data.train.classes)
    wrong = {i: y for i, y in answers.items() if i not in set(open_) or not -1 <= y < classes}
    if wrong:
        raise ValueError(
            f"the oracle answered what was not asked or no class (index: label): {wrong}. Nothing was stored."
        )
    job.run.append("labels", [{"round": round.index, "index": i, "label": answers[i]} for i in open_ if i in answers])
    return len(answers) == len(open_)


def choose(job: Job, round: Round, free: np.ndarray, count: int) -> dict[str, object]:
    """Pick `count` of the `free` images and return the row that says which and why."""
    attempt = sum(row["round"] == round.index for row in job.run.read("queries"))
    if round.index == 0 and attempt == 0:
        how = job.config.growth.start_set
        strategy, pick = f"start-{how}", partial(drawn, job, free, count, how)
    elif round.index == 0 or job.config.query == "random":
        # Random picks go on in the order of a passive draw: at the budget both have the same labels, so that they
        # differ by growing alone.
        strategy, pick = "random", partial(drawn, job, free, count, "uniform")
    else:
        query = Query.parse(job.config.query)
        draw = rng(job.config.seed, "select", round.index, attempt)
        strategy, pick = str(query), partial(query.selection, look(job, free, query, round.index), count, draw)
    indices, scores = job.ranks.told(lambda: as_lists(pick()))
    return {
        "round": round.index,
        "step": job.state.step,
        "strategy": strategy,
        "indices": indices,
        "scores": scores,
    }


def to_measure(job: Job, round: Round, free: np.ndarray, count: int) -> dict[str, object]:
    """Draw `count` of the `free` images to measure by, whatever the model thinks of them."""
    index = drawn(job, free, min(count, len(free)), "uniform").index
    return {
        "round": round.index,
        "step": job.state.step,
        "strategy": CHECK,
        "indices": [int(i) for i in index],
        "scores": [0.0] * len(index),
    }


def as_lists(picked: Selection) -> tuple[list[int], list[float]]:
    """Return what was picked as it is written."""
    return [int(i) for i in picked.index], [round_score(s) for s in picked.scores]


def drawn(job: Job, free: np.ndarray, count: int, how: str) -> Selection:
    """Pick without looking at a model: a function of the seed."""
    return Selection(start_set(job.data.train, free, count, job.config.seed, how), np.zeros(count))


def look(job: Job, free: np.ndarray, query: Query, round: int) -> Candidates:
    """Let the teacher look at the images that may be asked about."""
    job.state.teacher.eval()
    pixels = seen(job.pixels, job.config, job.state.step - 1)  # of the size it was trained with
    return candidates(job.state.teacher, pixels, free, query, job.config.seed, round, job.ranks)


def round_score(score: float) -> float:
    """Return a score as it is written: six digits say enough and keep the file readable."""
    return float(f"{float(score):.6g}")
