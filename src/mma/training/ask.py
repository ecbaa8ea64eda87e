"""Growing the labeled set: choose images, ask, write down what was asked and answered; and who answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mma.cost import Prices, buyer
from mma.data import Images, OwnData, start_set
from mma.data.tables import read_labels, render_csv
from mma.errors import UserError
from mma.files import Row, write_atomically
from mma.growth import Buyer, Round, Split
from mma.query import Candidates, Labeled, Query, Selection
from mma.rng import rng
from mma.run import HELD_OUT, Run
from mma.training.job import Job, load_read_only
from mma.training.predict import batches, candidates, embeddings, probabilities
from mma.views import VectorViews

COVERED = 40_000  # images that a start set on features is chosen from; they fit into memory, however long the vectors
QUESTIONS = "questions.csv"  # in a run folder: what people are asked
CANNOT_TELL = "?"  # written as a label, it declines
DECLINED = -1  # somebody looked and could not tell: the image stays unlabeled and is not asked about again


def grow(job: Job, round: Round, oracle: Oracle) -> bool:
    """Bring the labeled set to the round's size. False while answers are missing: call again later."""
    growth = job.config.growth
    if growth.spending and round.index:
        buy(job, round)
    while True:
        if not ask(job, oracle, round):
            return False
        held = job.run.held_out()
        given = [index for index, label in job.run.answers(round.index).items() if label >= 0]
        to_measure = sum(index in held for index in given)
        size = growth.start + labels_bought(job, round) if growth.spending else round.labels
        train = max(size - len(given) + to_measure, 0)  # labels that the round still lacks to train with
        held_out = max(growth.held_out_labels - to_measure, 0)  # and to measure by
        free = free_images(job, round.index)
        if answerable := getattr(oracle, "answerable", None):  # it knows what it will never be able to answer
            free = answerable(free)
        if train + held_out == 0:
            return True
        if not len(free):
            labeled = sum(label >= 0 for label in job.run.answers(round.index).values())
            job.watch.warn(f"no more labels to be had: {labeled} instead of {labeled + train + held_out}")
            if not any(row["round"] == round.index for row in job.run.read("queries")):  # every round has a query
                write_query(job, round, "none", lambda: Selection(np.empty(0, np.int64), np.empty(0)))
            return True
        # Declined images leave the round short, so it asks again, for as many as are missing.
        if train:
            choose(job, round, free, min(train, len(free)))
        else:  # to measure by, whatever the model thinks of them
            pick = partial(pick_by_seed, job, free, min(held_out, len(free)), "uniform")
            write_query(job, round, HELD_OUT, pick)


def labels_to_train(job: Job, round: Round) -> dict[int, int]:
    """Return the labels a round trains with. Those to measure by join in the last one: then nothing is decided any more."""
    last = round.index == job.rounds[-1].index
    held = set() if last else job.run.held_out()
    labels = {i: y for i, y in job.run.answers(round.index).items() if y >= 0 and i not in held}
    if not labels:
        raise UserError(
            f"{job.run.folder} has no label to train with: all images asked about were declined, or have no label. Start a new "
            "run with data that has labels, or with more of its images (data.total)."
        )
    return labels


def free_images(job: Job, upto: int | None = None) -> np.ndarray:
    """Return the images that nobody was asked about in rounds up to `upto`."""
    asked = job.run.answers(upto)
    return np.setdiff1d(job.pool_at(upto), np.fromiter(asked, np.int64, len(asked)), assume_unique=True)


def ask(job: Job, oracle: Oracle, round: Round) -> bool:
    """Ask for what has no answer yet and write down what comes back. True when nothing is open."""
    images, asked = job.data.train, job.run.unanswered()

    def rows() -> list[Row]:
        """Return the answers in the order they were asked for. What was not asked for, or is no class, is refused."""
        labels: dict[int, Row] = {}
        for index, label in oracle.ask(asked, round.index).items():
            whole = isinstance(label, int | np.integer) and not isinstance(label, bool)
            if index not in asked or not whole or not DECLINED <= label < len(images.classes):
                raise UserError(
                    f"the oracle answered {label!r} for image {index!r}. It may answer only what it was asked, with a class "
                    f"from 0 to {len(images.classes) - 1}, or -1 to decline. Nothing was stored."
                )
            i, name = int(index), None if label == DECLINED else images.classes[label]
            labels[i] = {"round": round.index, "index": i, "key": images.key(i), "label": int(label), "class": name}
        return [labels[i] for i in asked if i in labels]

    if asked:
        job.run.append("labels", rows)
    return not job.run.unanswered()


