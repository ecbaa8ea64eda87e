"""From images to float16 vectors. Every core decodes and computes a batch of its own.

One torch thread per batch: threads that share a batch wait for each other, and spin while they wait.
"""

from __future__ import annotations

import importlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mma.data.cache import data_root
from mma.data.images import as_strings
from mma.data.photos import quiet_decoders
from mma.errors import UserError
from mma.extensions import VARIABLE, use_inherited
from mma.features.backbone import Backbone, check_images
from mma.features.inputs import ImageSource, Rows, StoredViews
from mma.features.store import Appender, FeatureStore
from mma.features.table import parse_backbone, unit
from mma.machine import cores
from mma.text import did_you_mean, first_line, install_hint

BATCH = 32  # images a network sees at a time
AHEAD = 2  # batches that may wait to be written, beside those in work
PLAIN = StoredViews()


def compute_block(
    source: ImageSource, backbone: Backbone, rows: Rows, views: StoredViews = PLAIN, *, threads: int | None = None
) -> NDArray[np.float16]:
    """Return the features of some images. It is what a worker computes on a cluster: the same bytes anywhere.

    The bytes of an image do not depend on the images it is computed with.
    """
    with quiet_decoders():
        parts = list(compute(source, backbone, rows, views, threads=threads))
    return np.concatenate(parts) if parts else np.zeros((0, len(views), 0), np.float16)  # (N, views, D)


def compute(
    source: ImageSource, backbone: Backbone, rows: Rows, views: StoredViews = PLAIN, *, threads: int | None = None
) -> Iterator[NDArray[np.float16]]:
    """Yield the features of some images, a batch at a time, in order. `threads` defaults to the cores we may use."""
    network = backbone.load()
    workers, before = threads or cores(), torch.get_num_threads()

    # The number of threads belongs to the thread that sets it, so the caller keeps its own.
    pool = ThreadPoolExecutor(workers, "features", torch.set_num_threads, (1,))
    waiting: deque[Future[NDArray[np.float16]]] = deque()
    try:
        for start in range(0, len(rows), BATCH):
            waiting.append(pool.submit(embed, backbone, network, source, rows[start : start + BATCH], views))
            if len(waiting) >= workers + AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(before)  # threads that start later begin with the number set last


@torch.inference_mode()
def embed(
    backbone: Backbone, network: nn.Module, source: ImageSource, batch: Rows, views: StoredViews
) -> NDArray[np.float16]:
    """Decode one batch and return the features of all its views. (B, views, D)"""
    # A network may round differently for a batch of another size. Filled up, every batch has the same.
    filled = np.resize(np.arange(len(batch)), BATCH)
    images = torch.from_numpy(source.decode(batch, backbone.side)[filled])
    check_images(images, backbone.side)
    made = views.make(images, source.keys[batch][filled])
    vectors = torch.stack([check_vectors(network(view), backbone) for view in made], 1)
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


# Features of images: those on disk, and the missing ones computed once.

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
    engine: str = "local",
    threads: int | None = None,
    root: Path | None = None,
) -> Features:
    """Return the features of all images of a source; what is on disk already is not computed again.

    Call it again after a kill: it goes on where it was.
    """
    backbone = (parse_backbone(backbone) if isinstance(backbone, str) else backbone).resolve()
    if len(backbone.parts) > 1:
        raise UserError(
            f"{backbone.label()} are several backbones, and features are stored of one. Ask for each of them."
        )
    store = open_store(source, backbone, views, root)
    stored = store.keys()
    missing = missing_rows(source.keys, stored)
    if len(missing):
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
    source: ImageSource, backbone: Backbone, missing: Rows, views: StoredViews, engine: str, threads: int | None
) -> Iterator[NDArray[np.float16]]:
    if engine not in get_args(Engine):
        raise UserError(f"there is no engine '{engine}'.{did_you_mean(engine, get_args(Engine))} Choose local or ray.")
    if engine == "ray":
        return compute_on_ray(source, backbone, [missing[s : s + BLOCK] for s in range(0, len(missing), BLOCK)], views)
    return compute(source, backbone, missing, views, threads=threads)


# Blocks of features computed on a Ray cluster. Ray is imported on use.
# A task brings its images (or the names of its photos, on a folder that all nodes share) and returns its vectors. One process
# writes them, in order, so the file is the same byte for byte. A task that loses its worker is begun again elsewhere.

RETRIES = 3
BLOCKS_AHEAD = 2  # blocks in flight for each core: enough to keep all busy, few enough to fit into memory


def compute_on_ray(
    source: ImageSource, backbone: Backbone, blocks: Sequence[Rows], views: StoredViews
) -> Iterator[NDArray[np.float16]]:
    """Yield the features of each block, in order.

    Uses the cluster this process has joined, or joins the one at $RAY_ADDRESS, or starts one here.
    """
    ray = _connect()
    used = {"env_vars": {VARIABLE: os.environ[VARIABLE]}} if os.environ.get(VARIABLE) else None
    # `retry_exceptions=False`: only a death is tried again; an error in an image would come again.
    task = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False, runtime_env=used)(run_block)
    limit = BLOCKS_AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting: deque[Any] = deque()
    try:
        for rows in blocks:
            waiting.append(task.remote(source.take(rows), backbone.model_dump_json(), type(backbone), views))
            if len(waiting) >= limit:
                yield _result(ray, waiting.popleft())
        while waiting:
            yield _result(ray, waiting.popleft())
    finally:
        for reference in waiting:
            ray.cancel(reference)


def run_block(source: ImageSource, settings: str, kind: type[Backbone], views: StoredViews) -> NDArray[np.float16]:
    """Compute one block on some node, with one thread."""
    use_inherited()
    backbone = kind.model_validate_json(settings)
    return compute_block(source, backbone, np.arange(len(source)), views, threads=1)


def _result(ray: Any, reference: Any) -> NDArray[np.float16]:
    try:
        found: NDArray[np.float16] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.as_instanceof_cause()
        raise (UserError(str(error.cause)) if isinstance(error.cause, UserError) else cause) from None
    except ray.exceptions.RayError as error:
        raise UserError(
            f"Ray gave up on a block of features after {RETRIES} retries: {first_line(error)}. What was "
            "computed is stored; run the same command again."
        ) from error
    return found


def _connect() -> Any:
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise UserError(f"--engine ray needs Ray:  {install_hint('ray')}") from None
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        options = {"address": address} if address else {"address": "local", "include_dashboard": False}
        ray.init(log_to_driver=False, logging_level="error", **options)
    return ray
