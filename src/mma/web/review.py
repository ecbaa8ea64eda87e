"""Labels that are probably wrong, for the review view. A process of its own looks for them, because that takes torch."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

from sqlalchemy import select

from mma.project import Project
from mma.project import schema as db

PATIENCE = 600.0  # seconds
_one_at_a_time = threading.Lock()


def likely_mistakes(project: Project) -> dict[str, Any]:
    """Return labels to look at again, the likeliest mistake first, each with its reason; and what was not looked for."""
    with _one_at_a_time:
        command = [sys.executable, "-m", "mma", "review", str(project.folder), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        raise ValueError(
            f"the search for mistakes failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
        )
    found = json.loads(done.stdout)
    reasons = _reasons(found)
    entries = _entries(project, list(reasons))
    return {
        "images": [{**entries[file], "why": why} for file, why in reasons.items() if file in entries],
        "notes": found["notes"],
    }


def _reasons(found: dict[str, Any]) -> dict[str, str]:
    """Return why each file should be looked at; the first reason counts."""
    reasons: dict[str, str] = {}
    for each in found["suspects"]:
        reasons.setdefault(each["file"], f"looks like {each['likely']} ({each['confidence']:.0%} for {each['label']})")
    for group in found["conflicts"]:
        for file in (file for files in group.values() for file in files):
            reasons.setdefault(file, f"alike images, labeled {' and '.join(group)}")
    for file in found["disagreements"]:
        reasons.setdefault(file, "people disagree")
    return reasons


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
