"""A project's status in sentences, for the terminal, the page and report.html. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mma.files import write_atomically
from mma.project.project import Project
from mma.project.quality.accuracy import LEAST_AUDIT, foresee
from mma.project.quality.agreement import looks_words
from mma.project.quality.forecast import BAND, LEAST, Check, Gain
from mma.project.quality.status import Goals, ProjectStatus, RunStatus, status
from mma.shares import Share, describe_accuracy
from mma.text import render_html

FIRST = 10  # labels of two classes make a first model
ABOUT_RIGHT = 3.0  # points between confidence and accuracy that nobody need know of


def status_lines(now: ProjectStatus) -> list[str]:
    """Return what `mma status` prints above its table."""
    budget = f" of {now.goals.budget:,}" if now.goals.budget else ""
    accuracy = f"nothing can be said yet. {first_model_words(now)}"
    if now.report is not None and (quality := now.report.quality) is not None:
        share = quality.accuracy
        accuracy = (
            f"{100 * share.value:.1f} % ({100 * share.low:.1f}-{100 * share.high:.1f}, 95 %), from {quality.where}"
        )
    lines = [f"{now.name}: {now.labels:,}{budget} labels, {_rest(now)}", f"accuracy: {accuracy}"]
    if now.report is not None:
        lines += [f"model:    {now.report.serving.why}", f"forecast: {forecast_words(now.gain)}"]
        more = [check_words(now.checks), target_words(now), money_words(now)]
        lines += [f"          {words}" for words in more if words]
        lines += [f"asking:   {now.report.helping.sentence}"]
    lines += [f"{'' if place else 'labels:':9} {words}" for place, words in enumerate(looks_words(now.looks))]
    if (working := now.working) is not None and working.state != "ready":
        state = {"training": "is being trained", "failed": "failed"}.get(working.state, working.state)
        message = f": {working.message}" if working.message else ""
        doing = f"{working.kind} model {working.number} {state}{message}"
        doing = f"computing features{message}" if working.kind == "features" else doing
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
    words = foresee(quality.accuracy if quality else None, report.audit if report else 0, min(n, left))
    return words if left >= n else f"Only {left} of the photos kept for measuring have no answer. {words}"


def first_model_words(now: ProjectStatus) -> str:
    """Return what is missing for a first model."""
    if now.report is not None:
        return f"It takes {LEAST_AUDIT} labels of photos drawn at random, and there are {now.report.audit}."
    named = [name for name, count in now.per_class.items() if count]
    if len(named) == 1 and now.labels >= FIRST:
        return f"All {now.labels:,} labels are {named[0]}: a model needs a second class."
    return "The first model comes after ten labels of two classes."


def forecast_words(gain: Gain | None, points: str = "models") -> str:
    """Return what the next labels would bring; `points` are what the curve is made of."""
    if gain is None:
        return f"No forecast yet: it takes {LEAST} {points}."
    time = ""
    if gain.minutes is not None:
        minutes = max(round(gain.minutes), 1)
        time = f", about {minutes} minute{'' if minutes == 1 else 's'} at your speed"
    return f"Next {gain.more} labels: {gain.points:+.1f} points ({gain.low:.1f} to {gain.high:.1f}){time}."


def run_lines(now: RunStatus) -> list[str]:
    """Return what `mma status RUN` prints above its table."""
    accuracy = now.problem
    if now.tested is not None:
        images = now.tested["images"]
        described = describe_accuracy(now.tested["accuracy"], images).replace(" accuracy", "", 1)
        accuracy = f"{described}, from {images:,} test images"
    forecast = forecast_words(now.gain, "rounds")
    if now.gain is None and len(now.curve) >= LEAST:
        forecast = "none: the last round trains longer than the others, so its gain is not due to labels alone."
    return [
        f"{now.run}: {now.status}, {now.labels:,} labels, step {now.step:,} of {now.steps:,}",
        f"accuracy: {accuracy}",
        f"forecast: {forecast}",
    ]


def check_words(checks: tuple[Check, ...]) -> str:
    """Compare the last forecast with what was measured."""
    if not checks:
        return ""
    last, inside = checks[-1], sum(check.inside for check in checks)
    return (
        f"Previous forecast: {last.said:+.1f} (90 % of measurements: {last.low:+.1f} to {last.high:+.1f}). Measured: "
        f"{last.came:+.1f}. {inside} of {len(checks)} measurements were inside that band (9 of 10 should be)."
    )


def target_words(now: ProjectStatus) -> str:
    """Return how many labels the target takes."""
    if (goal := now.target) is None:
        return ""
    if goal.labels is None:
        return f"{goal.target:g} %: not in sight."
    far = "more than can be foreseen" if goal.high is None else f"{goal.high:,}"
    return f"{goal.target:g} % takes about {goal.labels:,} labels to train with ({goal.low:,} to {far})."


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
    return render_html(
        "project_report.html",
        now=now,
        report=now.report,
        quality=quality,
        counts=f"{_rest(now)}.{speed}",
        first_model=first_model_words(now),
        forecast=forecast_words(now.gain),
        band=f"{BAND:.0%}",
        more=[target_words(now), money_words(now), check_words(now.checks)],
        looks=looks_words(now.looks),
        confidence=confidence,
        classes=class_rows(now),
        curve_axes=curve_axes(now),
        percent_axes=Axes(100, 0, (0, 25, 50, 75, 100), (0, 25, 50, 75, 100)),
    )


def class_rows(now: ProjectStatus) -> list[list[str]]:
    """Return the name, labels, recall and precision of each class, the last two with their intervals."""
    quality = now.report.quality if now.report else None
    judged = {each.name: (each.recall, each.precision) for each in quality.classes} if quality else {}
    return [
        [name, f"{labels:,}", *map(_range, judged.get(name, (None, None)))] for name, labels in now.per_class.items()
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
    lows += [] if now.goals.target is None else [now.goals.target]
    bottom = max(10 * (min(lows) // 10), 0.0)
    right = max([point.labels for point in points] + [one.labels for one in now.band])
    quarters = range(5)
    return Axes(
        right,
        bottom,
        tuple(round(right * part / 4) for part in quarters),
        tuple(bottom + part * (100 - bottom) / 4 for part in quarters),
    )
