"""Browse all photos of a project: by class, label, person or file name, or those most like one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from mma import children
from mma.errors import UserError
from mma.project.labels import database as db
from mma.project.labels.events import merge_roots
from mma.project.map import read_map
from mma.project.project import Project
from mma.project.quality.promises import alone, alone_words, check_max_error
from mma.project.questions import SAME_BITS, hash_bits, latest_opinion
from mma.project.records import Key, Person
from mma.shares import AuditRecord

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
            promise, mine = self._heaps(known, check_max_error(wanted.max_error))
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
        found = alone(max_error, record)
        open_ones = known.label < 0
        mine = np.zeros(len(known.ids), bool)
        if found.threshold is not None:
            mine = open_ones & (known.guess >= 0) & ~known.unlike & (known.sure >= found.threshold)
        total = int(open_ones.sum())
        share = float(mine.sum()) / max(total, 1)
        heaps = {"mine": int(mine.sum()), "yours": total - int(mine.sum()), "words": alone_words(found, total, share)}
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
