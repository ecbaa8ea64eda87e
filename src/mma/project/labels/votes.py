"""Several answers about one image become one label: a vote, weighed by how reliable each person is. No torch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, delete, func, insert, select

from mma.project.labels import database as db
from mma.project.records import ANSWERS, SECOND_LOOKS

RIGHT, WRONG = 9.0, 1.0  # answers that everybody is taken to have given before: nine of ten right
ROUNDS, SETTLED = 100, 1e-5
DECIDES = ("review", "import")  # answers given in sight of the others' answers: they settle the image
Code = tuple[str, int | None]  # kind of answer and class


def estimate_reliability(answers: Mapping[str, Mapping[str, Code]]) -> dict[str, float]:
    """Return the probability that each person's answer is right, from images that several people answered.

    Dawid and Skene (1979) with one reliability per person: guess the true answers by a weighed vote, count how often each
    person is right, repeat. The prior keeps people with few answers near nine of ten.
    """
    people = sorted({person for given in answers.values() for person in given})
    codes = sorted({code for given in answers.values() for code in given.values()}, key=str)
    if len(codes) < 2:
        return dict.fromkeys(people, RIGHT / (RIGHT + WRONG))
    flat = [(row, person, code) for row, given in enumerate(answers.values()) for person, code in given.items()]
    image = np.array([row for row, _, _ in flat])
    who = np.array([people.index(person) for _, person, _ in flat])
    said = np.array([codes.index(code) for _, _, code in flat])
    right = np.full(len(people), RIGHT / (RIGHT + WRONG))
    for _ in range(ROUNDS):
        scores = np.zeros((len(answers), len(codes)))  # (images, codes)
        np.add.at(scores, (image, said), np.log(right * (len(codes) - 1) / (1 - right))[who])
        truth = np.exp(scores - scores.max(1, keepdims=True))
        truth /= truth.sum(1, keepdims=True)
        good = np.bincount(who, truth[image, said], len(people))
        before, right = right, (RIGHT + good) / (RIGHT + WRONG + np.bincount(who, minlength=len(people)))
        if np.abs(right - before).max() < SETTLED:
            break
    return {person: round(float(value), 4) for person, value in zip(people, right, strict=True)}


class Disagreement(NamedTuple):
    """An image that people answered differently."""

    image: str
    name: str
    class_id: int | None  # of the answer in force; None where that is no label
    event: str
    voices: list[tuple[str, str, int | None, float]]  # person, kind, class and weight


class PersonProgress(NamedTuple):
    """What one person did. `reliability` is None until there are enough answers to estimate it."""

    name: str
    answers: int
    last: str
    shared: int  # images that others answered too
    same: int  # of these, answered as the label in force
    reliability: float | None


class Standing(NamedTuple):
    """What the events of one image amount to."""

    answer: Any  # the answer in force, a row of events, or None
    provenance: str | None  # why the image was asked about, before anybody looked at its label again
    people: int  # how many answered
    deferred: int
    said: dict[str, Any]  # the last answer of each person, oldest first
    decided: bool  # by an answer given in sight of the others


@dataclass(frozen=True)
class Vote:
    """What the answers of several people are weighed by. It follows from the events: the last one of kind vote."""

    reliability: Mapping[str, float] = field(default_factory=dict)
    codes: int = 2  # answers that there were to choose from
    roots: Mapping[int, int] = field(default_factory=dict)  # class -> the class its labels count for

    @classmethod
    def of(cls, value: str | None, roots: Mapping[int, int]) -> Vote:
        """Read the value of an event of kind vote; None where there is none yet."""
        return cls(**json.loads(value or "{}"), roots=roots)

    def code(self, row: Any) -> Code:
        """Return an answer as it is counted."""
        return row.kind, self.roots.get(row.class_id, row.class_id)

    def weight(self, person: str) -> float:
        """Return what a person's answer counts: the log-odds that it is right and not one of the others."""
        right = self.reliability.get(person, RIGHT / (RIGHT + WRONG))
        return max(math.log(right * (self.codes - 1) / (1 - right)), 1e-3)

    def standing(self, rows: Iterable[Any]) -> Standing:
        """Sum up the active events of one image, oldest first.

        Each person has one voice, their newest answer. The weightier answer counts, of two equal ones the newer. Somebody
        who saw the answers and chose decides, until the next one who does.
        """
        decision, provenance, deferred = None, None, 0
        said: dict[str, Any] = {}
        for row in rows:
            if row.kind in ANSWERS:
                provenance = row.provenance if row.provenance not in SECOND_LOOKS else provenance or row.provenance
                said.pop(row.by, None)
                said[row.by] = row
                if row.provenance in DECIDES or (decision is not None and decision.by == row.by):
                    decision = row
            elif row.kind == "later":
                deferred = row.seq
        answer = decision
        if answer is None and said:
            weights: dict[Code, float] = {}
            for person, row in said.items():
                weights[self.code(row)] = weights.get(self.code(row), 0.0) + self.weight(person)
            most = max(weights.values()) - 1e-9
            answer = [row for row in said.values() if weights[self.code(row)] >= most][-1]
        return Standing(answer, provenance, len(said), deferred, said, decision is not None)

    def voices(self, stand: Standing) -> list[tuple[str, str, int | None, float]]:
        """Return who said what, with what it counts."""
        return [(by, *self.code(row), round(self.weight(by), 2)) for by, row in stand.said.items()]

    def words(self, stand: Standing, names: Mapping[int, str]) -> str:
        """Say how an answer came about: "2 of 3, weighed: cat by ann, bob, dog by carl"."""
        kinds = {"cannot_tell": "can't tell", "exclude": "excluded"}
        sides: dict[str, list[str]] = {}
        others = [row for row in stand.said.values() if not (stand.decided and row is stand.answer)]
        for row in others:
            kind, number = self.code(row)
            sides.setdefault(kinds.get(kind) or names[number or 0], []).append(row.by)
        said = ", ".join(f"{what} by {', '.join(people)}" for what, people in sides.items())
        if stand.decided:
            return f"decided by {stand.answer.by}; {said}" if said else f"decided by {stand.answer.by}"
        same = sum(self.code(row) == self.code(stand.answer) for row in stand.said.values())
        return f"{same} of {len(stand.said)}{', weighed' if len(sides) > 1 else ''}: {said}"

    def disputed(self, stand: Standing) -> bool:
        """Tell whether people differ and nobody has decided."""
        return not stand.decided and len({self.code(row) for row in stand.said.values()}) > 1


