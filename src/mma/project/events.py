"""Write events: answers of people, undo, and changes of classes. Each function runs in the caller's transaction."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Connection, delete, func, insert, select, update

from mma.errors import TemporarilyUnavailable, UserError
from mma.project import schema as db
from mma.project.classes import apply_class_event, read_classes, resolve, store_classes
from mma.project.derive import add_counts, chunks, count, refresh
from mma.project.records import ANSWERS, CLASS_KINDS, UNDOABLE, Answer, Event, Klass
from mma.text import printable

COLUMNS = [db.events.c[name] for name in Event._fields]
LEASE = 600.0  # seconds an image stays with a person who does not answer
Draft = dict[str, Any]  # an event without its seq


def now() -> str:
    """Return the time as it is written into events."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def draft(kind: str, *, id: str, batch: str, by: str, **values: Any) -> Draft:
    """Prepare an event; what is not given is empty."""
    empty = dict.fromkeys(Event._fields[1:])
    return {**empty, "kind": kind, "id": id, "batch": batch, "by": by, "at": now(), **values}


def record(connection: Connection, drafts: Sequence[Draft], overlap: int) -> list[Event]:
    """Number and store events, and bring what follows from them up to date."""
    first = count(connection, "seq") + 1
    found = [Event(seq=first + number, **each) for number, each in enumerate(drafts)]
    for part in chunks(found):
        rows = [{**event._asdict(), "active": int(event.kind in UNDOABLE)} for event in part]
        connection.execute(insert(db.events), rows)
    add_counts(connection, Counter({"seq": len(found)}))
    _change_classes(connection, [event for event in found if event.kind in CLASS_KINDS])
    _deactivate(connection, [event.supersedes for event in found if event.kind == "undo" and event.supersedes])
    refresh(connection, [event.image for event in found if event.image and event.kind != "note"], overlap)
    return found


def _change_classes(connection: Connection, changes: Sequence[Event]) -> None:
    if changes:
        known: list[Klass] = reduce(apply_class_event, changes, read_classes(connection))
        store_classes(connection, known)


def _deactivate(connection: Connection, ids: Sequence[str]) -> None:
    for part in chunks(ids):
        connection.execute(update(db.events).where(db.events.c.id.in_(part)).values(active=0))


def events_of_batch(connection: Connection, batch: str) -> list[Event]:
    """Return the events of one action."""
    c = db.events.c
    return [Event(*row) for row in connection.execute(select(*COLUMNS).where(c.batch == batch).order_by(c.seq))]


def count_labels(connection: Connection, batches: Collection[str]) -> dict[str, int]:
    """Return how many labels each of these actions gave: one, or those of a grid."""
    c = db.events.c
    found: dict[str, int] = {}
    for part in chunks(sorted(batches)):
        query = select(c.batch, func.count().label("many")).where(c.batch.in_(part), c.kind == "label")
        found.update({row.batch: row.many for row in connection.execute(query.group_by(c.batch))})
    return found


def events_after(connection: Connection, seq: int, limit: int | None = None) -> list[Event]:
    """Return the events after number `seq`, in order."""
    c = db.events.c
    return [Event(*row) for row in connection.execute(select(*COLUMNS).where(c.seq > seq).order_by(c.seq).limit(limit))]


def write_answer(connection: Connection, answer: Answer, overlap: int) -> list[Event]:
    """Store an answer, or return what was stored when the same answer came before."""
    known = events_of_batch(connection, str(answer.id))
    if known:
        return known
    drafts = _undo(connection, answer) if answer.kind == "undo" else _answer(connection, answer)
    found = record(connection, drafts, overlap)
    if answer.kind != "note":
        end_leases(connection, found)
    if answer.kind == "undo":
        _lease_again(connection, found)
    return found


def end_leases(connection: Connection, events: Sequence[Event]) -> None:
    """Give back the images of answers, and take them off the queue."""
    c, queued = db.leases.c, db.picks.c.image
    for event in events:
        connection.execute(delete(db.leases).where(c.image == event.image, c.by == event.by))
    for part in chunks([event.image for event in events if event.kind in ANSWERS]):
        still_open = select(db.images.c.id).where(db.images.c.id == queued, db.images.c.open == 1)
        connection.execute(delete(db.picks).where(queued.in_(part), ~still_open.exists()))


