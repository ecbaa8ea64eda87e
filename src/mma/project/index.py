"""Index a folder of images in place: look at what is new or changed, keep every label, report what is wrong."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
from mma.project.store import Store
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
        before = set(connection.execute(select(db.images.c.id)).scalars())
    if known and not names:
        raise ValueError(
            f"{printable(str(root))} is empty, and there were {len(known):,} files. Is its disk connected? Nothing was changed."
        )
    stamps = {name: _stamp(os.path.join(root, name)) for name in names}
    fresh = [name for name in names if name not in known or (known[name].size, known[name].mtime) != stamps[name]]
    indexer = _Indexer(store, settings, stamps, {path: row.image for path, row in known.items()})
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


class _Indexer:
    """Writes what was found, a batch per transaction, so that labeling can begin with the first one."""

    def __init__(
        self, store: Store, settings: IndexSettings, stamps: dict[str, Stamp], paths: dict[str, str | None]
    ) -> None:
        self.store, self.settings, self.stamps, self.paths = store, settings, stamps, paths
        self.done, self.total = 0, 0
        self._alike: Alike | None = None
        self._kept: dict[str, str] = {}

    def add(self, facts: Sequence[FileFacts]) -> None:
        """Store one batch. What takes time comes before the transaction, since labels wait for that."""
        with self.store.reading() as connection:
            known = _find_known(connection, [each.image for each in facts if each.image])
            rows = self._new_rows(connection, facts, known)
        with self.store.writing() as connection:
            if rows:
                connection.execute(insert(db.images), rows)
                add_counts(connection, Counter({"images": len(rows), "open": len(rows)}))
            self._store_files(connection, facts)  # before these paths count as known
            back = [image for image, present in known.items() if not present]
            lost = [old for old in (self.paths.get(each.path) for each in facts) if old]
            self.paths.update({each.path: each.image for each in facts})
            set_presence(connection, [*back, *lost])
            refresh(connection, [*back, *lost, *_with_events(connection, rows)], self.settings.overlap)
            self.done += len(facts)
            _write_progress(connection, self.done, self.total)

    def drop(self, paths: Sequence[str]) -> None:
        """Forget files that are gone; their images keep their labels."""
        for part in chunks(paths):
            with self.store.writing() as connection:
                connection.execute(delete(db.files).where(db.files.c.path.in_(part)))
                lost = [image for image in (self.paths[path] for path in part) if image]
                set_presence(connection, lost)
                refresh(connection, lost, self.settings.overlap)

    def _new_rows(
        self, connection: Connection, facts: Sequence[FileFacts], known: dict[str, bool]
    ) -> list[dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        for each in facts:
            if each.image and each.image not in known and each.image not in rows:
                rows[each.image] = self._row(connection, each, each.image)
        near = [{"image": row["id"], "near": row["near"]} for row in rows.values() if row["near"] != row["id"]]
        new = [row for row in near if self._kept.get(row["image"]) != row["near"]]
        if new:
            append_lines(self.settings.groups, new)
        return list(rows.values())

    def _row(self, connection: Connection, facts: FileFacts, image: str) -> dict[str, Any]:
        near = self._group(connection, image, facts.phash)
        return {
            "id": image,
            "name": facts.path,
            "width": facts.width,
            "height": facts.height,
            "phash": facts.phash,
            "near": near,
            "rank": rank(self.settings.seed, "order", image),
            "audit": int(is_audit_group(self.settings.seed, near, self.settings.audit_share)),
            "present": 1,
            "open": 1,
            "answers": 0,
            "deferred": 0,
        }

    def _group(self, connection: Connection, image: str, phash: str) -> str:
        if self._alike is None:
            c = db.images.c
            leaders = connection.execute(select(c.id, c.phash).where(c.near == c.id))
            self._alike = Alike((row.id, row.phash) for row in leaders)
            cut_lines(self.settings.groups)  # a kill may have left a torn last line
            self._kept = {row["image"]: row["near"] for row in read_lines(self.settings.groups)}
        return self._kept.get(image) or self._alike.group(image, phash)

    def _store_files(self, connection: Connection, facts: Sequence[FileFacts]) -> None:
        if old := [each.path for each in facts if each.path in self.paths]:
            connection.execute(delete(db.files).where(db.files.c.path.in_(old)))
        rows = [
            {
                "path": each.path,
                "image": each.image,
                "size": self.stamps[each.path][0],
                "mtime": self.stamps[each.path][1],
                "reason": each.reason,
            }
            for each in facts
        ]
        if rows:
            connection.execute(insert(db.files), rows)


def is_audit_group(seed: int, near: str, share: float) -> bool:
    """Tell whether a group of near-duplicates is kept for measuring: a pure function, so it never changes."""
    return fraction(seed, "audit", near) < share


def _find_known(connection: Connection, images: Iterable[str]) -> dict[str, bool]:
    c = db.images.c
    rows = connection.execute(select(c.id, c.present).where(c.id.in_(sorted(set(images)))))
    return {row.id: bool(row.present) for row in rows}


def _with_events(connection: Connection, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the images that were answered before they were indexed: after a rebuild, or merged from elsewhere."""
    ids = [row["id"] for row in rows]
    return list(connection.execute(select(db.events.c.image).where(db.events.c.image.in_(ids)).distinct()).scalars())


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
