"""How a project or a run stands: counts, accuracy, forecast, money and a reason to stop. Torch is loaded for runs alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from mma.errors import UserError
from mma.files import Row
from mma.project.labels.events import count_labels
from mma.project.models import MORE, ModelReport
from mma.project.project import Project
from mma.project.quality.agreement import SecondLooks, second_looks
from mma.project.quality.forecast import (
    LEAST,
    AccuracyPoint,
    Check,
    Curve,
    CurveForecast,
    Gain,
    LabelsToTarget,
    check_forecasts,
)
from mma.run import Run

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
    counts, names = project.counts(), {each.id: each.name for each in project.classes()}
    report = project.models.latest_report("live")  # it says which model serves, and judges that one
    seconds = seconds_per_label(project)
    curve = Curve(report.curve) if report is not None and len(report.curve) >= LEAST else None
    gain = money = low = None
    if curve is not None and report is not None:
        gain = curve.gain(MORE, seconds=seconds)
    if gain is not None and goals.label_price is not None:
        cost = gain.more * goals.label_price
        money = LabelMoney(goals.label_price, cost, cost / gain.points if gain.points > 0 else None)
    if report is not None and report.quality is not None:
        low = 100 * report.quality.accuracy.low
    situation = StopSituation(
        counts.labeled,
        counts.left,
        goals.budget,
        goals.target,
        low,
        gain,
        () if report is None else report.agreement,
        goals.point_value,
        None if money is None else money.price_of_a_point,
    )
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
        band=() if curve is None else tuple(curve.at(round(curve.last.labels * ahead)) for ahead in AHEAD),
        gain=gain,
        target=None if curve is None or goals.target is None else curve.labels_to(goals.target),
        money=money,
        checks=check_forecasts([(one.labels, one.gain) for one in report.forecasts], report.curve) if report else (),
        stop=stop_card(situation),
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


# When to stop labeling: each rule has a name, and the card says which one fired and why.

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
    if now.left == 0 and now.labels:
        return StopCard("nothing left", "every image has an answer.")
    if now.budget is not None and now.labels >= now.budget:
        return StopCard("budget", f"{now.labels:,} of {now.budget:,} labels are given.")
    low, last = now.accuracy_low, now.agreement[-STABLE_FOR:]
    if now.target is not None and low is not None and low >= now.target:
        return StopCard("target", f"the accuracy is {low:.1f} % or more (95 %), and the target is {now.target:g} %.")
    if now.gain is not None and low is not None and now.gain.high < SMALL_GAIN:
        why = f"the next {now.gain.more} labels bring {now.gain.high:.1f} points at most (90 % band)."
        return StopCard("flat curve", why)
    if now.point_value is not None and now.point_price is not None and now.point_price > now.point_value:
        why = f"a point of accuracy now costs {now.point_price:.2f}, and is worth {now.point_value:.2f}."
        return StopCard("price", why)
    if len(last) == STABLE_FOR and min(last) >= STABLE and low is not None:
        why = f"the last {STABLE_FOR} trainings changed almost no answer (kappa {min(last):.3f})."
        return StopCard("stable answers", why)
    return None


# A run: its latest model, tested on its test set as `mma eval` does.


@dataclass(frozen=True)
class RunStatus:
    """A run, what its latest model was found to be worth, and the forecast of more labels."""

    run: str
    status: str
    labels: int
    step: int
    steps: int
    tested: dict[str, Any] | None  # what `evaluate` says; None without a model or a test set
    problem: str  # why it was not tested; else empty
    curve: tuple[AccuracyPoint, ...]
    gain: Gain | None


def run_status(folder: Path) -> RunStatus:
    """Test the latest model of a run, and forecast from its rounds."""
    from mma.training.job import evaluate

    run = Run.open(folder)
    summary = run.summary()
    tested, problem = None, ""
    try:
        tested = evaluate(run)
    except UserError as error:  # nothing is trained yet, or there is nothing to test on
        problem = str(error)
    curve = curve_of_rounds(run.read("metrics"))
    even = bool(curve) and curve[-1].labels == summary["labels"]
    gain = Curve(curve).gain(MORE) if even and len(curve) >= LEAST else None
    counts = (summary["status"], summary["labels"], summary["step"], summary["steps"])
    return RunStatus(str(folder), *counts, tested, problem, curve, gain)


def curve_of_rounds(rows: list[Row]) -> tuple[AccuracyPoint, ...]:
    """Return the accuracy at the end of each round; a last round that trains longer than the others is no point of it."""
    ends = {row["round"]: row for row in rows if row["accuracy"] is not None}
    rounds = [ends[number] for number in sorted(ends)]
    lengths = [later["step"] - before["step"] for before, later in pairwise(rounds)]
    if len(lengths) > 1 and lengths[-1] != lengths[-2]:
        rounds = rounds[:-1]
    points = {int(row["labels"]): AccuracyPoint(int(row["labels"]), float(row["accuracy"])) for row in rounds}
    return tuple(points[labels] for labels in sorted(points))
