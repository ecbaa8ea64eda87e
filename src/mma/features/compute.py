"""From images to float16 vectors. Every core decodes and computes a batch of its own.

One torch thread per batch: threads that share a batch wait for each other, and spin while they wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mma.data.photos import quiet_decoders
from mma.features.backbone import Backbone, check_images
from mma.features.joined import Joined, join
from mma.features.sources import ImageSource, Rows
from mma.features.views import StoredViews
from mma.machine import cores

BATCH = 32  # images a network sees at a time
AHEAD = 2  # batches that may wait to be written, beside those in work
PLAIN = StoredViews()
Network = tuple[Backbone, nn.Module]


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
    parts = backbone.parts if isinstance(backbone, Joined) else (backbone,)
    networks = [(part, part.load()) for part in parts]
    workers, before = threads or cores(), torch.get_num_threads()

    def work(batch: Rows) -> NDArray[np.float16]:
        found = [embed(network, source, batch, views) for network in networks]
        return join(found) if isinstance(backbone, Joined) else found[0]

    # The number of threads belongs to the thread that sets it, so the caller keeps its own.
    pool = ThreadPoolExecutor(workers, "features", torch.set_num_threads, (1,))
    waiting: deque[Future[NDArray[np.float16]]] = deque()
    try:
        for start in range(0, len(rows), BATCH):
            waiting.append(pool.submit(work, rows[start : start + BATCH]))
            if len(waiting) >= workers + AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(before)  # threads that start later begin with the number set last


@torch.inference_mode()
def embed(network: Network, source: ImageSource, batch: Rows, views: StoredViews) -> NDArray[np.float16]:
    """Decode one batch and return the features of all its views. (B, views, D)"""
    backbone, module = network
    # A network may round differently for a batch of another size. Filled up, every batch has the same.
    filled = np.resize(np.arange(len(batch)), BATCH)
    images = torch.from_numpy(source.decode(batch, backbone.side)[filled])
    check_images(images, backbone.side)
    made = views.make(images, source.keys[batch][filled])
    vectors = torch.stack([check_vectors(module(view), backbone) for view in made], 1)
    return vectors[: len(batch)].to(torch.float16).numpy()


def check_vectors(vectors: Tensor, backbone: Backbone) -> Tensor:
    """Refuse what is not one vector per image, or does not fit into float16."""
    if vectors.ndim != 2 or len(vectors) != BATCH:
        raise ValueError(
            f"the backbone {backbone.label()} returns shape {tuple(vectors.shape)} for {BATCH} images, and must return one "
            f"vector for each: ({BATCH}, D)."
        )
    if not bool((vectors.abs() <= torch.finfo(torch.float16).max).all()):  # also False for NaN
        raise ValueError(
            f"the backbone {backbone.label()} returns numbers that are not finite or beyond 65504. Its weights may be damaged."
        )
    return vectors
