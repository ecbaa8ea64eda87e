"""What the teacher makes of images: probabilities, embeddings, accuracy. Batches of its own, no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mma.algorithms import ops
from mma.query import Candidates, Query
from mma.rng import rng
from mma.training.processes import group
from mma.views import Views


def batches(views: Views, index: np.ndarray) -> list[np.ndarray]:
    """Cut an index into pieces for one forward each."""
    return [index[begin : begin + views.chunk] for begin in range(0, len(index), views.chunk)]


@torch.inference_mode()
def probabilities(net: nn.Module, views: Views, index: np.ndarray) -> np.ndarray:
    """Return the class probabilities of the plain images. (N, classes)"""
    parts = [ops.probabilities(net(views.plain(part))) for part in batches(views, index)]
    return torch.cat(parts).cpu().numpy()


def accuracy(net: nn.Module, views: Views, labels: np.ndarray) -> float | None:
    """Return the share of correct answers in percent; None when there is nothing to test on. Processes share the work."""
    known = np.flatnonzero(labels >= 0)
    if not len(known):
        return None
    mine = np.concatenate([known[:0], *group().portion(batches(views, known))])
    right = correct(probabilities(net, views, mine), labels[mine]) if len(mine) else 0
    return percent(group().total(right)[0], len(known))


def correct(probs: np.ndarray, labels: np.ndarray) -> int:
    """Return how many answers are right."""
    return int((probs.argmax(1) == labels).sum())


def percent(right: int, of: int) -> float:
    """Return a share in percent."""
    return round(100.0 * (right / of), 6)


@torch.inference_mode()
def candidates(net: nn.Module, views: Views, index: np.ndarray, query: Query, seed: int, round: int) -> Candidates:
    """Look at every image that may be asked about (at least one), as far as the query wants to know.

    Processes share the work, and the first of them has what was found.
    """
    if not query.needs_probs:
        return Candidates(index, features=embeddings(net, views, index) if query.needs_features else None)
    mine = group().portion(list(enumerate(batches(views, index))))
    count = sum(len(part) for _, part in mine)
    probs, features = Rows(count), Rows(count)
    for number, part in mine:
        embedded: Any = None if query.aug and not query.needs_features else net.features(views.plain(part))  # type: ignore[operator]
        if query.needs_features:
            features.add(embedded)
        draws = [rng(seed, "query", round, number, k) for k in range(query.views)]
        # A plain query reuses the embedding: the head is all that is missing.
        logits = [net(views.weak(part, draw)) for draw in draws] if query.aug else [net.head(embedded)]  # type: ignore[operator]
        probs.add(torch.stack([ops.probabilities(view) for view in logits]).mean(0))
    return Candidates(
        index, group().gather(probs.array), group().gather(features.array) if query.needs_features else None
    )


@torch.inference_mode()
def embeddings(net: nn.Module, views: Views, index: np.ndarray) -> np.ndarray | None:
    """Return the embeddings (N, D) of plain images (at least one). Processes share the work; the first has the result."""
    mine = group().portion(batches(views, index))
    rows = Rows(sum(len(part) for part in mine))
    for part in mine:
        rows.add(net.features(views.plain(part)))  # type: ignore[operator]
    return group().gather(rows.array)


class Rows:
    """Rows that arrive in pieces, written into one array: a pool larger than memory leaves no room for a second copy."""

    def __init__(self, count: int) -> None:
        self.count, self.filled = count, 0
        self.array: np.ndarray | None = None  # (count, width) after the first piece

    def add(self, piece: Tensor) -> None:
        """Write the next rows."""  # (n, width)
        rows = piece.to(torch.promote_types(piece.dtype, torch.float32)).cpu().numpy()  # numpy has no bfloat16
        if self.array is None:
            self.array = np.empty((self.count, rows.shape[1]), rows.dtype)
        self.array[self.filled : self.filled + len(rows)] = rows
        self.filled += len(rows)
