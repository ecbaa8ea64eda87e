"""Labels as they were after a given event: read from the table of current labels, or replayed from the events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from sqlalchemy import Connection, select

from mma.project import schema as db
from mma.project.classes import apply_class_event, merge_roots, read_classes
from mma.project.derive import count, standing
from mma.project.events import COLUMNS
from mma.project.records import CLASS_KINDS, UNDOABLE, Counts, Event, Klass, LabeledImage, Labels


def read_labels_at(connection: Connection, upto: int | None) -> Labels:
    """Return the labels in force after event `upto`, by default the last one.

    Images without a file are left out: those that are gone, and those of a copy of the project that are not here yet.
    """
    last = count(connection, "seq")
    if upto is not None and not 0 <= upto <= last:
        raise ValueError(f"there is no event {upto}; the last one is {last}.")
    if upto is None or upto == last:
        rows: Sequence[Any] = connection.execute(select(db.current).order_by(db.current.c.seq)).all()
        classes = read_classes(connection)
    else:
        events = [Event(*row) for row in connection.execute(select(*COLUMNS).where(db.events.c.seq <= upto))]
        rows, classes = replay(sorted(events))
    gone = {*_without_file(connection)}
    return _labels(last if upto is None else upto, [row for row in rows if row.image not in gone], classes)


def _without_file(connection: Connection) -> Iterator[str]:
    i, c = db.images.c, db.current.c
    yield from connection.execute(select(i.id).where(i.present == 0)).scalars()
    strange = select(c.image).select_from(db.current).outerjoin(db.images, i.id == c.image).where(i.id.is_(None))
    yield from connection.execute(strange).scalars()


def replay(events: Sequence[Event]) -> tuple[list[Event], list[Klass]]:
    """Return the answers in force and the classes after these events."""
    undone = {event.supersedes for event in events if event.kind == "undo"}
    of_image: dict[str, list[Event]] = {}
    for event in events:
        if event.image is not None and event.kind in UNDOABLE and event.id not in undone:
            of_image.setdefault(event.image, []).append(event)
    stands = [found for found in map(standing, of_image.values()) if found.answer is not None]
    answers = [found.answer._replace(provenance=found.provenance) for found in stands]
    changes = (event for event in events if event.kind in CLASS_KINDS)
    return sorted(answers, key=lambda event: event.seq), reduce(apply_class_event, changes, [])


def _labels(seq: int, rows: Sequence[Any], classes: Iterable[Klass]) -> Labels:
    classes = tuple(classes)
    roots = merge_roots(classes)
    labels = [row for row in rows if row.kind == "label"]
    return Labels(
        seq=seq,
        ids=tuple(row.image for row in labels),
        class_ids=tuple(roots[row.class_id] for row in labels),
        provenance=tuple(row.provenance for row in labels),
        by=tuple(row.by for row in labels),
        seqs=tuple(row.seq for row in labels),
        classes=classes,
        cannot_tell=tuple(row.image for row in rows if row.kind == "cannot_tell"),
        excluded=tuple(row.image for row in rows if row.kind == "exclude"),
    )


def read_labeled(
    connection: Connection, n: int, *, class_id: int | None = None, files: Sequence[str] = ()
) -> list[LabeledImage]:
    """Return the last `n` labels in force of a class, with those merged into it, or those of files."""
    current, event, image = db.current.c, db.events.c, db.images.c
    if class_id is None:
        name, joined = db.files.c.path, db.files.join(db.current, current.image == db.files.c.image)
        wanted = db.files.c.path.in_(files)
    else:
        name, joined = image.name, db.images.join(db.current, current.image == image.id)
        roots = merge_roots(read_classes(connection))
        wanted = current.class_id.in_([number for number, root in roots.items() if root == class_id])
    query = (
        select(current.image, name, current.class_id, event.id, event.by)
        .select_from(joined.join(db.events, event.seq == current.seq))
        .where(current.kind == "label", wanted)
    )
    return [LabeledImage(*row) for row in connection.execute(query.order_by(current.seq.desc()).limit(n))]


def read_counts(connection: Connection) -> Counts:
    """Return the counters; none of them is counted here."""
    found = {row.name: int(row.value) for row in connection.execute(select(db.counts))}
    classes = read_classes(connection)
    roots = merge_roots(classes)
    per_class = {each.id: 0 for each in classes if each.merged_into is None}
    for number, root in roots.items():
        per_class[root] += found.get(f"class:{number}", 0)
    names = {"labeled": "labeled", "cannot_tell": "cannot_tell", "excluded": "excluded", "left": "open"}
    values = {name: found.get(counter, 0) for name, counter in names.items()}
    return Counts(per_class, **values, images=found.get("images", 0), seq=found.get("seq", 0))
