"""How good the live models are: on audit labels, before that by cross-validation; and whether asking helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mma.nets.logistic import fit_logistic
from mma.project.audit import FEWEST, JudgedImage, Quality, fold_numbers, judge, judged_images, share
from mma.project.forecast import AccuracyPoint
from mma.project.heads import WholeHead
from mma.project.helping import Helping, LabeledRows, compare
from mma.project.pool import Pool
from mma.project.training_set import TrainingSet
from mma.query.trust import nearest
from mma.training.in_memory import FittedHead

PENALTY = 1e-4  # of a comparison of labels: between those that heads choose from
LEAST_CROSSED = 10  # labels before anything is said
TARGETS = 5_000  # images that tell what a label stands for
KEPT = 60  # models of the past that are asked again; of more, every other old one is left out
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PastModel:
    """A live model of the past."""

    number: int
    labels: int
    classes: tuple[int, ...]  # ids
    head: WholeHead
    crossed: float | None  # its cross-validated accuracy then, in percent


def audit_probs(past: PastModel, pool: Pool, training: TrainingSet) -> NDArray[np.float32]:
    """Return what a model says about the audit images, in the order of the classes there are now. (N, classes)"""
    ids = list(training.audit)
    probs = np.zeros((len(ids), len(training.classes)), np.float32)
    if ids:
        found = past.head.probabilities(pool.audit_parts(ids))
        for column, klass in enumerate(past.classes):
            if klass in training.number:
                probs[:, training.number[klass]] = found[:, column]
    return probs


def audit_groups(pool: Pool, training: TrainingSet) -> list[str]:
    """Return the near-duplicates that the audit images belong to."""
    return [pool.group(image) for image in training.audit]


def cross_validated(
    fitted: FittedHead, pool: Pool, training: TrainingSet
) -> tuple[Quality | None, tuple[JudgedImage, ...]]:
    """Judge by logistic regressions on the labels, each without a part of them; near-duplicates stay together.

    Labels were asked for where the model was unsure, so that most of them are hard. Each counts by the part of the pool that
    it stands for.
    """
    known = {image: label for image, label in training.train.items() if image in pool.row}
    labels = np.array(list(known.values()), np.int64)
    if len(labels) < LEAST_CROSSED:
        return None, ()
    x = pool.vectors(np.array([pool.row[image] for image in known])).numpy() * fitted.net.gate.numpy()
    fold = fold_numbers(labels, [pool.group(image) for image in known])
    probs = np.zeros((len(labels), len(training.classes)), np.float32)
    for number in np.unique(fold):
        test = fold == number
        weight, bias = fit_logistic(x[~test], labels[~test], len(training.classes), fitted.penalty)
        probs[test] = softmax((x[test] @ weight.T + bias) * fitted.scale / fitted.temperature)
    groups, weights = [pool.group(image) for image in known], nearest_images(pool, x, fitted.net.gate.numpy())
    quality = judge(probs, labels, training.names, "cross-validation", groups, weights)
    return quality, judged_images(list(known), probs, labels, training.names)


def nearest_images(pool: Pool, points: NDArray[np.float32], gate: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return how many images of the pool lie nearest to each point, itself among them. Of a large pool a part is looked at."""
    rows = np.unique(np.linspace(0, len(pool) - 1, min(len(pool), TARGETS)).astype(np.int64))
    found = nearest(points, pool.vectors(rows).numpy() * gate)
    return (1 + np.bincount(found, minlength=len(points))).astype(np.float64)


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return probabilities. (N, classes)"""
    powers: NDArray[np.float32] = np.exp(logits - logits.max(axis=1, keepdims=True))
    normal: NDArray[np.float32] = powers / powers.sum(axis=1, keepdims=True)
    return normal


def audit_curve(models: Sequence[PastModel], pool: Pool, training: TrainingSet) -> tuple[AccuracyPoint, ...]:
    """Return the learning curve, every model on the same audit images; of two with equally many labels the later one."""
    labels, groups = np.array(list(training.audit.values()), np.int64), audit_groups(pool, training)
    points = {}
    for model in models:
        found = share(audit_probs(model, pool, training).argmax(1) == labels, groups)
        points[model.labels] = AccuracyPoint(model.labels, 100 * found.value, 100 * found.low, 100 * found.high)
    return tuple(points[count] for count in sorted(points))


def crossed_curve(models: Sequence[PastModel]) -> tuple[AccuracyPoint, ...]:
    """Return the learning curve by cross-validation, each model as it was judged when it was made."""
    points = {model.labels: AccuracyPoint(model.labels, model.crossed) for model in models if model.crossed is not None}
    return tuple(points[count] for count in sorted(points))


def has_verdict(training: TrainingSet) -> bool:
    """Tell whether there are enough audit labels."""
    return len(training.audit) >= FEWEST


def thin(models: list[PastModel]) -> list[PastModel]:
    """Leave out every other model of the older half when there are too many."""
    half = len(models) // 2
    return models if len(models) <= KEPT else models[:half:2] + models[half:]


def compare_asking(pool: Pool, training: TrainingSet, seed: int, *, switch: bool = True) -> Helping:
    """Compare queried with random labels, by logistic regressions on features."""
    train = [image for image in training.train if image in pool.row]
    audit = list(training.audit)
    images = [*train, *audit]
    x = np.concatenate([pool.vectors(np.array([pool.row[i] for i in train], np.int64)), pool.audit_vectors(audit)])
    labels = np.array([*(training.train[i] for i in train), *training.audit.values()], np.int64)
    origin = np.array([training.provenance[image] for image in images])
    rows = np.arange(len(images))
    is_train = rows < len(train)
    groups = {int(row): pool.group(images[row]) for row in rows}
    parts = LabeledRows(
        rows[is_train & (origin == "query")],
        rows[is_train & (origin == "random")],
        rows[~is_train],
        dict(enumerate(labels.tolist())),
        groups,
    )

    def fit(chosen: Ints, test: Ints) -> Ints:
        weight, bias = fit_logistic(x[chosen], labels[chosen], len(training.classes), PENALTY)
        said: Ints = (x[test] @ weight.T + bias).argmax(1)
        return said

    return compare(parts, fit, seed, switch=switch)
