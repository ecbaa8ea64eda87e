"""Find photos: look through all of them, or search all of one class. No torch.

Of a class, likely photos come first, in the order of the model's probability. When they bring nothing any more, photos are
drawn at random from those nobody has looked at: they alone show how many there can still be. What was asked and answered is a
file of the project, one line per step, so that a reload or a restart draws nothing anew. Photos of the class become labels;
that a photo is something else is known to the search alone. Photos kept for measuring are not searched.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid4

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from mma import children
from mma.errors import UserError
from mma.files import append_lines, in_turn, read_lines
from mma.project.labels import database as db
from mma.project.labels.events import merge_roots
from mma.project.map import read_map
from mma.project.models import ANSWERS
from mma.project.project import Project
from mma.project.quality import promises
from mma.project.questions import SAME_BITS, hash_bits, latest_opinion
from mma.project.records import Answer, Key, Klass, Person
from mma.rng import rng
from mma.shares import AuditRecord
from mma.text import did_you_mean, printable, quote_path

MAP_SECONDS = 3_600.0


class BrowseRequest(BaseModel):
    """Which photos to show, in which order."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    by: Person
    kind: Literal["all", "labeled", "unlabeled"] = "all"
    class_id: int | None = None  # of the label where there is one, else what the model says
    person: str = Field(default="", max_length=200)  # who gave the label
    text: str = Field(default="", max_length=200)  # in the file's name
    like: Key | None = None  # a photo: those most like it first
    order: Literal["sure", "unsure", "name"] = "unsure"
    max_error: float | None = None  # of what the model answers alone
    heap: Literal["mine", "yours"] = "mine"  # with max_error: what it answers alone, or leaves to people
    offset: int = Field(default=0, ge=0)
    n: int = Field(default=120, ge=1, le=400)


class _Known(NamedTuple):
    """All photos of one moment, in the order of their names."""

    ids: list[str]
    names: list[str]
    bits: NDArray[np.int32]  # (N, 64) of the perceptual hashes, -1 and 1
    label: NDArray[np.int64]  # class ids; -1 = none
    by: list[str]
    guess: NDArray[np.int64]  # class ids by the model; -1 = none
    sure: NDArray[np.float32]  # its probability
    probs: NDArray[np.float32]  # (N, classes)
    unlike: NDArray[np.bool_]  # unlike anything labeled
    hidden: int  # photos kept for measuring, not labeled yet: whoever chose among them would spoil the measurement


