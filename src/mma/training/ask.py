"""Growing the labeled set: choose images, ask, write down what was asked and answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from mma.cost import Prices, buyer
from mma.cost.buyer import Bought, Measurement, Situation, Terms
from mma.data import DataSet, Images, start_set
from mma.data.tables import read_labels, render_csv
from mma.errors import UserError
from mma.files import Row, write_atomically
from mma.growth import Buyer, Round, Split
from mma.query import Candidates, Labeled, Query, Selection
from mma.rng import rng
from mma.run import HELD_OUT
from mma.training.job import Job
from mma.training.predict import batches, candidates, embeddings, probabilities

COVERED = 40_000  # images that a start set on features is chosen from; they fit into memory, however long the vectors


def grow(job: Job, round: Round, oracle: Oracle) -> bool:
    """Bring the labeled set to the round's size. False while answers are missing: call again later."""
    if job.config.growth.spending and round.index:
        buy(job, round)
    while True:
        if not ask(job, oracle, round):
            return False
        train, held_out = missing_labels(job, round)
        free = answerable(oracle, free_images(job, round.index))
        if train + held_out == 0:
            return True
        if not len(free):
            give_up(job, round, train + held_out)
            return True
        # Declined images leave the round short, so it asks again, for as many as are missing.
        if train:
            choose(job, round, free, min(train, len(free)))
        else:
            draw_held_out(job, round, free, min(held_out, len(free)))


def missing_labels(job: Job, round: Round) -> tuple[int, int]:
    """Return how many labels the round still lacks to train with, and to measure by."""
    growth, held = job.config.growth, job.run.held_out()
    given = [index for index, label in job.run.answers(round.index).items() if label >= 0]
    to_measure = sum(index in held for index in given)
    size = growth.start + labels_bought(job, round) if growth.spending else round.labels
    return max(size - len(given) + to_measure, 0), max(growth.held_out_labels - to_measure, 0)


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


def answerable(oracle: Oracle, free: np.ndarray) -> np.ndarray:
    """Return those of the images that it makes sense to ask this oracle about."""
    return oracle.answerable(free) if isinstance(oracle, Selective) else free


def free_images(job: Job, upto: int | None = None) -> np.ndarray:
    """Return the images that nobody was asked about in rounds up to `upto`."""
    asked = job.run.answers(upto)
    return np.setdiff1d(job.pool_at(upto), np.fromiter(asked, np.int64, len(asked)), assume_unique=True)


def ask(job: Job, oracle: Oracle, round: Round) -> bool:
    """Ask for what has no answer yet and write down what comes back. True when nothing is open."""
    open_ = job.run.unanswered()
    if open_:
        images = job.data.train
        job.run.append("labels", lambda: label_rows(oracle.ask(open_, round.index), open_, images, round.index))
    return not job.run.unanswered()


def label_rows(answers: Mapping[int, int], asked: Sequence[int], images: Images, round: int) -> list[Row]:
    """Return the rows of the answers, in the order they were asked for."""
    labels = {int(index): check_answer(index, label, asked, images.classes) for index, label in answers.items()}
    return [
        {
            "round": round,
            "index": index,
            "key": images.key(index),
            "label": labels[index],
            "class": None if labels[index] == DECLINED else images.classes[labels[index]],
        }
        for index in asked
        if index in labels
    ]


def check_answer(index: int, label: int, asked: Sequence[int], classes: Sequence[str]) -> int:
    """Return the label as a plain int, or refuse an answer that was not asked for or is no class."""
    whole = isinstance(label, int | np.integer) and not isinstance(label, bool)
    if index not in asked or not whole or not DECLINED <= label < len(classes):
        raise UserError(
            f"the oracle answered {label!r} for image {index!r}. It may answer only what it was asked, with a class from 0 to "
            f"{len(classes) - 1}, or -1 to decline. Nothing was stored."
        )
    return int(label)


def choose(job: Job, round: Round, free: np.ndarray, count: int) -> None:
    """Pick `count` of the `free` images by the strategy whose turn it is, and write down which and why."""
    attempt = sum(row["round"] == round.index for row in job.run.read("queries"))
    if round.index == 0 and attempt == 0:
        how = job.config.growth.start_set
        write_query(job, round, f"start-{how}", lambda: pick_start(job, free, count, how))
    elif round.index == 0 or job.config.query == "random":
        # Random picks go on in the order of a passive draw: at the budget both have the same labels, so that they
        # differ by growing alone.
        write_query(job, round, "random", lambda: pick_by_seed(job, free, count, "uniform"))
    else:
        query, draw = Query.parse(job.config.query), rng(job.config.seed, "select", round.index, attempt)
        found, labeled = look(job, free, query, round.index)  # all processes share this work
        write_query(job, round, str(query), lambda: query.selection(found, count, draw, labeled))


def draw_held_out(job: Job, round: Round, free: np.ndarray, count: int) -> None:
    """Draw `count` of the `free` images to measure by, whatever the model thinks of them."""
    write_query(job, round, HELD_OUT, lambda: pick_by_seed(job, free, count, "uniform"))


def give_up(job: Job, round: Round, short: int) -> None:
    """Write down that nothing is left to ask for, so that every round has a query, and warn."""
    labeled = sum(label >= 0 for label in job.run.answers(round.index).values())
    job.watch.warn(f"no more labels to be had: {labeled} instead of {labeled + short}")
    if not any(row["round"] == round.index for row in job.run.read("queries")):
        write_query(job, round, "none", lambda: Selection(np.empty(0, np.int64), np.empty(0)))


