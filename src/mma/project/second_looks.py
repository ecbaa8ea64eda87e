"""Labels that somebody looked at again: how pure grids were, whether people say the same twice, what was corrected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import or_, select

from mma.project import schema as db
from mma.project.audit import Share, share
from mma.project.classes import merge_roots
from mma.project.derive import chunks
from mma.project.project import Project
from mma.project.records import SECOND_LOOKS

SHOWN = 3  # kinds of corrections that are named


@dataclass(frozen=True)
class Correction:
    """A label that is no longer what was said first."""

    image: str
    before: str
    after: str
    asked_again: bool  # it came out when the same question was asked again


@dataclass(frozen=True)
class SecondLooks:
    """What second looks at labels showed. None: nothing of that kind was asked again yet."""

    grid: Share | None  # labels of grids that stayed the same when asked one by one
    single: Share | None  # labels given one by one that stayed the same
    kept: int  # labels that the review kept
    corrections: tuple[Correction, ...]


def second_looks(project: Project) -> SecondLooks:
    """Sum up what became of labels that were asked again, reviewed or corrected."""
    classes = project.classes()
    roots, names = merge_roots(classes), {each.id: each.name for each in classes}
    same: dict[bool, list[bool]] = {True: [], False: []}  # whether it came from a grid -> whether it stayed
    corrections, kept = [], 0
    for image, rows in _looked_at(project).items():
        said = [roots[row.class_id] for row in rows]
        again = [place for place, row in enumerate(rows) if row.provenance == "again" and place]
        if again:
            same[rows[again[0] - 1].provenance == "grid"].append(said[again[-1]] == said[again[0] - 1])
        if said[0] != said[-1]:
            corrections.append(Correction(image, names[said[0]], names[said[-1]], bool(again)))
        elif rows[-1].provenance == "review":
            kept += 1
    return SecondLooks(_share(same[True]), _share(same[False]), kept, tuple(corrections))


def _share(same: Sequence[bool]) -> Share | None:
    return share(np.array(same, np.bool_)) if same else None


def _looked_at(project: Project) -> dict[str, list[Any]]:
    """Return the labels in force, oldest first, of every image that has a second look or a correction."""
    c = db.events.c
    second = select(c.image).where(
        c.active == 1, c.kind == "label", or_(c.provenance.in_(SECOND_LOOKS), c.supersedes.is_not(None))
    )
    found: dict[str, list[Any]] = {}
    with project.store.reading() as connection:
        images = sorted({str(image) for image in connection.execute(second).scalars()})
        for part in chunks(images):
            labels = select(c.image, c.class_id, c.provenance).where(
                c.image.in_(part), c.active == 1, c.kind == "label"
            )
            for row in connection.execute(labels.order_by(c.seq)):
                found.setdefault(row.image, []).append(row)
    return found


def looks_words(looks: SecondLooks) -> list[str]:
    """Say it in sentences; none where there is nothing to say."""
    lines = []
    if looks.grid is not None:
        lines.append(f"Labels given in a grid, asked again one by one: {_stayed(looks.grid)}.")
    if looks.single is not None:
        lines.append(f"Labels given one by one, asked again: {_stayed(looks.single)}.")
    if looks.kept or looks.corrections:
        lines.append(
            f"Looked at again: {len(looks.corrections):,} corrected{_commonest(looks.corrections)}, {looks.kept:,} kept."
        )
    return lines


def _stayed(found: Share) -> str:
    return f"{found.right:,} of {found.of:,} stayed the same ({100 * found.low:.0f}-{100 * found.high:.0f} %, 95 %)"


def _commonest(corrections: Iterable[Correction]) -> str:
    """Name the commonest corrections."""
    kinds = Counter((each.before, each.after) for each in corrections).most_common(SHOWN)
    return f" ({', '.join(f'{many} {before} -> {after}' for (before, after), many in kinds)})" if kinds else ""
