"""Features of images: those on disk, and the missing ones computed once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mma.data.cache import data_root
from mma.data.photos import quiet_decoders
from mma.features.backbone import Backbone
from mma.features.compute import PLAIN, compute
from mma.features.joined import Joined, join, unit
from mma.features.sources import ImageSource, Rows
from mma.features.store import Appender, FeatureStore, as_strings
from mma.features.table import parse_backbone
from mma.features.views import StoredViews
from mma.text import did_you_mean

BLOCK = 1_024  # rows written at a time, and what a task on a cluster computes
CHUNK = 16_384  # rows read at a time when many are walked
AVERAGED = 131_072  # images that the mean is taken over, at most
Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class FeatureProgress:
    """How far it is. `seconds_left` is an estimate; None before there is one."""

    done: int
    total: int
    seconds_left: float | None


@dataclass(frozen=True, eq=False)
class Centring:
    """The mean of a pool. Calling it centres vectors on it and scales them to length 1. Store `mean` with a run."""

    mean: NDArray[np.float32]  # (D,)

    def __call__(self, values: NDArray[np.float16] | NDArray[np.float32]) -> NDArray[np.float32]:
        """Return vectors of length 1. (..., D)"""
        return unit(values.astype(np.float32) - self.mean)


@dataclass(frozen=True, eq=False)
class Features:
    """Vectors of images, memory-mapped: row `n` of the images is row `rows[n]` of the file."""

    stored: NDArray[np.float16] = field(repr=False)  # (M, views, D)
    rows: Rows = field(repr=False)  # (N,)
    keys: NDArray[np.uint8] = field(repr=False)  # (N, 32)
    digest: str  # of the backbone

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def views(self) -> int:
        """How many views of each image there are."""
        return int(self.stored.shape[1])

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return int(self.stored.shape[2])

    @property
    def values(self) -> NDArray[np.float16]:
        """All vectors in the images' order: mapped where the file has the same order, else a copy. (N, views, D)"""
        if not len(self.rows):
            return self.stored[:0]
        first = int(self.rows[0])
        if np.array_equal(self.rows, np.arange(first, first + len(self.rows))):
            return self.stored[first : first + len(self.rows)]
        return self.stored[self.rows]

    def take(self, index: Rows, view: int | Rows = 0) -> NDArray[np.float16]:
        """Read one view of some images, the same for all or one for each. (B, D)"""
        return np.asarray(self.stored[self.rows[index], view])

    def centring(self) -> Centring:
        """Return the mean over the plain images, at most AVERAGED of them, spread evenly."""
        total, count = np.zeros(self.width, np.float64), min(len(self), AVERAGED)
        for start in range(0, count, CHUNK):
            rows = np.arange(start, min(start + CHUNK, count)) * len(self) // count
            total += self.take(rows).sum(axis=0, dtype=np.float64)
        return Centring((total / max(count, 1)).astype(np.float32))


def features(
    source: ImageSource,
    backbone: Backbone | str,
    views: StoredViews = PLAIN,
    *,
    progress: Callable[[FeatureProgress], None] | None = None,
    engine: Engine = "local",
    threads: int | None = None,
    root: Path | None = None,
) -> Features:
    """Return the features of all images of a source; what is on disk already is not computed again.

    Call it again after a kill: it goes on where it was.
    """
    backbone = (parse_backbone(backbone) if isinstance(backbone, str) else backbone).resolve()
    store = open_store(source, backbone, views, root)
    stored = store.keys()
    missing = missing_rows(source.keys, stored)
    if len(missing):
        if isinstance(backbone, Joined):
            parts = [
                features(source, part, views, progress=progress, engine=engine, threads=threads, root=root)
                for part in backbone.parts
            ]
            blocks = _joined_blocks(parts, missing)
        else:
            blocks = _blocks(source, backbone, missing, views, engine, threads)
        with quiet_decoders():
            _fill(Appender(store, len(stored)), source.keys, missing, blocks, progress)
        stored = store.keys()
    return Features(store.values(), find_rows(source.keys, stored), source.keys, backbone.digest())


def open_store(source: ImageSource, backbone: Backbone, views: StoredViews, root: Path | None = None) -> FeatureStore:
    """Return the place of these features, made if it is not there."""
    digest = backbone.digest()
    store = FeatureStore((root or data_root()) / "features" / f"{digest[:32]}-{source.content}-{views.label()}")
    store.create({"backbone": backbone.label(), "digest": digest, "content": source.content, "views": len(views)})
    return store


def missing_rows(keys: NDArray[np.uint8], stored: NDArray[np.uint8]) -> Rows:
    """Return the first row of each image that is not stored, in the images' order."""
    _, first = np.unique(as_strings(keys), return_index=True)
    first = np.sort(first)
    return first[~np.isin(as_strings(keys[first]), as_strings(stored))].astype(np.int64)


def find_rows(keys: NDArray[np.uint8], stored: NDArray[np.uint8]) -> Rows:
    """Return where each image is stored; every one must be."""
    order = np.argsort(as_strings(stored), kind="stable")
    place = np.searchsorted(as_strings(stored), as_strings(keys), sorter=order)
    rows = order[place].astype(np.int64)
    assert len(keys) == 0 or bool((stored[rows] == keys).all())
    return rows


def _fill(
    appender: Appender,
    keys: NDArray[np.uint8],
    missing: Rows,
    batches: Iterable[NDArray[np.float16]],
    progress: Callable[[FeatureProgress], None] | None,
) -> None:
    """Write batches as they come, in whole blocks, and report."""
    begin, done, written = time.monotonic(), 0, 0
    waiting: list[NDArray[np.float16]] = []
    for batch in batches:
        waiting.append(batch)
        done += len(batch)
        if done - written >= BLOCK or done == len(missing):
            appender.append(keys[missing[written:done]], np.concatenate(waiting))
            waiting, written = [], done
        if progress is not None:
            passed = time.monotonic() - begin
            progress(FeatureProgress(done, len(missing), passed / done * (len(missing) - done)))


def _blocks(
    source: ImageSource, backbone: Backbone, missing: Rows, views: StoredViews, engine: Engine, threads: int | None
) -> Iterator[NDArray[np.float16]]:
    if engine not in get_args(Engine):
        raise ValueError(f"there is no engine '{engine}'.{did_you_mean(engine, get_args(Engine))} Choose local or ray.")
    if engine == "ray":
        from mma.features.on_ray import compute_on_ray

        return compute_on_ray(source, backbone, [missing[s : s + BLOCK] for s in range(0, len(missing), BLOCK)], views)
    return compute(source, backbone, missing, views, threads=threads)


def _joined_blocks(parts: list[Features], missing: Rows) -> Iterator[NDArray[np.float16]]:
    """Yield joined rows from the stored parts: no network runs twice."""
    for start in range(0, len(missing), BLOCK):
        rows = missing[start : start + BLOCK]
        yield join([np.asarray(part.stored[part.rows[rows]]) for part in parts])
