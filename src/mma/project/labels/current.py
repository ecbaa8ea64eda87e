"""What follows from events: the label of each image, whether it is to be asked about, and the counts. Never a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, delete, insert, select, text, update

from mma.project.labels import tables as db
from mma.project.records import ANSWERS, SECOND_LOOKS

CHUNK = 500  # images or events per statement; SQLite has a limit of 999 in old versions
T = TypeVar("T")


class Standing(NamedTuple):
    """What the events of one image amount to."""

    answer: Any  # the newest answer in force, a row of events, or None
    provenance: str | None  # why the image was asked about, before anybody looked at its label again
    people: int  # how many answered
    deferred: int


def standing(rows: Iterable[Any]) -> Standing:
    """Sum up the active events of one image, oldest first: the newest answer counts."""
    answer, provenance, people, deferred = None, None, set(), 0
    for row in rows:
        if row.kind in ANSWERS:
            answer = row
            provenance = row.provenance if row.provenance not in SECOND_LOOKS else provenance or row.provenance
            people.add(row.by)
        elif row.kind == "later":
            deferred = row.seq
    return Standing(answer, provenance, len(people), deferred)


def refresh(connection: Connection, images: Sequence[str], overlap: int) -> None:
    """Bring everything derived of these images up to date, in the caller's transaction."""
    change: Counter[str] = Counter()
    for part in chunks(sorted(set(images))):
        known = {row.id: row for row in connection.execute(select(db.images).where(db.images.c.id.in_(part)))}
        before = {row.image: row for row in connection.execute(select(db.current).where(db.current.c.image.in_(part)))}
        now = {image: standing(rows) for image, rows in _active_events(connection, part).items()}
        _store_current(connection, part, before, now, change)
        _store_open(connection, known, now, overlap, change)
    add_counts(connection, change)


def _active_events(connection: Connection, images: Sequence[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {image: [] for image in images}
    c = db.events.c
    columns = (c.seq, c.kind, c.image, c.class_id, c.by, c.provenance)
    for row in connection.execute(select(*columns).where(c.image.in_(images), c.active == 1).order_by(c.seq)):
        found[row.image].append(row)
    return found


def _store_current(
    connection: Connection,
    images: Sequence[str],
    before: dict[str, Any],
    now: dict[str, Standing],
    change: Counter[str],
) -> None:
    moved = [image for image in images if _kept(before.get(image)) != _standing_kept(now[image])]
    for image in moved:
        for row, sign in ((before.get(image), -1), (now[image].answer, 1)):
            for name in () if row is None else count_names(row.kind, row.class_id):
                change[name] += sign
    if gone := [image for image in moved if image in before]:
        connection.execute(delete(db.current).where(db.current.c.image.in_(gone)))
    found = [now[image] for image in moved if now[image].answer is not None]
    if found:
        names = ("image", "kind", "class_id", "by", "seq")
        rows = [
            {**{name: getattr(each.answer, name) for name in names}, "provenance": each.provenance} for each in found
        ]
        connection.execute(insert(db.current), rows)


def _kept(row: Any) -> tuple[int, str | None] | None:
    return None if row is None else (int(row.seq), row.provenance)


def _standing_kept(found: Standing) -> tuple[int, str | None] | None:
    return None if found.answer is None else (int(found.answer.seq), found.provenance)


def count_names(kind: str, class_id: int | None) -> list[str]:
    """Return the counters that an answer in force adds one to."""
    return ["labeled", f"class:{class_id}"] if kind == "label" else ["excluded" if kind == "exclude" else kind]


def _store_open(
    connection: Connection, known: dict[str, Any], now: dict[str, Standing], overlap: int, change: Counter[str]
) -> None:
    rows = []
    for image, row in known.items():
        found = now[image]
        settled = found.answer is not None and (found.answer.kind == "exclude" or found.people >= overlap)
        after = (int(row.present and not settled), found.people, found.deferred)
        if after != (row.open, row.answers, row.deferred):
            change["open"] += after[0] - row.open
            rows.append({"image": image, "open": after[0], "answers": after[1], "deferred": after[2]})
    if rows:
        names = ("open", "answers", "deferred")
        statement = update(db.images).where(db.images.c.id == bindparam("image"))
        connection.execute(statement.values({name: bindparam(name) for name in names}), rows)


ADD = text(  # the same words in SQLite and PostgreSQL
    "INSERT INTO counts (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = counts.value + excluded.value"
)


def add_counts(connection: Connection, change: Counter[str]) -> None:
    """Add to the counters; those that are not there yet begin at 0."""
    if rows := [{"name": name, "value": value} for name, value in sorted(change.items()) if value]:
        connection.execute(ADD, rows)


def count(connection: Connection, name: str) -> int:
    """Return one counter."""
    return read_counters(connection, name)[0]


def read_counters(connection: Connection, *names: str) -> list[int]:
    """Return counters; one that is not there is 0."""
    found = connection.execute(select(db.counts).where(db.counts.c.name.in_(names)))
    values = {row.name: int(row.value) for row in found}
    return [values.get(name, 0) for name in names]


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Yield the items a few at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
