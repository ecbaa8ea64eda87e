"""What the results view shows: the project's status as JSON, with its sentences."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from mma.project import Project
from mma.project.second_looks import looks_words
from mma.project.status import ProjectStatus, status
from mma.project.words import check_words, forecast_words, money_words, target_words

_adapter = TypeAdapter(ProjectStatus)


def results(project: Project) -> dict[str, Any]:
    """Return how a project stands. Numbers that are none (0 of 0) become null."""
    now = status(project)
    found: dict[str, Any] = json.loads(_adapter.dump_json(now))
    next_labels = [forecast_words(now.gain), check_words(now.checks), target_words(now), money_words(now)]
    return {**found, "next": [words for words in next_labels if words], "looks_words": looks_words(now.looks)}
