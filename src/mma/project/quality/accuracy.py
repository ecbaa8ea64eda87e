"""How good a model is, from photos drawn at random and judged by models that never saw them. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.shares import Share, exact_interval

LEAST_AUDIT = 10  # audit labels below which it is too early to name a number
FOLDS = 3  # of audit labels: as many heads are trained without one of them each
# A sample that lacks something makes the model worse and looks easier: with few labels it counts for less. Chosen with the
# intervals of results/trust, which hold 95 % with it at 50 labels and without it less.
CROSSED = 20
UNEVEN = 2.0  # times the mean share of a class, from which the largest one makes balanced accuracy worth a line
BINS = 5  # of the calibration, with as many images each
SURE = 0.8  # probability from which a model that contradicts a label is sure enough to ask again
PER_CELL = 48  # images of one cell of the confusion matrix that can be looked at
LIKELY = 0.8  # accuracy that is assumed before there is one, to say what more audit labels would bring
Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


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
    where: str  # what it was measured on
    classes: tuple[ClassQuality, ...]
    confusion: tuple[tuple[int, ...], ...]  # rows: what people say; columns: what the model says
    calibration: Calibration
    balanced: Share | None = None  # the mean recall of the classes, where one of them is much larger than the others


def share(right: NDArray[np.bool_], groups: Sequence[object] | None = None, learned: int = 0) -> Share:
    """Return the share of right answers. Near-duplicates (equal `groups`) count as fewer than they are.

    So do answers of models that were crossed, one of which left each image out of `learned` labels (see CROSSED).
    """
    count, total = int(right.sum()), len(right)
    if not total:
        return Share(float("nan"), 0.0, 1.0, 0, 0)
    size = max((total if groups is None else effective_size(right, groups)) * worth(learned), 1.0)
    low, high = exact_interval(min(count / total * size, size), size)
    return Share(count / total, low, high, count, total)


def effective_size(right: NDArray[np.bool_], groups: Sequence[object]) -> float:
    """Return how many independent images these are worth (Korn and Graubard's rule for clusters); never more than there are."""
    names, number = np.unique([str(group) for group in groups], return_inverse=True)
    total, many = len(right), len(names)
    if many in (0, 1, total):
        return float(many)
    mean = float(right.mean())
    simple = mean * (1 - mean) / total
    if simple == 0:  # all right or all wrong: as if those of a group always agreed
        return float(many)
    off = np.bincount(number, weights=right - mean, minlength=many)
    clustered = many / (many - 1) * float((off**2).sum()) / total**2
    return total / max(clustered / simple, 1.0)


def worth(learned: int) -> float:
    """Return the part of an independent image that one counts which was judged by crossed models."""
    return learned / (learned + CROSSED) if learned else 1.0


def judge(
    probs: Floats, labels: Ints, classes: Sequence[str], groups: Sequence[object] | None = None, learned: int = 0
) -> Quality:
    """Compare predictions with what people said about the same images. probs (N, classes), labels (N,)

    `learned` counts the labels of crossed models; 0 for a model that learned nothing from these images.
    """
    said = probs.argmax(1) if len(labels) else np.zeros(0, np.int64)
    right, table = said == labels, np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(table, (labels, said), 1)

    def part(among: NDArray[np.bool_]) -> Share | None:
        chosen = None if groups is None else [groups[int(i)] for i in np.flatnonzero(among)]
        return share(right[among], chosen, learned) if among.any() else None

    return Quality(
        share(right, groups, learned),
        f"{len(labels):,} photo{'' if len(labels) == 1 else 's'} drawn at random, judged by models that never saw them",
        tuple(ClassQuality(name, part(labels == k), part(said == k)) for k, name in enumerate(classes)),
        tuple(map(tuple, table.tolist())),
        calibrate(probs, right),
        balanced_share(table),
    )


def balanced_share(table: Ints) -> Share | None:
    """Return the mean recall of the classes that have an image, each counting the same; None where classes are about even.

    Its interval is that of as many independent images as would have its variance; each recall is drawn towards a half for
    that, because a class with one image says little.
    """
    of = table.sum(1)
    right, of = np.diag(table)[of > 0], of[of > 0]
    if len(of) < 2 or of.max() <= UNEVEN * of.mean():
        return None
    value, likely = float((right / of).mean()), (right + 1) / (of + 2)
    variance = float((likely * (1 - likely) / np.maximum(of - 1, 1)).sum()) / len(of) ** 2
    size = float(np.clip(likely.mean() * (1 - likely.mean()) / variance, 1.0, of.sum()))
    return Share(value, *exact_interval(min(value * size, size), size), int(right.sum()), int(of.sum()))


def cross_fit(labels: Ints, groups: Sequence[object], predict: Callable[[NDArray[np.bool_]], Floats]) -> Floats:
    """Return what is said about each image by a model that saw neither it nor its near-duplicates. (N, classes)

    `predict` is told which images to leave out, trains on everything else, and returns what it says about these.
    """
    fold = fold_numbers(labels, groups)
    tests = [fold == number for number in np.unique(fold)]
    answers = [predict(test) for test in tests]
    probs = np.zeros((len(labels), answers[0].shape[1] if answers else 0), np.float32)
    for test, found in zip(tests, answers, strict=True):
        probs[test] = found
    return probs


def doubtful_rows(probs: Floats, labels: Ints, asked_again: NDArray[np.bool_], draw: np.random.Generator) -> Ints:
    """Return audit images to ask about a second time, in the order to ask: labels that a sure model contradicts, and as
    many that it agrees with.

    Slips are found among the first. The others keep it blind: to be asked again must not mean that a model disagrees, or
    people would give way to it and its number would rise by itself. Each image is asked again once.
    """
    said, fresh = probs.argmax(1) if len(labels) else labels, np.flatnonzero(~asked_again)
    doubted = [row for row in fresh if said[row] != labels[row] and probs[row].max() >= SURE]
    agreed = [row for row in draw.permutation(fresh) if said[row] == labels[row]][: len(doubted)]
    return draw.permutation(np.array([*doubted, *agreed], np.int64))


def foresee(accuracy: Share | None, audit: int, labels: int, more: int) -> str:
    """Say how sharply an accuracy will be known after `more` audit labels; there are `labels`, `audit` ones among them."""
    value = LIKELY if accuracy is None else accuracy.value

    def half(more: int) -> float:
        size = max((audit + more) * worth(labels + more), 1.0)
        low, high = exact_interval(value * size, size)
        return 50 * (high - low)

    photos = f"{more} more photo{'' if more == 1 else 's'} drawn at random"
    if audit + more < LEAST_AUDIT:
        return f"{photos} are not enough for a number: it takes {LEAST_AUDIT}, and there are {audit}."
    now = "" if accuracy is None else f" instead of {half(0):.0f}"
    guess = ", if about four of five answers are right" if accuracy is None else ""
    return f"With {photos}, the accuracy is known to about {half(more):.0f} points to either side{now}{guess}."


def calibrate(probs: Floats, right: NDArray[np.bool_]) -> Calibration:
    """Compare confidence with accuracy, in bins of equally many images."""
    if not len(right):
        return Calibration((), float("nan"), float("nan"))
    confidence = probs.max(1)
    parts = [part for part in np.array_split(np.argsort(confidence, kind="stable"), BINS) if len(part)]
    bins = tuple(CalibrationBin(float(confidence[part].mean()), share(right[part])) for part in parts)
    error = sum(abs(one.confidence - one.accuracy.value) * one.accuracy.of for one in bins) / len(right)
    return Calibration(bins, float(confidence.mean() - right.mean()), float(error))


def judged_images(ids: Sequence[str], probs: Floats, labels: Ints, classes: Sequence[str]) -> tuple[JudgedImage, ...]:
    """Return what the cells of the confusion matrix are made of: at most PER_CELL images of each, the surest first."""
    cells, found = Counter[tuple[str, str]](), []
    for row in sorted(range(len(labels)), key=lambda row: -float(probs[row].max())):
        cell = classes[labels[row]], classes[probs[row].argmax()]
        cells[cell] += 1
        if cells[cell] <= PER_CELL:
            found.append(JudgedImage(ids[row], *cell, round(float(probs[row].max()), 4)))
    return tuple(found)


def fold_numbers(labels: Ints, groups: Sequence[object], folds: int = FOLDS) -> Ints:
    """Deal labels into folds: near-duplicates stay together, and every fold gets its part of each class. (N,)"""
    names, first, number = np.unique([str(group) for group in groups], return_index=True, return_inverse=True)
    fold = np.empty(len(names), np.int64)
    fold[np.lexsort((np.arange(len(names)), labels[first]))] = np.arange(len(names)) % folds
    return fold[number]
