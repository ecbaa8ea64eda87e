"""Features of images: those on disk are read, the missing ones are computed once and kept.

Every core decodes and computes a batch of its own: threads that share a batch wait for each other, and spin while they wait.
On a Ray cluster a task computes a block. It brings its images, or the names of photos in a folder that all nodes share. One
process writes the vectors, in order, so the file is the same byte for byte.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mma.children import cores
from mma.data.cache import data_root
from mma.data.images import KEY_BYTES, as_strings
from mma.data.photos import quiet_decoders
from mma.errors import UserError
from mma.extensions import VARIABLE, use_inherited
from mma.features.backbone import Backbone, import_extra
from mma.features.inputs import ImageSource, Rows, StoredViews
from mma.features.table import parse_backbone, unit
from mma.files import append_bytes, explain_write_errors, locked, read_json, write_atomically
from mma.text import did_you_mean, first_line

BATCH = 32  # images a network sees at a time
AHEAD = 2  # batches that may wait to be used, beside those in work
BLOCK = 1_024  # rows written at a time, and what a task on a cluster computes
BLOCKS_AHEAD = 2  # blocks under way for each core of a cluster: enough to keep all busy, few enough to fit into memory
RETRIES = 3  # of a block whose worker died
CHUNK = 16_384  # rows read at a time when many are walked
AVERAGED = 131_072  # images that the mean is taken over, at most
FORMAT = 1  # of the files
WIDEST = 100_000_000  # numbers of a vector: more is a damaged file
PATIENCE = 60.0  # seconds to wait for another process that writes
PLAIN = StoredViews()
Engine = Literal["local", "ray"]
T = TypeVar("T")
R = TypeVar("R")
Keys = NDArray[np.uint8]
Values = NDArray[np.float16]


@dataclass(frozen=True)
class FeatureProgress:
    """How far it is. `seconds_left` is an estimate; None before there is one."""

    done: int
    total: int
    seconds_left: float | None


@dataclass(frozen=True, eq=False)
class Centring:
    """The mean of a pool. Calling it centres vectors on it and scales them to length 1."""

    mean: NDArray[np.float32]  # (D,)

    def __call__(self, values: NDArray[np.float16] | NDArray[np.float32]) -> NDArray[np.float32]:
        """Return vectors of length 1; those of length 0 stay. (..., D)"""
        return unit(values.astype(np.float32) - self.mean)


@dataclass(frozen=True, eq=False)
class Features:
    """Vectors of images, memory-mapped: row `n` of the images is row `rows[n]` of the file."""

    stored: Values = field(repr=False)  # (M, views, D)
    rows: Rows = field(repr=False)  # (N,)
    keys: Keys = field(repr=False)  # (N, 32)
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
    def values(self) -> Values:
        """All vectors in the images' order: mapped where the file has the same order, else a copy. (N, views, D)"""
        first = int(self.rows[0]) if len(self.rows) else 0
        if np.array_equal(self.rows, np.arange(first, first + len(self.rows))):
            return self.stored[first : first + len(self.rows)]
        return self.stored[self.rows]

    def take(self, index: Rows, view: int | Rows = 0) -> Values:
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
    engine: str = "local",
    threads: int | None = None,
    root: Path | None = None,
) -> Features:
    """Return the features of all images of a source; what is on disk already is not computed again.

    Call it again after a kill: it goes on where it was.
    """
    backbone = (parse_backbone(backbone) if isinstance(backbone, str) else backbone).resolve()
    if len(backbone.parts) > 1:
        several = backbone.label()
        raise UserError(f"{several} are several backbones, and features are stored of one. Ask for each of them.")
    store, keys = open_store(source, backbone, views, root), as_strings(source.keys)
    stored = as_strings(store.keys())
    first = np.sort(np.unique(keys, return_index=True)[1])  # each image once, in the images' order
    missing = first[~np.isin(keys[first], stored)].astype(np.int64)
    if len(missing):
        if engine not in get_args(Engine):
            hint = did_you_mean(engine, get_args(Engine))
            raise UserError(f"there is no engine '{engine}'.{hint} Choose local or ray.")
        batches = compute_on_ray(source, backbone, missing, views) if engine == "ray" else None
        appender, begin, done, waiting = Appender(store, len(stored)), time.monotonic(), 0, list[Values]()
        with quiet_decoders():
            for batch in batches or compute(source, backbone, missing, views, threads=threads):
                waiting.append(batch)
                done += len(batch)
                if (ready := sum(map(len, waiting))) >= BLOCK or done == len(missing):
                    appender.append(source.keys[missing[done - ready : done]], np.concatenate(waiting))
                    waiting = []
                if progress is not None:
                    passed = time.monotonic() - begin
                    progress(FeatureProgress(done, len(missing), passed / done * (len(missing) - done)))
        stored = as_strings(store.keys())
    order = np.argsort(stored, kind="stable")
    rows = order[np.searchsorted(stored, keys, sorter=order)].astype(np.int64)
    assert bool((stored[rows] == keys).all())
    return Features(store.values(), rows, source.keys, backbone.digest())


