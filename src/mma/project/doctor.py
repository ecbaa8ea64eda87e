"""Look a project over, and make its database again from the second copy. Works where the project itself does not open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select, text

from mma.project import schema as db
from mma.project.begin import open_store
from mma.project.layout import Layout, read_settings
from mma.project.migrations import read_format
from mma.project.project import Project, Say, silent
from mma.project.rebuild import rebuild_database
from mma.project.records import Event
from mma.project.second_copy import LogLine, read_log
from mma.project.snapshot import read_counts, replay
from mma.project.store import Store
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
