"""How good a model is, from labels it never trained on: exact intervals, per class, confusion, calibration. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mma.shares import Share, exact_interval

FEWEST = 50  # audit labels before a first verdict
FOLDS = 5
BINS = 5  # of the calibration, with as many images each
PER_CELL = 48  # images of one cell of the confusion matrix that can be looked at
Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Source = Literal["audit", "cross-validation"]


@dataclass(frozen=True)
class ClassQuality:
    """One class: how many of its images are found, and how many of those called so are right. None: no image to tell by."""

    name: str
    recall: Share | None
    precision: Share | None


@dataclass(frozen=True)
class CalibrationBin:
    """Images of similar confidence: what the model expects and what is right."""

    confidence: float
    accuracy: Share


@dataclass(frozen=True)
class Calibration:
    """Whether confidences mean what they say. `gap` is mean confidence minus accuracy, `error` the bins' mean distance."""

    bins: tuple[CalibrationBin, ...]
    gap: float
    error: float


@dataclass(frozen=True)
class JudgedImage:
    """An image that a model was judged by: what people say, and what the model says."""

    image: str
    label: str
    said: str
    confidence: float


@dataclass(frozen=True)
class Quality:
    """What is known about a model, and where it comes from."""

    accuracy: Share
    source: Source
    where: str  # one sentence
    classes: tuple[ClassQuality, ...]
    confusion: tuple[tuple[int, ...], ...]  # rows: what people say; columns: what the model says
    calibration: Calibration

    @property
    def final(self) -> bool:
        """Whether this is a verdict: enough labels that were drawn at random and never trained on."""
        return self.source == "audit" and self.accuracy.of >= FEWEST


def share(right: NDArray[np.bool_], groups: Sequence[object] | None = None, weights: Floats | None = None) -> Share:
    """Return the share of right answers. Near-duplicates (equal `groups`) count as fewer than they are.

    With `weights` (above 0) answers count unequally, and for the interval as fewer than they are, too.
    """
    count, total = int(right.sum()), len(right)
    if not total:
        return Share(float("nan"), 0.0, 1.0, 0, 0)
    value = float(np.average(right, weights=weights))
    size = float(total) if groups is None else effective_size(right, groups)
    if weights is not None:
        size *= float(weights.sum()) ** 2 / float(np.square(weights).sum()) / total  # Kish's effective size
    low, high = exact_interval(min(value * size, size), size)
    return Share(value, low, high, count, total)


def effective_size(right: NDArray[np.bool_], groups: Sequence[object]) -> float:
    """Return how many independent images these are worth (Korn and Graubard's rule for clusters); never more than there are."""
    total = len(right)
    _, number = np.unique([str(group) for group in groups], return_inverse=True) if total else (None, np.zeros(0, int))
    many = int(number.max()) + 1 if total else 0
    if many in (0, 1, total):
        return float(many)
    mean = float(right.mean())
    simple = mean * (1 - mean) / total
    if simple == 0:  # all right or all wrong: as if those of a group always agreed
        return float(many)
    off = np.bincount(number, weights=right - mean, minlength=many)
    clustered = many / (many - 1) * float((off**2).sum()) / total**2
    return total / max(clustered / simple, 1.0)


def judge(
    probs: Floats,
    labels: Ints,
    classes: Sequence[str],
    source: Source = "audit",
    groups: Sequence[object] | None = None,
    weights: Floats | None = None,
) -> Quality:
    """Compare predictions with what people said about the same images. probs (N, classes), labels and weights (N,)

    Weights are for the accuracy, over all and of each class; the confusion matrix counts images.
    """
    said = probs.argmax(1) if len(labels) else np.zeros(0, np.int64)
    right, table = said == labels, np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(table, (labels, said), 1)

    def part(among: NDArray[np.bool_]) -> Share | None:
        chosen = None if groups is None else [groups[int(i)] for i in np.flatnonzero(among)]
        return share(right[among], chosen, None if weights is None else weights[among]) if among.any() else None

    return Quality(
        share(right, groups, weights),
        source,
        explain_source(source, len(labels)),
        tuple(ClassQuality(name, part(labels == k), part(said == k)) for k, name in enumerate(classes)),
        tuple(map(tuple, table.tolist())),
        calibrate(probs, right),
    )


def calibrate(probs: Floats, right: NDArray[np.bool_]) -> Calibration:
    """Compare confidence with accuracy, in bins of equally many images."""
    if not len(right):
        return Calibration((), float("nan"), float("nan"))
    confidence = probs.max(1)
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, BINS) if len(part)]
    bins = tuple(CalibrationBin(float(confidence[part].mean()), share(right[part])) for part in parts)
    error = sum(abs(one.confidence - one.accuracy.value) * one.accuracy.of for one in bins) / len(right)
    return Calibration(bins, float(confidence.mean() - right.mean()), float(error))


def judged_images(ids: Sequence[str], probs: Floats, labels: Ints, classes: Sequence[str]) -> tuple[JudgedImage, ...]:
    """Return what the cells of the confusion matrix are made of: at most PER_CELL images of each, the surest first."""
    said = probs.argmax(1) if len(labels) else np.zeros(0, np.int64)
    order = sorted(range(len(labels)), key=lambda row: -float(probs[row, said[row]]))
    cells: Counter[tuple[int, int]] = Counter()
    found = []
    for row in order:
        cell = (int(labels[row]), int(said[row]))
        cells[cell] += 1
        if cells[cell] <= PER_CELL:
            sure = round(float(probs[row, said[row]]), 4)
            found.append(JudgedImage(ids[row], classes[cell[0]], classes[cell[1]], sure))
    return tuple(found)


def explain_source(source: Source, count: int) -> str:
    """Say where an accuracy comes from."""
    many = f"{count:,} audit label{'' if count == 1 else 's'}" if source == "audit" else f"{count:,} labels"
    if source == "cross-validation":
        return (
            f"cross-validation on {many}: each is predicted by a model that was trained on the others, and counts by the "
            "images that lie nearest to it. Images chosen because they are hard make it too low, look-alikes make it too "
            f"high. A verdict needs {FEWEST} audit labels."
        )
    if count < FEWEST:
        return f"{many}, drawn at random and never trained on; a verdict needs {FEWEST}."
    return f"{many}, drawn at random and never trained on."


def fold_numbers(labels: Ints, groups: Sequence[object], folds: int = FOLDS) -> Ints:
    """Deal labels into folds: near-duplicates stay together, and every fold gets its part of each class. (N,)"""
    first: dict[str, int] = {}
    for row, group in enumerate(groups):
        first.setdefault(str(group), row)
    order = sorted(first, key=lambda group: (int(labels[first[group]]), group))
    fold = {group: place % folds for place, group in enumerate(order)}
    return np.array([fold[str(group)] for group in groups], np.int64)
