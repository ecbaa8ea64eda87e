"""Look a project over, and make its database again from the second copy. Works where the project itself does not open."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, get_args

from sqlalchemy import Connection, Table, func, insert, select, text
from sqlalchemy.exc import SQLAlchemyError

from mma.errors import UserError
from mma.files import explain_write_errors, write_atomically
from mma.project.labels import database as db
from mma.project.labels import events as labels
from mma.project.labels.copies import line_of, read_log
from mma.project.labels.database import Store, create_tables, open_database, read_format, sqlite_store
from mma.project.labels.votes import store_vote
from mma.project.project import Project, Say, owned, silent, training
from mma.project.records import CLASS_KINDS, UNDOABLE, Event, Kind, Klass, Layout, ProjectSettings, read_settings
from mma.text import printable, quote_path

SHOWN = 10  # lines or files listed of each kind
DERIVED = ("labeled", "cannot_tell", "excluded")  # counts that follow from events, beside those of classes
SMALLEST = 72  # bytes of a stored event: its two ids
PATIENCE = 100_000  # reads of a damaged database that fail before the rest is given up


@dataclass(frozen=True)
class Finding:
    """One thing the doctor says; a problem needs somebody to act."""

    text: str
    problem: bool = False


def doctor(folder: Path | str, *, rebuild: bool = False, say: Say = silent) -> list[Finding]:
    """Compare the two copies of every event and what follows from them; with `rebuild` make the database anew first."""
    layout = Layout(Path(folder))
    settings = read_settings(layout)
    findings = [Finding(line) for line in rebuild_database(layout, settings)] if rebuild else []
    try:
        store = open_database(layout, settings)
    except UserError as error:
        return [*findings, Finding(str(error), problem=True)]
    with closing(store):
        return [*findings, *_examine(layout, Project(layout, settings, store), rebuild=rebuild, say=say)]


def _examine(layout: Layout, project: Project, *, rebuild: bool, say: Say) -> list[Finding]:
    """Look at labels.jsonl, the database, what follows from its events, and the images, in this order."""
    lines, command = list(read_log(layout.log)), f"mma doctor {quote_path(layout.folder)} --rebuild"
    found = [Finding(f"labels.jsonl holds {len({line.event.seq for line in lines if line.event}):,} events")]

    def problem(text: str) -> None:
        found.append(Finding(text, problem=True))

    if bad := [f"line {line.number}: {line.problem}" for line in lines if line.event is None]:
        problem(f"labels.jsonl: {'; '.join(bad[:SHOWN])}")
    try:
        if read_format(project.store) is None:
            raise UserError(f"the database is empty: it has no tables. Make it again:  {command}")
        if project.store.sqlite:
            with project.store.reading() as connection:
                said = connection.execute(text("PRAGMA integrity_check(3)")).scalars().all()
            if said != ["ok"]:
                raise UserError(f"the database is damaged: {'; '.join(said)}. Make it again:  {command}")
        events = project.events()
    except UserError as error:
        problem(str(error))
        return found
    # The database is written first, so the file may lack the last events.
    file, base = {line.event.id: line.event for line in lines if line.event}, {event.id: event for event in events}
    found.append(Finding(f"the database holds {len(base):,} events"))
    if lacking := len(base.keys() - file.keys()):
        problem(f"{lacking:,} events of the database are not in labels.jsonl. Write them there:  {command}")
    if lacking := len(file.keys() - base.keys()):
        problem(f"{lacking:,} events of labels.jsonl are not in the database. Take them in:  {command}")
    if any(base[name] != event for name, event in file.items() if name in base):
        differ = "the database and labels.jsonl tell the same event differently; labels.jsonl carries checks"
        problem(f"{differ}. Use it:  {command}")
    found += _check_derived(project, command)
    if project.root.is_dir() and rebuild:
        project.index(say)
    return [*found, *_images(project)]


def _check_derived(project: Project, command: str) -> list[Finding]:
    """Compare classes, labels in force and counts with a replay of all events, at one point in time."""
    with project.store.reading() as connection:
        events, stored_classes = labels.events_after(connection, 0), labels.read_classes(connection)
        rows = connection.execute(select(db.current).order_by(db.current.c.seq)).all()
        stored = {row.name: int(row.value) for row in connection.execute(select(db.counts))}
        images = connection.execute(select(func.count()).select_from(db.images)).scalar_one()
        left = connection.execute(select(func.count()).where(db.images.c.open == 1)).scalar_one()
    answers, classes = labels.replay(events)
    expected = Counter({"seq": events[-1].seq if events else 0, "images": images, "open": left})
    expected.update(name for event in answers for name in labels.count_names(event.kind, event.class_id))
    derived = {name for name in stored if name in DERIVED or name.startswith("class:")} | set(expected)
    in_force = [(event.image, event.kind, event.class_id, event.by, event.seq) for event in answers]
    wrong = {
        "classes": stored_classes != sorted(classes),
        "labels in force": [(row.image, row.kind, row.class_id, row.by, row.seq) for row in rows] != in_force,
        "counts": any(stored.get(name, 0) != expected[name] for name in derived),
    }
    words = "do not follow from the events. Make them anew"
    problems = [Finding(f"{what} {words}:  {command}", problem=True) for what, is_wrong in wrong.items() if is_wrong]
    return problems or [Finding(f"{expected['labeled']:,} labels in force follow from the events")]


def _images(project: Project) -> list[Finding]:
    """Say which labeled images changed or are gone, and which files cannot be used."""
    if not project.root.is_dir():
        where = f"the images are no longer in {printable(str(project.root))}"
        command = f"mma start FOLDER --project {quote_path(project.folder)}"
        return [Finding(f"{where}. If they were moved:  {command}", problem=True)]
    c, i, f = db.current.c, db.images.c, db.files.c
    labeled = select(i.name, f.path).select_from(db.images).join(db.current, c.image == i.id)
    with project.store.reading() as connection:
        gone = connection.execute(labeled.outerjoin(db.files, f.path == i.name).where(i.present == 0)).all()
        bad = connection.execute(select(f.path, f.reason).where(f.reason.is_not(None))).all()
    lists = {
        "labeled images were changed since": [row.name for row in gone if row.path],
        "labeled images have no file any more": [row.name for row in gone if not row.path],
        "files cannot be used": [f"{row.path} ({row.reason})" for row in bad],
    }
    found = []
    for what, names in lists.items():
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        if names:
            found.append(Finding(f"{len(names):,} {what}: {', '.join(map(printable, names[:SHOWN]))}{more}"))
    return found


# Make the database again: every event of labels.jsonl, and what can still be read from the old database.


def rebuild_database(layout: Layout, settings: ProjectSettings) -> list[str]:
    """Replace the database; the old one and the old labels.jsonl go to state/backups. Return what was done."""
    command = f"mma doctor {quote_path(layout.folder)} --rebuild"
    with owned(layout.state, command), training(layout.state, command), explain_write_errors(layout.state, command):
        lines = list(read_log(layout.log))
        rest = salvage(layout, settings)
        logged = [line.event for line in lines if line.event]
        events = bring_together(logged, [Event(*(row[name] for name in Event._fields)) for row in rest["events"]])
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        text = b"".join(map(line_of, events))
        if not layout.log.exists() or layout.log.read_bytes() != text:
            if layout.log.exists():
                write_atomically(layout.backups / f"labels-{stamp}.jsonl", layout.log.read_bytes(), private=True)
            write_atomically(layout.log, text, private=True)
        fresh = layout.state / "rebuild.db"
        fresh.unlink(missing_ok=True)
        store = sqlite_store(fresh) if settings.store == "sqlite" else open_database(layout, settings)
        with closing(store), store.writing() as connection:  # the last connection empties and removes the -wal file
            db.metadata.drop_all(connection)
            fill(connection, events, rest["models"], settings.overlap)
        if settings.store == "sqlite":
            for suffix in ("", "-wal", "-shm"):
                old = layout.database.with_name(layout.database.name + suffix)
                if old.exists():
                    old.replace(layout.backups / f"project-{stamp}.db{suffix}")
            fresh.replace(layout.database)
    bad = sum(line.event is None for line in lines)
    found = len(events) - len({event.id for event in logged})
    return [
        f"made the database from {len(events):,} events",
        *([f"{bad:,} damaged lines of labels.jsonl were left out"] if bad else []),
        *([f"{found:,} events came from the old database"] if found else []),
    ]


def salvage(layout: Layout, settings: ProjectSettings) -> dict[str, list[dict[str, Any]]]:
    """Read what can be read of events and models, also behind damage."""
    found: dict[str, list[dict[str, Any]]] = {"events": [], "models": []}
    if settings.store == "sqlite" and not layout.database.exists():
        return found
    most = (1 << 31) - 1
    if settings.store == "sqlite":  # a damaged page can fail for every number there could be
        files = layout.state.glob(f"{layout.database.name}*")
        most = max(sum(file.stat().st_size for file in files) // SMALLEST, 1_000)
    with closing(open_database(layout, settings)) as store:
        return {table.name: _read_rows(store, table, most) for table in (db.events, db.models)}


def _read_rows(store: Store, table: Table, most: int) -> list[dict[str, Any]]:
    """Read all rows; where that fails, smaller and smaller ranges of their numbers, up to `most`."""
    key, failed = next(iter(table.primary_key)), 0

    def read(first: int, last: int) -> list[dict[str, Any]]:
        nonlocal failed
        try:
            rows = connection.execute(select(table).where(key.between(first, last)).order_by(key)).all()
        except (SQLAlchemyError, UnicodeDecodeError):
            failed += 1
            if first >= last or failed > PATIENCE or not store.sqlite:  # a server reads all of a table or nothing
                return []
            middle = (first + last) // 2
            return [*read(first, middle), *read(middle + 1, last)]
        return [dict(row._mapping) for row in rows]

    try:
        with store.engine.connect() as connection:  # one for all: a new one for each read would take the most time
            return read(0, most)
    except (SQLAlchemyError, UnicodeDecodeError):  # not even a database; what SQLite says of it may be no text
        return []


def bring_together(logged: Iterable[Event], stored: Iterable[Event]) -> list[Event]:
    """Return each event once, in order; labels.jsonl carries checks, so that it wins. Numbers are given anew.

    An event of the database is known if the file has its id, or under the same number one that was written in the same
    action or at the same time: then a bit of its id was flipped.
    """
    found = {event.id: event for event in logged}
    numbers = {event.seq: event for event in found.values()}
    stored = [event for event in stored if is_sound(event)]
    classes = {event.class_id for event in (*found.values(), *stored) if event.kind == "class_add"}
    for event in stored:
        twin = numbers.get(event.seq)
        doubled = twin is not None and (twin.batch == event.batch or twin.at == event.at)
        if not doubled and (event.class_id is None or event.class_id in classes):
            found.setdefault(event.id, event)
    order = sorted(found.values(), key=lambda event: event.seq)
    return [event._replace(seq=number) for number, event in enumerate(order, 1)]


def is_sound(event: Event) -> bool:
    """Tell whether a row of a damaged database can be an event: its kind, ids and numbers are such."""
    texts = (event.id, event.batch, event.by, event.at)
    return (
        event.kind in (*get_args(Kind), *CLASS_KINDS, "vote")
        and all(isinstance(text, str) and text for text in texts)
        and re.fullmatch("[0-9a-f-]{36}", event.id) is not None
        and (event.image is None or re.fullmatch("[0-9a-f]{64}", str(event.image)) is not None)
        and (event.kind in (*CLASS_KINDS, "vote")) == (event.image is None)
        and isinstance(event.class_id, int | None)
        and (event.class_id is not None) == (event.kind in ("label", *CLASS_KINDS))
        and isinstance(event.seconds, float | int | None)
    )


def fill(connection: Connection, events: Sequence[Event], models: list[dict[str, Any]], overlap: int) -> None:
    """Make the tables and load events that have their numbers."""
    create_tables(connection)
    undone = {event.supersedes for event in events if event.kind == "undo"}
    for part in labels.chunks(events):
        rows = [{**event._asdict(), "active": int(event.kind in UNDOABLE and event.id not in undone)} for event in part]
        connection.execute(insert(db.events), rows)
    if models:
        connection.execute(insert(db.models), models)
    labels.add_counts(connection, Counter({"seq": events[-1].seq if events else 0}))
    labels.store_classes(connection, labels.replay(events)[1])
    store_vote(connection, next((event.value for event in reversed(events) if event.kind == "vote"), None))
    labels.refresh(connection, [event.image for event in events if event.image], overlap)


# Bring the events of a copy of a project together with our own, by their ids. Nothing is stored twice.


@dataclass(frozen=True)
class MergeReport:
    """What came in. `conflicts` are images labeled otherwise on both sides; the labels that came in count."""

    events: list[Event]
    conflicts: list[str]


def merge_events(connection: Connection, events: Sequence[Event], overlap: int) -> MergeReport:
    """Add the events of a copy that are not here yet, in their order.

    A class is the same if the same event added it; its number may differ. What both sides did to classes since they
    parted is brought together, or refused where a label would read otherwise than whoever gave it can expect.
    """
    c = db.events.c
    own = [Event(*row) for row in connection.execute(select(*labels.COLUMNS).order_by(c.seq))]
    ids, their_ids = {event.id for event in own}, {event.id for event in events}
    theirs = _renumbered(own, events)
    new = [event for event in theirs if event.id not in ids and event.kind != "vote"]  # ours are polled anew
    if not new:
        return MergeReport([], [])
    ours = labels.read_classes(connection)
    parted = [event for event in own if event.id not in their_ids]
    base = labels.replay([event for event in own if event.id in their_ids])[1]
    there = labels.replay(theirs)[1]
    back, back_there = _used_again(base, ours, new), _used_again(base, there, parted)
    ours, there = [*ours, *back], [*there, *back_there]
    wanted = join_classes(base, ours, there)
    problems = [*_changed_both(base, ours, there, wanted), *_taken_names(ours, wanted, parted)]
    if problems := [*problems, *_taken_names(there, wanted, new)]:
        raise UserError(
            "the copy was not merged, because labels would change their meaning:\n  "
            + "\n  ".join(dict.fromkeys(problems))
            + "\nGive these classes the same names and merges in both, then run the same command again."
        )
    before = _answers(connection, [event.image for event in new if event.image])
    restored = [labels.class_draft("class_add", "merge", each.id, each.name) for each in back]
    stored = labels.record(connection, [*restored, *_drafts(new, ours, wanted)], overlap)
    after = _answers(connection, list(before))
    return MergeReport(stored, sorted(image for image, answer in before.items() if after.get(image, answer) != answer))


def _renumbered(own: Sequence[Event], events: Sequence[Event]) -> list[Event]:
    """Return the events of the copy with our class numbers; a class that is not here gets the next free one."""
    added = {event.id: event.class_id for event in own if event.kind == "class_add" and event.class_id is not None}
    free, numbers, found = count(max(added.values(), default=-1) + 1), dict[int | None, int | None]({None: None}), []
    for event in events:
        if event.kind == "class_add" and event.class_id not in numbers:
            numbers[event.class_id] = added[event.id] if event.id in added else next(free)
        into = event.value
        if event.kind == "class_merge" and into is not None:
            into = str(numbers[int(into)])
        found.append(event._replace(class_id=numbers[event.class_id], value=into))
    return found


def _used_again(base: Sequence[Klass], side: Sequence[Klass], events: Sequence[Event]) -> list[Klass]:
    """Return the classes that one side deleted, and that events of the other side still speak of: they stay."""
    there = {each.id for each in side}
    used = {event.class_id for event in events if event.kind != "class_delete"}
    used |= {int(event.value) for event in events if event.kind == "class_merge" and event.value is not None}
    return [each for each in base if each.id in used - there]


def join_classes(base: Sequence[Klass], ours: Sequence[Klass], theirs: Sequence[Klass]) -> list[Klass]:
    """Return the classes after both sides' changes since `base`; where both changed the same thing, ours stays.

    A class that is new there and has the name of one that is new here is merged into it: both mean that name.
    """
    before = {each.id: each for each in base}
    gone = set(before) - ({each.id for each in ours} & {each.id for each in theirs})
    here, there = ({each.id: each for each in side if each.id not in gone} for side in (ours, theirs))
    found = {number: here.get(number) or there[number] for number in sorted({*here, *there})}
    for number in set(here) & set(there):
        sides = zip(before.get(number, here[number]), here[number], there[number], strict=True)
        found[number] = Klass._make(theirs if ours == old else ours for old, ours, theirs in sides)
    for number in sorted(set(there) - set(here)):
        each = found[number]
        same = (k.id for k in found.values() if k.id in set(here) - set(there) and _clash(k, each))
        if each.merged_into is None and (into := next(same, None)) is not None:
            found[number] = each._replace(merged_into=into)
    keys: set[str] = set()
    for number, each in found.items():
        if each.merged_into is None and each.key is not None:
            found[number] = each._replace(key=None) if each.key in keys else each
            keys.add(each.key)
    return list(found.values())


def _clash(one: Klass, other: Klass) -> bool:
    return one.merged_into is None and one.name.casefold() == other.name.casefold()


def _changed_both(
    base: Sequence[Klass], ours: Sequence[Klass], theirs: Sequence[Klass], wanted: Sequence[Klass]
) -> Iterator[str]:
    """Say which classes the two sides changed in ways that do not go together."""
    for each in wanted:
        if labels.in_circle(wanted, each.id):
            yield f"'{printable(each.name)}' would be merged into itself by what was merged here and there"
            return
    before, here, there = ({each.id: each for each in side} for side in (base, ours, theirs))
    old, mine, other, roots = (labels.merge_roots(side) for side in (base, ours, theirs, wanted))
    for number, klass in before.items():
        if number not in roots:
            continue  # deleted
        name, name_here, name_there = klass.name, here[number].name, there[number].name
        if roots[number] == number and len({name, name_here, name_there}) == 3:
            yield f"'{printable(name)}' is called '{printable(name_here)}' here and '{printable(name_there)}' there"
        moved = {mine[number], other[number]} - {old[number]} or {old[number]}
        if len({roots.get(root, root) for root in moved} | {roots[number]}) > 1:
            into = "' here and for '".join([printable(here[mine[number]].name), printable(there[other[number]].name)])
            yield f"labels of '{printable(name)}' count for '{into}' there"
    in_use = [each for each in wanted if each.merged_into is None]
    for place, each in enumerate(in_use):
        if any(_clash(other_class, each) for other_class in in_use[:place]):
            yield f"two classes would be called '{printable(each.name)}'"


def _taken_names(side: Sequence[Klass], wanted: Sequence[Klass], parted: Sequence[Event]) -> Iterator[str]:
    """Say which labels, given since the two parted, would read otherwise while another class has the name they had."""
    if any(labels.in_circle(wanted, each.id) for each in wanted):
        return
    names, after = {each.id: each.name for each in side}, {each.id: each.name for each in wanted}
    roots, roots_after = labels.merge_roots(side), labels.merge_roots(wanted)
    in_use = {each.name.casefold() for each in wanted if each.merged_into is None}
    for number in sorted({event.class_id for event in parted if event.kind == "label" and event.class_id in names}):
        seen, now = names[roots[number]], after[roots_after[number]]
        if seen.casefold() != now.casefold() and seen.casefold() in in_use:
            yield f"labels of '{printable(seen)}' would be '{printable(now)}', and another class '{printable(seen)}'"


def _drafts(new: Sequence[Event], classes: list[Klass], wanted: Sequence[Klass]) -> list[labels.Draft]:
    """Return the events of the copy as ours, and what is missing then to the classes we want.

    A merge is left out if its class would be merged into itself: it was taken back, or `wanted` sets it right. So is the
    end of a class that we want.
    """
    drafts, kept = [], {each.id for each in wanted}
    for event in new:
        values = event._asdict()
        del values["seq"]
        into = event.value if event.kind == "class_merge" else None
        if into is not None and labels.closes_circle(classes, values["class_id"], int(into)):
            continue
        if event.kind == "class_delete" and event.class_id in kept:
            continue
        if event.kind in CLASS_KINDS:
            classes = labels.apply_class_event(classes, event)
        drafts.append(values)
    there = {each.id: each for each in classes}
    for each in sorted(wanted, key=lambda each: each.merged_into is not None):  # what is taken apart comes first
        was = there[each.id]
        for kind, value, old in zip(("class_rename", "class_key", "class_merge"), each[1:], was[1:], strict=True):
            if value != old:
                drafts.append(labels.class_draft(kind, "merge", each.id, None if value is None else str(value)))
    return drafts


def _answers(connection: Connection, images: Sequence[str]) -> dict[str, tuple[str, int | None]]:
    """Return the answers in force of images, with merged classes resolved."""
    roots, current = labels.merge_roots(labels.read_classes(connection)), db.current
    parts = [select(current).where(current.c.image.in_(part)) for part in labels.chunks(sorted(set(images)))]
    rows = [row for part in parts for row in connection.execute(part)]
    return {row.image: (row.kind, roots.get(row.class_id)) for row in rows}
