"""How a project or a run stands: counts, accuracy, forecast, money and a reason to stop. Torch is loaded for runs alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from mma.errors import UserError
from mma.files import Row, read_json
from mma.project.guesses import SourceQuality
from mma.project.labels.events import count_labels, find_class, merge_roots
from mma.project.models import MORE, ModelReport
from mma.project.project import Project
from mma.project.quality.agreement import SecondLooks, second_looks
from mma.project.quality.forecast import (
    LEAST,
    WORTH,
    AccuracyPoint,
    Check,
    Curve,
    CurveForecast,
    Gain,
    LabelsToTarget,
    check_forecasts,
    fails,
    forecast_words,
)
from mma.project.quality.goal import Goals, GoalSituation, Verdict, check_goal, how_common, judge_goal
from mma.run import Run
from mma.shares import Share

RECENT = 50  # labels whose median says how fast a person is
LONGEST = 120.0  # seconds for a label: whoever takes longer was away
DEEP_COST = "deep-cost.json"  # in state/: how long a deep training takes here
BROUGHT = {  # net -> what it brought (results/photos-deep-signs, results/cifar10-deep)
    "fast": "On photos of traffic signs that was 6.0 points better with 48 labels, 3.7 with 96 and 2.6 with 300.",
    "lite0": "On photos of traffic signs that was 1.3 points better with 12 labels; on CIFAR-10 about 3 with 500.",
}
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
class DeepCost:
    """What training deeper takes, by steps that were timed on this machine, and what it brought elsewhere."""

    seconds: float  # from the beginning to the end
    net: str

    @property
    def words(self) -> str:
        """What to say before it begins."""
        minutes = max(round(self.seconds / 60), 1)
        words = f"Training deeper takes about {minutes} minute{'' if minutes == 1 else 's'} on this machine; labeling goes on."
        return f"{words} {BROUGHT[self.net]}" if self.net in BROUGHT else words


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
    verdict: Verdict
    common: dict[str, Share]  # how common each class is, by the random photos
    forecast: str  # what the next labels would bring, or what would make that possible to say
    deep: DeepCost | None  # what training deeper would take; None before that is measured
    guesses: tuple[SourceQuality, ...] = ()  # how far each source of guesses can be trusted

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        found: dict[str, Any] = _adapter.dump_python(self, mode="json")
        return found


_adapter = TypeAdapter(ProjectStatus)


def status(project: Project, goals: Goals | None = None) -> ProjectStatus:
    """Return how a project stands. Goals that are not given are those of its settings."""
    goals, classes = goals or goals_of(project), project.classes()
    counts, names = project.counts(), {each.id: each.name for each in classes}
    report = project.models.latest_report("live")  # it says which model serves, and judges that one
    seconds = seconds_per_label(project)
    curve = Curve(report.curve) if report is not None and len(report.curve) >= LEAST else None
    checks = check_forecasts([(one.labels, one.gain) for one in report.forecasts], report.curve) if report else ()
    gain = money = low = None
    if curve is not None:
        gain = curve.gain(MORE, seconds)
    forecast = forecast_words(gain, checks)
    gain = gain if gain is not None and gain.decides and not fails(checks) else None
    if gain is not None and goals.label_price is not None:
        cost = gain.more * goals.label_price
        money = LabelMoney(goals.label_price, cost, cost / gain.points if gain.points > 0 else None)
    ids = {each.name: each.id for each in classes if each.merged_into is None}
    per_class = {names[number]: many for number, many in counts.per_class.items()}
    stable = report is not None and has_settled(report.agreement)
    flat = stable or (gain is not None and gain.high < WORTH)
    audit = report.audit if report else 0
    verdict = judge_goal(goals, GoalSituation(counts.labeled, per_class, ids, report, audit, counts.left, flat))
    if verdict.reached is not None:
        low = 100 * verdict.reached.low
    if verdict.answer != "yes":  # more labels bring little, and that is no reason to be content: the next step says so
        low = None
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
        per_class=per_class,
        seconds_per_label=seconds,
        goals=goals,
        working=working_on(project),
        report=report,
        band=()
        if curve is None or gain is None
        else tuple(curve.at(round(curve.last.labels * ahead)) for ahead in AHEAD),
        gain=gain,
        target=None if curve is None or gain is None or goals.of_class else curve.labels_to(goals.percent),
        money=money,
        checks=checks,
        stop=stop_card(situation),
        looks=second_looks(project),
        verdict=verdict,
        common=how_common(report.quality if report else None),
        forecast=forecast,
        deep=read_cost(project),
        guesses=tuple(project.guesses.qualities(project.labels())),
    )


def working_on(project: Project) -> ModelState | None:
    """Return what the worker does now."""
    for task, done, total, left in project.progress():
        if task == "features" and done < total:
            words = f"{done:,} of {total:,} images" + (f", about {left} left" if left else "")
            return ModelState(0, task, "training", words)
    models = project.models.rows()
    return ModelState(models[-1].number, models[-1].kind, models[-1].state, models[-1].message) if models else None


def read_cost(project: Project) -> DeepCost | None:
    """Return what training deeper takes here; None before a step was timed."""
    try:
        found = read_json(project.layout.state / DEEP_COST)
        return DeepCost(float(found["seconds"]), str(found["net"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def goals_of(project: Project) -> Goals:
    """Return the goals that mma.toml holds. A class that was merged counts as the one it was merged into."""
    given, classes = project.settings, project.classes()
    root = None if given.target_class is None else merge_roots(classes).get(given.target_class)
    names = {each.id: each.name for each in classes}
    of_class = None if root is None else names[root]
    return Goals(given.target, of_class, given.label_price, given.point_value, given.budget)


def set_goal(project: Project, target: float | None, class_id: int | None = None) -> None:
    """Store a goal in mma.toml: a share in percent, of all photos or of those of a class. None: no goal."""
    if class_id is not None:
        find_class(project.classes(), class_id)
    if target is not None:
        check_goal(target)
    project.wish(target=target, target_class=None if target is None else class_id)


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


def has_settled(agreement: Sequence[float]) -> bool:
    """Tell whether the last trainings changed almost no answer."""
    return len(agreement) >= STABLE_FOR and min(agreement[-STABLE_FOR:]) >= STABLE


def stop_card(now: StopSituation) -> StopCard | None:
    """Return the first rule that fires, the most certain one first; None: go on."""
    if now.left == 0 and now.labels:
        return StopCard("nothing left", "every image has an answer.")
    if now.budget is not None and now.labels >= now.budget:
        return StopCard("budget", f"{now.labels:,} of {now.budget:,} labels are given.")
    low = now.accuracy_low
    if now.target is not None and low is not None and low >= now.target:
        return StopCard("target", f"the goal of {now.target:g} % is reached: it is {low:.1f} % or more (95 % sure).")
    if now.gain is not None and low is not None and now.gain.high < SMALL_GAIN:
        why = f"the next {now.gain.more} labels bring {now.gain.high:.1f} points at most (90 % band)."
        return StopCard("flat curve", why)
    if now.point_value is not None and now.point_price is not None and now.point_price > now.point_value:
        why = f"a point of accuracy now costs {now.point_price:.2f}, and is worth {now.point_value:.2f}."
        return StopCard("price", why)
    if has_settled(now.agreement) and low is not None:
        why = f"the last {STABLE_FOR} trainings changed almost no answer."
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
