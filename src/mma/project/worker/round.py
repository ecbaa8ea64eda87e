"""One live round: labels of one moment -> head -> verdict -> picks -> folder. What judges an answer never trained it.

What a round leaves for the next is its memory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from mma.config import Config
from mma.errors import UserError
from mma.model.model import strangeness
from mma.nets.head import fit_logistic
from mma.project.models import MORE, Floats, Forecasted, ModelReport, Serving, StoredAnswers
from mma.project.project import Project
from mma.project.quality.accuracy import LEAST_AUDIT, JudgedImage, cross_fit, judge, judged_images, share
from mma.project.quality.agreement import cohen_kappa
from mma.project.quality.forecast import LEAST, AccuracyPoint, Curve
from mma.project.quality.promises import independent, record_of, strange_above
from mma.project.quality.query_benefit import NOT_COMPARED, LabeledRows, QueryBenefit, compare, split_by_group
from mma.project.quality.status import goals_of
from mma.project.worker.features import Parts, Pool, TrainingSet
from mma.project.worker.live_model import (
    Made,
    Strangers,
    WholeHead,
    fit_answers,
    read_head,
    unfold,
    unlabeled_rows,
    write_model,
)
from mma.project.worker.picks import COVERAGE, ChosenPicks, Question, choose_picks, recheck_picks
from mma.rng import rng
from mma.shares import AuditRecord
from mma.training.head import answers_without

COMPARED = 2_000  # images on which a model is compared with the one before
REMEMBERED = 40  # forecasts and agreements that are kept
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


@dataclass(eq=False)
class Memory:
    """What one round leaves for the next; after a restart it is read from the models' folders."""

    past: list[PastModel] = field(default_factory=list)
    forecasts: tuple[Forecasted, ...] = ()
    agreement: tuple[float, ...] = ()
    answers: dict[str, int] = field(default_factory=dict)  # image -> class id, by the last model
    helping: QueryBenefit = NOT_COMPARED
    seq: int = -1  # the last event that a whole round was made of
    labels: int = 0  # and its labels


