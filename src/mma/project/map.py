"""The pool in two dimensions: images that look alike to the backbone lie near each other. Run in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mma.files import write_atomically

FILE = "map.safetensors"  # in the project's cache
WHOLE = 3_000  # images that t-SNE places among each other; of more, the rest lies beside the nearest of these
WIDTH = 50  # principal components that it looks at
NEAREST = 3
BLOCK = 4_096
NICE = 15
Floats = NDArray[np.floating[Any]]


def read_map(folder: Path) -> tuple[list[str], Floats]:
    """Return which images of a project are placed, and where, between 0 and 1; nothing before there is a map."""
    try:
        found = load((folder / "cache" / FILE).read_bytes())
        return [bytes(key).hex() for key in found["keys"]], found["places"]
    except (OSError, KeyError, SafetensorError):
        return [], np.zeros((0, 2), np.float32)


def place_vectors(vectors: Floats, seed: int = 0) -> Floats:
    """Place vectors in the unit square: principal components, then t-SNE of at most WHOLE of them. (N, D) -> (N, 2)"""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    many = len(vectors)
    if many < 8:
        return np.column_stack([np.linspace(0, 1, many), np.full(many, 0.5)]).astype(np.float32)
    x = (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).astype(np.float32)
    some = np.sort(np.random.default_rng(seed).permutation(many)[:WHOLE])
    pca = PCA(min(WIDTH, len(some) - 1, x.shape[1]), random_state=seed).fit(x[some])
    x = np.concatenate([pca.transform(x[start : start + BLOCK]) for start in range(0, many, BLOCK)])
    perplexity = min(30.0, (len(some) - 1) / 4)
    known = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(x[some])
    places = np.empty((many, 2), np.float32)
    for start in range(0, many, BLOCK):
        block = x[start : start + BLOCK]
        far = -2 * block @ x[some].T + np.square(x[some]).sum(1)  # (B, WHOLE), but for what is the same in a row
        places[start : start + BLOCK] = known[np.argpartition(far, NEAREST - 1)[:, :NEAREST]].mean(1)
    places[some] = known
    low, high = np.quantile(places, [0.002, 0.998], axis=0)  # a few far away would squeeze the others together
    scaled: Floats = np.clip((places - low) / np.maximum(high - low, 1e-9), 0, 1).astype(np.float32)
    return scaled


def main() -> None:
    """Make the map of one project, of the images whose features are stored. `mma.children` starts it."""
    import torch

    from mma.project import open_project
    from mma.project.worker.features import open_pool

    os.nice(NICE)
    torch.set_num_threads(1)
    project = open_project(Path(sys.argv[1]))
    pool = open_pool(project, [image for image in project.images() if not image.audit])
    places = place_vectors(pool.vectors(np.arange(len(pool))).numpy(), project.settings.seed)
    keys = np.frombuffer(bytes.fromhex("".join(image.id for image in pool.images)), np.uint8).reshape(-1, 32)
    write_atomically(project.folder / "cache" / FILE, save({"keys": keys.copy(), "places": places}))
    project.close()
