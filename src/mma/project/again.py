"""A few questions about labels given long before: are grids pure, and does a person say the same twice? No torch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Select, and_, select

from mma.project import schema as db
from mma.project.derive import count
from mma.project.records import SECOND_LOOKS

DELAY = 100  # events between an answer and the same question
WINDOW = 2_000  # events that are looked through for a label to ask about
GOLDEN = 0.6180339887498949  # its multiples spread evenly over the answers so far, however many there will be


def choose_again(connection: Connection, by: str, asked: int, share: float, taken: Collection[str]) -> Any:
    """Return the image of a label that this person gave long before, when question number `asked` is for that; else None.

    Labels of grids and single ones take turns. Audit images are left out, and a label is asked about once.
    """
    if share <= 0 or asked % round(1 / share):
        return None
    turn = asked // round(1 / share)
    last = count(connection, "seq") - DELAY
    start = int(turn * GOLDEN % 1 * max(last, 0))
    for from_grid in (turn % 2 == 1, turn % 2 == 0):
        query = _old_labels(by, start, min(start + WINDOW, last), from_grid=from_grid)
        found = [row for row in connection.execute(query.limit(len(taken) + 1)) if row.id not in taken]
        if found:
            return found[0]
    return None


def _old_labels(by: str, start: int, end: int, *, from_grid: bool) -> Select[Any]:
    """Select images whose label in force is this person's, given between two events, and never looked at again."""
    event, image = db.events.c, db.images.c
    kind = event.provenance == "grid" if from_grid else event.provenance.not_in([*SECOND_LOOKS, "grid", "import"])
    label = and_(event.by == by, event.active == 1, event.kind == "label", kind)
    return (
        select(db.images)
        .join(db.events, event.image == image.id)
        .join(db.current, and_(db.current.c.image == event.image, db.current.c.seq == event.seq))
        .where(label, event.seq > start, event.seq <= end, image.audit == 0, image.present == 1)
        .order_by(event.seq)
    )
