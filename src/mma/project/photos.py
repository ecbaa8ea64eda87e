"""Index a folder of images in place: look at what is new or changed, keep every label, report what is wrong."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from sqlalchemy import Connection, delete, select, update

from mma.data.boxes import photos_of_pieces
from mma.data.folder import list_files
from mma.data.images import BadFile
from mma.errors import UserError
from mma.files import append_lines, cut_lines, read_lines
from mma.project.labels import database as db
from mma.project.labels.database import Store, insert_rows, write_progress
from mma.project.labels.events import add_counts, chunks, refresh
from mma.project.records import ProjectSettings
from mma.project.scan import FileFacts, scan
from mma.text import printable


@dataclass(frozen=True)
class IndexReport:
    """What an index found. `changed` and `missing` are files of labeled images whose bytes are gone."""

    images: int
    files: int
    new: int  # images that were not there before
    duplicates: int  # files whose bytes another file has, too
    near: int  # images that look like another one
    bad: list[BadFile] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def index_folder(
    store: Store, root: Path, settings: ProjectSettings, groups: Path, advance: Callable[[int, int], None]
) -> IndexReport:
    """Bring files and images up to date with the folder. Files of the same size and mtime are not opened again.

    The file `groups` says which image looks like which, so that a rebuilt database has the same groups.
    """
    if not root.is_dir():
        place = printable(str(root))
        raise UserError(f"the images are no longer in {place}. If they were moved:  mma start FOLDER --project DIR")
    names, bad, _ = list_images(root)
    with store.reading() as connection:
        known = {row.path: row for row in connection.execute(select(db.files))}
        images = {row.id: row.present for row in connection.execute(select(db.images.c.id, db.images.c.present))}
    if known and not names:
        raise UserError(
            f"{printable(str(root))} is empty, and there were {len(known):,} files. Is its disk connected? Nothing was changed."
        )
    before, indexer = set(images), _Indexer(store, settings, groups, known, images)
    indexer.photos = photos_of_pieces(root)
    indexer.stamps = stamps = dict.fromkeys(names, (-1, -1))
    for name in names:
        with suppress(OSError):  # a broken link, or no permission: looking at the file says which
            about = os.stat(os.path.join(root, name))
            stamps[name] = about.st_size, about.st_mtime_ns
    # A file that could not be used is looked at again: a decoder may be installed now, or links may be followed.
    same = {name for name, row in known.items() if not row.reason and (row.size, row.mtime) == stamps.get(name)}
    fresh = [name for name in names if name not in same]
    indexer.total = len(fresh)
    advance(0, len(fresh))
    for facts in scan(root.resolve(), fresh):
        indexer.add(facts)
        advance(indexer.done, len(fresh))
    indexer.drop(sorted(set(known).difference(names)))
    with store.reading() as connection:
        files = connection.execute(select(db.files.c.path, db.files.c.image, db.files.c.reason)).all()
        near = connection.execute(select(db.images.c.id).where(db.images.c.near != db.images.c.id)).scalars().all()
        gone = select(db.images.c.name).join(db.current, db.current.c.image == db.images.c.id)
        lost = sorted(connection.execute(gone.where(db.images.c.present == 0)).scalars())
    there, used = {row.path for row in files}, {row.image for row in files if row.image}
    return IndexReport(
        images=len(used),
        files=len(files),
        new=len(used - before),
        duplicates=sum(row.image is not None for row in files) - len(used),
        near=len(near),
        bad=[*bad, *(BadFile(printable(row.path), row.reason) for row in files if row.reason)],
        changed=[name for name in lost if name in there],
        missing=[name for name in lost if name not in there],
    )


class _Indexer:
    """Writes what was found, a batch per transaction, so that labeling can begin with the first one."""

    def __init__(
        self, store: Store, settings: ProjectSettings, groups: Path, files: dict[str, Any], images: dict[str, int]
    ) -> None:
        self.store, self.settings, self.groups = store, settings, groups
        self.paths: dict[str, str | None] = {path: row.image for path, row in files.items()}
        self.present = images  # whether each image is known to have a file
        self.stamps: dict[str, tuple[int, int]] = {}  # size and mtime
        self.done, self.total = 0, 0
        self.photos: dict[str, str] = {}  # piece -> the photo it was cut from: all of one photo are one group
        self._first: dict[str, str] = {}  # photo -> that group
        self._alike: Alike | None = None
        self._kept: dict[str, str] = {}

    def add(self, facts: Sequence[FileFacts]) -> None:
        """Store one batch. What takes time comes before the transaction, since labels wait for that."""
        rows = self._new_rows(facts)
        event = db.events.c.image  # answered before they were indexed: after a rebuild, or merged from elsewhere
        parts = [select(event).where(event.in_(part)).distinct() for part in chunks([row.id for row in rows])]
        back = [each.image for each in facts if each.image and self.present.get(each.image) == 0]
        lost = [old for old in (self.paths.get(each.path) for each in facts) if old]
        with self.store.writing() as connection:
            insert_rows(connection, db.images, rows)
            add_counts(connection, Counter({"images": len(rows), "open": len(rows)}))
            for part in chunks([each.path for each in facts if each.path in self.paths]):
                connection.execute(delete(db.files).where(db.files.c.path.in_(part)))
            files = [db.FileRow(each.path, each.image, *self.stamps[each.path], each.reason) for each in facts]
            insert_rows(connection, db.files, files)
            answered = [image for part in parts for image in connection.execute(part).scalars()]
            self._set_presence(connection, [*back, *lost], *answered)
            write_progress(connection, "index", self.done + len(facts), self.total)
        self.done += len(facts)
        self.paths.update({each.path: each.image for each in facts})
        self.present.update(dict.fromkeys(lost, 0))  # or 1, if another file is left: then nothing changes
        self.present.update({each.image: 1 for each in facts if each.image})

    def drop(self, paths: Sequence[str]) -> None:
        """Forget files that are gone; their images keep their labels."""
        for part in chunks(paths):
            with self.store.writing() as connection:
                connection.execute(delete(db.files).where(db.files.c.path.in_(part)))
                self._set_presence(connection, [image for path in part if (image := self.paths[path])])

    def _set_presence(self, connection: Connection, images: Sequence[str], *more: str) -> None:
        """Write down whether images still have a file, and the name of their first one; then what follows, also of `more`."""
        for image in sorted(set(images)):
            paths = connection.execute(select(db.files.c.path).where(db.files.c.image == image)).scalars().all()
            values = {"present": 1, "name": min(paths)} if paths else {"present": 0}
            connection.execute(update(db.images).where(db.images.c.id == image).values(values))
        refresh(connection, [*images, *more], self.settings.overlap)

    def _new_rows(self, facts: Sequence[FileFacts]) -> list[db.ImageRow]:
        rows, seed = dict[str, db.ImageRow](), self.settings.seed
        for path, image, width, height, phash, _ in facts:
            if image and image not in self.present and image not in rows:
                near, order = self._group(image, phash, self.photos.get(path, path)), rank(seed, "order", image)
                audit = int(is_audit_group(seed, near, self.settings.audit_share))
                rows[image] = db.ImageRow(image, path, width, height, phash, near, order, audit)
        grouped = [row for row in rows.values() if row.near not in (row.id, self._kept.get(row.id))]
        if grouped:
            append_lines(self.groups, [{"image": row.id, "near": row.near} for row in grouped])
        return list(rows.values())

    def _group(self, image: str, phash: str, photo: str) -> str:
        if self._alike is None:
            c = db.images.c
            with self.store.reading() as connection:
                leaders = connection.execute(select(c.id, c.phash).where(c.near == c.id)).all()
                pieces = connection.execute(select(c.name, c.near)).all() if self.photos else []
            self._first = {self.photos[row.name]: row.near for row in pieces if row.name in self.photos}
            self._alike = Alike((row.id, row.phash) for row in leaders)
            cut_lines(self.groups)  # a kill may have left a torn last line
            self._kept = {row["image"]: row["near"] for row in read_lines(self.groups)}
        near = self._kept.get(image) or self._first.get(photo) or self._alike.group(image, phash)
        if self.photos:
            self._first.setdefault(photo, near)
        return near


def is_audit_group(seed: int, near: str, share: float) -> bool:
    """Tell whether a group of near-duplicates is kept for measuring: a pure function, so it never changes."""
    return rank(seed, "audit", near) / 2**63 < share


# The files of an image folder, and the classes that their folders may stand for: offered, never taken.

# Files that lie beside photos and are none; anything else is looked at, whatever its name says.
TEXTS = (".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".md", ".toml", ".yaml", ".yml", ".html", ".htm", ".log")
OTHERS = (".pdf", ".doc", ".docx", ".xls", ".xlsx", ".zip", ".tar", ".gz", ".db", ".ini", ".py", ".sh", ".aae", ".xmp")
HEAVY = (".mp4", ".mov", ".avi", ".mkv", ".mp3", ".wav", ".parquet", ".npy", ".safetensors", ".onnx")
PASSED_BY = frozenset((*TEXTS, *OTHERS, *HEAVY))
LABEL_FILES = ("labels.csv", "metadata.csv", "metadata.jsonl")  # offered when they lie in the image folder
MOST_CLASSES = 0.5  # classes per image above which folders are no classes
SHOWN = 5

Level = Literal["first", "last"]
LEVELS: tuple[Level, Level] = ("first", "last")


def list_images(root: Path) -> tuple[list[str], list[BadFile], int]:
    """List the files that may be images, what is left out for its name, and how many are no images by their name."""
    names, bad = list_files(root)
    found = [name for name in names if os.path.splitext(name)[1].lower() not in PASSED_BY]
    return found, bad, len(names) - len(found)


@dataclass(frozen=True)
class ClassHints:
    """What the image folder suggests. `question` says what cannot be told without a person."""

    folders: tuple[str, ...]
    label_files: tuple[str, ...]
    question: str


def folder_of(name: str, level: Level) -> str:
    """Return the first or the last folder on the way to a file, "" for a file that lies in none."""
    folders = PurePosixPath(name).parts[:-1]
    return "" if not folders else folders[0] if level == "first" else folders[-1]


def class_hints(root: Path, names: Sequence[str]) -> ClassHints:
    """Offer sub-folders and label files as sources of classes."""
    files = tuple(name for name in LABEL_FILES if (root / name).is_file())
    first, last = (sorted({folder_of(name, level) for name in names} - {""}) for level in LEVELS)
    if len(first) < 2 and len(last) < 2:
        return ClassHints((), files, "")
    if len(last) > MOST_CLASSES * len(names):
        question = f"there are {len(last):,} sub-folders for {len(names):,} images, so they hardly stand for classes."
        return ClassHints((), files, f"{question} What are the classes?")
    if first != last:
        question = (
            f"the sub-folders lie in each other: classes could be the first ones ({_some(first)}) or the last ones "
            f"({_some(last)}). Which are they, if any?"
        )
        return ClassHints((), files, question)
    return ClassHints(tuple(first), files, "")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(f"'{printable(name)}'" for name in names[:SHOWN]) + more


# Near-duplicates: images whose perceptual hashes differ in a few bits. Groups only ever grow, so nothing changes sides.

DISTANCE = 4  # bits of 64 that may differ
WIDTHS = (13, 13, 13, 13, 12)  # bits of a band: with one more band than bits may differ, one band is equal
MASK = (1 << 13) - 1


class Alike:
    """The first image of each group, to be found by hash. A hash is compared with those that share a band with it only."""

    def __init__(self, leaders: Iterable[tuple[str, str]] = ()) -> None:
        self._bands = [(defaultdict[int, list[int]](list), sum(WIDTHS[:place])) for place in range(len(WIDTHS))]
        self._first: dict[int, str] = {}  # hash -> the first image of its group
        for image, phash in leaders:
            value = int(phash, 16)
            self._add(image, value, self._sharing(value))

    def _add(self, image: str, value: int, sharing: list[list[int]]) -> None:
        self._first.setdefault(value, image)
        for hashes in sharing:
            hashes.append(value)

    def _sharing(self, value: int) -> list[list[int]]:
        return [table[value >> shift & MASK] for table, shift in self._bands]

    def group(self, image: str, phash: str) -> str:
        """Return the first image of the nearest group; without one near enough this image begins its own."""
        value, first = int(phash, 16), self._first
        if value in first:
            return first[value]
        sharing = self._sharing(value)
        near = [
            (bits, first[other])
            for hashes in sharing
            for other in hashes
            if (bits := (value ^ other).bit_count()) <= DISTANCE
        ]
        if near:
            return min(near)[1]
        self._add(image, value, sharing)
        return image


def rank(seed: int, purpose: str, image: str) -> int:
    """Return a random whole number below 2^63 that depends on nothing but these three."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{image}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


# A few images that look unlike each other, found by their perceptual hashes.

SAMPLE = 512  # images to choose from, drawn at random


def spread_images(connection: Connection, n: int) -> list[str]:
    """Choose images one by one, each as different as can be from those before it (farthest first)."""
    c = db.images.c
    query = select(c.id, c.phash).where(c.open == 1, c.audit == 0).order_by(c.deferred, c.rank).limit(SAMPLE)
    hashes = {row.id: int(row.phash, 16) for row in connection.execute(query)}
    chosen: list[str] = []
    distance = dict.fromkeys(hashes, 65)  # more than 64 bits can differ
    while distance and len(chosen) < n:
        image = max(distance, key=lambda each: distance[each])  # the first of equals
        chosen.append(image)
        del distance[image]
        for other in distance:
            distance[other] = min(distance[other], (hashes[image] ^ hashes[other]).bit_count())
    return chosen
