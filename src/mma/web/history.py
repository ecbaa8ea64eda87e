"""Answers given: a person's last ones for the strip and for undo, and those of a class for review."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from sqlalchemy import select

from mma.project import Project
from mma.project import schema as db
from mma.project.classes import merge_roots

ANSWERS = 40
EVENTS = 1_000  # a grid is many events and one answer
SHOWN = 240  # labels of one class


def recent_answers(project: Project, by: str) -> list[dict[str, Any]]:
    """Return the last answers in force, the newest first; a grid is one answer."""
    events = project.recent(by, EVENTS)
    batches = [list(batch) for _, batch in groupby(events, key=lambda event: event.batch)]
    if len(events) == EVENTS:
        batches = batches[:-1]  # the last one may be cut
    return [
        {
            "id": batch[0].batch,
            "images": [event.image for event in batch],
            "kind": batch[0].kind,
            "class_id": batch[0].class_id,
            "name": batch[0].file or "",
        }
        for batch in batches[:ANSWERS]
    ]


def labeled_images(project: Project, class_id: int) -> dict[str, Any]:
    """Return the images of a class that were labeled last, and how many older ones there are."""
    roots = merge_roots(project.classes())
    members = [number for number, root in roots.items() if root == class_id]
    current, image, event = db.current.c, db.images.c, db.events.c
    query = (
        select(image.id, image.name, event.id.label("event"), event.by)
        .join(db.current, current.image == image.id)
        .join(db.events, event.seq == current.seq)
        .where(current.kind == "label", current.class_id.in_(members))
        .order_by(current.seq.desc())
        .limit(SHOWN)
    )
    with project.store.reading() as connection:
        rows = connection.execute(query).all()
    total = project.counts().per_class.get(class_id, 0)
    answer = {"kind": "label", "class_id": class_id}
    images = [{**answer, "id": row.event, "images": [row.id], "name": row.name, "by": row.by} for row in rows]
    return {"images": images, "more": max(total - len(images), 0)}
