"""Growing the labeled set: choose images, ask, write down what was asked and answered."""

from __future__ import annotations

import numpy as np

from mma.data import start_set
from mma.growth import Round
from mma.query import Candidates, Query, Selection
from mma.rng import rng
from mma.train.evaluate import candidates
from mma.train.job import Job
from mma.train.oracle import Oracle, Selective
from mma.train.stream import seen


def grow(job: Job, round: Round, oracle: Oracle) -> bool:
    """Bring the labeled set to the round's size. False while answers are missing: call again later."""
    while True:
        if not answered(job, oracle, round):
            return False
        labeled = sum(label >= 0 for label in job.run.answers(round.index).values())
        free = free_images(job, round.index)
        free = oracle.willing(free) if isinstance(oracle, Selective) else free
        count = min(round.labels - labeled, len(free))
        if count <= 0:
            if labeled < round.labels:
                job.watch.warn(f"no more labels to be had: {labeled} instead of {round.labels}")
            return True
        # Declined images leave the round short, so it asks again, for as many as are missing.
        job.run.append("queries", [choose(job, round, free, count)])


def free_images(job: Job, upto: int | None = None) -> np.ndarray:
    """Return the images that nobody was asked about in rounds up to `upto`."""
    asked = job.run.answers(upto)
    return np.setdiff1d(job.pool, np.fromiter(asked, np.int64, len(asked)), assume_unique=True)


def answered(job: Job, oracle: Oracle, round: Round) -> bool:
    """Ask for what has no answer yet and write down what comes back. True when nothing is open."""
    open_ = job.run.unanswered()
    if not open_:
        return True
    answers = oracle.ask(open_, round.index)
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
        strategy, picked = f"start-{job.config.growth.start_set}", drawn(job, free, count, job.config.growth.start_set)
    elif round.index == 0 or job.config.query == "random":
        # Random picks go on in the order of a passive draw: at the budget both have the same labels, so that they
        # differ by growing alone.
        strategy, picked = "random", drawn(job, free, count, "uniform")
    else:
        query = Query.parse(job.config.query)
        draw = rng(job.config.seed, "select", round.index, attempt)
        strategy, picked = str(query), query.selection(look(job, free, query, round.index), count, draw)
    return {
        "round": round.index,
        "step": job.state.step,
        "strategy": strategy,
        "indices": [int(i) for i in picked.index],
        "scores": [round_score(s) for s in picked.scores],
    }


def drawn(job: Job, free: np.ndarray, count: int, how: str) -> Selection:
    """Pick without looking at a model: a function of the seed."""
    return Selection(start_set(job.data.train, free, count, job.config.seed, how), np.zeros(count))


def look(job: Job, free: np.ndarray, query: Query, round: int) -> Candidates:
    """Let the teacher look at the images that may be asked about."""
    job.state.teacher.eval()
    pixels = seen(job.pixels, job.config, job.state.step - 1)  # of the size it was trained with
    return candidates(job.state.teacher, pixels, free, query, job.config.seed, round)


def round_score(score: float) -> float:
    """Return a score as it is written: six digits say enough and keep the file readable."""
    return float(f"{float(score):.6g}")
