"""What the page shows: pictures, news while it is open, answers given, labels to review, results, the first minute."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile, ZipInfo

from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from mma import children
from mma.data.photos import (
    LARGE,
    bounded_photo,
    explain_bad_file,
    open_image,
    open_photo,
    quiet_decoders,
    reduce_photo,
)
from mma.data.tables import DEFAULT, read_labels
from mma.errors import TemporarilyUnavailable, UserError
from mma.files import write_atomically
from mma.project import ModelRow, Project
from mma.project.photos import list_images
from mma.project.quality.accuracy import LEAST_AUDIT
from mma.project.quality.agreement import looks_words
from mma.project.quality.status import ProjectStatus, goals_of, money_words, status, target_words
from mma.project.records import LabeledImage

Json = dict[str, Any]

EVERY = 0.4  # seconds between two looks
HEARTBEAT = 15.0  # seconds of silence after which a line goes out, so that a dead connection is noticed
HISTORY = 30  # models whose estimates are drawn
WORK = {"index": "Looking at photos", "features": "Preparing photos", "deep training": "Training deeper"}
ANSWERS = 40  # in the strip
EVENTS = 1_000  # a grid is many events and one answer
SHOWN = 240  # labels of one class
SHEET = 24  # images of the first minute
PATIENCE = 600.0  # seconds for a command
MAPS = 500  # heat maps kept
TRY_SIDE = 1_024  # pixels of a photo that is tried
TOP = 3  # classes that an answer names
PART = 1 << 20  # bytes of a zip sent at a time
SIZES = {"thumb": 320, "full": 2_048}  # pixels of the longer side, at most
LOSSLESS = 256 * 256  # pixels: small pictures are shown enlarged, where JPEG's blocks would show
DECODERS = 3  # at once, however many cores there are: memory is what they share
QUALITY = 88
MEDIA = {".jpg": "image/jpeg", ".png": "image/png"}


def read_news(project: Project) -> Json:
    """Return everything that the page shows besides images, as JSON can hold it."""
    models, current = project.models.rows(), None
    ready = [model_for_page(row) for row in models if row.state == "ready"]
    if models:  # the last one that is ready, with the state of the one that is being trained
        shown, newest = ready[-1] if ready else model_for_page(models[-1]), models[-1]
        current = {**shown, **{name: getattr(newest, name) for name in ("number", "kind", "state", "message")}}
    tasks = [each for each in project.progress() if each.done < each.total]
    work: list[Json] = [
        {"name": WORK[task], "done": done, "total": total, "left": left} for task, done, total, left in tasks
    ]
    for row in models:  # without numbers where the worker gives none yet
        if row.kind == "deep" and row.state == "training":
            name = WORK["deep training"]
            note = {"name": f"{name}: {row.message}".rstrip(": "), "done": 0, "total": 0}
            work.append({**row.about["work"], "name": name} if "work" in row.about else note)
    return {
        "project": project.settings.id,
        "seq": project.counts().seq,
        "counts": counts_for_page(project),
        **classes_for_page(project),
        "budget": project.settings.budget,
        "goal": goal_for_page(project, models),
        "names": project.guesses.noted(),
        "models": ready[-HISTORY:],
        "model": current,
        "work": work,
    }


def goal_for_page(project: Project, models: Sequence[ModelRow]) -> Json:
    """Return the goal and how near the newest measured model is."""
    goals = goals_of(project)
    about: Json = next((row.about for row in reversed(models) if row.kind == "live" and row.state == "ready"), {})
    key = goals.of_class or ""
    reached, missing = about.get("reached", {}).get(key), max(LEAST_AUDIT - int(about.get("audit", 0)), 0)
    return {"goal": goals.words, "percent": goals.percent, "reached": reached, "missing": missing}


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
            "images": [event.image for event in batch if event.kind == batch[0].kind],
            "kind": batch[0].kind,
            "class_id": batch[0].class_id,
            "name": batch[0].file or "",
        }
        for batch in batches[:ANSWERS]
    ]


def labeled_images(project: Project, class_id: int) -> Json:
    """Return the images of a class that were labeled last, and how many older ones there are."""
    images = project.labeled_by_class(class_id, SHOWN)
    total, how = project.counts().per_class.get(class_id, 0), project.how([each.image for each in images])
    return {
        "images": [{**as_answer(each), "class_id": class_id, "how": how.get(each.image)} for each in images],
        "more": max(total - len(images), 0),
    }


def as_answer(labeled: LabeledImage) -> Json:
    """Return a label as an answer that can be corrected."""
    image, name, class_id, event, by = labeled
    return {"id": event, "images": [image], "kind": "label", "class_id": class_id, "name": name, "by": by}


class Command:
    """A module that takes torch. It runs in a process of its own, one at a time; labeling goes on."""

    def __init__(self, project: Project, failed: str, ending: Callable[[], bool], module: str, *arguments: str) -> None:
        self.project, self.failed, self.ending = project, failed, ending
        self.module, self.arguments, self.turn = module, arguments, threading.Lock()

    def run(self, *more: str) -> Json:
        """Return what it printed, or say why it failed. When the server ends, so does it."""
        with self.turn:
            done = children.run(self.module, *self.arguments, *more, timeout=PATIENCE, stop=self.ending)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise TemporarilyUnavailable(f"{self.failed}: {re.sub('^mma [a-z]+: ', '', why)}")
        found: Json = json.loads(done.stdout)
        return found


def mma_command(name: str, project: Project, failed: str, ending: Callable[[], bool] = bool) -> Command:
    """Return `mma NAME PROJECT --json`."""
    return Command(project, failed, ending, "mma.cli", name, str(project.folder), "--json")


class Review:
    """Looks for labels that may be wrong. What was found is kept until the next answer."""

    def __init__(self, project: Project, ending: Callable[[], bool] = bool) -> None:
        self.project = project
        self.command = mma_command("review", project, "the search for mistakes failed", ending)
        self.seq, self.found = -1, Json()

    def likely_mistakes(self) -> Json:
        """Return labels to look at again, the likeliest mistake first, each with its reason; and what was not looked for."""
        seq = self.project.seq()
        if self.seq != seq:
            self.found, self.seq = self.command.run(), seq
        reasons, notes = dict[str, str](), list(self.found["notes"])  # the first reason of a file counts
        for each in self.found["suspects"]:
            agree = f", {each['neighbours']} of 5 neighbours agree" if each["neighbours"] else ""
            reasons.setdefault(
                each["file"], f"model says {each['likely']} {100 * each['likely_confidence']:.0f} %{agree}"
            )
        for group in self.found["conflicts"]:
            for file in (file for files in group.values() for file in files):
                reasons.setdefault(file, f"alike images, labeled {' and '.join(group)}")
        for file in self.found["disagreements"]:
            reasons.setdefault(file, "people disagree")
        for each in self.found["changed"]:
            reasons.setdefault(each["file"], f"first answered {each['before']}, then {each['after']}")
        if self.found["suspects"]:
            right = f"{100 * self.found['predicted']:.0f} %"
            notes.append(f"The models that doubt them did not see them, and are right about {right} of all labels.")
        entries = {each.file: as_answer(each) for each in self.project.labeled_files(list(reasons))}
        images = [{**entries[file], "why": why} for file, why in reasons.items() if file in entries]
        return {"images": images, "notes": notes, "groups": self.groups()}

    def groups(self) -> list[Json]:
        """Return photos that look alike and match no class, and parts of a class that look like a class of their own."""
        unnamed = [(None, 0, files) for files in self.found["unknown_groups"]]
        parts = [(each["label"], each["others"], each["files"]) for each in self.found["split"]]
        names = {each.name: each.id for each in self.project.classes()}
        ids = {image.name: image.id for image in self.project.images()} if unnamed or parts else {}
        found = [
            {
                "class_id": names.get(label),
                "others": others,
                "images": [{"image": ids[file], "name": file} for file in files if file in ids],
            }
            for label, others, files in [*parts, *unnamed]
            if label is None or label in names
        ]
        return [each for each in found if each["images"]]


class Heat:
    """Where the model looks in photos. What was found is kept until there is another model."""

    def __init__(self, project: Project, ending: Callable[[], bool] = bool) -> None:
        self.project, self.model, self.found = project, 0, dict[str, Json]()
        failed = "the heat map was not made"
        self.command = Command(project, failed, ending, "mma.project.heat", str(project.folder))

    def maps(self, images: Sequence[str]) -> Json:
        """Return the maps of images, or why there are none. If the first one is known, the others are as well, or wait."""
        newest = max((row.number for row in self.project.models.rows() if row.state == "ready"), default=0)
        if not newest:
            raise UserError("there is no model yet. Label some photos first.")
        if newest != self.model or len(self.found) > MAPS:
            self.model, self.found = newest, {}
        if images[0] not in self.found:
            self.found |= self.command.run(*(each for each in images if each not in self.found))
        return {"maps": {each: self.found[each] for each in images if each in self.found}}


def results(project: Project) -> Json:
    """Return how a project stands, with its sentences. Numbers that are none (0 of 0) become null."""
    now = status(project)
    found: Json = json.loads(TypeAdapter(ProjectStatus).dump_json(now))
    more = [words for words in (target_words(now), money_words(now)) if words]
    deep = None if now.deep is None else now.deep.words
    asking = now.report.helping.sentence if now.report and now.report.helping.speaks else ""
    words = {"next": [now.forecast, *more], "looks_words": looks_words(now.looks), "deep_words": deep, "asking": asking}
    has_deep = any(row.kind == "deep" and row.state == "ready" for row in project.models.rows())
    wishes = {"goal_class": project.settings.target_class, "use": project.settings.use_model, "has_deep": has_deep}
    return {**found, **words, **wishes}


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


# Pictures are decoded, turned upright and encoded anew: nothing of the original file but pixels goes out.


class Picture(NamedTuple):
    """An encoded picture."""

    data: bytes
    media: str


class Pictures:
    """The pictures of one project. Thumbnails are kept in its cache; larger ones are kept by the browser alone."""

    def __init__(self, project: Project) -> None:
        self.project, self.folder = project, project.folder / "cache" / "thumbnails"
        self._writing, self._large = threading.Lock(), threading.Lock()

    def picture(self, image: str, size: str) -> Picture:
        """Return a picture of an image; UserError says why there is none."""
        return (self.stored(image) if size == "thumb" else None) or self.make(image, SIZES[size])

    def make(self, image: str, longest: int) -> Picture:
        """Decode an image's file, after checking where it lies and that it still has the bytes that were labeled."""
        root, path = self.project.root, self.project.path_of(image)
        try:
            with open_photo(root, str(path.relative_to(root))) as (photo, key):
                width, height = reduce_photo(photo, longest)
                # Large ones one at a time.
                with self._large if width * height > LARGE else nullcontext():
                    small = bounded_photo(photo, longest)
        except Exception as error:  # decoders raise anything at all on broken bytes
            raise UserError(f"the file cannot be read: {explain_bad_file(error)}.") from error
        if key.tobytes().hex() != image:
            raise UserError("the file has changed since it was indexed. Start again to index it anew.")
        lossless, buffer = small.width * small.height <= LOSSLESS, io.BytesIO()
        if lossless:
            small.save(buffer, "PNG", compress_level=3)
        else:
            small.save(buffer, "JPEG", quality=QUALITY)
        return Picture(buffer.getvalue(), MEDIA[".png" if lossless else ".jpg"])

    def stored(self, image: str) -> Picture | None:
        """Return a thumbnail made earlier."""
        for suffix, media in MEDIA.items():
            path = self.folder / image[:2] / f"{image}{suffix}"
            if path.is_file():
                return Picture(path.read_bytes(), media)
        return None

    def store(self, image: str, picture: Picture) -> None:
        """Keep a thumbnail. A disk that is full or read-only is no reason to complain: it can be made again."""
        suffix = next(suffix for suffix, media in MEDIA.items() if media == picture.media)
        path = self.folder / image[:2] / f"{image}{suffix}"
        try:
            with self._writing:
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    write_atomically(path, picture.data)
        except OSError:
            return


