"""A project's status in sentences, for the terminal and report.html. No torch."""

from __future__ import annotations

from mma.project.forecast import LEAST, Check, Gain
from mma.project.second_looks import looks_words
from mma.project.status import ModelState, ProjectStatus

FIRST = 10  # labels of two classes make a first model


def status_lines(now: ProjectStatus) -> list[str]:
    """Return what `mma status` prints above its table."""
    budget = f" of {now.goals.budget:,}" if now.goals.budget else ""
    lines = [
        f"{now.name}: {now.labels:,}{budget} labels, {now.left:,} images left, {now.cannot_tell:,} can't tell, "
        f"{now.excluded:,} excluded"
    ]
    lines += [f"accuracy: {accuracy_words(now)}"]
    if now.report is not None:
        lines += [f"model:    {now.report.serving.why}", f"forecast: {forecast_words(now.gain)}"]
        more = [check_words(now.checks), target_words(now), money_words(now)]
        lines += [f"          {words}" for words in more if words]
        lines += [f"asking:   {now.report.helping.sentence}"]
    looks = looks_words(now.looks)
    lines += [f"{'labels:' if words is looks[0] else '':9} {words}" for words in looks]
    if now.working is not None and now.working.state != "ready":
        lines += [f"now:      {working_words(now.working)}"]
    if now.stop is not None:
        lines += [f"stop?     rule '{now.stop.rule}': {now.stop.why}"]
    return lines


def working_words(working: ModelState) -> str:
    """Say what the worker does."""
    if working.message.startswith("features"):
        return f"computing {working.message}"
    words = {"training": "is being trained", "failed": "failed"}.get(working.state, working.state)
    return f"{working.kind} model {working.number} {words}" + (f": {working.message}" if working.message else "")


def accuracy_words(now: ProjectStatus) -> str:
    """Say how good the model is and how that is known."""
    quality = now.report.quality if now.report else None
    if quality is None:
        return f"nothing can be said yet. {first_model_words(now)}"
    share = quality.accuracy
    return f"{100 * share.value:.1f} % ({100 * share.low:.1f}-{100 * share.high:.1f}, 95 %), from {quality.where}"


def first_model_words(now: ProjectStatus) -> str:
    """Say what is missing for a first model."""
    named = [name for name, count in now.per_class.items() if count]
    if len(named) == 1 and now.labels >= FIRST:
        return f"All {now.labels:,} labels are {named[0]}: a model needs a second class."
    return "The first model comes after ten labels of two classes."


def forecast_words(gain: Gain | None, points: str = "models") -> str:
    """Say what the next labels would bring; `points` are what the curve is made of."""
    if gain is None:
        return f"No forecast yet: it takes {LEAST} {points}."
    time = ""
    if gain.minutes is not None:
        minutes = max(round(gain.minutes), 1)
        time = f", about {minutes} minute{'' if minutes == 1 else 's'} at your speed"
    return f"Next {gain.more} labels: {gain.points:+.1f} points ({gain.low:.1f} to {gain.high:.1f}){time}."


def check_words(checks: tuple[Check, ...]) -> str:
    """Say how the last forecast came out."""
    if not checks:
        return ""
    last, inside = checks[-1], sum(check.inside for check in checks)
    return (
        f"Last time I said {last.said:+.1f} ({last.low:+.1f} to {last.high:+.1f} with the luck of a training), "
        f"it was {last.came:+.1f}. {inside} of {len(checks)} forecasts came out inside that band (9 of 10 should)."
    )


def target_words(now: ProjectStatus) -> str:
    """Say how many labels the target takes."""
    if now.target is None:
        return ""
    if now.target.labels is None:
        return f"{now.target.target:g} %: not in sight."
    far = "more than can be foreseen" if now.target.high is None else f"{now.target.high:,}"
    return (
        f"{now.target.target:g} % takes about {now.target.labels:,} labels to train with ({now.target.low:,} to {far})."
    )


def money_words(now: ProjectStatus) -> str:
    """Say what the next labels cost."""
    if now.money is None or now.gain is None:
        return ""
    point = (
        "no gain is expected" if now.money.price_of_a_point is None else f"{now.money.price_of_a_point:.2f} per point"
    )
    return f"The next {now.gain.more} labels cost {now.money.cost:.2f}: {point}.{_worth(now)}"


def _worth(now: ProjectStatus) -> str:
    """Advise to go on or not, where it is known what a point is worth."""
    if now.money is None or now.goals.point_value is None:
        return ""
    price, value = now.money.price_of_a_point, now.goals.point_value
    advice = "Go on" if price is not None and price <= value else "They are not worth it"
    return f" {advice}: a point is worth {value:.2f} to you."
