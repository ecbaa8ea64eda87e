"""How a project or a run stands, in numbers, in sentences and as report.html. Torch is loaded for runs alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mma.errors import UserError
from mma.files import read_json, write_atomically
from mma.project.guesses import SourceQuality
from mma.project.labels.events import count_labels, find_class, merge_roots
from mma.project.models import MORE, ModelReport
from mma.project.project import Project
from mma.project.quality.accuracy import Quality, foresee
from mma.project.quality.agreement import SecondLooks, looks_words, second_looks
from mma.project.quality.forecast import (
    BAND,
    LEAST,
    WORTH,
    AccuracyPoint,
    Check,
    Curve,
    Gain,
    LabelsToTarget,
    check_forecasts,
    fails,
    forecast_words,
)
from mma.project.quality.goal import Goals, GoalSituation, Verdict, check_goal, how_common, judge_goal
from mma.run import Run
from mma.shares import Share, describe_accuracy
from mma.text import render_template

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
    band: tuple[AccuracyPoint, ...]
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
        return asdict(self)


def status(project: Project, goals: Goals | None = None) -> ProjectStatus:
    """Return how a project stands. Goals that are not given are those of its settings."""
    goals, classes = goals or goals_of(project), project.classes()
    counts, names = project.counts(), {each.id: each.name for each in classes}
    report = project.models.latest_report("live")  # it says which model serves, and judges that one
    agreement = report.agreement if report else ()
    seconds = seconds_per_label(project)
    curve = Curve(report.curve) if report is not None and len(report.curve) >= LEAST else None
    checks = check_forecasts([(one.labels, one.gain) for one in report.forecasts], report.curve) if report else ()
    gain = curve.gain(MORE, seconds) if curve is not None else None
    forecast = forecast_words(gain, checks)
    if gain is not None and (not gain.decides or fails(checks)):
        curve = gain = None  # nothing is said by a forecast that is not shown
    money = None
    if gain is not None and goals.label_price is not None:
        cost = gain.more * goals.label_price
        money = LabelMoney(goals.label_price, cost, cost / gain.points if gain.points > 0 else None)
    ids = {each.name: each.id for each in classes if each.merged_into is None}
    per_class = {names[number]: many for number, many in counts.per_class.items()}
    flat = has_settled(agreement) or (gain is not None and gain.high < WORTH)
    verdict = judge_goal(goals, GoalSituation(counts.labeled, per_class, ids, report, counts.left, flat))
    # Where the goal is not reached, that more labels bring little is no reason to be content: the next step says so.
    low = 100 * verdict.reached.low if verdict.answer == "yes" and verdict.reached is not None else None
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
        band=tuple(curve.at(round(curve.last.labels * ahead)) for ahead in AHEAD) if curve else (),
        gain=gain,
        target=None if curve is None or goals.of_class else curve.labels_to(goals.percent),
        money=money,
        checks=checks,
        stop=stop_card(goals, counts.labeled, counts.left, low=low, gain=gain, agreement=agreement, money=money),
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
    last = next(reversed(project.models.rows()), None)
    return ModelState(last.number, last.kind, last.state, last.message) if last else None


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
    of_class = next((each.name for each in classes if each.id == root), None)
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


def has_settled(agreement: Sequence[float]) -> bool:
    """Tell whether the last trainings changed almost no answer."""
    return len(agreement) >= STABLE_FOR and min(agreement[-STABLE_FOR:]) >= STABLE


def stop_card(
    goals: Goals,
    labels: int,
    left: int,
    *,
    low: float | None = None,
    gain: Gain | None = None,
    agreement: Sequence[float] = (),
    money: LabelMoney | None = None,
) -> StopCard | None:
    """Return the first rule that fires, the most certain one first; None: go on.

    `left` images can still be asked about; `low` is the lower end of a verdict's interval, in percent; `agreement` the kappa of
    each model with the one before it.
    """
    if left == 0 and labels:
        return StopCard("nothing left", "every image has an answer.")
    if goals.budget is not None and labels >= goals.budget:
        return StopCard("budget", f"{labels:,} of {goals.budget:,} labels are given.")
    if goals.target is not None and low is not None and low >= goals.target:
        return StopCard("target", f"the goal of {goals.target:g} % is reached: it is {low:.1f} % or more (95 % sure).")
    if gain is not None and low is not None and gain.high < SMALL_GAIN:
        why = f"the next {gain.more} labels bring {gain.high:.1f} points at most (90 % band)."
        return StopCard("flat curve", why)
    price, value = money.price_of_a_point if money else None, goals.point_value
    if value is not None and price is not None and price > value:
        return StopCard("price", f"a point of accuracy now costs {price:.2f}, and is worth {value:.2f}.")
    if has_settled(agreement) and low is not None:
        return StopCard("stable answers", f"the last {STABLE_FOR} trainings changed almost no answer.")
    return None


# In sentences, for the terminal, the page and report.html.

ABOUT_RIGHT = 3.0  # points between confidence and accuracy that nobody need know of


def status_lines(now: ProjectStatus) -> list[str]:
    """Return what `mma status` prints above its table."""
    more = [words for words in (target_words(now), money_words(now)) if words]
    balanced = balanced_words(now.report.quality if now.report else None)
    text = render_template(
        "status.txt", now=now, more=more, balanced=balanced, looks=looks_words(now.looks), rest=_rest(now)
    )
    return text.splitlines()


def balanced_words(quality: Quality | None) -> list[str]:
    """Return balanced accuracy in a sentence where classes are unbalanced; else nothing."""
    found = quality.balanced if quality else None
    if found is None:
        return []
    low, high = 100 * found.low, 100 * found.high
    return [
        f"{100 * found.value:.0f} % with each class counted the same, between {low:.0f} and {high:.0f} (95 % sure)."
    ]


def _rest(now: ProjectStatus) -> str:
    return f"{now.left:,} images left, {now.cannot_tell:,} can't tell, {now.excluded:,} excluded"


def measure_words(project: Project, n: int) -> str:
    """Say what labels of `n` more photos drawn at random would bring."""
    report, left = project.models.latest_report("live"), project.audit_left()
    accuracy = report.quality.accuracy if report and report.quality else None
    counts = (report.audit, report.labels) if report else (0, 0)
    words = foresee(accuracy, *counts, min(n, left))
    return words if left >= n else f"Only {left} of the photos kept for measuring have no answer. {words}"


def target_words(now: ProjectStatus) -> str:
    """Return how many labels the goal takes, where a forecast is narrow enough to tell."""
    goal = now.target
    if goal is None or goal.labels is None or goal.high is None or now.verdict.answer != "no":
        return ""
    return f"{goal.target:g} % takes about {goal.labels:,} labels in all ({goal.low:,} to {goal.high:,})."


def money_words(now: ProjectStatus) -> str:
    """Return what the next labels cost, and whether that is worth it where it is known what a point is worth."""
    if now.money is None or now.gain is None:
        return ""
    price, value = now.money.price_of_a_point, now.goals.point_value
    point = "no gain is expected" if price is None else f"{price:.2f} per point"
    words = f"The next {now.gain.more} labels cost {now.money.cost:.2f}: {point}."
    if value is None:
        return words
    worth = "are" if price is not None and price <= value else "are not"
    return f"{words} They {worth} worth it: a point is worth {value:.2f} to you."


def write_page(project: Project, goals: Goals | None = None) -> Path:
    """Write report.html of a project as it stands: one file, no script, nothing loaded from elsewhere."""
    path = project.folder / "report.html"
    write_atomically(path, page(status(project, goals)))
    return path


def page(now: ProjectStatus) -> str:
    """Return report.html."""
    return render_template(
        "project_report.html",
        now=now,
        report=now.report,
        quality=now.report.quality if now.report else None,
        counts=_rest(now),
        band=f"{BAND:.0%}",
        more=[target_words(now), money_words(now)],
        looks=looks_words(now.looks),
        balanced=balanced_words(now.report.quality if now.report else None),
        classes=class_rows(now),
        about_right=ABOUT_RIGHT,
    )


def class_rows(now: ProjectStatus) -> list[list[str]]:
    """Return the name, labels, share of all photos, recall and precision of each class, the shares with their intervals."""
    quality = now.report.quality if now.report else None
    judged = {each.name: (each.recall, each.precision) for each in quality.classes} if quality else {}

    def words(share: Share | None) -> str:
        return "-" if share is None else f"{100 * share.value:.0f} % ({100 * share.low:.0f}-{100 * share.high:.0f})"

    return [
        [name, f"{labels:,}", *map(words, (now.common.get(name), *judged.get(name, (None, None))))]
        for name, labels in now.per_class.items()
    ]


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

    run, tested, problem = Run.open(folder), None, ""
    summary = run.summary()
    try:
        tested = evaluate(run)
    except UserError as error:  # nothing is trained yet, or there is nothing to test on
        problem = str(error)
    # The accuracy at the end of each round; a last round that trains longer than the others is no point of the curve.
    ends = {row["round"]: row for row in run.read("metrics") if row["accuracy"] is not None}
    rounds = [ends[number] for number in sorted(ends)]
    lengths = [later["step"] - before["step"] for before, later in pairwise(rounds)]
    if len(lengths) > 1 and lengths[-1] != lengths[-2]:
        rounds = rounds[:-1]
    found = {int(row["labels"]): AccuracyPoint(int(row["labels"]), float(row["accuracy"])) for row in rounds}
    curve = tuple(found[labels] for labels in sorted(found))
    even = bool(curve) and curve[-1].labels == summary["labels"]
    gain = Curve(curve).gain(MORE) if even and len(curve) >= LEAST else None
    counts = (summary["status"], summary["labels"], summary["step"], summary["steps"])
    return RunStatus(str(folder), *counts, tested, problem, curve, gain)


def run_lines(now: RunStatus) -> list[str]:
    """Return what `mma status RUN` prints above its table."""
    accuracy, forecast = now.problem, forecast_words(now.gain, points="rounds")
    if now.tested is not None:
        images = now.tested["images"]
        described = describe_accuracy(now.tested["accuracy"], images).replace(" accuracy", "", 1)
        accuracy = f"{described}, from {images:,} test images"
    if now.gain is None and len(now.curve) >= LEAST:
        forecast = "none: the last round trains longer than the others, so its gain is not due to labels alone."
    about = f"{now.run}: {now.status}, {now.labels:,} labels, step {now.step:,} of {now.steps:,}"
    return [about, f"accuracy: {accuracy}", f"forecast: {forecast}"]
