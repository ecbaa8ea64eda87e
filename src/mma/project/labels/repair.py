"""Look a project over, and make its database again from the second copy. Works where the project itself does not open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, insert, select, text
from sqlalchemy.exc import SQLAlchemyError

from mma.files import explain_write_errors, write_atomically
from mma.project.labels import tables as db
from mma.project.labels.copies import LogLine, create_tables, line_of, read_format, read_log
from mma.project.labels.current import add_counts, chunks, refresh
from mma.project.labels.database import Store, open_database, sqlite_store
from mma.project.labels.events import (
    Draft,
    apply_class_event,
    closes_circle,
    merge_roots,
    read_classes,
    read_counts,
    record,
    replay,
    store_classes,
)
from mma.project.project import Project, Say, open_store, owned, silent
from mma.project.records import CLASS_KINDS, UNDOABLE, Event, Klass
from mma.project.settings import Layout, ProjectSettings, read_settings
from mma.text import printable, quote_path

SHOWN = 10  # lines or files listed of each kind


@dataclass(frozen=True)
class Finding:
    """One thing the doctor says; a problem needs somebody to act."""

    text: str
    problem: bool = False


def doctor(folder: Path | str, *, rebuild: bool = False, say: Say = silent) -> list[Finding]:
    """Compare the two copies of every event and what follows from them; with `rebuild` make the database anew first."""
    layout = Layout(Path(folder))
    settings = read_settings(layout)
    findings = []
    if rebuild:
        report = rebuild_database(layout, settings, say)
        findings += [Finding(line) for line in report]
    try:
        store = open_store(layout, settings, check=False)
    except ValueError as error:
        return [*findings, Finding(str(error), problem=True)]
    try:
        return [*findings, *_examine(layout, Project(layout, settings, store), rebuild=rebuild, say=say)]
    finally:
        store.close()


def _examine(layout: Layout, project: Project, *, rebuild: bool, say: Say) -> list[Finding]:
    lines = list(read_log(layout.log))
    findings = _log_findings(lines)
    try:
        _check_integrity(project.store, f"mma doctor {quote_path(layout.folder)} --rebuild")
        with project.store.reading() as connection:
            columns = [db.events.c[name] for name in Event._fields]
            events = [Event(*row) for row in connection.execute(select(*columns).order_by(db.events.c.seq))]
    except ValueError as error:
        return [*findings, Finding(str(error), problem=True)]
    findings += _compare(lines, events, layout)
    findings += _check_derived(project, events, layout)
    if project.root.is_dir() and rebuild:
        project.index(say)
    return [*findings, *_images(project)]


def _check_integrity(store: Store, command: str) -> None:
    if read_format(store) is None:
        raise ValueError(f"the database is empty: it has no tables. Make it again:  {command}")
    if not store.sqlite:
        return
    with store.reading() as connection:
        found = connection.execute(text("PRAGMA integrity_check(3)")).scalars().all()
    if found != ["ok"]:
        raise ValueError(f"the database is damaged: {'; '.join(found)}. Make it again:  {command}")


def _log_findings(lines: Sequence[LogLine]) -> list[Finding]:
    bad = [line for line in lines if line.event is None]
    again = {line.event.seq for line in lines if line.event}
    listed = "; ".join(f"line {line.number}: {line.problem}" for line in bad[:SHOWN])
    found = [Finding(f"labels.jsonl holds {len(again):,} events")]
    return [*found, Finding(f"labels.jsonl: {listed}", problem=True)] if bad else found


def _compare(lines: Sequence[LogLine], events: Sequence[Event], layout: Layout) -> list[Finding]:
    """Say which events are in one copy only. The database is written first, so the file may lack the last ones."""
    file = {line.event.id: line.event for line in lines if line.event}
    base = {event.id: event for event in events}
    place = quote_path(layout.folder)
    found = [Finding(f"the database holds {len(base):,} events")]
    if lacking := [event for event in events if event.id not in file]:
        count = f"{len(lacking):,} events of the database are not in labels.jsonl"
        found.append(Finding(f"{count}. Write them there:  mma doctor {place} --rebuild", problem=True))
    if lacking := [event for name, event in file.items() if name not in base]:
        count = f"{len(lacking):,} events of labels.jsonl are not in the database"
        found.append(Finding(f"{count}. Take them in:  mma doctor {place} --rebuild", problem=True))
    if any(base[name] != event for name, event in file.items() if name in base):
        text = "the database and labels.jsonl tell the same event differently; labels.jsonl carries checks"
        found.append(Finding(f"{text}. Use it:  mma doctor {place} --rebuild", problem=True))
    return found


def _check_derived(project: Project, events: Sequence[Event], layout: Layout) -> list[Finding]:
    """Compare current labels and counts with a replay of all events."""
    answers, _ = replay(events)
    with project.store.reading() as connection:
        rows = connection.execute(select(db.current).order_by(db.current.c.seq)).all()
        counts = read_counts(connection)
    keys = ("image", "kind", "class_id", "by", "seq")
    stored = [tuple(getattr(row, key) for key in keys) for row in rows]
    labeled = sum(event.kind == "label" for event in answers)
    right = stored == [tuple(getattr(event, key) for key in keys) for event in answers] and counts.labeled == labeled
    if right and counts.seq == (events[-1].seq if events else 0):
        return [Finding(f"{labeled:,} labels in force follow from the events")]
    place = quote_path(layout.folder)
    return [
        Finding(f"labels in force do not follow from the events. Make them anew:  mma doctor {place} --rebuild", True)
    ]


def _images(project: Project) -> list[Finding]:
    if not project.root.is_dir():
        where = f"the images are no longer in {printable(str(project.root))}"
        command = f"mma start FOLDER --project {quote_path(project.folder)}"
        return [Finding(f"{where}. If they were moved:  {command}", problem=True)]
    c, i, f = db.current.c, db.images.c, db.files.c
    with project.store.reading() as connection:
        gone: list[Any] = list(
            connection.execute(
                select(i.name, f.path).select_from(db.images).join(db.current, c.image == i.id)
                .outerjoin(db.files, f.path == i.name).where(i.present == 0)
            )
        )  # fmt: skip
        bad = connection.execute(select(f.path, f.reason).where(f.reason.is_not(None))).all()
    found = [_list_names("labeled images were changed since", [row.name for row in gone if row.path])]
    found.append(_list_names("labeled images have no file any more", [row.name for row in gone if not row.path]))
    found.append(_list_names("files cannot be used", [f"{row.path} ({row.reason})" for row in bad]))
    return [finding for finding in found if finding is not None]


def _list_names(what: str, names: list[str]) -> Finding | None:
    if not names:
        return None
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return Finding(f"{len(names):,} {what}: {', '.join(map(printable, names[:SHOWN]))}{more}")


# Make the database again: every event of labels.jsonl, and what can still be read from the old database.


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


# Bring the events of a copy of a project together with our own, by their ids. Nothing is stored twice.


@dataclass(frozen=True)
class MergeReport:
    """What came in. `conflicts` are images labeled otherwise on both sides; the labels that came in count."""

    events: list[Event]
    conflicts: list[str]


def check_copy(ours: ProjectSettings, theirs: ProjectSettings) -> None:
    """Refuse a project that was made on its own: its events tell of other images and classes."""
    if ours.id != theirs.id:
        raise ValueError(
            "the other project is no copy of this one, but was made on its own. Take its labels in by a file:  "
            "mma labels export OTHER labels.csv   and then  mma labels import PROJECT labels.csv"
        )


def merge_events(connection: Connection, events: Sequence[Event], overlap: int) -> MergeReport:
    """Add the events that are not here yet, in their order. Ids of classes may differ between the two projects."""
    known = _known_ids(connection, events)
    new = [event for event in events if event.id not in known]
    numbers, added = _class_numbers(connection, events)
    before = _answers(connection, [event.image for event in new if event.image])
    wanted = [event for event in new if event.kind != "class_add" or event.id in added]
    drafts = _drafts(wanted, numbers, read_classes(connection))
    stored = record(connection, drafts, overlap) if drafts else []
    return MergeReport(stored, _conflicts(connection, before))


def _known_ids(connection: Connection, events: Sequence[Event]) -> set[str]:
    known: set[str] = set()
    for part in chunks([event.id for event in events]):
        known.update(connection.execute(select(db.events.c.id).where(db.events.c.id.in_(part))).scalars())
    return known


def _class_numbers(connection: Connection, events: Sequence[Event]) -> tuple[dict[int, int], set[str]]:
    """Map class ids of the other project to ours, and name the events that add a class which is not here.

    A class is the same if the same event made it, or if it has the same name in both.
    """
    c = db.events.c
    made = {row.id: row.class_id for row in connection.execute(select(c.id, c.class_id).where(c.kind == "class_add"))}
    classes = read_classes(connection)
    here = _names_in_use(classes)
    free = max((each.id for each in classes), default=-1) + 1
    numbers: dict[int, int] = {}
    added: set[str] = set()
    for event in events:
        if event.kind == "class_add" and event.class_id is not None:
            number = made.get(event.id, here.get((event.value or "").casefold()))
            if number is None:
                number, free = free, free + 1
                added.add(event.id)
            numbers[event.class_id] = number
    return numbers, added


def _names_in_use(classes: Sequence[Klass]) -> dict[str, int]:
    return {each.name.casefold(): each.id for each in classes if each.merged_into is None}


def _drafts(events: Sequence[Event], numbers: dict[int, int], classes: list[Klass]) -> list[Draft]:
    """Return events of the other project as ours. A merge is left out if its class would be merged into itself."""
    drafts = []
    for event in events:
        values = _draft(event, numbers, classes)
        into = values["value"] if values["kind"] == "class_merge" else None
        if into is not None and closes_circle(classes, values["class_id"], int(into)):
            continue
        if event.kind in CLASS_KINDS:  # the next change is compared with the classes as they are by then
            classes = apply_class_event(classes, Event(seq=0, **values))
        drafts.append(values)
    return drafts


def _draft(event: Event, numbers: dict[int, int], classes: Sequence[Klass]) -> Draft:
    """Return an event of the other project as one of ours."""
    values = event._asdict()
    del values["seq"]
    if event.class_id is not None:
        values["class_id"] = numbers.get(event.class_id, event.class_id)
    if event.kind == "class_merge" and event.value is not None:
        values["value"] = str(numbers.get(int(event.value), int(event.value)))
    if event.kind == "class_rename":
        other = _names_in_use(classes).get((event.value or "").casefold(), values["class_id"])
        if other != values["class_id"]:  # renamed to what another class is called here: then they are one class
            values |= {"kind": "class_merge", "value": str(other)}
    return values


def _answers(connection: Connection, images: Sequence[str]) -> dict[str, tuple[str, int | None]]:
    """Return the answers in force of images, with merged classes resolved."""
    roots = merge_roots(read_classes(connection))
    found = {}
    for part in chunks(sorted(set(images))):
        for row in connection.execute(select(db.current).where(db.current.c.image.in_(part))):
            found[row.image] = (row.kind, roots.get(row.class_id))
    return found


def _conflicts(connection: Connection, before: dict[str, tuple[str, int | None]]) -> list[str]:
    after = _answers(connection, list(before))
    return sorted(image for image, answer in before.items() if after.get(image, answer) != answer)
