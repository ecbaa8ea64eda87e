"""A project's status in sentences, for the terminal, the page and report.html. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mma.files import write_atomically
from mma.project.project import Project
from mma.project.quality.accuracy import foresee
from mma.project.quality.agreement import looks_words
from mma.project.quality.forecast import BAND, LEAST, forecast_words
from mma.project.quality.goal import Goals
from mma.project.quality.status import ProjectStatus, RunStatus, status
from mma.shares import Share, describe_accuracy
from mma.text import render_template

ABOUT_RIGHT = 3.0  # points between confidence and accuracy that nobody need know of


def status_lines(now: ProjectStatus) -> list[str]:
    """Return what `mma status` prints above its table."""
    verdict, budget = now.verdict, f" of {now.goals.budget:,}" if now.goals.budget else ""
    assumed = " (nobody has set one: --target)" if verdict.assumed else ""
    lines = [
        f"{verdict.headline}. {verdict.why}",
        f"next:     {verdict.next.words}",
        f"goal:     {verdict.goal}{assumed}",
        f"labels:   {now.labels:,}{budget}, {_rest(now)}",
    ]
    if now.report is not None:
        lines += [f"model:    {now.report.serving.why}", f"forecast: {now.forecast}"]
        lines += [f"          {words}" for words in (target_words(now), money_words(now)) if words]
        lines += [f"asking:   {now.report.helping.sentence}"] if now.report.helping.speaks else []
    lines += [f"{'' if place else 'checks:':9} {words}" for place, words in enumerate(looks_words(now.looks))]
    lines += [f"{'' if place else 'guesses:':9} {each.words}" for place, each in enumerate(now.guesses)]
    if (working := now.working) is not None and working.state != "ready":
        state = {"training": "is being trained", "failed": "failed"}.get(working.state, working.state)
        message = f": {working.message}" if working.message else ""
        doing = f"{working.kind} model {working.number} {state}{message}"
        doing = f"preparing photos{message}" if working.kind == "features" else doing
        lines += [f"now:      {doing}"]
    if now.stop is not None:
        lines += [f"stop?     rule '{now.stop.rule}': {now.stop.why}"]
    return lines


def _rest(now: ProjectStatus) -> str:
    return f"{now.left:,} images left, {now.cannot_tell:,} can't tell, {now.excluded:,} excluded"


def measure_words(project: Project, n: int) -> str:
    """Say what labels of `n` more photos drawn at random would bring."""
    report, left = project.models.latest_report("live"), project.audit_left()
    quality = report.quality if report else None
    words = foresee(
        quality.accuracy if quality else None,
        report.audit if report else 0,
        report.labels if report else 0,
        min(n, left),
    )
    return words if left >= n else f"Only {left} of the photos kept for measuring have no answer. {words}"


def run_lines(now: RunStatus) -> list[str]:
    """Return what `mma status RUN` prints above its table."""
    accuracy = now.problem
    if now.tested is not None:
        images = now.tested["images"]
        described = describe_accuracy(now.tested["accuracy"], images).replace(" accuracy", "", 1)
        accuracy = f"{described}, from {images:,} test images"
    forecast = forecast_words(now.gain, points="rounds")
    if now.gain is None and len(now.curve) >= LEAST:
        forecast = "none: the last round trains longer than the others, so its gain is not due to labels alone."
    return [
        f"{now.run}: {now.status}, {now.labels:,} labels, step {now.step:,} of {now.steps:,}",
        f"accuracy: {accuracy}",
        f"forecast: {forecast}",
    ]


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
    quality = now.report.quality if now.report else None
    speed = "" if now.seconds_per_label is None else f" {60 / now.seconds_per_label:.0f} labels per minute."
    confidence = ""
    if quality is not None:
        gap = 100 * quality.calibration.gap
        confidence = f"Confidences are about {abs(gap):.0f} points too {'high' if gap > 0 else 'low'}."
        confidence = "Confidences are about right." if abs(gap) < ABOUT_RIGHT else confidence
    return render_template(
        "project_report.html",
        now=now,
        report=now.report,
        quality=quality,
        counts=f"{_rest(now)}.{speed}",
        band=f"{BAND:.0%}",
        more=[target_words(now), money_words(now)],
        looks=looks_words(now.looks),
        confidence=confidence,
        classes=class_rows(now),
        curve_axes=curve_axes(now),
        percent_axes=Axes(100, 0, (0, 25, 50, 75, 100), (0, 25, 50, 75, 100)),
    )


def class_rows(now: ProjectStatus) -> list[list[str]]:
    """Return the name, labels, share of all photos, recall and precision of each class, the shares with their intervals."""
    quality = now.report.quality if now.report else None
    judged = {each.name: (each.recall, each.precision) for each in quality.classes} if quality else {}
    return [
        [name, f"{labels:,}", *map(_range, (now.common.get(name), *judged.get(name, (None, None))))]
        for name, labels in now.per_class.items()
    ]


def _range(share: Share | None) -> str:
    return "-" if share is None else f"{100 * share.value:.0f} % ({100 * share.low:.0f}-{100 * share.high:.0f})"


@dataclass(frozen=True)
class Axes:
    """Maps 0 to `right` and `bottom` to 100 percent to the pixels of a plot of 480 by 280."""

    right: float
    bottom: float
    x_ticks: tuple[float, ...]
    y_ticks: tuple[float, ...]

    def x(self, value: float) -> float:
        """Return the distance from the left."""
        return round(44 + 420 * value / max(self.right, 1e-9), 1)

    def y(self, percent: float) -> float:
        """Return the distance from the top."""
        return round(28 + 212 * (100 - percent) / max(100 - self.bottom, 1e-9), 1)


def curve_axes(now: ProjectStatus) -> Axes | None:
    """Return axes that hold the measured curve with its intervals, the forecast and the target; None without a curve."""
    points = now.report.curve if now.report else ()
    if not points:
        return None
    lows = [point.accuracy if point.low is None else point.low for point in points] + [one.low for one in now.band]
    lows += [] if now.goals.of_class else [now.goals.percent]
    bottom = max(10 * (min(lows) // 10), 0.0)
    right = max([point.labels for point in points] + [one.labels for one in now.band])
    quarters = range(5)
    return Axes(
        right,
        bottom,
        tuple(round(right * part / 4) for part in quarters),
        tuple(bottom + part * (100 - bottom) / 4 for part in quarters),
    )
