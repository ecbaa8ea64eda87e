"""How good a live model is, which model serves, and whether asking helps. What judges an answer never trained it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from mma.config import Config
from mma.model.predictors import strangeness
from mma.nets.head import fit_logistic
from mma.project.models import Floats, Serving
from mma.project.quality.accuracy import LEAST_AUDIT, JudgedImage, Quality, cross_fit, judge, judged_images, share
from mma.project.quality.forecast import AccuracyPoint
from mma.project.quality.promises import Judgements, record_of, strange_above
from mma.project.quality.query_benefit import LabeledRows, QueryBenefit, compare, split_by_group
from mma.project.worker.features import Parts, Pool
from mma.project.worker.live_model import Strangers, WholeHead, unlabeled_rows
from mma.project.worker.training_set import TrainingSet
from mma.shares import AuditRecord
from mma.soft_targets import Guesses
from mma.training.head import FittedHead, answers_without

PENALTY = 1e-4  # of a comparison of labels: between those that heads choose from
KEPT = 60  # models of the past that are asked again; of more, every other old one is left out
BLOCK = 2_048  # images whose vectors are looked at at a time
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PastModel:
    """A live model of the past. It learned the audit labels of its time: about these it says what heads without them said."""

    number: int
    labels: int
    classes: tuple[int, ...]  # ids
    head: WholeHead
    left_out: Mapping[str, int]  # audit image -> class id

    def right(self, parts: Parts, training: TrainingSet) -> NDArray[np.bool_]:
        """Tell which of the audit images there are now, with these vectors, it gets right without their labels. (N,)"""
        said = np.array(self.classes)[self.head.probabilities(parts).argmax(1)].tolist()
        answers = [self.left_out.get(image, klass) for image, klass in zip(training.audit, said, strict=True)]
        right: NDArray[np.bool_] = np.array(answers) == np.array(training.class_ids)[training.audit_labels]
        return right


def audit_groups(pool: Pool, training: TrainingSet) -> list[str]:
    """Return the near-duplicates that the audit images belong to."""
    return [pool.group(image) for image in training.audit]


def audit_probs(
    fitted: FittedHead, pool: Pool, training: TrainingSet, config: Config, guesses: Guesses | None = None
) -> Floats:
    """Return what a head says about each audit image when it is trained without it and its near-duplicates. (N, classes)"""
    if not training.audit:
        return np.zeros((0, len(training.classes)), np.float32)
    rows = np.array([pool.row[image] for image in training.audit], np.int64)
    answers = {pool.row[image]: label for image, label in training.learned.items() if image in pool.row}
    unlabeled = unlabeled_rows(pool, training)

    def predict(test: NDArray[np.bool_]) -> Floats:
        return answers_without(fitted, pool.views, answers, rows[test], pool=unlabeled, config=config, guesses=guesses)

    return cross_fit(training.audit_labels, audit_groups(pool, training), predict)


def find_strangers(head: WholeHead, pool: Pool, training: TrainingSet) -> Strangers:
    """Tell which images are unlike anything labeled: farther from the mean of each class than few audit images are.

    Means are those of labels outside the audit, where a class has any: an audit image must not be measured by itself.
    """
    known = {image: label for image, label in training.learned.items() if image in pool.row}
    plain = {label for image, label in known.items() if image in training.train}
    taught = {image: label for image, label in known.items() if image in training.train or label not in plain}
    rows, labels = np.array([pool.row[image] for image in taught], np.int64), np.array(list(taught.values()), np.int64)
    vectors, typical = head.vectors(pool.parts(rows)), torch.zeros(len(training.classes), head.network.gate.numel())
    typical.index_add_(0, torch.from_numpy(labels), vectors)
    blocks = [np.arange(begin, min(begin + BLOCK, len(pool))) for begin in range(0, len(pool), BLOCK)]
    distance = np.concatenate([strangeness(head.vectors(pool.parts(block)), typical).numpy() for block in blocks])
    measured = [pool.row[image] for image in training.audit]
    border = strange_above(
        Judgements.of(distance[measured], np.ones(len(measured), bool), audit_groups(pool, training)).confidence
    )
    return Strangers(F.normalize(typical).numpy(), border, distance > (np.inf if border is None else border))


def record_audit(
    measured: Floats, probs: Floats, unlike: NDArray[np.bool_], pool: Pool, training: TrainingSet
) -> AuditRecord:
    """Return what promises follow from: how sure the answers to audit images are, and whether they are right.

    What is unlike anything labeled is never answered alone, however sure the model is.
    """
    rows = np.array([pool.row[image] for image in training.audit], np.int64)
    sure = np.where(unlike[rows], 0.0, measured.max(1) if len(rows) else 0.0)
    judged = Judgements.of(sure, measured.argmax(1) == training.audit_labels, audit_groups(pool, training))
    answered = {*training.labels.ids, *training.labels.cannot_tell, *training.labels.excluded}
    rest = np.array([not image.audit and image.id not in answered for image in pool.images], bool)
    return record_of(judged, np.where(unlike, 0.0, probs.max(1))[rest])


def unaudited_probs(
    fitted: FittedHead, pool: Pool, training: TrainingSet, config: Config, guesses: Guesses | None = None
) -> NDArray[np.float32] | None:
    """Return what a head says about the pool that learned no audit label: picks must not know where the audit is.

    Otherwise they avoid what lies near it, and an audit photo that is left out looks harder than it is. (pool, classes) None:
    there is no such label, or too few others.
    """
    if not training.audit or len(set(training.train.values())) < 2:
        return None
    rows = np.array([pool.row[image] for image in training.audit], np.int64)
    answers = {pool.row[image]: label for image, label in training.learned.items() if image in pool.row}
    unlabeled, everything = unlabeled_rows(pool, training), np.arange(len(pool))
    found: NDArray[np.float32] | None = answers_without(
        fitted, pool.views, answers, rows, pool=unlabeled, config=config, guesses=guesses, about=everything
    )
    return found


def audited(probs: Floats, pool: Pool, training: TrainingSet) -> tuple[Quality | None, tuple[JudgedImage, ...]]:
    """Judge what is said about the audit images, and return these images; nothing while they are too few."""
    labels = training.audit_labels
    if len(labels) < LEAST_AUDIT:
        return None, ()
    quality = judge(probs, labels, training.names, audit_groups(pool, training), len(training.learned))
    return quality, judged_images(list(training.audit), probs, labels, training.names)


def audit_curve(models: Sequence[PastModel], pool: Pool, training: TrainingSet) -> tuple[AccuracyPoint, ...]:
    """Return the learning curve, every model on the same audit images; of two with equally many labels the later one."""
    if len(training.audit) < LEAST_AUDIT:
        return ()
    groups, points = audit_groups(pool, training), {}
    parts = pool.parts(np.array([pool.row[image] for image in training.audit], np.int64))
    for model in models:
        found = share(model.right(parts, training), groups, model.labels)
        points[model.labels] = AccuracyPoint(model.labels, 100 * found.value, 100 * found.low, 100 * found.high)
    return tuple(points[count] for count in sorted(points))


def choose_model(
    live: Floats, deep: Floats | None, labels: Ints, numbers: tuple[int, int], wish: str = "better"
) -> Serving:
    """Choose by accuracy on the audit images, unless the person has chosen. Where it is equal, the quick model serves.

    `live` and `deep` are what the two say about the audit images, `numbers` their numbers. A stricter rule serves a better
    deep model more rarely and wins no more; labels that were asked for favour the deep one (results/serving).
    """
    if deep is None:
        return Serving("live", numbers[0], "the quick model.")
    right, also = (int((probs.argmax(1) == labels).sum()) for probs in (live, deep))
    compared = (
        f"Of {len(labels)} photos drawn at random the deep model is right about {also}, the quick one about {right}."
    )
    if len(labels) < LEAST_AUDIT:
        compared = (
            f"It takes {LEAST_AUDIT} photos drawn at random to compare it with the deep one; there are {len(labels)}."
        )
    better = also > right and len(labels) >= LEAST_AUDIT
    if wish != "better":
        compared = f"You chose it. {compared}"
    elif also <= right and len(labels) >= LEAST_AUDIT:
        compared += " So the deep one is not shown to be better."
    if wish == "deep" or (wish == "better" and better):
        return Serving("deep", numbers[1], f"the deep model. {compared}")
    return Serving("live", numbers[0], f"the quick model. {compared}")


def measured_answers(
    live: Floats, deep: Floats | None, labels: Ints, groups: Sequence[str], wish: str = "better"
) -> Floats:
    """Return what the chosen model says about each audit image, to measure its accuracy by.

    The better of two on some labels looks better on these labels than it is. So each half of them is answered by the model
    that the other half chooses; near-duplicates stay in one half. Where a person chose, nothing was chosen by the labels.
    """
    if deep is None or wish == "live" or (wish == "better" and len(labels) < LEAST_AUDIT):
        return live
    if wish == "deep":
        return deep
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
    images = [*train, *training.audit]
    x = pool.vectors(np.array([pool.row[image] for image in images], np.int64)).numpy()
    labels = np.array([training.learned[image] for image in images], np.int64)
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
