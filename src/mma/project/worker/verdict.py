"""How good a live model is, which model serves, and whether asking helps. The labels that judge a model never trained it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from mma.nets.head import fit_logistic
from mma.project.models import Floats, Serving, columns_for
from mma.project.quality.accuracy import FEWEST, JudgedImage, Quality, fold_numbers, judge, judged_images, share
from mma.project.quality.forecast import AccuracyPoint
from mma.project.quality.query_benefit import LabeledRows, QueryBenefit, compare, split_by_group
from mma.project.worker.features import Pool
from mma.project.worker.live_model import WholeHead
from mma.project.worker.training_set import TrainingSet
from mma.query.space import nearest
from mma.training.head import FittedHead

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
    if not training.audit:
        return np.zeros((0, len(training.classes)), np.float32)
    probs = past.head.probabilities(pool.audit_parts(list(training.audit)))
    return columns_for(probs, past.classes, training.class_ids)


def audit_groups(pool: Pool, training: TrainingSet) -> list[str]:
    """Return the near-duplicates that the audit images belong to."""
    return [pool.group(image) for image in training.audit]


def has_verdict(training: TrainingSet) -> bool:
    """Tell whether there are enough audit labels."""
    return len(training.audit) >= FEWEST


def audited(probs: Floats, pool: Pool, training: TrainingSet) -> tuple[Quality, tuple[JudgedImage, ...]]:
    """Judge what a model says about the audit images, and return these images."""
    labels = training.audit_labels
    quality = judge(probs, labels, training.names, "audit", audit_groups(pool, training))
    return quality, judged_images(list(training.audit), probs, labels, training.names)


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
    groups = [pool.group(image) for image in known]
    fold = fold_numbers(labels, groups)
    probs = np.zeros((len(labels), len(training.classes)), np.float32)
    for number in np.unique(fold):
        test = fold == number
        weight, bias = fit_logistic(x[~test], labels[~test], len(training.classes), fitted.penalty)
        probs[test] = softmax((x[test] @ weight.T + bias) * fitted.scale / fitted.temperature, axis=1)
    weights = nearest_images(pool, x, fitted.net.gate.numpy())
    quality = judge(probs, labels, training.names, "cross-validation", groups, weights)
    return quality, judged_images(list(known), probs, labels, training.names)


def nearest_images(pool: Pool, points: NDArray[np.float32], gate: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return how many images of the pool lie nearest to each point, itself among them. Of a large pool a part is looked at."""
    rows = np.unique(np.linspace(0, len(pool) - 1, min(len(pool), TARGETS)).astype(np.int64))
    found = nearest(points, pool.vectors(rows).numpy() * gate)
    return (1 + np.bincount(found, minlength=len(points))).astype(np.float64)


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


def choose_model(live: Floats, deep: Floats | None, labels: Ints, numbers: tuple[int, int], uses: str) -> Serving:
    """Choose by accuracy on the audit images. Where it is equal, the live model serves: it knows the latest labels.

    `live` and `deep` are what the two say about the audit images, `numbers` their numbers.
    """
    if deep is None:
        return Serving("live", numbers[0], f"the live model: {uses}.")
    if len(labels) < FEWEST:
        why = f"the live model, until {FEWEST} audit labels can compare it with the deep one (now {len(labels)})."
        return Serving("live", numbers[0], why)
    right, also = (float((probs.argmax(1) == labels).mean()) for probs in (live, deep))
    why = f"the best on {len(labels)} audit labels (live {100 * right:.1f} %, deep {100 * also:.1f} %)."
    if also > right:
        return Serving("deep", numbers[1], f"the deep model, {why}")
    return Serving("live", numbers[0], f"the live model, {why}")


def measured_answers(live: Floats, deep: Floats | None, labels: Ints, groups: Sequence[str]) -> Floats:
    """Return what the chosen model says about each audit image, to measure its accuracy by.

    The better of two on some labels looks better on these labels than it is. So each half of them is answered by the model
    that the other half chooses; near-duplicates stay in one half.
    """
    if deep is None or len(labels) < FEWEST:
        return live
    measured = live.copy()
    halves = split_by_group(np.arange(len(groups)), dict(enumerate(groups)), seed=0)
    for mine, other in (halves, halves[::-1]):
        right, also = ((probs[other].argmax(1) == labels[other]).sum() for probs in (live, deep))
        measured[mine] = (deep if also > right else live)[mine]
    return measured


def thin(models: list[PastModel]) -> list[PastModel]:
    """Leave out every other model of the older half when there are too many."""
    half = len(models) // 2
    return models if len(models) <= KEPT else models[:half:2] + models[half:]


def compare_asking(pool: Pool, training: TrainingSet, seed: int, *, switch: bool = True) -> QueryBenefit:
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