def choose(job: Job, round: Round, free: np.ndarray, count: int) -> None:
    """Pick `count` of the `free` images by the strategy whose turn it is, and write down which and why."""
    attempt = sum(row["round"] == round.index for row in job.run.read("queries"))
    if round.index == 0 and attempt == 0:
        how = job.config.growth.start_set

        def pick() -> Selection:
            """Stored features show better than pixels what lies apart, so coverage goes by them."""
            if how != "query" and (how != "coverage" or job.config.views.kind != "features"):
                return pick_by_seed(job, free, count, how)
            query = Query.parse(job.config.query if how == "query" else "herding")
            draw, most = rng(job.config.seed, "coverage"), max(COVERED, 2 * count)
            shown = np.sort(draw.choice(free, most, replace=False)) if len(free) > most else free
            assert isinstance(job.views, VectorViews)
            features = np.concatenate([job.views.where(part).cpu().numpy() for part in batches(job.views, shown)])
            return query.selection(Candidates(shown, features=features), count, draw)

        write_query(job, round, f"start-{how}", pick)
    elif round.index == 0 or job.config.query == "random":
        # Random picks go on in the order of a passive draw: at the budget both have the same labels, so that they
        # differ by growing alone.
        write_query(job, round, "random", lambda: pick_by_seed(job, free, count, "uniform"))
    else:
        query, draw = Query.parse(job.config.query), rng(job.config.seed, "select", round.index, attempt)
        scored, labeled = score_candidates(job, free, query, round.index)  # all processes share this work
        write_query(job, round, str(query), lambda: query.selection(scored, count, draw, labeled))


def write_query(job: Job, round: Round, strategy: str, pick: Callable[[], Selection]) -> None:
    """Pick images once and write down which, and the scores that decided it."""

    def rows() -> list[Row]:
        picked, when = pick(), {"round": round.index, "step": job.state.step, "strategy": strategy}
        indices = picked.index.tolist()
        keys = [job.data.train.key(index) for index in indices]
        scores = [float(f"{float(score):.6g}") for score in picked.scores]  # keeps the file readable
        return [
            {**when, "indices": indices, "keys": keys, "scores": scores, **({"why": picked.why} if picked.why else {})}
        ]

    job.run.append("queries", rows)


def pick_by_seed(job: Job, free: np.ndarray, count: int, how: str) -> Selection:
    """Pick without looking at a model."""
    return Selection(start_set(job.data.train, free, count, job.config.seed, how), np.zeros(count))


def score_candidates(job: Job, free: np.ndarray, query: Query, round: int) -> tuple[Candidates, Labeled]:
    """Let the teacher look at the images that may be asked about, and at those that were, if the query wants to know them."""
    teacher, views = job.state.teacher.eval(), job.as_trained(job.views)
    with job.computing():
        scored = candidates(teacher, views, free, query, job.config.seed, round)
    held = job.run.held_out()
    asked = {index: label for index, label in job.run.answers().items() if index not in held}
    if not query.needs_labeled or not asked:
        return scored, Labeled()
    with job.computing():
        features = embeddings(teacher, views, np.fromiter(asked, np.int64, len(asked)))
    labels = np.fromiter(asked.values(), np.int64, len(asked))
    return scored, Labeled() if features is None else Labeled(features, labels)


def suggest(
    run: Run | Path | str, n: int, strategy: str | None = None, *, data: OwnData | None = None
) -> list[dict[str, Any]]:
    """Return the unlabeled images that a run's latest model would ask about.

    Parameters
    ----------
    run : Run or path
        A run that has a model.
    n : int
        How many images.
    strategy : str, optional
        A query. Default: the run's own.
    data : DataSet or torch Dataset, optional
        What the run was trained on, where that is no data set with a name.

    Returns
    -------
    list of dict
        Index, key and score of each, and its name if it has one; the most wanted first.

    Examples
    --------
    >>> len(mma.suggest("runs/digits", 3))
    3
    """
    return suggest_with_reason(run, n, strategy, data=data)[0]


def suggest_with_reason(
    run: Run | Path | str, n: int, strategy: str | None = None, *, data: OwnData | None = None
) -> tuple[list[dict[str, Any]], str]:
    """Return what `suggest` returns, and why it is these; the reason is empty for a query that only ranks by its score."""
    job = load_read_only(run, data)
    query, free, images = Query.parse(strategy or job.config.query), free_images(job), job.data.train
    if not len(free):
        raise UserError(
            f"every image of {job.data.name} has a label or was asked about, so there is nothing to choose from."
        )
    scored, labeled = score_candidates(job, free, query, job.state.step)
    picked = query.selection(scored, n, rng(job.config.seed, "look", job.state.step), labeled)
    picks = []
    for i, score in zip(picked.index.tolist(), picked.scores, strict=True):
        named = {"name": images.names[i]} if images.names else {}
        picks.append({"index": i, "key": images.key(i), "score": float(score), **named})
    return picks, picked.why


# Who answers: the data set's own labels, or people, who answer late and in part.


