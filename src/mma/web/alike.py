"""Groups of images for the grid: those a model takes for one class, or those that look alike."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load
from sqlalchemy import Connection, Select, delete, exists, insert, or_, select

from mma.project import Project
from mma.project import schema as db
from mma.project.classes import merge_roots
from mma.project.events import LEASE
from mma.project.queue import is_live

OPINIONS = ("answers.safetensors", "predictions.safetensors")  # of a live and of a deep model, about every image
LOOKED_AT = 20_000  # images among which look-alikes are sought
CANDIDATES = 500  # images of a class, the surest ones, of which some may be leased or near-duplicates
HASH_BYTES = 8
SEEDS = 200  # images one of which begins a group of look-alikes


class Opinion(NamedTuple):
    """What a model says about images."""

    images: list[str]
    classes: NDArray[np.int64]  # (C,) their ids
    probs: NDArray[np.float32]  # (N, C)

    def of(self, images: Sequence[str]) -> NDArray[np.float32]:
        """Return the probabilities of images; zeros for those it does not know."""
        place = {image: at for at, image in enumerate(self.images)}
        known = [(row, place[image]) for row, image in enumerate(images) if image in place]
        found = np.zeros((len(images), len(self.classes)), np.float32)
        if known:
            rows, places = np.array(known, np.int64).T
            found[rows] = self.probs[places]
        return found


def grid_items(
    project: Project, by: str, class_id: int | None, n: int, holding: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Lease up to `n` images that look like a class, the surest first, or without a class that look like each other.

    `holding` are images that the person has answered, which the server may not know yet. They are left out.
    The person's leases for single images are others, so that what is taken out of a grid does not come next there.
    """
    holder = f"{by} (grid)"
    opinion, roots = latest_opinion(project), merge_roots(project.classes())
    with project.store.writing() as connection:
        connection.execute(delete(db.leases).where(db.leases.c.by == holder))
        free = _free(by, holding)
        if class_id is None:
            rows = _alike(connection, free, opinion)
        else:
            rows = _surest(connection, free, opinion, {k for k, root in roots.items() if root == class_id})
        _lease(connection, holder, rows[:n])
    return [{"image": row.id, "name": row.name, "width": row.width, "height": row.height} for row in rows[:n]]


def latest_opinion(project: Project) -> Opinion:
    """Return what the newest model says about all images; before it wrote that down, about those it picked."""
    folders = sorted((project.folder / "models").glob("[0-9]*"), key=lambda each: each.name.zfill(9), reverse=True)
    for path in (folder / name for folder in folders for name in OPINIONS):
        if path.is_file() and (found := _read_opinion(path)) is not None:
            return found
    return _opinion_of_picks(project)


def _read_opinion(path: Path) -> Opinion | None:
    try:
        found = load(path.read_bytes())
        keys, probs, classes = found["keys"], found["probs"].astype(np.float32), found["classes"]
    except (OSError, KeyError, SafetensorError):
        return None
    return Opinion([bytes(key).hex() for key in keys], classes, probs)


def _opinion_of_picks(project: Project) -> Opinion:
    query = select(db.picks.c.image, db.picks.c.suggestion).where(db.picks.c.suggestion.is_not(None))
    with project.store.reading() as connection:
        rows = connection.execute(query).all()
    guesses = [dict(json.loads(row.suggestion)) for row in rows]
    classes = sorted({class_id for guess in guesses for class_id in guess})
    probs = np.array([[guess.get(class_id, 0.0) for class_id in classes] for guess in guesses], np.float32)
    return Opinion([row.image for row in rows], np.array(classes, np.int64), probs.reshape(len(rows), len(classes)))


def _free(by: str, holding: Collection[str]) -> Select[Any]:
    """Select open images that nobody is being asked about, that this person has not answered, and that measure nothing.

    An image stays open after an answer where several people are asked about each. The answers are listed once: looked up
    for each image, SQLite would walk through all answers of the person again and again.
    """
    image, lease, event = db.images.c, db.leases.c, db.events.c
    held = select(lease.image).where(lease.image == image.id, is_live(time.time()))
    mine = select(event.image).where(event.by == by, event.active == 1, event.kind != "later")
    answered = or_(image.id.in_(sorted(holding)), image.id.in_(mine))
    return select(db.images).where(image.open == 1, image.audit == 0, ~exists(held), ~answered)


def _surest(connection: Connection, free: Select[Any], opinion: Opinion, members: set[int]) -> list[Any]:
    """Return free images of a class, the surest first, one of each group of near-duplicates."""
    mine = np.isin(opinion.classes, sorted(members))
    if not mine.any():
        return []
    of_class = np.flatnonzero(mine[opinion.probs.argmax(1)])
    order = of_class[np.argsort(-opinion.probs[of_class][:, mine].sum(1), kind="stable")]
    groups: dict[str, Any] = {}
    for begin in range(0, len(order), CANDIDATES):
        place = {opinion.images[at]: rank for rank, at in enumerate(order[begin : begin + CANDIDATES])}
        rows = connection.execute(free.where(db.images.c.id.in_(sorted(place)))).all()
        for row in sorted(rows, key=lambda each: place[each.id]):
            groups.setdefault(row.near, row)
        if len(groups) >= CANDIDATES // 10:
            break
    return list(groups.values())


def _alike(connection: Connection, free: Select[Any], opinion: Opinion) -> list[Any]:
    """Return an image that nobody has labeled and those most like it: to the model where there is one, and to the eye."""
    rows = connection.execute(free.order_by(db.images.c.rank).limit(LOOKED_AT)).all()
    if not rows:
        return []
    seed = random.randrange(min(len(rows), SEEDS))
    bits, guesses = hash_bits([row.phash for row in rows]), np.sqrt(opinion.of([row.id for row in rows]))
    alike = bits @ bits[seed] / bits.shape[1] / 2 + guesses @ guesses[seed]  # (N,)
    return [rows[place] for place in np.argsort(-alike, kind="stable")]


def hash_bits(hashes: Sequence[str]) -> NDArray[np.int32]:
    """Return perceptual hashes as rows of -1 and 1, so that a product counts equal bits. (N, 64)"""
    raw = np.frombuffer(bytes.fromhex("".join(hashes)), np.uint8).reshape(-1, HASH_BYTES)
    return np.unpackbits(raw, axis=1).astype(np.int32) * 2 - 1


def _lease(connection: Connection, holder: str, rows: Sequence[Any]) -> None:
    moment = time.time()
    values = {"by": holder, "taken": moment, "until": moment + LEASE, "provenance": "grid", "why": "looks like others"}
    if rows:
        connection.execute(insert(db.leases), [{**values, "image": row.id} for row in rows])
