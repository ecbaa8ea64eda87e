"""Make the database again: every event of labels.jsonl, and what can still be read from the old database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Table, insert, select
from sqlalchemy.exc import SQLAlchemyError

from mma.files import explain_write_errors, write_atomically
from mma.project import schema as db
from mma.project.classes import store_classes
from mma.project.derive import add_counts, chunks, refresh
from mma.project.layout import Layout, ProjectSettings
from mma.project.migrations import create_tables
from mma.project.owner import owned
from mma.project.records import UNDOABLE, Event
from mma.project.second_copy import line_of, read_log
from mma.project.snapshot import replay
from mma.project.store import Store, open_database, sqlite_store
from mma.text import quote_path


def rebuild_database(layout: Layout, settings: ProjectSettings, say: Any) -> list[str]:
    """Replace the database; the old one and the old labels.jsonl go to state/backups. Return what was done."""
    command = f"mma doctor {quote_path(layout.folder)} --rebuild"
    with owned(layout.state, command), explain_write_errors(layout.state, command):
        lines = list(read_log(layout.log))
        rest = salvage(layout, settings)
        logged = [line.event for line in lines if line.event]
        events = bring_together(logged, [Event(**_event_fields(row)) for row in rest["events"]])
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        text = b"".join(map(line_of, events))
        if not layout.log.exists() or layout.log.read_bytes() != text:
            if layout.log.exists():
                write_atomically(layout.backups / f"labels-{stamp}.jsonl", layout.log.read_bytes(), private=True)
            write_atomically(layout.log, text, private=True)
        _replace(layout, settings, events, rest["models"], stamp)
    bad = sum(line.event is None for line in lines)
    found = len(events) - len({event.id for event in logged})
    return [
        f"made the database from {len(events):,} events",
        *([f"{bad:,} damaged lines of labels.jsonl were left out"] if bad else []),
        *([f"{found:,} events came from the old database"] if found else []),
    ]


def _event_fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in Event._fields}


def salvage(layout: Layout, settings: ProjectSettings) -> dict[str, list[dict[str, Any]]]:
    """Read what can be read of events and models; a damaged database gives what comes before the damage."""
    found: dict[str, list[dict[str, Any]]] = {"events": [], "models": []}
    if settings.store == "sqlite" and not layout.database.exists():
        return found
    store = open_database(layout.database, layout.url, settings.store, settings.id)
    try:
        for table in (db.events, db.models):
            _read_rows(store, table, found[table.name])
    finally:
        store.close()
    return found


def _read_rows(store: Store, table: Table, rows: list[dict[str, Any]]) -> None:
    key = next(iter(table.primary_key))
    try:
        with store.reading() as connection:
            for row in connection.execute(select(table).order_by(key)):
                rows.append(dict(row._mapping))
    except (ValueError, SQLAlchemyError):  # what was read before the damage is kept
        return


def bring_together(logged: Iterable[Event], stored: Iterable[Event]) -> list[Event]:
    """Return each event once, in order. Where numbers clash or are missing, events are numbered anew."""
    found: dict[str, Event] = {}
    for event in (*logged, *stored):
        found.setdefault(event.id, event)
    order = sorted(found.values(), key=lambda event: event.seq)
    return [event._replace(seq=number) for number, event in enumerate(order, 1)]


def _replace(
    layout: Layout, settings: ProjectSettings, events: Sequence[Event], models: list[dict[str, Any]], stamp: str
) -> None:
    if settings.store != "sqlite":
        store = open_database(layout.database, layout.url, settings.store, settings.id)
        with store.writing() as connection:
            db.metadata.drop_all(connection)
            fill(connection, events, models, settings.overlap)
        store.close()
        return
    fresh = layout.state / "rebuild.db"
    fresh.unlink(missing_ok=True)
    store = sqlite_store(fresh)
    with store.writing() as connection:
        fill(connection, events, models, settings.overlap)
    store.close()  # the last connection empties and removes the -wal file
    for suffix in ("", "-wal", "-shm"):
        old = layout.database.with_name(layout.database.name + suffix)
        if old.exists():
            old.replace(layout.backups / f"project-{stamp}.db{suffix}")
    fresh.replace(layout.database)


def fill(connection: Connection, events: Sequence[Event], models: list[dict[str, Any]], overlap: int) -> None:
    """Make the tables and load events that have their numbers."""
    create_tables(connection)
    undone = {event.supersedes for event in events if event.kind == "undo"}
    for part in chunks(events):
        rows = [{**event._asdict(), "active": int(event.kind in UNDOABLE and event.id not in undone)} for event in part]
        connection.execute(insert(db.events), rows)
    if models:
        connection.execute(insert(db.models), models)
    add_counts(connection, Counter({"seq": events[-1].seq if events else 0}))
    store_classes(connection, replay(events)[1])
    refresh(connection, [event.image for event in events if event.image], overlap)
