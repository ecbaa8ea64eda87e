"""What the page shows besides pictures: news while it is open, answers given, labels to review, results, the first minute."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import cached_property
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from mma import children
from mma.data.tables import DEFAULT, read_labels
from mma.errors import TemporarilyUnavailable
from mma.project import ModelRow, Project
from mma.project.photos import list_images
from mma.project.quality.agreement import looks_words
from mma.project.quality.show import check_words, forecast_words, money_words, target_words
from mma.project.quality.status import ProjectStatus, status
from mma.project.records import LabeledImage

Json = dict[str, Any]

EVERY = 0.4  # seconds between two looks
HEARTBEAT = 15.0  # seconds of silence after which a line goes out, so that a dead connection is noticed
HISTORY = 30  # models whose estimates are drawn
WORK = {"index": "Looking at images", "features": "Preparing photos", "deep training": "Training deeper"}
ANSWERS = 40  # in the strip
EVENTS = 1_000  # a grid is many events and one answer
SHOWN = 240  # labels of one class
SHEET = 24  # images of the first minute
PATIENCE = 600.0  # seconds for a command


def read_news(project: Project) -> Json:
    """Return everything that the page shows besides images, as JSON can hold it."""
    counts, models = project.counts(), project.models.rows()
    return {
        "project": project.settings.id,
        "seq": counts.seq,
        "counts": counts_for_page(project),
        **classes_for_page(project),
        "budget": project.settings.budget,
        "models": [model_for_page(row) for row in models if row.state == "ready"][-HISTORY:],
        "model": current_model(models),
        "work": work_of(project, models),
    }


def counts_for_page(project: Project) -> Json:
    """Return how far the labeling is."""
    counts = project.counts()
    names = ("labeled", "cannot_tell", "excluded", "left", "images", "per_class")
    return {name: getattr(counts, name) for name in names}


def classes_for_page(project: Project) -> Json:
    """Return the classes in use, and those merged into others."""
    known = project.classes()
    used, merged = ([each for each in known if (each.merged_into is None) is used] for used in (True, False))
    return {
        "classes": [{"id": each.id, "name": each.name, "key": each.key} for each in used],
        "merged": [{"id": each.id, "name": each.name, "into": each.merged_into} for each in merged],
    }


def model_for_page(row: ModelRow) -> Json:
    """Return what the page shows of a model."""
    own = {name: getattr(row, name) for name in ("number", "kind", "state", "message", "accuracy")}
    return {**own, **{name: row.about.get(name) for name in ("low", "high", "source", "forecast")}}


def current_model(models: list[ModelRow]) -> Json | None:
    """Return the last model that is ready, with the state of the one that is being trained; None before the first one."""
    if not models:
        return None
    ready, newest = [row for row in models if row.state == "ready"], models[-1]
    shown = model_for_page(ready[-1] if ready else newest)
    return {**shown, "number": newest.number, "kind": newest.kind, "state": newest.state, "message": newest.message}


def work_of(project: Project, models: list[ModelRow]) -> list[Json]:
    """Return how far index, features and deep training are; without numbers where the worker gives none yet."""
    tasks = [each for each in project.progress() if each.done < each.total]
    found: list[Json] = [
        {"name": WORK[task], "done": done, "total": total, "left": left} for task, done, total, left in tasks
    ]
    for row in models:
        if row.kind == "deep" and row.state == "training":
            name = WORK["deep training"]
            note = {"name": f"{name}: {row.message}".rstrip(": "), "done": 0, "total": 0}
            found.append({**row.about["work"], "name": name} if "work" in row.about else note)
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


def recent_answers(project: Project, by: str) -> list[Json]:
    """Return a person's last answers in force, the newest first; a grid is one answer."""
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


def labeled_images(project: Project, class_id: int) -> Json:
    """Return the images of a class that were labeled last, and how many older ones there are."""
    images = project.labeled_by_class(class_id, SHOWN)
    total = project.counts().per_class.get(class_id, 0)
    return {
        "images": [{**as_answer(each), "class_id": class_id} for each in images],
        "more": max(total - len(images), 0),
    }


def as_answer(labeled: LabeledImage) -> Json:
    """Return a label as an answer that can be corrected."""
    image, name, class_id, event, by = labeled
    return {"id": event, "images": [image], "kind": "label", "class_id": class_id, "name": name, "by": by}


class Command:
    """`mma NAME PROJECT --json`. It takes torch, so it runs in a process of its own, one at a time; others go on."""

    def __init__(self, name: str, project: Project, failed: str, ending: Callable[[], bool] = bool) -> None:
        self.name, self.project, self.failed, self.ending = name, project, failed, ending
        self.turn = threading.Lock()

    def run(self) -> Json:
        """Return what it printed, or say why it failed. When the server ends, so does it."""
        command = (self.name, str(self.project.folder), "--json")
        with self.turn:
            done = children.run("mma.cli", *command, timeout=PATIENCE, stop=self.ending)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise TemporarilyUnavailable(f"{self.failed}: {why.removeprefix(f'mma {self.name}: ')}")
        found: Json = json.loads(done.stdout)
        return found


class Review:
    """Looks for labels that may be wrong. What was found is kept until the next answer."""

    def __init__(self, project: Project, ending: Callable[[], bool] = bool) -> None:
        self.project = project
        self.command = Command("review", project, "the search for mistakes failed", ending)
        self.seq, self.found = -1, Json()

    def likely_mistakes(self) -> Json:
        """Return labels to look at again, the likeliest mistake first, each with its reason; and what was not looked for."""
        seq = self.project.seq()
        if self.seq != seq:
            self.found, self.seq = self.command.run(), seq
        reasons, notes = reasons_of(self.found), list(self.found["notes"])
        if self.found["suspects"]:
            right = f"{self.found['predicted']:.0%}"
            notes.append(f"The models that doubt them did not see them, and are right about {right} of all labels.")
        entries = {each.file: as_answer(each) for each in self.project.labeled_files(list(reasons))}
        images = [{**entries[file], "why": why} for file, why in reasons.items() if file in entries]
        return {"images": images, "notes": notes}


def reasons_of(found: Json) -> dict[str, str]:
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


def results(project: Project) -> Json:
    """Return how a project stands, with its sentences. Numbers that are none (0 of 0) become null."""
    now = status(project)
    found: Json = json.loads(TypeAdapter(ProjectStatus).dump_json(now))
    next_labels = [forecast_words(now.gain), check_words(now.checks), target_words(now), money_words(now)]
    return {**found, "next": [words for words in next_labels if words], "looks_words": looks_words(now.looks)}


class Setup:
    """What a person sees who has no classes yet: images that differ from each other, and class names that lie at hand."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def sheet(self) -> list[Json]:
        """Return images that look unlike each other."""
        return [{"image": each.id, "name": each.name} for each in self.project.spread(SHEET)]

    @cached_property
    def offers(self) -> list[Json]:
        """Return class names from sub-folders and from a labels file, with where they come from. Looked for once."""
        hints, root = self.project.hints(), self.project.root
        found: list[Json] = []
        if hints.folders:
            found.append({"from": "The sub-folders are called", "names": list(hints.folders)})
        if hints.question:
            found.append({"from": hints.question, "names": []})
        if DEFAULT in hints.label_files:
            try:
                names = set(read_labels(root / DEFAULT, list_images(root)[0]).values()) - {""}
                found.append({"from": f"{DEFAULT} lies beside the images and names", "names": sorted(names)})
            except ValueError as error:
                found.append({"from": str(error).splitlines()[0], "names": []})
        return found
