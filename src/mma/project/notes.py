"""How far the features are, for the page: kept with the latest live model, or with the first one, still to come. No torch."""

from __future__ import annotations

from typing import Any

from mma.project.project import Project
from mma.project.records import ModelRow


def note_features(project: Project, words: str, work: dict[str, Any]) -> None:
    """Tell how far the features are, in words and as numbers for a bar. There is one such note at a time."""
    models = project.models()
    live = [row for row in models if row.kind == "live"]
    for row in filter(has_note, live[:-1]):
        project.put_model(row.number, about=without_note(row))
    if live:
        project.put_model(live[-1].number, about={**live[-1].about, "work": work})
    elif not models:
        project.put_model(1, kind="live", state="training", message=words, about={"work": work})


def end_note(project: Project) -> None:
    """Take the note back when the features are there."""
    for row in filter(has_note, project.models()):
        message = "" if row.state == "ready" else "waiting for labels of two classes"
        project.put_model(row.number, message=message, about=without_note(row))


def has_note(row: ModelRow) -> bool:
    """Tell whether a model carries the note about features."""
    return bool(row.about.get("work", {}).get("name") == "features")


def without_note(row: ModelRow) -> dict[str, Any]:
    """Return what is known of a model besides the note."""
    return {name: value for name, value in row.about.items() if name != "work"}
