"""Labels to look at again, for the review view, each with its reason."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from mma.project import Project
from mma.project import schema as db
from mma.web.commands import Command


class Review:
    """Looks for labels that may be wrong. What was found is kept until the next answer."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.command = Command("review", project, "the search for mistakes failed")
        self.seq, self.found = -1, dict[str, Any]()

    def likely_mistakes(self) -> dict[str, Any]:
        """Return labels to look at again, the likeliest mistake first, each with its reason; and what was not looked for."""
        seq = self.project.seq()
        if self.seq != seq:
            self.found = self.command.run()
            self.seq = seq
        reasons = reasons_of(self.found)
        entries = _entries(self.project, list(reasons))
        return {
            "images": [{**entries[file], "why": why} for file, why in reasons.items() if file in entries],
            "notes": [*self.found["notes"], *trust_of(self.found)],
        }


def reasons_of(found: dict[str, Any]) -> dict[str, str]:
    """Return why each file should be looked at; the first reason counts."""
    reasons: dict[str, str] = {}
    for each in found["suspects"]:
        agree = f", {each['neighbours']} of 5 neighbours agree" if each["neighbours"] else ""
        reasons.setdefault(each["file"], f"model says {each['likely']} {each['likely_confidence']:.0%}{agree}")
    for group in found["conflicts"]:
        for file in (file for files in group.values() for file in files):
            reasons.setdefault(file, f"alike images, labeled {' and '.join(group)}")
    for file in found["disagreements"]:
        reasons.setdefault(file, "people disagree")
    for each in found["changed"]:
        reasons.setdefault(each["file"], f"first answered {each['before']}, then {each['after']}")
    return reasons


def trust_of(found: dict[str, Any]) -> list[str]:
    """Say how far the models can be trusted that doubt labels."""
    if not found["suspects"]:
        return []
    return [f"The models that doubt them did not see them, and are right about {found['predicted']:.0%} of all labels."]


def _entries(project: Project, files: list[str]) -> dict[str, dict[str, Any]]:
    """Return the label in force of each file, as an answer that can be corrected."""
    current, event = db.current.c, db.events.c
    query = (
        select(db.files.c.path, current.image, current.class_id, event.id, event.by)
        .join(db.current, current.image == db.files.c.image)
        .join(db.events, event.seq == current.seq)
        .where(current.kind == "label", db.files.c.path.in_(files))
    )
    with project.store.reading() as connection:
        rows = connection.execute(query).all()
    return {
        row.path: {
            "id": row.id,
            "images": [row.image],
            "kind": "label",
            "class_id": row.class_id,
            "name": row.path,
            "by": row.by,
        }
        for row in rows
    }
