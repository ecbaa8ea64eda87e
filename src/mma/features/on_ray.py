"""Blocks of features computed on a Ray cluster. Ray is imported on use.

A task brings its images (or the names of its photos, on a folder that all nodes share) and returns its vectors. One process
writes them, in order, so the file is the same byte for byte. A task that loses its worker is begun again elsewhere.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.extensions import VARIABLE, use_inherited
from mma.features.backbone import Backbone
from mma.features.compute import compute_block
from mma.features.sources import ImageSource, Rows
from mma.features.views import StoredViews

RETRIES = 3
AHEAD = 2  # blocks in flight for each core: enough to keep all busy, few enough to fit into memory


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
    limit = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
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
        raise (ValueError(str(error.cause)) if isinstance(error.cause, ValueError) else cause) from None
    except ray.exceptions.RayError as error:
        raise ValueError(
            f"Ray gave up on a block of features after {RETRIES} retries: {str(error).strip().splitlines()[0]}. What was "
            "computed is stored; run the same command again."
        ) from error
    return found


def _connect() -> Any:
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise ValueError("--engine ray needs Ray: pip install 'mma-learn[ray]'") from None
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        options = {"address": address} if address else {"address": "local", "include_dashboard": False}
        ray.init(log_to_driver=False, logging_level="error", **options)
    return ray