def try_photo(command: Command, encoded: str) -> Json:
    """Classify one picture, sent in base64, with the model in use: `command` is `mma predict`."""
    try:
        data = base64.b64decode(encoded, validate=True)
        with quiet_decoders(), open_image(data) as image:
            small = bounded_photo(image, TRY_SIDE)
    except Exception as error:  # decoders raise anything at all on broken bytes
        raise UserError(f"the picture cannot be read: {explain_bad_file(error)}.") from error
    with tempfile.TemporaryDirectory(prefix="mma-try-") as scratch:
        photo, answer = Path(scratch) / "photo.png", Path(scratch) / "answer.jsonl"
        small.save(photo)
        command.run(str(photo), "-o", str(answer), "--top", str(TOP))
        row = json.loads(answer.read_text("utf-8").splitlines()[0])
    ranks = [f"_{rank}" if rank > 1 else "" for rank in range(1, TOP + 1)]
    answers = [[row[f"label{rank}"], row[f"confidence{rank}"]] for rank in ranks if row.get(f"label{rank}")]
    # What else a prediction says, for example that nothing like the picture was labeled.
    more = {name: value for name, value in row.items() if not name.startswith(("label", "confidence", "file"))}
    return {"answers": answers, "more": more}


# The newest exported model and the labels, as a zip: no copy of it is made on disk or in memory.