class Oracle(Protocol):
    """Anyone who can be asked for labels: any object with this method.

    Examples
    --------
    >>> class Always:
    ...     def ask(self, indices, round):
    ...         return {index: 0 for index in indices}
    >>> Always().ask([4, 7], round=1)
    {4: 0, 7: 0}
    """

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return index -> label for those that can be answered now. Fewer than asked = people are still working."""
        ...


class DatasetLabels:
    """Answers from the data set's own labels: for experiments. Asked only about images whose label is known, if any is.

    Parameters
    ----------
    images : Images
        The pool.
    unlabeled_means_no_class : bool
        Images without a label are of no class: it is asked about them, too, and cannot tell. Default: False.

    Examples
    --------
    >>> DatasetLabels(mma.load_data("digits").train).ask([0, 1], round=1)
    {0: 0, 1: 2}
    """

    def __init__(self, images: Images, *, unlabeled_means_no_class: bool = False) -> None:
        self.labels: np.ndarray = images.labels
        self.no_class = unlabeled_means_no_class

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return the labels that are known."""
        return {int(i): int(self.labels[i]) for i in indices if self.labels[i] >= 0 or self.no_class}

    def answerable(self, indices: np.ndarray) -> np.ndarray:
        """Return the images with a known label, and those of no class: the same ones in every process."""
        return indices if self.no_class else np.asarray(indices[self.labels[indices] >= 0])


class QuestionFile:
    """Asks people through a CSV file with the columns file_name and label, of which they fill in the second.

    Images without a file are named by their key. A label of ? says that one cannot tell.
    """

    def __init__(self, path: Path, images: Images) -> None:
        self.path, self.images = path, images

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return the answers that are filled in. The file lists what is asked now, with the labels it has so far."""
        images, labels = self.images, {}
        names = {index: self.name(index) for index in indices}
        if self.path.exists():
            everything = images.names or [self.name(index) for index in range(len(images))]
            labels = read_labels(self.path, everything, (*images.classes, CANNOT_TELL))
        rows = [[name, labels.get(name, "")] for name in dict.fromkeys(names.values())]  # equal images share a row
        write_atomically(self.path, render_csv([["file_name", "label"], *rows]))
        filled = {index: labels[name] for index, name in names.items() if labels.get(name)}
        return {i: DECLINED if y == CANNOT_TELL else images.classes.index(y) for i, y in filled.items()}

    def name(self, index: int) -> str:
        """Return how an image is called in the file."""
        return self.images.names[index] if self.images.names else self.images.key(index)


# Rounds that are paid for: what the money buys is decided once, written down with its reasons, and kept.


def buy(job: Job, round: Round) -> None:
    """Decide what the round's money buys, unless that was decided already: what was paid for once does not change."""
    if any(row["round"] == round.index for row in job.run.read("purchases")):
        return
    job.run.append("purchases", lambda: [purchase(job, round)])
    row = job.run.purchases()[-1]
    bought = f"{row['labels']:,} labels, {row['images']:,} images for {row['paid']:g}"
    job.watch.say(f"step {row['step']:,}: bought {bought}; {row['left']:g} left. {row['why']}")


def purchase(job: Job, round: Round) -> Row:
    """Return the row that says what is bought, what there was before, and why."""
    growth, policy, answers, held = job.config.growth, job.config.growth.spending, job.run.answers(), job.run.held_out()
    assert policy is not None
    terms = buyer.Terms(
        Prices(policy.label_price, policy.image_price),
        policy.money,
        policy.purchases,
        start=growth.start,
        budget=growth.budget,
        pool=len(job.pool),
        classes=len(job.data.train.classes),
        share=policy.share if isinstance(policy, Split) else None,
        held_out_labels=growth.held_out_labels,
        value_per_point=policy.value_per_point if isinstance(policy, Buyer) else 0.0,
    )
    missing = terms.classes - len({y for i, y in answers.items() if y >= 0 and i not in held})
    measured = None  # the teacher's error on the held-out labels
    if to_measure := [i for i, y in answers.items() if i in held and y >= 0]:
        with job.computing():
            probs = probabilities(job.state.teacher.eval(), job.as_trained(job.views), np.array(to_measure))
        measured = buyer.measure(probs, np.array([answers[i] for i in to_measure]))
    labels, images = terms.start + labels_bought(job, round), len(job.pool_at(round.index))
    now = buyer.Situation(round.index, job.state.step, labels, images, measured, missing)
    earlier = [buyer.from_row(row) for row in job.run.read("purchases")]
    chosen = buyer.decide(terms, earlier, now, rng(job.config.seed, "buyer", round.index))
    return buyer.as_row(terms, earlier, buyer.Bought(now, chosen))


def labels_bought(job: Job, round: Round) -> int:
    """Return the labels bought to train with, up to and with a round."""
    return sum(row["labels"] for row in job.run.purchases(round.index))
