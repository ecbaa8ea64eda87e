"""One live round: labels of one moment -> a head, its picks and what is known about it, in a folder that is whole or absent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.config import Config
from mma.nets.head import fit_logistic
from mma.presets import preset
from mma.project.models import (
    AuditAnswers,
    DeepAnswers,
    Forecasted,
    ModelReport,
    Serving,
    TrainingSet,
    choose_model,
    latest_report,
    measured_answers,
    read_report,
)
from mma.project.project import Project
from mma.project.quality.accuracy import FEWEST, JudgedImage, Quality, fold_numbers, judge, judged_images, share
from mma.project.quality.forecast import LEAST, AccuracyPoint, Curve
from mma.project.quality.query_benefit import NOT_COMPARED, Helping, LabeledRows, compare
from mma.project.quality.status import kappa
from mma.project.worker.features import Pool
from mma.project.worker.live_model import MORE, Made, WholeHead, fit, read_head, unfold, write_model
from mma.project.worker.picks import COVERAGE, ChosenPicks, Question, choose_picks
from mma.query.space import nearest
from mma.training.head import FittedHead, fit_head
from mma.views import FeatureViews

COMPARED = 2_000  # images on which a model is compared with the one before
REMEMBERED = 40  # forecasts and agreements that are kept


@dataclass(eq=False)
class Memory:
    """What one round leaves for the next; after a restart it is read from the models' folders."""

    past: list[PastModel] = field(default_factory=list)
    forecasts: tuple[Forecasted, ...] = ()
    source: str = ""  # what the forecasts are about: audit or cross-validation
    agreement: tuple[float, ...] = ()
    answers: dict[str, int] = field(default_factory=dict)  # image -> class id, by the last model
    helping: Helping = NOT_COMPARED


def live_round(
    project: Project,
    pool: Pool,
    training: TrainingSet,
    memory: Memory,
    config: Config,
    *,
    number: int,
    deep: DeepAnswers | None = None,
    asks: bool = True,
) -> Made:
    """Make a model from the labels of one moment, choose picks, and write models/NNN. The caller tells the project."""
    begin = time.monotonic()
    fitted = fit(pool, training, config)
    live = fitted.probabilities(pool.views, np.arange(len(pool)))
    crossed, judged = (None, ()) if has_verdict(training) else cross_validated(fitted, pool, training)
    ids, accuracy = (
        tuple(each.id for each in training.classes),
        None if crossed is None else 100 * crossed.accuracy.value,
    )
    here = PastModel(number, len(training.train), ids, unfold(fitted, pool.views), accuracy)
    serving, audited = choose_serving(here, pool, training, deep, describe(fitted))
    picks = ChosenPicks([], "nobody is asked: random order.")
    probs = combine(live, deep, serving, pool, training)
    if asks:
        picks = choose_picks(next_question(project, pool, training, memory, number=number, probs=probs))
    remember(memory, here, live, pool, training)
    report = replace(
        make_report(here, training, memory, pool),
        quality=quality_of(audited, pool, training) if has_verdict(training) else crossed,
        judged=judged_by_audit(audited, training) if has_verdict(training) else judged,
        serving=serving,
        uses=describe(fitted),
        backbones=fitted.accuracies,
        query=explain_query(project, memory) + picks.why,
        seconds=round(time.monotonic() - begin, 3),
    )
    made = Made(report, picks, here.head, probs, deep)
    write_model(project, pool, training, made, config)
    return made


def next_question(
    project: Project, pool: Pool, training: TrainingSet, memory: Memory, *, number: int, probs: NDArray[np.float32]
) -> Question:
    """Ask by the project's query; for coverage, where that query is shown to be worse than chance."""
    settings = project.settings
    query = COVERAGE if memory.helping.fallback and settings.fallback else settings.query
    return Question(pool, training, query, settings.seed, number, probs, settings.random_share)


def explain_query(project: Project, memory: Memory) -> str:
    """Say that the project's query was given up for coverage, where it was."""
    settings = project.settings
    fallen = memory.helping.fallback and settings.fallback
    return f"coverage instead of {settings.query}, which was worse here than chance; " if fallen else ""


def judged_by_audit(audited: NDArray[np.floating], training: TrainingSet) -> tuple[JudgedImage, ...]:
    """Return the audit images with what a model says about them."""
    return judged_images(list(training.audit), audited, labels_of(training), training.names)


def quality_of(audited: NDArray[np.floating], pool: Pool, training: TrainingSet) -> Quality:
    """Judge what a model says about the audit images."""
    return judge(audited, labels_of(training), training.names, "audit", audit_groups(pool, training))


def describe(fitted: FittedHead) -> str:
    """Say which representation a head uses and why."""
    return f"a head on features of {' and '.join(fitted.used)} ({fitted.why})"


def labels_of(training: TrainingSet) -> NDArray[np.int64]:
    """Return the labels of the audit images."""
    return np.array(list(training.audit.values()), np.int64)


def choose_serving(
    here: PastModel, pool: Pool, training: TrainingSet, deep: DeepAnswers | None, uses: str
) -> tuple[Serving, NDArray[np.floating]]:
    """Return which model serves, and what to measure it by: answers about the audit images."""
    live = audit_probs(here, pool, training)
    other = None if deep is None else deep.of(list(training.audit), training)
    number = None if deep is None or other is None else deep.number
    answers = AuditAnswers(labels_of(training), live, other)
    serving = choose_model(answers, here.number, number, uses)
    return serving, measured_answers(answers, audit_groups(pool, training))


