"""Bring the events of a copy of a project together with our own, by their ids. Nothing is stored twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from mma.project import schema as db
from mma.project.classes import apply_class_event, closes_circle, merge_roots, read_classes
from mma.project.derive import chunks
from mma.project.events import Draft, record
from mma.project.layout import ProjectSettings
from mma.project.records import CLASS_KINDS, Event, Klass


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
