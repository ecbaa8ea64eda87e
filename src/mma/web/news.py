"""What changes while a page is open: events, counts, classes, models, work behind the page."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool

from mma.project import ModelRow, Project

EVERY = 0.4  # seconds between two looks
HEARTBEAT = 15.0  # seconds of silence after which a line goes out, so that a dead connection is noticed
HISTORY = 30  # models whose estimates are drawn

WORK = {"features": "Computing features", "deep training": "Training deeper"}

News = dict[str, Any]


def read_news(project: Project) -> News:
    """Return everything that the page shows besides images, as JSON can hold it."""
    counts, models = project.counts(), project.models()
    return {
        "project": project.settings.id,
        "seq": counts.seq,
        "counts": counts_for_page(project),
        **classes_for_page(project),
        "budget": project.settings.budget,
        "models": [model_for_page(row) for row in models if row.state == "ready"][-HISTORY:],
        "model": current_model(models),
        "work": [*indexing(project), *working(models)],
    }


def counts_for_page(project: Project) -> News:
    """Return how far the labeling is."""
    counts = project.counts()
    return {
        "labeled": counts.labeled,
        "cannot_tell": counts.cannot_tell,
        "excluded": counts.excluded,
        "left": counts.left,
        "images": counts.images,
        "per_class": counts.per_class,
    }


def classes_for_page(project: Project) -> News:
    """Return the classes in use, and those merged into others."""
    known = project.classes()
    return {
        "classes": [{"id": each.id, "name": each.name, "key": each.key} for each in known if each.merged_into is None],
        "merged": [
            {"id": each.id, "name": each.name, "into": each.merged_into}
            for each in known
            if each.merged_into is not None
        ],
    }


def model_for_page(row: ModelRow) -> News:
    """Return what the page shows of a model."""
    about = row.about
    return {
        "number": row.number,
        "kind": row.kind,
        "state": row.state,
        "message": row.message,
        "accuracy": row.accuracy,
        "low": about.get("low"),
        "high": about.get("high"),
        "source": about.get("source"),
        "forecast": about.get("forecast"),
    }


def current_model(models: list[ModelRow]) -> News | None:
    """Return the last model that is ready, with the state of the one that is being trained."""
    if not models:
        return None
    ready = [row for row in models if row.state == "ready"]
    shown = model_for_page(ready[-1] if ready else models[-1])
    newest = models[-1]
    return {**shown, "number": newest.number, "kind": newest.kind, "state": newest.state, "message": newest.message}


def indexing(project: Project) -> list[News]:
    """Return how far the index is, while it runs."""
    done, total = project.index_progress()
    return [{"name": "Looking at images", "done": done, "total": total}] if done < total else []


def working(models: list[ModelRow]) -> list[News]:
    """Return how far features and trainings are; without numbers where the worker gives none yet."""
    found = []
    for row in models:
        work = row.about.get("work")
        if work is None and row.kind == "deep" and row.state == "training":
            found.append({"name": f"{WORK['deep training']}: {row.message}".rstrip(": "), "done": 0, "total": 0})
        elif work is not None and (row.state == "training" or work["name"] == "features"):
            found.append({**work, "name": WORK.get(work["name"], work["name"])})
    return found


class Newsroom:
    """Looks at the project for all open pages together, and no more often than each of them would."""

    def __init__(self, project: Project) -> None:
        self.project, self.streams = project, 0
        self._turn, self._at, self._last = asyncio.Lock(), 0.0, ""

    async def latest(self) -> str:
        """Return the news as JSON, at most a moment old."""
        async with self._turn:
            if time.monotonic() - self._at >= EVERY:
                self._last = json.dumps(await run_in_threadpool(read_news, self.project))
                self._at = time.monotonic()
            return self._last

    async def stream(self, ending: Callable[[], bool]) -> AsyncIterator[str]:
        """Yield server-sent events: the news at once, and whenever it has changed."""
        self.streams += 1
        before, spoke = "", time.monotonic()
        try:
            while not ending():
                if (news := await self.latest()) != before:
                    before, spoke = news, time.monotonic()
                    yield f"data: {news}\n\n"
                elif time.monotonic() - spoke > HEARTBEAT:
                    spoke = time.monotonic()
                    yield ": still here\n\n"
                await asyncio.sleep(EVERY)
        finally:
            self.streams -= 1
