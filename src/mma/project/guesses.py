"""Guesses about the photos of a project: what sources other than people say, and how far labels show that they are right.

A source is a file in state/guesses: probabilities of images. Its answers are never labels. No torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from mma.errors import UserError
from mma.files import explain_write_errors, write_atomically
from mma.project.labels import database as db
from mma.project.labels.events import merge_roots, now
from mma.project.models import StoredAnswers, answers_file, read_answers
from mma.project.quality.accuracy import Quality, judge
from mma.project.records import Klass, Labels
from mma.shares import exact_interval
from mma.soft_targets import Guesses
from mma.text import printable

if TYPE_CHECKING:
    from mma.project.project import Project

NAMES = "names"  # the source that is made of the names of the classes
NOTE = "names.json"  # why there are no guesses by names, or that they are there
CHANCE = ("audit", "random")  # labels of images that nobody chose
FEW = 10  # of them, below which all labels are counted
OF_A_CLASS = 3  # labels below which a class is not called the worst
SHOWN_WEIGHT = 0.25  # of a label from a grid that a source had filled: it shows what the source is surest of
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class SourceQuality:
    """How far a source can be trusted, by the images that people labeled and that it guessed."""

    name: str
    images: int  # that it guessed
    quality: Quality | None  # what it gets right, and what it takes for what; None before any label
    classes: tuple[str, ...]
    words: str


class GuessStore:
    """The sources of one project."""

    def __init__(self, project: Project) -> None:
        self.project, self.place = project, project.layout.state / "guesses"
        self._read: dict[Path, tuple[int, StoredAnswers]] = {}

    def put(self, name: str, ids: Sequence[str], probs: Floats, classes: Sequence[int]) -> None:
        """Store what a source says, in place of what it said before."""
        with explain_write_errors(self.place, "the same command"):
            self.place.mkdir(mode=0o700, exist_ok=True)
            file = f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.safetensors"
            data = answers_file(file, ids, probs, classes, source=name, at=now())[file]
            write_atomically(self.place / file, data, private=True)

    def sources(self) -> list[StoredAnswers]:
        """Return all sources, the newest last. A file that is damaged is left out."""
        for path in sorted(self.place.glob("*.safetensors")):
            stamp = path.stat().st_mtime_ns
            if self._read.get(path, (0,))[0] != stamp and (source := read_answers(path)) is not None:
                self._read[path] = stamp, source
        return sorted((source for _, source in self._read.values()), key=lambda source: source.at)

    def note(self, state: str, sentence: str = "") -> None:
        """Say how guesses by names stand: "ready", "none" or "missing", and why."""
        self.place.mkdir(mode=0o700, exist_ok=True)
        write_atomically(self.place / NOTE, json.dumps({"state": state, "sentence": sentence}), private=True)

    def noted(self) -> dict[str, str]:
        """Return what was noted."""
        with suppress(OSError, ValueError):
            found: dict[str, str] = json.loads((self.place / NOTE).read_text("utf-8"))
            return found
        return {"state": "", "sentence": ""}

    def doubts(self) -> list[tuple[str, int]]:
        """Return images that people took out of a grid of a class."""
        with self.project.store.reading() as connection:
            return read_doubts(connection)

    def qualities(self, labels: Labels) -> list[SourceQuality]:
        """Measure every source on the labels in force."""
        doubts = self.doubts()
        return [measure(source, labels, doubts) for source in self.sources()]

    def for_training(self, labels: Labels, rows: dict[str, int]) -> Guesses | None:
        """Return the sources as a start of a model sees them: `rows` maps images of its pool to rows. None without any."""
        ids, used = list(rows), [each.id for each in labels.classes if each.merged_into is None]
        said = [answers_of(source, ids, labels.classes) for source in self.sources()]
        said = [probs for probs in said if probs.any()]
        if not said:
            return None
        evidence, roots = np.ones(len(ids)), merge_roots(labels.classes)
        for image, provenance in zip(labels.ids, labels.provenance, strict=True):
            if provenance == "grid" and image in rows:
                evidence[rows[image]] = SHOWN_WEIGHT
        known = set(labels.ids)
        doubts = [
            (rows[i], used.index(roots[k])) for i, k in self.doubts() if i in rows and i not in known and k in roots
        ]
        return Guesses(said, evidence, doubts)


def read_doubts(connection: Connection) -> list[tuple[str, int]]:
    """Return images that people took out of a grid, with the class that they are not of."""
    c = db.events.c
    taken = select(c.image, c.shown).where(c.kind == "later", c.active == 1, c.shown.like("grid: %"))
    rows = connection.execute(taken).all()
    return [(row.image, int(row.shown[6:])) for row in rows if row.shown[6:].isdecimal()]


def answers_of(source: StoredAnswers, ids: Sequence[str], known: Sequence[Klass]) -> Floats:
    """Return the guesses about images for the classes in use; a row of zeros where there is none. (N, C)"""
    roots, used = merge_roots(known), [each.id for each in known if each.merged_into is None]
    found = np.zeros((len(ids), len(used)), np.float32)
    here = np.array([(place, source.row[each]) for place, each in enumerate(ids) if each in source.row], np.int64)
    for column, klass in enumerate(source.classes):
        if len(here) and roots.get(klass) in used:
            found[here[:, 0], used.index(roots[klass])] += source.probs[here[:, 1], column]
    return found


def measure(source: StoredAnswers, labels: Labels, doubts: Sequence[tuple[str, int]] = ()) -> SourceQuality:
    """Compare a source with people: on labels drawn at random where there are some, else on all, and say which."""
    used = [each for each in labels.classes if each.merged_into is None]
    names, roots = tuple(each.name for each in used), merge_roots(labels.classes)
    rows = [row for row in zip(labels.ids, labels.class_ids, labels.provenance, strict=True) if row[0] in source.row]
    drawn = [row for row in rows if row[2] in CHANCE]
    counted = drawn if len(drawn) >= FEW else rows
    place = {each.id: number for number, each in enumerate(used)}
    truth = np.array([place[klass] for _, klass, _ in counted], np.int64)
    answered = set(labels.ids)
    out = [i for i, k in doubts if i in source.row and i not in answered and counted is not drawn and k in roots]
    if not counted and not out:
        words = f"{source.name}: {len(source.row):,} guesses, not compared with any label yet."
        return SourceQuality(source.name, len(source.row), None, names, words)
    quality = judge(answers_of(source, [image for image, _, _ in counted], labels.classes), truth, names)
    right, of = quality.accuracy.right, len(counted) + len(out)
    low, high = exact_interval(right, of)
    words = f"{source.name}: right in {100 * right / of:.0f} %, between {100 * low:.0f} and {100 * high:.0f}"
    recalls = [
        (each.recall.value, each.name) for each in quality.classes if each.recall and each.recall.of >= OF_A_CLASS
    ]
    if recalls and min(recalls)[0] < 1.0:
        words += f"; worst at {printable(min(recalls)[1])}"
    many = f"{of:,} photo{'' if of == 1 else 's'}"
    words += (
        f" ({many} drawn at random)." if counted is drawn else f" ({many} that people looked at, not drawn at random)."
    )
    return SourceQuality(source.name, len(source.row), quality, names, words)


def check_source_name(name: str) -> str:
    """Return the name of a source of guesses, or refuse it."""
    name = name.strip()
    if not name or len(name) > 40 or printable(name) != name or name.casefold() == NAMES:
        raise UserError(
            f"'{printable(name)}' cannot be the name of a source of guesses. Take up to 40 characters, such as gpt; "
            f"'{NAMES}' are those of the class names."
        )
    return name