class Browser:
    """Lists the photos of a project. What was read is kept until the next answer or model."""

    def __init__(self, project: Project, ending: Callable[[], bool] = bool) -> None:
        self.project, self.ending, self._turn, self._key = project, ending, threading.Lock(), (-1, -1, -1)
        self._known: _Known | None = None
        self._drawing: threading.Thread | None = None
        self._drawn, self._why = -1, ""  # images of the last map that was begun here; what went wrong

    def page(self, wanted: BrowseRequest) -> dict[str, Any]:
        """Return some photos, how many there are in all, and who has labeled."""
        known = self._read()
        shown = np.ones(len(known.ids), bool)
        if wanted.kind != "all":
            shown &= (known.label >= 0) == (wanted.kind == "labeled")
        if wanted.class_id is not None:
            shown &= np.where(known.label >= 0, known.label, known.guess) == wanted.class_id
        if wanted.person:
            shown &= np.array([by == wanted.person for by in known.by], bool)
        if wanted.text:
            text = wanted.text.casefold()
            shown &= np.array([text in name.casefold() for name in known.names], bool)
        promise = None
        if wanted.max_error is not None:
            promise, mine = self._heaps(known, promises.check_max_error(wanted.max_error))
            shown &= (known.label < 0) & (mine if wanted.heap == "mine" else ~mine)
        rows = np.flatnonzero(shown)
        if wanted.like is not None:
            if wanted.like not in known.ids:
                raise UserError("this photo is not in the project any more.")
            place = known.ids.index(wanted.like)
            same = (known.bits[rows] @ known.bits[place] + 64) / 2  # bits of 64; near-duplicates come before all others
            alike = same / 64 + (same >= SAME_BITS) + np.sqrt(known.probs[rows]) @ np.sqrt(known.probs[place])
            rows = rows[np.argsort(-alike, kind="stable")]
        elif wanted.order != "name":
            # Photos without an answer of the model come last either way.
            sure = known.sure[rows] if wanted.order == "unsure" else -known.sure[rows]
            rows = rows[np.argsort(np.where(known.guess[rows] < 0, 2.0, sure), kind="stable")]
        items = []
        for row in rows[wanted.offset : wanted.offset + wanted.n].tolist():
            label, guess, likely = int(known.label[row]), int(known.guess[row]), round(float(known.sure[row]), 4)
            about = {"image": known.ids[row], "name": known.names[row], "label": None if label < 0 else label}
            guessed = {"guess": None if guess < 0 else [guess, likely], "unlike": bool(known.unlike[row])}
            items.append({**about, "by": known.by[row], **guessed})
        people = sorted({by for by in known.by if by})
        return {"items": items, "total": len(rows), "people": people, "hidden": known.hidden, "promise": promise}

    def _heaps(self, known: _Known, max_error: float) -> tuple[dict[str, Any], NDArray[np.bool_]]:
        """Say what the model may answer alone, and tell which photos these are. (N,)"""
        report = self.project.models.latest_report("live")
        if report is None:
            raise UserError("there is no model yet. Label some photos first.")
        record = report.record or AuditRecord((), (), ())
        found = promises.alone(max_error, record)
        open_ones = known.label < 0
        mine = np.zeros(len(known.ids), bool)
        if found.threshold is not None:
            mine = open_ones & (known.guess >= 0) & ~known.unlike & (known.sure >= found.threshold)
        total = int(open_ones.sum())
        share = float(mine.sum()) / max(total, 1)
        heaps = {
            "mine": int(mine.sum()),
            "yours": total - int(mine.sum()),
            "words": promises.alone_words(found, total, share),
        }
        return {**heaps, "made": found.threshold is not None}, mine

    def map(self) -> dict[str, Any]:
        """Return where the photos lie in two dimensions, and their answers. A map that is missing or old is drawn meanwhile."""
        known, (keys, places) = self._read(), read_map(self.project.folder)
        progress = {task: done == total for task, done, total, _ in self.project.progress()}
        many, row = self.project.counts().images, {image: place for place, image in enumerate(known.ids)}
        ready = all(progress.get(task, True) for task in ("index", "features")) and self.project.models.rows()
        drawing = self._drawing is not None and self._drawing.is_alive()
        old = many != self._drawn and len(keys) < sum(not each.audit for each in self.project.images())
        if ready and not drawing and old:
            self._drawn, drawing = many, True
            self._drawing = threading.Thread(target=self._draw, name="map", daemon=True)
            self._drawing.start()
        points = []
        for key, place in zip(keys, np.round(places, 4).tolist(), strict=True):
            if (at := row.get(key)) is not None:
                said = int(known.label[at]), int(known.guess[at]), round(float(known.sure[at]), 3)
                points.append([key, known.names[at], *place, *said])
        return {"points": points, "drawing": drawing, "ready": bool(ready), "problem": self._why}

    def _draw(self) -> None:
        done = children.run("mma.project.map", str(self.project.folder), timeout=MAP_SECONDS, stop=self.ending)
        self._why = (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else ""

    def _read(self) -> _Known:
        project, counts = self.project, self.project.counts()
        models = project.models.rows()
        key = (counts.seq, counts.images, models[-1].number if models else 0)
        with self._turn:
            if self._known is None or key != self._key:
                self._known, self._key = self._look(), key
            return self._known

    def _look(self) -> _Known:
        project, c = self.project, db.images.c
        roots, labels = merge_roots(project.classes()), project.labels()
        given = {i: (roots[k], by) for i, k, by in zip(labels.ids, labels.class_ids, labels.by, strict=True)}
        with project.store.reading() as connection:
            query = select(c.id, c.name, c.phash, c.audit).where(c.present == 1).order_by(c.name)
            rows = connection.execute(query).all()
            opinion = latest_opinion(connection, project)
        left_out = {*labels.cannot_tell, *labels.excluded}
        hidden = sum(bool(row.audit) and row.id not in given for row in rows)
        rows = [row for row in rows if row.id not in left_out and (row.id in given or not row.audit)]
        probs = np.zeros((len(rows), max(len(opinion.classes), 1)), np.float32)
        seen = [(place, opinion.row[row.id]) for place, row in enumerate(rows) if row.id in opinion.row]
        unlike = np.zeros(len(rows), bool)
        guess, sure = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.float32)
        if seen and opinion.classes:
            places, theirs = np.array(seen, np.int64).T
            probs[places], unlike[places] = opinion.probs[theirs], opinion.unlike[theirs]
            classes = np.array([roots.get(each, -1) for each in opinion.classes], np.int64)
            guess[places], sure[places] = classes[probs[places].argmax(1)], probs[places].max(1)
        ids, names, bits = [row.id for row in rows], [row.name for row in rows], hash_bits([row.phash for row in rows])
        said = [given.get(image, (-1, "")) for image in ids]
        label = np.array([klass for klass, _ in said], np.int64)
        return _Known(ids, names, bits, label, [by for _, by in said], guess, sure, probs, unlike, hidden)