def live_round(
    project: Project,
    pool: Pool,
    training: TrainingSet,
    memory: Memory,
    config: Config,
    *,
    number: int,
    deep: StoredAnswers | None = None,
    asks: bool = True,
) -> Made:
    """Make a model from the labels of one moment, choose picks, and write models/NNN. The caller tells the project."""
    begin, settings = time.monotonic(), project.settings

    # labels -> head
    guesses = project.guesses.for_training(training.labels, pool.row)
    answers = {pool.row[image]: k for image, k in training.learned.items() if image in pool.row}
    fitted = fit_answers(pool, training, answers, config, guesses)
    probs, unlabeled = fitted.probabilities(pool.views, np.arange(len(pool))), unlabeled_rows(pool, training)

    def without(rows: Ints, about: Ints | None = None) -> NDArray[np.float32]:
        """Return what the head says about rows, or about others, when it is trained without these. (N, classes)"""
        given: dict[str, Any] = {"pool": unlabeled, "config": config, "guesses": guesses, "about": about}
        return answers_without(fitted, pool.views, answers, rows, **given)

    # Each audit image is judged by a head that saw neither it nor its near-duplicates.
    audit, labels, groups = audit_rows(pool, training), training.audit_labels, audit_groups(pool, training)
    live = np.zeros((0, len(training.classes)), np.float32)
    if len(audit):
        live = cross_fit(labels, groups, lambda test: without(audit[test]))
    left_out = dict(zip(training.audit, np.array(training.class_ids)[live.argmax(1)].tolist(), strict=True))
    here = PastModel(number, len(training.learned), training.class_ids, unfold(fitted, pool.views), left_out)
    remember(memory, here, probs, pool, training)

    # head -> verdict: the better of live and deep serves
    other = None if deep is None else with_deep(live, deep, list(training.audit), training)
    numbers, wish = (number, deep.number if deep else 0), settings.use_model
    serving = choose_model(live, other, labels, numbers, wish)
    measured = measured_answers(live, other, labels, groups, wish)
    curve, quality, judged = audit_curve(memory.past, pool, training), None, tuple[JudgedImage, ...]()
    if len(labels) >= LEAST_AUDIT:
        quality = judge(measured, labels, training.names, groups, len(training.learned))
        judged = judged_images(list(training.audit), measured, labels, training.names)
    if len(curve) >= LEAST:  # to be compared with what comes
        now = Forecasted(curve[-1].labels, Curve(curve).gain(MORE))
        before = tuple(one for one in memory.forecasts if one.labels != now.labels)
        memory.forecasts = (*before, now)[-REMEMBERED:]

    # verdict -> picks: coverage, where the project's query is shown to be worse than chance. Picks must not know where the
    # audit is: they would avoid what lies near it, and an audit photo that is left out would look harder than it is.
    blind = None
    if asks and len(audit) and len(set(training.train.values())) > 1:
        blind = without(audit, np.arange(len(pool)))
    if serving.use == "deep" and deep is not None:
        ids = [image.id for image in pool.images]
        probs = with_deep(probs, deep, ids, training)
        blind = None if blind is None else with_deep(blind, deep, ids, training)
    strangers = find_strangers(here.head, pool, training)
    unlike = strangers.unlike & (serving.use == "live")  # a network on pixels cannot tell
    record = record_audit(measured, probs, unlike, pool, training)
    fallen = memory.helping.fallback and settings.fallback
    picks = ChosenPicks([], "nobody is asked: random order.")
    if asks:
        query = COVERAGE if fallen else settings.query
        of_class, random = goals_of(project).of_class, settings.random_share
        goal = training.names.index(of_class) if of_class in training.names else None
        told = probs if blind is None else blind
        picks = choose_picks(Question(pool, training, query, settings.seed, number, told, random, goal))
        if settings.again_share:
            draw = rng(settings.seed, "asked again", number)
            picks.picks.extend(recheck_picks(training, measured, project.asked_again(), draw))

    # picks -> folder
    given_up = f"coverage instead of {settings.query}, which was worse here than chance; " if fallen else ""
    report = ModelReport(
        number=number,
        kind="live",
        curve=curve,
        forecasts=memory.forecasts,
        agreement=memory.agreement,
        helping=memory.helping,
        serving=serving,
        quality=quality,
        judged=judged,
        record=record,
        left_out=left_out,
        uses=f"a head on features of {' and '.join(fitted.used)} ({fitted.why})",
        backbones=fitted.accuracies,
        query=given_up + picks.why,
        seconds=round(time.monotonic() - begin, 3),
        **training.summary(),
    )
    made = Made(report, picks, here.head, probs, replace(strangers, unlike=unlike))
    write_model(project, pool, training, made, config)
    return made


def audit_rows(pool: Pool, training: TrainingSet) -> Ints:
    """Return the rows of the audit images. (N,)"""
    return np.array([pool.row[image] for image in training.audit], np.int64)


def audit_groups(pool: Pool, training: TrainingSet) -> list[str]:
    """Return the near-duplicates that the audit images belong to."""
    return [pool.group(image) for image in training.audit]


def with_deep(live: Floats, deep: StoredAnswers, ids: Sequence[str], training: TrainingSet) -> Floats:
    """Return the deep model's answers; photos that it never saw keep the live ones. (N, classes)"""
    known, both = [row for row, image in enumerate(ids) if image in deep.row], live.copy()
    found = deep.of([ids[row] for row in known], training.class_ids)
    assert found is not None
    both[known] = found
    return both


