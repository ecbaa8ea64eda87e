"""One live round: labels of one moment -> head -> verdict -> picks -> folder. What it leaves for the next is its memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mma.config import Config
from mma.errors import UserError
from mma.presets import preset
from mma.project.models import MORE, Forecasted, ModelReport, StoredAnswers
from mma.project.project import Project
from mma.project.quality.agreement import cohen_kappa
from mma.project.quality.forecast import LEAST, AccuracyPoint, Curve
from mma.project.quality.query_benefit import NOT_COMPARED, QueryBenefit
from mma.project.quality.status import goals_of
from mma.project.worker.features import Pool
from mma.project.worker.live_model import Made, fit, read_head, unfold, write_model
from mma.project.worker.picks import COVERAGE, ChosenPicks, Question, choose_picks, recheck_picks
from mma.project.worker.training_set import TrainingSet
from mma.project.worker.verdict import (
    PastModel,
    audit_curve,
    audit_groups,
    audit_probs,
    audited,
    choose_model,
    find_strangers,
    measured_answers,
    record_audit,
    thin,
    unaudited_probs,
)
from mma.rng import rng
from mma.training.head import fit_head
from mma.views import FeatureViews

COMPARED = 2_000  # images on which a model is compared with the one before
REMEMBERED = 40  # forecasts and agreements that are kept


@dataclass(eq=False)
class Memory:
    """What one round leaves for the next; after a restart it is read from the models' folders."""

    past: list[PastModel] = field(default_factory=list)
    forecasts: tuple[Forecasted, ...] = ()
    agreement: tuple[float, ...] = ()
    answers: dict[str, int] = field(default_factory=dict)  # image -> class id, by the last model
    helping: QueryBenefit = NOT_COMPARED


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
    fitted = fit(pool, training, config, guesses)
    uses = f"a head on features of {' and '.join(fitted.used)} ({fitted.why})"
    probs = fitted.probabilities(pool.views, np.arange(len(pool)))
    live = audit_probs(fitted, pool, training, config, guesses)
    said = np.array(training.class_ids)[live.argmax(1)].tolist() if len(live) else []
    left_out = dict(zip(training.audit, said, strict=True))
    here = PastModel(number, len(training.learned), training.class_ids, unfold(fitted, pool.views), left_out)
    remember(memory, here, probs, pool, training)

    # head -> verdict: the better of live and deep serves
    other = None
    if deep is not None:  # audit photos that the deep model never saw keep the live answers, as others do below
        other, known = live.copy(), [row for row, image in enumerate(training.audit) if image in deep.row]
        other[known] = deep.of([list(training.audit)[row] for row in known], training.class_ids)
    wish = settings.use_model
    serving = choose_model(live, other, training.audit_labels, (number, deep.number if deep else 0), wish)
    measured = measured_answers(live, other, training.audit_labels, audit_groups(pool, training), wish)
    quality, judged = audited(measured, pool, training)
    curve = audit_curve(memory.past, pool, training)
    note_forecast(memory, curve)

    # verdict -> picks: coverage, where the project's query is shown to be worse than chance
    blind = unaudited_probs(fitted, pool, training, config, guesses) if asks else None
    if serving.use == "deep" and deep is not None:  # photos that the deep model never saw keep the live answers
        known = [row for row, image in enumerate(pool.images) if image.id in deep.row]
        found = deep.of([pool.images[row].id for row in known], training.class_ids)
        assert found is not None
        probs = probs.copy()
        probs[known] = found
        if blind is not None:
            blind[known] = found
    strangers = find_strangers(here.head, pool, training)
    unlike = strangers.unlike & (serving.use == "live")  # a network on pixels cannot tell
    record = record_audit(measured, probs, unlike, pool, training)
    fallen = memory.helping.fallback and settings.fallback
    picks = ChosenPicks([], "nobody is asked: random order.")
    if asks:
        query = COVERAGE if fallen else settings.query
        of_class, share = goals_of(project).of_class, settings.random_share
        goal = training.names.index(of_class) if of_class in training.names else None
        picks = choose_picks(
            Question(pool, training, query, settings.seed, number, probs if blind is None else blind, share, goal)
        )

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
        uses=uses,
        backbones=fitted.accuracies,
        query=given_up + picks.why,
        seconds=round(time.monotonic() - begin, 3),
        **training.summary(),
    )
    made = Made(report, picks, here.head, probs, replace(strangers, unlike=unlike))
    write_model(project, pool, training, made, config)
    return made


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


def note_forecast(memory: Memory, curve: Sequence[AccuracyPoint]) -> None:
    """Write down what is forecast now, to be compared with what comes."""
    if len(curve) >= LEAST:
        now = Forecasted(curve[-1].labels, Curve(curve).gain(MORE))
        before = tuple(one for one in memory.forecasts if one.labels != now.labels)
        memory.forecasts = (*before, now)[-REMEMBERED:]


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
    """Return the last event and the number of labels that a whole round was made of; one that was cut off does not count."""
    last = project.models.latest_report("live")
    ready = {model.number for model in project.models.rows() if model.state == "ready"}
    return (last.seq, last.labels) if last is not None and last.number in ready else (-1, 0)


def recall(project: Project) -> Memory:
    """Read what earlier rounds left. A model that is damaged is left out."""
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
    return memory