def read_vote(connection: Connection, roots: Mapping[int, int]) -> Vote:
    """Return what answers are weighed by now."""
    return Vote.of(connection.execute(select(db.meta.c.value).where(db.meta.c.key == "vote")).scalar(), roots)


def store_vote(connection: Connection, value: str | None) -> None:
    """Keep the last vote at hand."""
    connection.execute(delete(db.meta).where(db.meta.c.key == "vote"))
    if value:
        connection.execute(insert(db.meta).values(key="vote", value=value))


def read_shared(connection: Connection) -> dict[str, list[Any]]:
    """Return the active events of the images that several people answered, oldest first."""
    c = db.events.c
    answers = select(c.image).where(c.active == 1, c.kind.in_(ANSWERS)).group_by(c.image)
    shared = answers.having(func.count(c.by.distinct()) > 1)
    columns = (c.seq, c.id, c.kind, c.image, c.class_id, c.by, c.provenance, c.at)
    found: dict[str, list[Any]] = {}
    for row in connection.execute(select(*columns).where(c.image.in_(shared), c.active == 1).order_by(c.seq)):
        found.setdefault(row.image, []).append(row)
    return found


def poll(shared: Mapping[str, list[Any]], roots: Mapping[int, int]) -> str:
    """Estimate how reliable people are, as the value of an event."""
    vote = Vote(roots=roots)
    independent = {
        image: {row.by: vote.code(row) for row in rows if row.kind in ANSWERS and row.provenance not in DECIDES}
        for image, rows in shared.items()
    }
    answers = {image: given for image, given in independent.items() if len(given) > 1}
    codes = len({code for given in answers.values() for code in given.values()})
    return json.dumps({"reliability": estimate_reliability(answers), "codes": max(codes, 2)}, ensure_ascii=False)
