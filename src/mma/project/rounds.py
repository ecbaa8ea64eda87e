"""One live round: labels of one moment -> a head, its picks and what is known about it, in a folder that is whole or absent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mma.config import Config
from mma.project.audit import JudgedImage, Quality, judge, judged_images
from mma.project.forecast import LEAST, AccuracyPoint, Curve
from mma.project.heads import fit, unfold
from mma.project.helping import NOT_COMPARED, Helping
from mma.project.keep import MORE, Made, write_model
from mma.project.measure import (
    PastModel,
    audit_curve,
    audit_groups,
    audit_probs,
    cross_validated,
    crossed_curve,
    has_verdict,
    thin,
)
from mma.project.model_report import Forecasted, ModelReport, Serving
from mma.project.picks import COVERAGE, ChosenPicks, Question, choose_picks
from mma.project.pool import Pool
from mma.project.predictions import DeepAnswers
from mma.project.project import Project
from mma.project.stop import kappa
from mma.project.training_set import TrainingSet
from mma.project.which import AuditAnswers, choose_model, measured_answers
from mma.training.in_memory import FittedHead

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