def write_query(job: Job, round: Round, strategy: str, pick: Callable[[], Selection]) -> None:
    """Pick images once and write down which, and the scores that decided it."""

    def rows() -> list[Row]:
        picked = pick()
        row = {
            "round": round.index,
            "step": job.state.step,
            "strategy": strategy,
            "indices": [int(i) for i in picked.index],
            "keys": [job.data.train.key(int(i)) for i in picked.index],
            "scores": [float(f"{float(score):.6g}") for score in picked.scores],  # keeps the file readable
        }
        return [{**row, "why": picked.why} if picked.why else row]

    job.run.append("queries", rows)


def pick_start(job: Job, free: np.ndarray, count: int, how: str) -> Selection:
    """Pick the first images to label. Stored features show better than pixels what lies apart, so coverage goes by them."""
    if how == "query" or (how == "coverage" and job.config.views.kind == "features"):
        return pick_by_features(job, free, count, Query.parse(job.config.query if how == "query" else "herding"))
    return pick_by_seed(job, free, count, how)


def pick_by_features(job: Job, free: np.ndarray, count: int, query: Query) -> Selection:
    """Pick by stored features, before there is a model."""
    draw, most = rng(job.config.seed, "coverage"), max(COVERED, 2 * count)
    shown = np.sort(draw.choice(free, most, replace=False)) if len(free) > most else free
    features = np.concatenate([job.views.plain(part).cpu().numpy() for part in batches(job.views, shown)])
    return query.selection(Candidates(shown, features=features), count, draw)


def pick_by_seed(job: Job, free: np.ndarray, count: int, how: str) -> Selection:
    """Pick without looking at a model."""
    return Selection(start_set(job.data.train, free, count, job.config.seed, how), np.zeros(count))


def look(job: Job, free: np.ndarray, query: Query, round: int) -> tuple[Candidates, Labeled]:
    """Let the teacher look at the images that may be asked about, and at those that were, if the query wants to know them."""
    job.state.teacher.eval()
    views = job.views.at(job.state.step - 1)  # of the size it was trained with
    with job.computing():
        found = candidates(job.state.teacher, views, free, query, job.config.seed, round, job.ranks)
    held = job.run.held_out()
    asked = {index: label for index, label in job.run.answers().items() if index not in held}
    if not query.needs_labeled or not asked:
        return found, Labeled()
    index = np.fromiter(asked, np.int64, len(asked))
    with job.computing():
        features = embeddings(job.state.teacher, views, index, job.ranks)
    return found, Labeled() if features is None else Labeled(
        features, np.fromiter(asked.values(), np.int64, len(asked))
    )


# Who answers: the data set's own labels, or people, who answer late and in part.

QUESTIONS = "questions.csv"  # in a run folder: what people are asked
CANNOT_TELL = "?"  # written as a label, it declines
DECLINED = -1  # somebody looked and could not tell: the image stays unlabeled and is not asked about again


class Oracle(Protocol):
    """Anyone who can be asked for labels."""

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return index -> label for those that can be answered now. Fewer than asked = people are still working."""
        ...


@runtime_checkable
class Selective(Protocol):
    """An oracle that knows beforehand what it will never be able to answer."""

    def answerable(self, indices: np.ndarray) -> np.ndarray:
        """Return those of the images that it makes sense to ask about: the same ones in every process."""
        ...


class DatasetLabels:
    """Answers from the data set's own labels: for experiments. Asked only about images whose label is known, if any is.

    Where images without a label are `strangers`, of no class, it is asked about them too, and cannot tell.
    """

    def __init__(self, images: Images, *, strangers: bool = False) -> None:
        self.labels: np.ndarray = images.labels
        self.strangers = strangers

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return the labels that are known."""
        return {int(i): int(self.labels[i]) for i in indices if self.labels[i] >= 0 or self.strangers}

    def answerable(self, indices: np.ndarray) -> np.ndarray:
        """Return the images with a known label, and strangers."""
        if self.strangers:
            return indices
        known: np.ndarray = indices[self.labels[indices] >= 0]
        return known


class QuestionFile:
    """Asks people through a CSV file with the columns file_name and label, of which they fill in the second.

    Images without a file are named by their key. A label of ? says that one cannot tell.
    """

    def __init__(self, path: Path, images: Images) -> None:
        self.path, self.images = path, images

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Return the answers that are filled in. The file lists what is asked now, with the labels it has so far."""
        names = {index: self.name(index) for index in indices}
        labels = self.read()
        rows = [[name, labels.get(name, "")] for name in dict.fromkeys(names.values())]  # equal images share a row
        write_atomically(self.path, render_csv([["file_name", "label"], *rows]))
        return {index: self.number(labels[name]) for index, name in names.items() if labels.get(name)}

    def read(self) -> dict[str, str]:
        """Read what people filled in so far."""
        if not self.path.exists():
            return {}
        known = self.images.names or [self.name(index) for index in range(len(self.images))]
        return read_labels(self.path, known, (*self.images.classes, CANNOT_TELL))

    def name(self, index: int) -> str:
        """Return how an image is called in the file."""
        return self.images.names[index] if self.images.names else self.images.key(index)

    def number(self, label: str) -> int:
        """Return the number of a class, or that somebody could not tell."""
        return DECLINED if label == CANNOT_TELL else self.images.classes.index(label)


def oracle_for(data: DataSet, folder: Path) -> Oracle:
    """Return who answers when nobody says: the data set's own labels, or people where it has none."""
    if (data.train.labels >= 0).any():
        return DatasetLabels(data.train, strangers=data.strangers)
    return QuestionFile(folder / QUESTIONS, data.train)


# Rounds that are paid for: what the money buys is decided once, written down with its reasons, and kept.


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
