"""How a project stands: counts, accuracy, forecast, advice and a reason to stop. Cheap, and without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from mma.cost import Step
from mma.project.labels.events import count_labels
from mma.project.models import MORE, ModelReport
from mma.project.project import Project
from mma.project.quality.agreement import SecondLooks, second_looks
from mma.project.quality.forecast import LEAST, Check, Curve, CurveForecast, Gain, LabelsToTarget, check_forecasts
from mma.project.records import Counts

RECENT = 50  # labels whose median says how fast a person is
LONGEST = 120.0  # seconds for a label: whoever takes longer was away
AHEAD = (1.1, 1.25, 1.5, 1.75, 2.0)  # times the labels there are: where the band is drawn


@dataclass(frozen=True)
class LabelMoney:
    """What the next labels cost, and what a point of accuracy costs by that."""

    label_price: float
    cost: float
    price_of_a_point: float | None  # None: no gain is expected


@dataclass(frozen=True)
class ModelState:
    """What the worker does now."""

    number: int
    kind: str
    state: str
    message: str


@dataclass(frozen=True)
class Goals:
    """What the person wants; each may be left out."""

    target: float | None = None  # accuracy in percent
    label_price: float | None = None
    point_value: float | None = None  # money that a point of accuracy is worth
    budget: int | None = None  # labels


@dataclass(frozen=True)
class ProjectStatus:
    """Everything that status, results view and report.html show."""

    name: str
    labels: int
    left: int
    cannot_tell: int
    excluded: int
    images: int
    per_class: dict[str, int]  # labels, audit ones included
    seconds_per_label: float | None
    goals: Goals
    working: ModelState | None  # None: no model yet
    report: ModelReport | None  # of the model in use
    band: tuple[CurveForecast, ...]
    gain: Gain | None
    target: LabelsToTarget | None
    money: LabelMoney | None
    checks: tuple[Check, ...]
    stop: StopCard | None
    looks: SecondLooks

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        found: dict[str, Any] = _adapter.dump_python(self, mode="json")
        return found


_adapter = TypeAdapter(ProjectStatus)


def status(project: Project, goals: Goals | None = None) -> ProjectStatus:
    """Return how a project stands. Goals that are not given are those of its settings."""
    goals = goals or goals_of(project)
    counts = project.counts()
    names = {each.id: each.name for each in project.classes()}
    report = project.models.latest_report("live")  # it says which model serves, and judges that one
    seconds = seconds_per_label(project)
    curve = curve_of(report)
    gain = None if curve is None or report is None else curve.gain(MORE, trained_share(report), seconds)
    money = money_of(gain, goals)
    return ProjectStatus(
        name=project.root.name,
        labels=counts.labeled,
        left=counts.left,
        cannot_tell=counts.cannot_tell,
        excluded=counts.excluded,
        images=counts.images,
        per_class={names[number]: many for number, many in counts.per_class.items()},
        seconds_per_label=seconds,
        goals=goals,
        working=working_on(project),
        report=report,
        band=band_of(curve),
        gain=gain,
        target=None if curve is None or goals.target is None else curve.labels_to(goals.target),
        money=money,
        checks=checks_of(report),
        stop=stop_card(situation(report, counts, goals, gain, money)),
        looks=second_looks(project),
    )


def working_on(project: Project) -> ModelState | None:
    """Return what the worker does now."""
    for task, done, total, left in project.progress():
        if task == "features" and done < total:
            words = f"{done:,} of {total:,} images" + (f", about {left} left" if left else "")
            return ModelState(0, task, "training", words)
    models = project.models.rows()
    return ModelState(models[-1].number, models[-1].kind, models[-1].state, models[-1].message) if models else None


def goals_of(project: Project) -> Goals:
    """Return the goals that mma.toml holds."""
    given = project.settings
    return Goals(given.target, given.label_price, given.point_value, given.budget)


def seconds_per_label(project: Project) -> float | None:
    """Return the median time of the last labels; None before there are a few. A grid's time is shared by its labels."""
    events = project.events(after=max(project.seq() - 2 * RECENT, 0))
    timed = [(event.batch, event.seconds) for event in events if event.kind == "label" and event.seconds is not None]
    with project.store.reading() as connection:
        many = count_labels(connection, {batch for batch, _ in timed})
    times = [seconds / many[batch] for batch, seconds in timed]
    times = [time for time in times if 0 < time <= LONGEST][-RECENT:]
    return float(np.median(times)) if len(times) >= 5 else None


def curve_of(report: ModelReport | None) -> Curve | None:
    """Return the learning curve, if it has enough points to forecast from."""
    if report is None or len(report.curve) < LEAST:
        return None
    return Curve(report.curve)


def trained_share(report: ModelReport) -> float:
    """Return the share of the labels that is trained on; the rest measures."""
    return report.labels / max(report.labels + report.audit, 1)