def files_to_take(project: Project) -> dict[str, Path]:
    """Return what a person takes home, by its name in the zip."""
    project.mirror.finish()
    files = {"labels.csv": project.layout.mirror} if project.layout.mirror.is_file() else {}
    exported = [
        each for each in (project.folder / "export").iterdir() if each.is_dir() and not each.name.startswith(".")
    ]
    if exported:
        newest = max(exported, key=lambda each: (each.stat().st_mtime_ns, each.name))
        found = [each for each in sorted(newest.rglob("*")) if each.is_file() and not each.is_symlink()]
        files |= {f"{newest.name}/{each.relative_to(newest).as_posix()}": each for each in found}
    return files


class _Pipe(io.RawIOBase):
    """Where a zip is written to, and read from at once."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data)
        return len(data)

    def take(self) -> bytes:
        data, self.data = self.data, b""
        return data


def zipped(files: Mapping[str, Path]) -> Iterator[bytes]:
    """Yield a zip of files, a part at a time."""
    pipe = _Pipe()
    with ZipFile(pipe, "w") as archive:
        for name, path in files.items():
            about = ZipInfo.from_file(path, name)
            with path.open("rb") as source, archive.open(about, "w", force_zip64=True) as target:
                while part := source.read(PART):
                    target.write(part)
                    yield pipe.take()
    yield pipe.take()
