"""What the teacher makes of images: probabilities, embeddings, accuracy. Batches of its own, no gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mma.query import Candidates, Query
from mma.rng import rng
from mma.train.stream import Pixels

BATCH = 500  # images per forward; inference needs no room for gradients


def batches(index: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Cut an index into pieces for one forward each, with a number for each piece."""
    yield from ((number, index[begin : begin + BATCH]) for number, begin in enumerate(range(0, len(index), BATCH)))


@torch.inference_mode()
def probabilities(net: nn.Module, pixels: Pixels, index: np.ndarray) -> np.ndarray:
    """Return the class probabilities of the plain images. (N, classes)"""
    parts = [net(pixels.plain(part)).softmax(1) for _, part in batches(index)]
    return torch.cat(parts).cpu().numpy()


def accuracy(net: nn.Module, pixels: Pixels, labels: np.ndarray) -> float | None:
    """Return the share of correct answers in percent; None when there is nothing to test on."""
    known = np.flatnonzero(labels >= 0)
    if not len(known):
        return None
    return percent_correct(probabilities(net, pixels, known), labels[known])


def percent_correct(probs: np.ndarray, labels: np.ndarray) -> float:
    """Return accuracy in percent."""
    return round(100.0 * float((probs.argmax(1) == labels).mean()), 6)


@torch.inference_mode()
def candidates(net: nn.Module, pixels: Pixels, index: np.ndarray, query: Query, seed: int, round: int) -> Candidates:
    """Look at every image that may be asked about (at least one), as far as the query wants to know."""
    if not query.needs_probs:
        return Candidates(index)
    probs, features = Rows(len(index)), Rows(len(index))
    for number, part in batches(index):
        embedded: Any = None if query.aug and not query.needs_features else net.features(pixels.plain(part))  # type: ignore[operator]
        if query.needs_features:
            features.add(embedded)
        draws = [rng(seed, "query", round, number, k) for k in range(query.views)]
        # A plain query reuses the embedding: the head is all that is missing.
        logits = [net(pixels.views(part, draw)) for draw in draws] if query.aug else [net.head(embedded)]  # type: ignore[operator]
        probs.add(torch.stack([view.softmax(1) for view in logits]).mean(0))
    return Candidates(index, probs.array, features.array)


class Rows:
    """Rows that arrive in pieces, written into one array: a pool larger than memory leaves no room for a second copy."""

    def __init__(self, count: int) -> None:
        self.count, self.filled = count, 0
        self.array: np.ndarray | None = None  # (count, width) after the first piece

    def add(self, piece: Tensor) -> None:
        """Write the next rows."""  # (n, width)
        rows = piece.cpu().numpy()
        if self.array is None:
            self.array = np.empty((self.count, rows.shape[1]), rows.dtype)
        self.array[self.filled : self.filled + len(rows)] = rows
        self.filled += len(rows)