def _lease_again(connection: Connection, events: Sequence[Event]) -> None:
    """Give the images of an undone answer back to the person who undid it, as they were asked about before."""
    c, moment = db.events.c, time.time()
    times = {"taken": moment, "until": moment + LEASE, "why": "taken back"}
    for event in events:
        before = connection.execute(select(c.provenance, c.round).where(c.id == event.supersedes)).one()
        values = {"provenance": before.provenance or "query", "model": before.round, **times}
        connection.execute(insert(db.leases).values(image=event.image, by=event.by, **values))


def _answer(connection: Connection, answer: Answer) -> list[Draft]:
    _check(answer)
    class_id = None if answer.class_id is None else resolve(connection, answer.class_id)
    names = _names(connection, answer.images)
    batch, single = str(answer.id), len(answer.images) == 1
    source = {} if answer.source == "label" else {"provenance": answer.source}
    return [
        draft(
            answer.kind,
            id=batch if single else str(uuid5(answer.id, image)),
            batch=batch,
            by=answer.by,
            image=image,
            file=names[image],
            class_id=class_id,
            shown=answer.shown,
            seconds=answer.seconds,
            note=answer.note,
            supersedes=None if answer.supersedes is None else str(answer.supersedes),
            **{**origin(connection, image, answer.by), **source},
        )
        for image in answer.images
    ]


def _check(answer: Answer) -> None:
    if not answer.images or len(set(answer.images)) != len(answer.images):
        raise UserError("an answer needs its images, each of them once.")
    if (answer.kind == "label") != (answer.class_id is not None):
        raise UserError("an answer of kind label needs a class_id, and no other kind has one.")
    if answer.kind == "note" and not answer.note:
        raise UserError("a note needs its text.")


def _names(connection: Connection, images: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in chunks(images):
        rows = connection.execute(select(db.images.c.id, db.images.c.name).where(db.images.c.id.in_(part)))
        found.update({row.id: row.name for row in rows})
    if missing := [image for image in images if image not in found]:
        # Whoever answers has seen it. After a rebuild it is unknown until the folder is indexed: not now, but later.
        raise TemporarilyUnavailable(f"image {missing[0]} is not indexed yet, or its file is gone.")
    return found


def origin(connection: Connection, image: str, by: str, otherwise: str = "query") -> Draft:
    """Return why an image was asked about: as the lease says, or, for a correction, as the answer before it.

    `otherwise` stands for an image that nobody was asked about.
    """
    c, e = db.leases.c, db.events.c
    lease = connection.execute(select(c.provenance, c.model).where(c.image == image, c.by == by)).first()
    if lease:
        return {"provenance": lease.provenance, "round": lease.model}
    answers = select(e.provenance, e.round).where(e.image == image, e.kind.in_(UNDOABLE))
    before = connection.execute(answers.order_by(e.seq.desc()).limit(1)).first()
    return {"provenance": before.provenance, "round": before.round} if before else {"provenance": otherwise}


def _undo(connection: Connection, answer: Answer) -> list[Draft]:
    rows = _to_undo(connection, answer)
    batch = str(answer.id)
    return [
        draft(
            "undo",
            id=batch if len(rows) == 1 else str(uuid5(answer.id, row.id)),
            batch=batch,
            by=answer.by,
            image=row.image,
            file=row.file,
            supersedes=row.id,
        )
        for row in rows
    ]


def _to_undo(connection: Connection, answer: Answer) -> list[Event]:
    """Find the events in force of the action to take back: the one given, or the last of this person."""
    c = db.events.c
    if answer.supersedes is not None:
        given = connection.execute(select(c.batch).where(c.id == str(answer.supersedes))).scalar()
        batch = given or str(answer.supersedes)
    else:
        mine = select(c.batch).where(c.by == answer.by, c.active == 1).order_by(c.seq.desc()).limit(1)
        batch = connection.execute(mine).scalar() or ""
    found = connection.execute(select(*COLUMNS).where(c.batch == batch, c.active == 1).order_by(c.seq))
    rows = [Event(*row) for row in found]
    if not rows:
        raise UserError(f"{printable(answer.by)} has no answer left to undo.")
    return rows


def new_id(batch: UUID | str, *parts: str) -> str:
    """Derive the id of an event from that of the action it belongs to."""
    return str(uuid5(UUID(str(batch)), "/".join(parts)))
