"""A quick look at whether a backbone sees anything: its features against raw pixels, on a few labeled images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mma.features.backbone import Backbone
from mma.features.extract import Centring, compute_block
from mma.features.inputs import ImageSource
from mma.rng import rng

FOLDS = 5
RAW_SIDE = 16


@dataclass(frozen=True)
class Probe:
    """Cross-validated accuracies, 0 to 1, and a warning; "" where the backbone is at least as good as raw pixels."""

    backbone: str
    accuracy: float
    raw_pixels: float
    images: int
    warning: str


def probe(backbone: Backbone, source: ImageSource, labels: NDArray[np.int64]) -> Probe:
    """Classify a few labeled images by the nearest class mean, from features and from 16 x 16 pixels. -1 is no label."""
    rows = np.flatnonzero(labels >= 0).astype(np.int64)
    _check(labels[rows])
    seen = compute_block(source, backbone, rows)[:, 0].astype(np.float32)
    raw = source.decode(rows, RAW_SIDE).reshape(len(rows), -1).astype(np.float32)
    ours, pixels = nearest_mean_accuracy(seen, labels[rows]), nearest_mean_accuracy(raw, labels[rows])
    warning = ""
    if ours < pixels:
        warning = (
            f"the backbone {backbone.label()} is worse than raw pixels here: {100 * ours:.0f} % of {len(rows)} labeled images "
            f"against {100 * pixels:.0f} % (nearest class mean). Its weights may be ruined, or it does not suit these images. "
            "Try another one."
        )
    return Probe(backbone.label(), ours, pixels, len(rows), warning)


def nearest_mean_accuracy(values: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Return the share of images whose own class has the nearest mean among the images of the other folds."""
    vectors = Centring(values.mean(axis=0))(values)
    fold = np.empty(len(labels), np.int64)
    order = rng(0, "probe").permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # class by class, so that folds have equal shares of each
    fold[order] = np.arange(len(labels)) % FOLDS
    right = 0
    for number in range(FOLDS):
        kept, left = fold != number, fold == number
        classes = np.unique(labels[kept])
        means = np.stack([vectors[kept & (labels == each)].mean(axis=0) for each in classes])
        distance = (means**2).sum(axis=1) - 2 * vectors[left] @ means.T  # (B, classes), but for a constant
        right += int((classes[distance.argmin(axis=1)] == labels[left]).sum())
    return right / len(labels)


def _check(labels: NDArray[np.int64]) -> None:
    counts = np.unique(labels, return_counts=True)[1]
    if len(counts) < 2 or len(labels) < 2 * FOLDS or counts.max() < 2:
        raise ValueError(
            f"a probe needs {2 * FOLDS} labeled images of two classes at least, and there are {len(labels)} of {len(counts)}."
        )