def band_of(curve: Curve | None) -> tuple[CurveForecast, ...]:
    """Return the forecast at a few numbers of labels."""
    if curve is None:
        return ()
    return tuple(curve.at(round(curve.last.labels * ahead)) for ahead in AHEAD)


def money_of(gain: Gain | None, goals: Goals) -> LabelMoney | None:
    """Return what the next labels cost, where a price is set."""
    if gain is None or goals.label_price is None:
        return None
    cost = gain.more * goals.label_price
    step = Step("labels", gain.more, cost, gain.points, None, None, beyond=True)
    return LabelMoney(goals.label_price, cost, step.price_of_a_point if gain.points > 0 else None)


def checks_of(report: ModelReport | None) -> tuple[Check, ...]:
    """Compare earlier forecasts with what came."""
    if report is None:
        return ()
    return check_forecasts([(one.labels, one.gain) for one in report.forecasts], report.curve)


def situation(
    report: ModelReport | None, counts: Counts, goals: Goals, gain: Gain | None, money: LabelMoney | None
) -> StopSituation:
    """Return what the stop rules look at."""
    final = report is not None and report.quality is not None and report.quality.final
    low = 100 * report.quality.accuracy.low if final and report and report.quality else None
    price = None if money is None else money.price_of_a_point
    agreement = () if report is None else report.agreement
    return StopSituation(
        counts.labeled, counts.left, goals.budget, goals.target, low, gain, agreement, goals.point_value, price
    )


# When to stop labeling: each rule has a name, and the card says which one fired and why. No torch.

SMALL_GAIN = 0.5  # points: a band that ends below it promises nothing worth the work
STABLE = 0.99  # kappa between two models from which on their answers count as the same (Bloodgood and Vijay-Shanker)
STABLE_FOR = 3  # comparisons in a row


@dataclass(frozen=True)
class StopCard:
    """A reason to stop."""

    rule: str
    why: str


@dataclass(frozen=True)
class StopSituation:
    """What the rules look at. Accuracies in percent."""

    labels: int
    left: int  # images that can still be asked about
    budget: int | None = None
    target: float | None = None
    accuracy_low: float | None = None  # lower end of a verdict's interval; None before there is one
    gain: Gain | None = None
    agreement: tuple[float, ...] = ()  # kappa of each model with the one before it, latest last
    point_value: float | None = None  # money that a point of accuracy is worth
    point_price: float | None = None  # what a point costs now


def stop_card(now: StopSituation) -> StopCard | None:
    """Return the first rule that fires, the most certain one first; None: go on."""
    for rule in (_nothing_left, _budget, _target, _flat, _price, _stable):
        if card := rule(now):
            return card
    return None


def _nothing_left(now: StopSituation) -> StopCard | None:
    return StopCard("nothing left", "every image has an answer.") if now.left == 0 and now.labels else None


def _budget(now: StopSituation) -> StopCard | None:
    if now.budget is None or now.labels < now.budget:
        return None
    return StopCard("budget", f"{now.labels:,} of {now.budget:,} labels are given.")


def _target(now: StopSituation) -> StopCard | None:
    if now.target is None or now.accuracy_low is None or now.accuracy_low < now.target:
        return None
    return StopCard(
        "target", f"the accuracy is {now.accuracy_low:.1f} % or more (95 %), and the target is {now.target:g} %."
    )


def _flat(now: StopSituation) -> StopCard | None:
    if now.gain is None or now.accuracy_low is None or now.gain.high >= SMALL_GAIN:
        return None
    return StopCard(
        "flat curve", f"the next {now.gain.more} labels bring {now.gain.high:.1f} points at most (90 % band)."
    )


def _price(now: StopSituation) -> StopCard | None:
    if now.point_value is None or now.point_price is None or now.point_price <= now.point_value:
        return None
    return StopCard(
        "price", f"a point of accuracy now costs {now.point_price:.2f}, and is worth {now.point_value:.2f}."
    )


def _stable(now: StopSituation) -> StopCard | None:
    last = now.agreement[-STABLE_FOR:]
    if len(last) < STABLE_FOR or min(last) < STABLE or now.accuracy_low is None:
        return None
    return StopCard(
        "stable answers", f"the last {STABLE_FOR} trainings changed almost no answer (kappa {min(last):.3f})."
    )


def kappa(one: NDArray[np.int64], other: NDArray[np.int64], classes: int) -> float:
    """Return Cohen's kappa of two sets of answers to the same questions: 1 = the same, 0 = as by chance."""
    table = np.zeros((classes, classes))
    np.add.at(table, (one, other), 1.0)
    if not len(one):
        return float("nan")
    table /= len(one)
    chance = float(table.sum(0) @ table.sum(1))
    return 1.0 if chance >= 1.0 else (float(np.trace(table)) - chance) / (1.0 - chance)