@dataclass(frozen=True)
class FeatureStore:
    """The folder of one backbone's features of one kind of images and views: one row per image, appended and never changed.

    `values.bin` holds float16 rows, `keys.bin` the key of each. Values are on disk before their keys, so a row that has a key
    is whole. A kill leaves at most rows without keys, or half of one; the next writer cuts them off.
    """

    folder: Path
    views: int  # of each image

    def width(self) -> int | None:
        """Return how many numbers a view has; None before the first row."""
        path = self.folder / "shape.json"
        if not path.exists():
            return None
        width = read_json(path).get("width")
        if type(width) is not int or not 0 < width <= WIDEST:
            raise UserError(f"{path} is damaged. Delete the folder to compute again.")
        return width

    def row_bytes(self) -> dict[Path, int]:
        """Return how many bytes a row takes in each file that is there."""
        sizes = {"values.bin": 2 * (self.width() or 0) * self.views, "keys.bin": KEY_BYTES}
        return {self.folder / name: size for name, size in sizes.items() if (self.folder / name).exists()}

    def count(self) -> int:
        """Count the whole rows."""
        files = self.row_bytes() if self.width() else {}
        return min(path.stat().st_size // size for path, size in files.items()) if len(files) == 2 else 0

    def keys(self, start: int = 0) -> Keys:
        """Read the keys of all rows from `start` on. (M, 32)"""
        count = self.count() - start
        if count <= 0:
            return np.zeros((0, KEY_BYTES), np.uint8)
        read = np.fromfile(self.folder / "keys.bin", np.uint8, count * KEY_BYTES, offset=start * KEY_BYTES)
        return read.reshape(-1, KEY_BYTES)

    def values(self) -> Values:
        """Map the values of all rows; nothing is read before it is used. (M, views, width)"""
        shape = self.count(), self.views, self.width() or 0
        if not shape[0]:
            return np.zeros(shape, np.float16)
        return np.memmap(self.folder / "values.bin", np.float16, "r", shape=shape)

    def write(self, name: str, content: dict[str, object]) -> None:
        """Write a small file of names and values."""
        write_atomically(self.folder / name, json.dumps(content, indent=1, sort_keys=True) + "\n")

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock, after waiting for others: they hold it only while they append."""
        busy = f"another process has been writing to {self.folder} for {PATIENCE:.0f} s"
        return locked(self.folder / "lock", f"{busy}. Wait for it, then run this again.", PATIENCE)


def open_store(source: ImageSource, backbone: Backbone, views: StoredViews, root: Path | None = None) -> FeatureStore:
    """Return the place of these features, made if it is not there."""
    digest = backbone.digest()
    folder = (root or data_root()) / "features" / f"{digest[:32]}-{source.content}-{views.label()}"
    store = FeatureStore(folder, len(views))
    about = {"backbone": backbone.label(), "digest": digest, "content": source.content, "views": len(views)}
    with explain_write_errors(folder, "the same command"):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "meta.json").exists():
            with store.locked():
                store.write("meta.json", {"format": FORMAT, **about})
    stored = read_json(folder / "meta.json")
    if stored.get("format") != FORMAT:
        raise UserError(
            f"{folder} has format {stored.get('format')}, and this mma reads {FORMAT}. Delete the folder to compute again."
        )
    if any(stored.get(name) != about[name] for name in ("digest", "content", "views")):  # the folder is named by them
        raise UserError(f"{folder / 'meta.json'} is damaged. Delete the folder to compute again.")
    return store


class Appender:
    """Adds the rows that one caller chose when there were `known` rows. What others add meanwhile is not added again."""

    def __init__(self, store: FeatureStore, known: int) -> None:
        self.store, self.known = store, known
        self.others: set[bytes] = set()  # keys that others added since: any of them may be of a row still to come

    def append(self, keys: Keys, values: Values) -> None:
        """Add rows; they are on disk when this returns. What a kill left unfinished is removed."""
        store, width = self.store, values.shape[2]
        with explain_write_errors(store.folder, "the same command"), store.locked():
            stored_width = store.width()
            if stored_width is None:
                store.write("shape.json", {"width": width})
            elif stored_width != width:
                raise UserError(
                    f"the backbone returns {width} numbers, and {store.folder} holds rows of {stored_width}. The code of the "
                    "backbone has changed: raise its version."
                )
            count = store.count()
            for path, size in store.row_bytes().items():
                if path.stat().st_size > count * size:
                    os.truncate(path, count * size)
            self.others |= {bytes(key) for key in store.keys(self.known)}
            new = np.array([bytes(key) not in self.others for key in keys], np.bool_)
            append_bytes(store.folder / "values.bin", np.ascontiguousarray(values[new]).tobytes())
            append_bytes(store.folder / "keys.bin", np.ascontiguousarray(keys[new]).tobytes())
            self.known = count + int(new.sum())


def compute_block(
    source: ImageSource, backbone: Backbone, rows: Rows, views: StoredViews = PLAIN, *, threads: int | None = None
) -> Values:
    """Return the features of some images: the same bytes anywhere, whatever images one is computed with."""
    with quiet_decoders():
        parts = list(compute(source, backbone, rows, views, threads=threads))
    return np.concatenate(parts) if parts else np.zeros((0, len(views), 0), np.float16)  # (N, views, D)


def compute(
    source: ImageSource, backbone: Backbone, rows: Rows, views: StoredViews = PLAIN, *, threads: int | None = None
) -> Iterator[Values]:
    """Return the features of some images, a batch at a time, in order. `threads` defaults to the cores we may use."""
    network = backbone.load()
    batches = (rows[start : start + BATCH] for start in range(0, len(rows), BATCH))
    return on_every_core(lambda batch: embed(backbone, network, source, batch, views), batches, threads)


def on_every_core(work: Callable[[T], R], items: Iterable[T], threads: int | None = None) -> Iterator[R]:
    """Yield what `work` returns for each item, in order. Every core works on one item at a time, with one torch thread.

    No more items are taken than are needed to keep all cores busy.
    """
    workers, before = threads or cores(), torch.get_num_threads()
    # The number of threads belongs to the thread that sets it, so the caller keeps its own.
    pool = ThreadPoolExecutor(workers, "mma", torch.set_num_threads, (1,))
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= workers + AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(before)  # threads that start later begin with the number set last


@torch.inference_mode()
def embed(backbone: Backbone, network: nn.Module, source: ImageSource, batch: Rows, views: StoredViews) -> Values:
    """Decode one batch and return the features of all its views. (B, views, D)"""
    # A network may round differently for a batch of another size. Filled up, every batch has the same.
    filled = np.resize(np.arange(len(batch)), BATCH)
    images = torch.from_numpy(source.decode(batch, backbone.side)[filled])
    if images.dtype != torch.uint8 or tuple(images.shape[1:]) != (backbone.side, backbone.side, 3):
        got, side = f"{str(images.dtype).removeprefix('torch.')} of shape {tuple(images.shape)}", backbone.side
        raise UserError(f"this backbone takes images as uint8 of shape (B, {side}, {side}, 3), not {got}.")
    batches = views.make(images, source.keys[batch][filled])
    vectors = torch.stack([check_vectors(network(images), backbone) for images in batches], 1)
    return vectors[: len(batch)].to(torch.float16).numpy()


def check_vectors(vectors: Tensor, backbone: Backbone) -> Tensor:
    """Refuse what is not one vector per image, or does not fit into float16."""
    if vectors.ndim != 2 or len(vectors) != BATCH:
        raise UserError(
            f"the backbone {backbone.label()} returns shape {tuple(vectors.shape)} for {BATCH} images, and must return one "
            f"vector for each: ({BATCH}, D)."
        )
    if not bool((vectors.abs() <= torch.finfo(torch.float16).max).all()):  # also False for NaN
        raise UserError(
            f"the backbone {backbone.label()} returns numbers that are not finite or beyond 65504. Its weights may be damaged."
        )
    return vectors


# Of a cluster that mma starts. Ray may hand a task to a worker that it just ends as idle; the task is lost after six minutes.
OWN_CLUSTER = {"include_dashboard": False, "_system_config": {"kill_idle_workers_interval_ms": 0}}


def compute_on_ray(source: ImageSource, backbone: Backbone, rows: Rows, views: StoredViews) -> Iterator[Values]:
    """Yield the features of some images, block by block, on the cluster joined before, that at $RAY_ADDRESS, or a new one."""
    ray = import_extra("ray", "--engine ray needs Ray", "ray")
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        options: dict[str, Any] = {"address": address} if address else {"address": "local", **OWN_CLUSTER}
        ray.init(log_to_driver=False, logging_level="error", **options)
    used = {"env_vars": {VARIABLE: os.environ[VARIABLE]}} if os.environ.get(VARIABLE) else None
    # `retry_exceptions=False`: only a death is tried again; an error in an image would come again.
    task = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False, runtime_env=used)(run_block)
    limit = BLOCKS_AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting: deque[Any] = deque()
    try:
        for start in range(0, len(rows), BLOCK):
            block = source.take(rows[start : start + BLOCK])
            waiting.append(task.remote(block, backbone.model_dump_json(), type(backbone), views))
            if len(waiting) >= limit:
                yield ray.get(waiting.popleft())
        while waiting:
            yield ray.get(waiting.popleft())
    except ray.exceptions.RayTaskError as error:
        cause = error.as_instanceof_cause()
        raise (UserError(str(error.cause)) if isinstance(error.cause, UserError) else cause) from None
    except ray.exceptions.RayError as error:
        raise UserError(
            f"Ray gave up on a block of features after {RETRIES} retries: {first_line(error)}. What was "
            "computed is stored; run the same command again."
        ) from error
    finally:
        for reference in waiting:
            ray.cancel(reference)


def run_block(source: ImageSource, settings: str, kind: type[Backbone], views: StoredViews) -> Values:
    """Compute one block on some node, with one thread."""
    use_inherited()
    return compute_block(source, kind.model_validate_json(settings), np.arange(len(source)), views, threads=1)
