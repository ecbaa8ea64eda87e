"""Index a folder of images in place: look at what is new or changed, keep every label, report what is wrong."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from mma.data.images import BadFile
from mma.files import append_lines, cut_lines, read_lines
from mma.project import schema as db
from mma.project.alike import Alike, fraction, rank
from mma.project.derive import add_counts, chunks, refresh
from mma.project.listing import list_images
from mma.project.scan import FileFacts, scan
from mma.project.store import Store, insert_rows
from mma.text import printable

Stamp = tuple[int, int]  # size and mtime


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
    passed_by: int = 0  # files that are no images by their name


class IndexSettings(NamedTuple):
    """What an index needs to know of its project."""

    seed: int
    audit_share: float
    overlap: int
    groups: Path  # which image looks like which, kept so that a rebuilt database has the same groups


def index_folder(store: Store, root: Path, settings: IndexSettings, advance: Callable[[int, int], None]) -> IndexReport:
    """Bring files and images up to date with the folder. Files of the same size and mtime are not opened again."""
    if not root.is_dir():
        place = printable(str(root))
        raise ValueError(f"the images are no longer in {place}. If they were moved:  mma start FOLDER --project DIR")
    names, bad, passed_by = list_images(root)
    with store.reading() as connection:
        known = {row.path: row for row in connection.execute(select(db.files))}
        images = {row.id: row.present for row in connection.execute(select(db.images.c.id, db.images.c.present))}
    if known and not names:
        raise ValueError(
            f"{printable(str(root))} is empty, and there were {len(known):,} files. Is its disk connected? Nothing was changed."
        )
    before, indexer = set(images), _Indexer(store, settings, known, images)
    indexer.stamps = stamps = {name: _stamp(os.path.join(root, name)) for name in names}
    fresh = [name for name in names if name not in known or (known[name].size, known[name].mtime) != stamps[name]]
    indexer.total = len(fresh)
    advance(0, len(fresh))
    for facts in scan(root.resolve(), fresh):
        indexer.add(facts)
        advance(indexer.done, len(fresh))
    indexer.drop(sorted(set(known).difference(names)))
    return _report(store, before, bad, passed_by)


def _stamp(path: str) -> Stamp:
    try:
        about = os.stat(path)
    except OSError:  # a broken link, or no permission: looking at the file says which
        return -1, -1
    return about.st_size, about.st_mtime_ns


class _Image(NamedTuple):
    """A new row of `images`."""

    id: str
    name: str
    width: int
    height: int
    phash: str
    near: str
    rank: int
    audit: int
    present: int = 1
    open: int = 1
    answers: int = 0
    deferred: int = 0


class _Indexer:
    """Writes what was found, a batch per transaction, so that labeling can begin with the first one."""

    def __init__(self, store: Store, settings: IndexSettings, files: dict[str, Any], images: dict[str, int]) -> None:
        self.store, self.settings = store, settings
        self.paths: dict[str, str | None] = {path: row.image for path, row in files.items()}
        self.present = images  # whether each image is known to have a file
        self.stamps: dict[str, Stamp] = {}
        self.done, self.total = 0, 0
        self._alike: Alike | None = None
        self._kept: dict[str, str] = {}

    def add(self, facts: Sequence[FileFacts]) -> None:
        """Store one batch. What takes time comes before the transaction, since labels wait for that."""
        rows = self._new_rows(facts)
        back = [each.image for each in facts if each.image and self.present.get(each.image) == 0]
        lost = [old for old in (self.paths.get(each.path) for each in facts) if old]
        with self.store.writing() as connection:
            insert_rows(connection, db.images, _Image._fields, rows)
            add_counts(connection, Counter({"images": len(rows), "open": len(rows)}))
            self._store_files(connection, facts)
            set_presence(connection, [*back, *lost])
            refresh(connection, [*back, *lost, *_with_events(connection, rows)], self.settings.overlap)
            _write_progress(connection, self.done + len(facts), self.total)
        self.done += len(facts)
        self.paths.update({each.path: each.image for each in facts})
        self.present.update(dict.fromkeys(lost, 0))  # or 1, if another file is left: then nothing changes
        self.present.update({each.image: 1 for each in facts if each.image})

    def drop(self, paths: Sequence[str]) -> None:
        """Forget files that are gone; their images keep their labels."""
        for part in chunks(paths):
            with self.store.writing() as connection:
                connection.execute(delete(db.files).where(db.files.c.path.in_(part)))
                lost = [image for image in (self.paths[path] for path in part) if image]
                set_presence(connection, lost)
                refresh(connection, lost, self.settings.overlap)

    def _new_rows(self, facts: Sequence[FileFacts]) -> list[_Image]:
        rows: dict[str, _Image] = {}
        for each in facts:
            if each.image and each.image not in self.present and each.image not in rows:
                rows[each.image] = self._row(each, each.image)
        near = [{"image": row.id, "near": row.near} for row in rows.values() if row.near != row.id]
        new = [row for row in near if self._kept.get(row["image"]) != row["near"]]
        if new:
            append_lines(self.settings.groups, new)
        return list(rows.values())

    def _row(self, facts: FileFacts, image: str) -> _Image:
        near = self._group(image, facts.phash)
        audit = is_audit_group(self.settings.seed, near, self.settings.audit_share)
        order = rank(self.settings.seed, "order", image)
        return _Image(image, facts.path, facts.width, facts.height, facts.phash, near, order, int(audit))

    def _group(self, image: str, phash: str) -> str:
        if self._alike is None:
            c = db.images.c
            with self.store.reading() as connection:
                leaders = connection.execute(select(c.id, c.phash).where(c.near == c.id))
                self._alike = Alike((row.id, row.phash) for row in leaders)
            cut_lines(self.settings.groups)  # a kill may have left a torn last line
            self._kept = {row["image"]: row["near"] for row in read_lines(self.settings.groups)}
        return self._kept.get(image) or self._alike.group(image, phash)

    def _store_files(self, connection: Connection, facts: Sequence[FileFacts]) -> None:
        for part in chunks([each.path for each in facts if each.path in self.paths]):
            connection.execute(delete(db.files).where(db.files.c.path.in_(part)))
        names = ("path", "image", "size", "mtime", "reason")
        rows = [(each.path, each.image, *self.stamps[each.path], each.reason) for each in facts]
        insert_rows(connection, db.files, names, rows)


def is_audit_group(seed: int, near: str, share: float) -> bool:
    """Tell whether a group of near-duplicates is kept for measuring: a pure function, so it never changes."""
    return fraction(seed, "audit", near) < share


def _with_events(connection: Connection, rows: Sequence[_Image]) -> list[str]:
    """Return the images that were answered before they were indexed: after a rebuild, or merged from elsewhere."""
    found: list[str] = []
    image = db.events.c.image
    for part in chunks([row.id for row in rows]):
        found += connection.execute(select(image).where(image.in_(part)).distinct()).scalars()
    return found


def set_presence(connection: Connection, images: Sequence[str]) -> None:
    """Write down whether images still have a file, and the name of their first one."""
    for image in sorted(set(images)):
        paths = connection.execute(select(db.files.c.path).where(db.files.c.image == image)).scalars().all()
        values = {"present": 1, "name": min(paths)} if paths else {"present": 0}
        connection.execute(update(db.images).where(db.images.c.id == image).values(values))


def _report(store: Store, before: set[str], bad: list[BadFile], passed_by: int) -> IndexReport:
    with store.reading() as connection:
        files = connection.execute(select(db.files.c.path, db.files.c.image, db.files.c.reason)).all()
        near = connection.execute(select(db.images.c.id).where(db.images.c.near != db.images.c.id)).scalars().all()
        gone = connection.execute(
            select(db.images.c.name)
            .join(db.current, db.current.c.image == db.images.c.id)
            .where(db.images.c.present == 0)
        ).scalars()
        there = {row.path for row in files}
        lost = sorted(gone)
    used = {row.image for row in files if row.image}
    return IndexReport(
        images=len(used),
        files=len(files),
        new=len(used - before),
        duplicates=sum(row.image is not None for row in files) - len(used),
        near=len(near),
        bad=[*bad, *(BadFile(printable(row.path), row.reason) for row in files if row.reason)],
        changed=[name for name in lost if name in there],
        missing=[name for name in lost if name not in there],
        passed_by=passed_by,
    )


def _write_progress(connection: Connection, done: int, total: int) -> None:
    """Write down how far an index is, for the page."""
    value = json.dumps([done, total])
    if not connection.execute(update(db.meta).where(db.meta.c.key == "index").values(value=value)).rowcount:
        connection.execute(insert(db.meta).values(key="index", value=value))


def read_progress(connection: Connection) -> tuple[int, int]:
    """Return how many of how many new files the last index has looked at."""
    found = connection.execute(select(db.meta.c.value).where(db.meta.c.key == "index")).scalar()
    done, total = json.loads(found) if found else (0, 0)
    return done, total