def remember(memory: Memory, here: PastModel, probs: NDArray[np.float32], pool: Pool, training: TrainingSet) -> None:
    """Keep the model for the learning curve, and compare its answers with those of the model before."""
    memory.past = thin([*(past for past in memory.past if past.number != here.number), here])
    said = probs[:COMPARED].argmax(1)
    answers = {image.id: here.classes[k] for image, k in zip(pool.images, said, strict=False)}
    both = [image for image in answers if image in memory.answers and memory.answers[image] in training.number]
    if both:
        pairs = [(training.number[memory.answers[i]], training.number[answers[i]]) for i in both]
        one, other = np.array(pairs, np.int64).T
        kappa = cohen_kappa(one, other).value
        memory.agreement = (*memory.agreement, 1.0 if kappa is None else round(kappa, 5))[-REMEMBERED:]
    memory.answers = answers


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
    border = strange_above(distance[audit_rows(pool, training)[independent(audit_groups(pool, training))]])
    return Strangers(F.normalize(typical).numpy(), border, distance > (np.inf if border is None else border))


def record_audit(
    measured: Floats, probs: Floats, unlike: NDArray[np.bool_], pool: Pool, training: TrainingSet
) -> AuditRecord:
    """Return what promises follow from: how sure the answers to audit images are, and whether they are right.

    What is unlike anything labeled is never answered alone, however sure the model is.
    """
    rows = audit_rows(pool, training)
    sure = np.where(unlike[rows], 0.0, measured.max(1) if len(rows) else 0.0)
    right, single = measured.argmax(1) == training.audit_labels, independent(audit_groups(pool, training))
    answered = {*training.labels.ids, *training.labels.cannot_tell, *training.labels.excluded}
    rest = np.array([not image.audit and image.id not in answered for image in pool.images], bool)
    return record_of(sure[single], right[single], np.where(unlike, 0.0, probs.max(1))[rest])


def audit_curve(models: Sequence[PastModel], pool: Pool, training: TrainingSet) -> tuple[AccuracyPoint, ...]:
    """Return the learning curve, every model on the same audit images; of two with equally many labels the later one."""
    if len(training.audit) < LEAST_AUDIT:
        return ()
    groups, points = audit_groups(pool, training), {}
    parts = pool.parts(audit_rows(pool, training))
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
    (right, also), many = (int((probs.argmax(1) == labels).sum()) for probs in (live, deep)), len(labels)
    compared = f"It takes {LEAST_AUDIT} photos drawn at random to compare it with the deep one; there are {many}."
    if many >= LEAST_AUDIT:
        compared = (
            f"Of {many} photos drawn at random the deep model is right about {also}, the quick one about {right}."
        )
    better = also > right and many >= LEAST_AUDIT
    if wish != "better":
        compared = f"You chose it. {compared}"
    elif also <= right and many >= LEAST_AUDIT:
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
    halves = split_by_group(np.arange(len(groups)), np.array(groups), seed=0)
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
    labels, rows = np.array([training.learned[image] for image in images], np.int64), np.arange(len(images))
    origin = np.array([training.provenance[image] for image in train])
    queried, random = (rows[: len(train)][origin == each] for each in ("query", "random"))
    groups = np.array([pool.group(image) for image in images])
    parts = LabeledRows(queried, random, rows[len(train) :], labels, groups)

    def fit(chosen: Ints, test: Ints) -> Ints:
        weight, bias = fit_logistic(x[chosen], labels[chosen], len(training.classes), PENALTY)
        said: Ints = (x[test] @ weight.T + bias).argmax(1)
        return said

    return compare(parts, fit, seed, switch=switch)


def recall(project: Project) -> Memory:
    """Read what earlier rounds left. A model that is damaged is left out; a round that was cut off is done again."""
    memory, last = Memory(), project.models.latest_report("live")
    for number in project.models.numbers("model.json"):
        try:
            report = project.models.report(number)
            if report.kind == "live":
                head = read_head(project.models.folder(number))
                memory.past.append(PastModel(number, report.labels, report.class_ids, head, report.left_out))
        except UserError:
            continue
    if last is not None:
        memory.forecasts, memory.agreement, memory.helping = last.forecasts, last.agreement, last.helping
        if any(model.number == last.number and model.state == "ready" for model in project.models.rows()):
            memory.seq, memory.labels = last.seq, last.labels
    return memory
