"""How far the features are, for the page: kept with the latest model, or with the first one, which is to come. No torch."""

from __future__ import annotations

from typing import Any

from mma.project.project import Project


def note_features(project: Project, words: str, work: dict[str, Any]) -> None:
    """Tell how far the features are, in words and as numbers for a bar."""
    models = project.models()
    if models:
        project.put_model(models[-1].number, about={**models[-1].about, "work": work})
    else:
        project.put_model(1, kind="live", state="training", message=words, about={"work": work})


def end_note(project: Project) -> None:
    """Take the note back when the features are there."""
    for row in project.models():
        if row.about.get("work", {}).get("name") == "features":
            rest = {name: value for name, value in row.about.items() if name != "work"}
            message = "" if row.state == "ready" else "waiting for labels of two classes"
            project.put_model(row.number, message=message, about=rest)
