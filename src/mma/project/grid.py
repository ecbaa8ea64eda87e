"""Groups of images to label at once: those a model takes for one class, or those that look alike."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, delete, exists, insert, or_, select

from mma.project.guesses import NAMES, read_doubts
from mma.project.labels import database as db
from mma.project.labels.events import LEASE, merge_roots, read_classes, read_counters
from mma.project.models import ANSWERS, PREDICTIONS, StoredAnswers
from mma.project.questions import is_live
from mma.project.records import ProjectImage

if TYPE_CHECKING:
    from mma.project.project import Project

LOOKED_AT = 20_000  # images among which look-alikes are sought
CANDIDATES = 500  # images of a class, the surest ones, of which some may be leased or near-duplicates
HASH_BYTES = 8
SEEDS = 200  # images one of which begins a group of look-alikes
SAME_CLASS = 0.6  # probability that two images have one class, from which on the model takes them for alike
SAME_BITS = 52  # of the 64 bits of two perceptual hashes; those of unlike images agree in about 32
LEAST = 6  # images that make a group


class PhotoGroup(NamedTuple):
    """Images to label together. `alike` is False when nothing shows that they have something in common."""

    images: list[ProjectImage]
    alike: bool
    guessed: str = ""  # the source that chose them, before there is a model


def lease_group(
    connection: Connection, project: Project, by: str, class_id: int | None, n: int, holding: Collection[str]
) -> PhotoGroup:
    """Lease up to `n` images that look like a class, the surest first, or without a class that look like each other.

    `holding` are images that the person has answered, which the server may not know yet. They are left out.
    The person's leases for single images are others, so that what is taken out of a grid does not come next there.
    """
    holder, moment = f"{by} (grid)", time.time()
    connection.execute(delete(db.leases).where(db.leases.c.by == holder))
    free, opinion = _free(by, holding, moment), latest_opinion(connection, project)
    if class_id is None:
        rows, alike = _alike(connection, free, opinion)
    else:
        roots = merge_roots(read_classes(connection))
        doubted = [image for image, klass in read_doubts(connection) if roots.get(klass) == class_id]
        free = _free(by, [*holding, *doubted], moment)
        members = {k for k, root in roots.items() if root == class_id}
        if not any(read_counters(connection, *(f"class:{k}" for k in members))):
            opinion = guess_opinion(project) or opinion  # no model has seen it
        rows, alike = _surest(connection, free, opinion, members), True
    values = {"by": holder, "taken": moment, "until": moment + LEASE, "provenance": "grid", "why": "looks like others"}
    if rows := rows[:n]:
        connection.execute(insert(db.leases), [{**values, "image": row.id} for row in rows])
    images = [ProjectImage(row.id, row.name, row.width, row.height, row.near, bool(row.audit)) for row in rows]
    return PhotoGroup(images, alike, "" if class_id is None else opinion.name)


def latest_opinion(connection: Connection, project: Project) -> StoredAnswers:
    """Return what the newest model says about all images; before there is one, what a source guesses."""
    if (stored := project.models.answers(ANSWERS, PREDICTIONS) or guess_opinion(project)) is not None:
        return stored
    query = select(db.picks.c.image, db.picks.c.suggestion).where(db.picks.c.suggestion.is_not(None))
    guesses = {row.image: dict(json.loads(row.suggestion)) for row in connection.execute(query)}
    classes = sorted({class_id for guess in guesses.values() for class_id in guess})
    probs = np.array([[guess.get(class_id, 0.0) for class_id in classes] for guess in guesses.values()], np.float32)
    row = {image: place for place, image in enumerate(guesses)}
    found = probs.reshape(len(guesses), len(classes))
    return StoredAnswers(0, tuple(classes), found, row, np.zeros(len(row), bool))


def guess_opinion(project: Project) -> StoredAnswers | None:
    """Return what a source guesses; what somebody brought comes before the names."""
    return min(project.guesses.sources(), key=lambda source: source.name == NAMES, default=None)


def _free(by: str, holding: Collection[str], moment: float) -> Select[Any]:
    """Select open images that nobody is being asked about, that this person has not answered, and that measure nothing.

    An image stays open after an answer where several people are asked about each. The answers are listed once: looked up
    for each image, SQLite would walk through all answers of the person again and again.
    """
    image, lease, event = db.images.c, db.leases.c, db.events.c
    held = select(lease.image).where(lease.image == image.id, is_live(moment))
    mine = select(event.image).where(event.by == by, event.active == 1, event.kind != "later")
    answered = or_(image.id.in_(sorted(holding)), image.id.in_(mine))
    return select(db.images).where(image.open == 1, image.audit == 0, ~exists(held), ~answered)


def _surest(connection: Connection, free: Select[Any], opinion: StoredAnswers, members: set[int]) -> list[Any]:
    """Return free images of a class, the surest first, one of each group of near-duplicates."""
    mine = np.isin(opinion.classes, sorted(members))
    if not mine.any():
        return []
    images = list(opinion.row)
    of_class = np.flatnonzero(mine[opinion.probs.argmax(1)])
    order = of_class[np.argsort(-opinion.probs[of_class][:, mine].sum(1), kind="stable")]
    groups: dict[str, Any] = {}
    for begin in range(0, len(order), CANDIDATES):
        place = {images[at]: rank for rank, at in enumerate(order[begin : begin + CANDIDATES])}
        rows = connection.execute(free.where(db.images.c.id.in_(sorted(place)))).all()
        for row in sorted(rows, key=lambda each: place[each.id]):
            groups.setdefault(row.near, row)
        if len(groups) >= CANDIDATES // 10:
            break
    return list(groups.values())


def _alike(connection: Connection, free: Select[Any], opinion: StoredAnswers) -> tuple[list[Any], bool]:
    """Return an image that nobody has labeled and those most like it, to the model and to the eye; and whether that shows.

    Where too few are alike, the rest of the group is merely the least unlike.
    """
    rows = connection.execute(free.order_by(db.images.c.rank).limit(LOOKED_AT)).all()
    if not rows:
        return [], False
    seed = random.randrange(min(len(rows), SEEDS))
    bits = hash_bits([row.phash for row in rows])
    guesses = np.zeros((len(rows), len(opinion.classes)), np.float32)
    known = [(place, opinion.row[row.id]) for place, row in enumerate(rows) if row.id in opinion.row]
    if known:
        places, theirs = np.array(known, np.int64).T
        guesses[places] = opinion.probs[theirs]
    same_bits = (bits @ bits[seed] + bits.shape[1]) / 2  # (N,)
    order = np.argsort(-(same_bits / bits.shape[1] + np.sqrt(guesses) @ np.sqrt(guesses[seed])), kind="stable")
    evident = (same_bits >= SAME_BITS) | (guesses @ guesses[seed] >= SAME_CLASS)
    if evident.sum() >= min(LEAST, len(rows)):
        return [rows[place] for place in order if evident[place]], True
    return [rows[place] for place in order], False


def hash_bits(hashes: Sequence[str]) -> NDArray[np.int32]:
    """Return perceptual hashes as rows of -1 and 1, so that a product counts equal bits. (N, 64)"""
    raw = np.frombuffer(bytes.fromhex("".join(hashes)), np.uint8).reshape(-1, HASH_BYTES)
    return np.unpackbits(raw, axis=1).astype(np.int32) * 2 - 1