def combine(
    live: NDArray[np.float32], deep: DeepAnswers | None, serving: Serving, pool: Pool, training: TrainingSet
) -> NDArray[np.float32]:
    """Return the probabilities that picks and suggestions go by. New photos that a deep model never saw keep the live ones."""
    if serving.use == "live" or deep is None:
        return live
    known = [row for row, image in enumerate(pool.images) if image.id in deep.row]
    found = deep.of([pool.images[row].id for row in known], training)
    assert found is not None
    mixed = live.copy()
    mixed[known] = found if serving.use == "deep" else (live[known] + found) / 2
    return mixed


def remember(memory: Memory, here: PastModel, probs: NDArray[np.float32], pool: Pool, training: TrainingSet) -> None:
    """Keep the model for the learning curve, and compare its answers with those of the model before."""
    memory.past = thin([*(past for past in memory.past if past.number != here.number), here])
    said = probs[:COMPARED].argmax(1)
    answers = {image.id: here.classes[k] for image, k in zip(pool.images, said, strict=False)}
    both = [image for image in answers if image in memory.answers and memory.answers[image] in training.number]
    if both:
        pairs = [(training.number[memory.answers[i]], training.number[answers[i]]) for i in both]
        one, other = np.array(pairs, np.int64).T
        memory.agreement = (*memory.agreement, round(kappa(one, other, len(training.classes)), 5))[-REMEMBERED:]
    memory.answers = answers


def note_forecast(memory: Memory, curve: Sequence[AccuracyPoint], training: TrainingSet) -> None:
    """Write down what is forecast now, to be compared with what comes."""
    source = "audit" if has_verdict(training) else "cross-validation"
    if source != memory.source:
        memory.forecasts, memory.source = (), source  # forecasts of another quantity cannot be checked any more
    if len(curve) >= LEAST:
        trained = len(training.train) / max(len(training.train) + len(training.audit), 1)
        now = Forecasted(curve[-1].labels, Curve(curve).gain(max(round(MORE * trained), 1)))
        before = tuple(one for one in memory.forecasts if one.labels != now.labels)
        memory.forecasts = (*before, now)[-REMEMBERED:]


def make_report(here: PastModel, training: TrainingSet, memory: Memory, pool: Pool) -> ModelReport:
    """Put together what is known about a model and the ones before it; the caller adds what only it knows."""
    audited = has_verdict(training)
    curve = audit_curve(memory.past, pool, training) if audited else crossed_curve(memory.past)
    note_forecast(memory, curve, training)
    return ModelReport(
        number=here.number,
        kind="live",
        seq=training.labels.seq,
        labels=len(training.train),
        audit=len(training.audit),
        classes=training.names,
        class_ids=here.classes,
        per_class=training.per_class(),
        provenance=training.origins(),
        curve=curve,
        curve_source="audit" if audited else "cross-validation",
        forecasts=memory.forecasts,
        agreement=memory.agreement,
        helping=memory.helping,
    )


# What a worker knows when it starts: its settings, and what earlier rounds left in the models' folders.


def live_config(project: Project) -> Config:
    """Return the settings of the live model: those of the preset photos, on the backbone that the project wants."""
    config = preset("photos")
    assert isinstance(config.views, FeatureViews)
    views = config.views.model_copy(update={"backbone": project.settings.backbone or config.views.backbone})
    return config.model_copy(update={"seed": project.settings.seed, "views": views})


def warm_up(pool: Pool, config: Config) -> None:
    """Train a throw-away head for a step: what is loaded now need not be loaded when the first labels are there."""
    if len(pool) > 1:
        short = config.model_copy(update={"growth": config.growth.model_copy(update={"final": 1})})
        fit_head(pool.views, {0: 0, 1: 1}, 2, config=short)


def done_before(project: Project) -> tuple[int, int]:
    """Return the last event and the number of labels that a whole round was made of; a round that was cut off counts not."""
    last = latest_report(project.folder, "live")
    ready = {model.number for model in project.models() if model.state == "ready"}
    return (last.seq, last.labels + last.audit) if last is not None and last.number in ready else (-1, 0)


def recall(project: Project) -> Memory:
    """Read what earlier rounds left."""
    memory = Memory()
    for folder in sorted((project.folder / "models").glob("*/model.json"), key=lambda path: path.parent.name):
        past = recall_model(folder.parent)
        if past is not None:
            memory.past.append(past)
    last = latest_report(project.folder, "live")
    if last is not None:
        memory.forecasts, memory.source = last.forecasts, last.curve_source
        memory.agreement, memory.helping = last.agreement, last.helping
    return memory


def recall_model(folder: Path) -> PastModel | None:
    """Read one live model of the past; None for a deep one, or one that is damaged."""
    try:
        report = read_report(folder)
        if report.kind != "live":
            return None
        return PastModel(report.number, report.labels, report.class_ids, read_head(folder), crossed_of(report))
    except ValueError:
        return None


def crossed_of(report: ModelReport) -> float | None:
    """Return the cross-validated accuracy that a report holds, in percent."""
    if report.quality is None or report.quality.source != "cross-validation":
        return None
    return 100 * report.quality.accuracy.value


# How good the live models are: on audit labels, before that by cross-validation; and whether asking helps.

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