# Search all photos of one class.


class FindRequest(BaseModel):
    """Answer a batch of a search and ask for the next one; without a batch, ask for the one that is open."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    by: Person
    class_id: int
    batch: int | None = None  # its number, as it was asked
    yes: list[Key] = Field(default_factory=list, max_length=promises.BATCH)  # the photos of it that are of the class
    id: UUID | None = None  # of the answer: sent twice, it is stored once
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class FoundImage(NamedTuple):
    """A photo of a batch, and how likely the model thinks that it is of the class."""

    image: str
    name: str
    likely: float


class SearchState(NamedTuple):
    """How far a search is, and what to look at next."""

    class_id: int
    name: str
    found: int  # photos of the class, all that are labeled so
    looked: int  # photos of this search that were answered
    rest: int  # photos that can still be looked at
    kept: int  # photos kept for measuring, which are not searched
    promise: float  # share of the class that is found at least
    done: bool
    batch: int
    at_random: bool
    items: list[FoundImage]
    words: str
    why: str


def class_called(project: Project, name: str) -> Klass:
    """Return the class of a name, or say which ones there are."""
    known = {each.name: each for each in project.classes() if each.merged_into is None}
    folded = {each.casefold(): klass for each, klass in known.items()}
    if (found := known.get(name) or folded.get(name.casefold())) is None:
        names = ", ".join(printable(each) for each in known) or "none yet"
        raise UserError(f"there is no class '{printable(name)}'.{did_you_mean(name, known)} Classes: {names}.")
    return found


def search(project: Project, asked: FindRequest) -> SearchState:
    """Store the answer to a batch, if it is the open one, and return how far the search is, with the batch to answer next."""
    klass = next((each for each in project.classes() if each.id == asked.class_id and each.merged_into is None), None)
    if klass is None:
        raise UserError("there is no such class any more.")
    log = project.layout.state / f"find-{klass.id}.jsonl"
    with in_turn(project.layout.state / "find.lock"):
        lines = read_lines(log)
        open_batch = lines[-1] if lines and "asked" in lines[-1] else None
        if asked.batch is not None and open_batch is not None and asked.batch == len(lines):
            yes = [image for image in open_batch["asked"] if image in set(asked.yes)]
            if yes:
                said: dict[str, Any] = {"kind": "label", "class_id": klass.id, "source": "grid"}
                project.answer(Answer(id=asked.id or uuid4(), images=yes, by=asked.by, seconds=asked.seconds, **said))
            lines, open_batch = [*lines, {"yes": yes, "by": asked.by}], None
            append_lines(log, lines[-1:])
        return _next(project, klass, lines, open_batch, log)


def _next(project: Project, klass: Klass, lines: list[dict[str, Any]], open_batch: Any, log: Any) -> SearchState:
    """Replay a search, draw a batch if none is open, and say what is promised."""
    images, labels, roots = project.images(), project.labels(), merge_roots(project.classes())
    given = {image: roots[number] for image, number in zip(labels.ids, labels.class_ids, strict=True)}
    names = {image.id: image.name for image in images if not image.audit}
    found = sum(given.get(image) == klass.id for image in names)
    if not any(number == klass.id for number in given.values()):
        raise UserError(
            f"no photo is labeled {printable(klass.name)} yet, so the model cannot know what to look for. Label one first:  "
            f"mma start {quote_path(project.root)}"
        )
    stored = project.models.answers(ANSWERS)
    members = [place for place, number in enumerate(stored.classes if stored else ()) if roots.get(number) == klass.id]
    if stored is None or not members:
        raise UserError(
            f"the model does not know {printable(klass.name)} yet. It learns it from the labels of two classes and a few "
            f"seconds of training:  mma start {quote_path(project.root)}"
        )
    bound, batches, looked = promises.Recall(len(names)), list[tuple[bool, int, int]](), set[str]()
    size = None
    for ask, answer in zip(lines[::2], lines[1::2], strict=False):
        yes = set(answer["yes"])
        if size != ask["images"]:  # photos that came later were never drawn: what was shown says nothing about them
            size, bound = ask["images"], promises.Recall(len(names))
        hits = 0
        for place, image in enumerate(ask["asked"]):
            if ask["random"]:
                bound.draw(ask["rest"] - place, ask["found"] + hits, hit=image in yes)
            hits += image in yes
        batches.append((ask["random"], len(ask["asked"]), hits))
        looked.update(ask["asked"])
    if size != len(names):
        bound = promises.Recall(len(names))
    left_out = {*labels.cannot_tell, *labels.excluded}
    rest = [image for image in names if image not in given and image not in looked and image not in left_out]
    likely = stored.probs[:, members].sum(1)
    chance = {image: float(likely[stored.row[image]]) if image in stored.row else 0.0 for image in rest}
    promise = bound.promise(found, len(rest))
    if open_batch is None and rest:
        at_random = promises.draws_at_random(batches, len(rest))
        if at_random:
            drawn = rng(project.settings.seed, "find", klass.id, len(lines)).permutation(len(rest))[: promises.BATCH]
            chosen = [rest[place] for place in drawn.tolist()]
        else:
            chosen = sorted(rest, key=lambda image: -chance[image])[: promises.BATCH]
        open_batch = {"asked": chosen, "random": at_random, "rest": len(rest), "found": found, "images": len(names)}
        append_lines(log, [open_batch])
        lines = [*lines, open_batch]
    at_random, shown = bool(open_batch and open_batch["random"]), open_batch["asked"] if open_batch else []
    kept, batch = sum(image.audit and image.id not in given for image in images), len(lines) if open_batch else 0
    items = [FoundImage(image, names.get(image, ""), round(chance.get(image, 0.0), 4)) for image in shown]
    words, why = promise_words(klass.name, found, len(looked), promise), _why(at_random, found, len(rest), shown)
    so_far = found, len(looked), len(rest), kept, promise, promise >= promises.GOAL
    return SearchState(klass.id, klass.name, *so_far, batch, at_random, items, words, why)


def promise_words(name: str, found: int, looked: int, promise: float) -> str:
    """Say what was found and what is promised."""
    text = f"{found:,} photo{'' if found == 1 else 's'} of {printable(name)} found, {looked:,} looked at. "
    sure = f"({100 * promises.FOUND_SURE:.0f} % sure)"
    if promise >= 1:
        return f"{text}All of them are found {sure}."
    at_least = f"At least {100 * math.floor(100 * promise) / 100:.0f} % of them are found {sure}"
    rest = ": you may stop." if promise >= promises.GOAL else f"; the goal is {100 * promises.GOAL:.0f} %."
    return f"{text}{at_least}{rest}"


def _why(at_random: bool, found: int, rest: int, shown: Sequence[str]) -> str:
    if not shown:
        return "Every photo was looked at."
    if not at_random:
        return "Those that the model thinks likeliest. What it does not expect is looked for later."
    allowed = math.floor(found * (1 / promises.GOAL - 1)) + 1
    many = math.ceil(rest * (1 - (1 - promises.FOUND_SURE) ** (1 / allowed)))
    return (
        "Drawn at random from all photos that nobody has looked at: only these show how many can still be missing. About "
        f"{many:,} of them without another one would do."
    )
