"""A project's status in sentences, for the terminal and report.html. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from mma.files import write_atomically
from mma.project.project import Project
from mma.project.quality.accuracy import Calibration, Quality, Share
from mma.project.quality.agreement import looks_words
from mma.project.quality.forecast import BAND, LEAST, AccuracyPoint, Check, CurveForecast, Gain
from mma.project.quality.status import Goals, ModelState, ProjectStatus, status
from mma.text import printable

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
    if working.kind == "features":
        return f"computing features: {working.message}"
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


# report.html of a project: one file, no script, nothing loaded from elsewhere, readable on a phone. No torch.

ABOUT_RIGHT = 3.0  # points
STYLE = """
:root {
  color-scheme: light dark; --ink: #1a1c20; --soft: #5a6068; --paper: #fff; --card: #f5f6f8; --line: #d8dce2;
  --main: #0b5cad; --band: #0b5cad33; --cell: 11,92,173; --wrong: 200,40,50;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e8eaee; --soft: #a2a9b4; --paper: #15171b; --card: #1e2127; --line: #3a3f48;
    --main: #6fb1ff; --band: #6fb1ff33; --cell: 111,177,255; --wrong: 255,110,120;
  }
}
* { box-sizing: border-box; }
body {
  font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 0 auto; max-width: 64rem; padding: 1rem; display: grid; gap: 1rem; grid-template-columns: minmax(0, 1fr);
}
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 0 0 .5rem; }
h1 { margin: .5rem 0 0; }
section { background: var(--card); border-radius: .75rem; padding: 1.1rem 1.25rem; min-width: 0; }
section p { margin: .25rem 0; }
.big { font-size: 2.5rem; font-weight: 600; line-height: 1.1; margin: 0; } .soft { color: var(--soft); margin: .25rem 0 0; }
.stop { border: 2px solid var(--main); } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; max-width: 14rem; overflow: hidden; text-overflow: ellipsis; }
.name { display: block; max-width: 14rem; overflow: hidden; text-overflow: ellipsis; }
.confusion td, .confusion th { padding: .2rem .4rem; min-width: 2rem; text-align: center; vertical-align: bottom; }
.confusion thead .name { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 9rem; }
.confusion tbody th { text-align: left; font-weight: 400; }
.confusion .right { background: rgba(var(--cell), .12); font-weight: 600; } table.wide { width: 100%; }
@media (min-width: 50rem) {
  body { grid-template-columns: repeat(2, minmax(0, 1fr)); } h1, .whole { grid-column: 1 / -1; }
}
svg { width: 100%; max-width: 46rem; height: auto; font: 13px system-ui, sans-serif; } svg text { fill: var(--soft); }
.grid { stroke: var(--line); } .line { fill: none; stroke: var(--main); stroke-width: 2; } .dashed { stroke-dasharray: 6 4; }
.bar { stroke: var(--main); stroke-width: 1.5; opacity: .5; } .dot { fill: var(--main); } .band { fill: var(--band); }
.target { stroke: var(--soft); stroke-dasharray: 3 4; }
"""


def write_page(project: Project, goals: Goals | None = None) -> Path:
    """Write report.html of a project as it stands."""
    path = project.folder / "report.html"
    write_atomically(path, page(status(project, goals)))
    return path


def page(now: ProjectStatus) -> str:
    """Return the whole page."""
    name = text(now.name)
    parts = [f"<h1>{name}</h1>", stop_part(now), accuracy_part(now), counts_part(now), forecast_part(now)]
    parts += [helping_part(now), model_part(now), labels_part(now), calibration_part(now)]
    parts += [classes_part(now), confusion_part(now)]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}: status</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def text(value: object) -> str:
    """Return something as it may stand in a page."""
    return escape(printable(str(value)))


def first_upper(words: str) -> str:
    """Begin with a capital letter."""
    return words[:1].upper() + words[1:]


def card(title: str, *inside: str, kind: str = "") -> str:
    """Return a section, or nothing when it has no content."""
    content = "".join(inside)
    return f'<section class="{kind}"><h2>{text(title)}</h2>{content}</section>' if content else ""


def sentence(words: str) -> str:
    """Return a paragraph of small print; nothing for no words."""
    return f'<p class="soft">{text(first_upper(words))}</p>' if words else ""


def range_of(share: Share | None) -> str:
    """Write a share in percent with its interval."""
    return "-" if share is None else f"{100 * share.value:.0f} % ({100 * share.low:.0f}-{100 * share.high:.0f})"


def counts_part(now: ProjectStatus) -> str:
    """Say how far the labeling is."""
    budget = f" of {now.goals.budget:,}" if now.goals.budget else ""
    rest = f"{now.left:,} images left, {now.cannot_tell:,} can't tell, {now.excluded:,} excluded."
    speed = "" if now.seconds_per_label is None else f" {60 / now.seconds_per_label:.0f} labels per minute."
    return card("Labels", f'<p class="big">{now.labels:,}{budget}</p>', sentence(rest + speed))


def stop_part(now: ProjectStatus) -> str:
    """Say that it is time to stop, and by which rule."""
    if now.stop is None:
        return ""
    return card("Time to stop?", f"<p>Rule <b>{text(now.stop.rule)}</b>: {text(now.stop.why)}</p>", kind="stop whole")


def accuracy_part(now: ProjectStatus) -> str:
    """Say how good the model is and how that is known."""
    quality = now.report.quality if now.report else None
    if quality is None:
        return card("Accuracy", sentence(f"Nothing can be said yet. {first_model_words(now)}"))
    share = quality.accuracy
    big = f'<p class="big">{100 * share.value:.1f} %</p>'
    between = f"Between {100 * share.low:.1f} % and {100 * share.high:.1f} % (95 %), from {quality.where}"
    return card("Accuracy", big, sentence(between))


def forecast_part(now: ProjectStatus) -> str:
    """Draw the learning curve and say what more labels would bring."""
    points = now.report.curve if now.report else ()
    if not points:
        return ""
    lines = [curve_svg(points, now.band, now.goals.target), f"<p>{text(forecast_words(now.gain))}</p>"]
    lines += [sentence(f"Band: {BAND:.0%}. Curve by {now.report.curve_source}." if now.report else "")]
    lines += [sentence(target_words(now)), sentence(money_words(now)), sentence(check_words(now.checks))]
    return card("What more labels would bring", *lines, kind="whole")


def helping_part(now: ProjectStatus) -> str:
    """Say whether asking helps."""
    return card("Is asking helping here?", sentence(now.report.helping.sentence)) if now.report else ""


def model_part(now: ProjectStatus) -> str:
    """Say which model is in use and why."""
    if now.report is None:
        return ""
    of = "" if now.report.uses in now.report.serving.why else f"Model {now.report.number}: {now.report.uses}."
    return card(
        "Which model", f"<p>{text(first_upper(now.report.serving.why))}</p>", sentence(of), sentence(now.report.query)
    )


def labels_part(now: ProjectStatus) -> str:
    """Say what second looks at labels showed."""
    return card("Can the labels be trusted?", *map(sentence, looks_words(now.looks)))


def classes_part(now: ProjectStatus) -> str:
    """List the classes with their labels, recall and precision."""
    quality = now.report.quality if now.report else None
    found = {each.name: each for each in quality.classes} if quality else {}
    rows = []
    for name, labels in now.per_class.items():
        each = found.get(name)
        rows.append(
            [name, f"{labels:,}", range_of(each.recall if each else None), range_of(each.precision if each else None)]
        )
    return (
        card("Classes", table(["class", "labels", "found (recall)", "right (precision)"], rows), kind="whole")
        if rows
        else ""
    )


def confusion_part(now: ProjectStatus) -> str:
    """Show the confusion matrix: rows are what people say."""
    quality = now.report.quality if now.report else None
    if quality is None or now.report is None or sum(map(sum, quality.confusion)) == 0:
        return ""
    names = now.report.classes
    body = "".join(
        confusion_row(name, row, place) for place, (name, row) in enumerate(zip(names, quality.confusion, strict=True))
    )
    head = "".join(f'<th scope="col"><span class="name">{text(name)}</span></th>' for name in names)
    note = sentence("Rows: what people say. Columns: what the model says.")
    inside = f'<table class="confusion"><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>'
    return card("What is taken for what", note, f'<div class="scroll">{inside}</div>', kind="whole")


def confusion_row(name: str, row: Sequence[int], place: int) -> str:
    """Return one class of the confusion matrix; what is mistaken is shaded."""
    total = max(sum(row), 1)
    cells = "".join(
        f'<td class="right">{count or ""}</td>'
        if k == place
        else f'<td style="background: rgba(var(--wrong), {0.6 * count / total:.2f})">{count or ""}</td>'
        for k, count in enumerate(row)
    )
    return f'<tr><th scope="row">{text(name)}</th>{cells}</tr>'


def calibration_part(now: ProjectStatus) -> str:
    """Say whether confidences can be believed."""
    quality: Quality | None = now.report.quality if now.report else None
    if quality is None or not quality.calibration.bins:
        return ""
    gap = 100 * quality.calibration.gap
    words = f"Confidences are about {abs(gap):.0f} points too {'high' if gap > 0 else 'low'}."
    if abs(gap) < ABOUT_RIGHT:
        words = "Confidences are about right."
    return card("Can its confidence be believed?", calibration_svg(quality.calibration), sentence(words))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that scrolls sideways where it must."""
    head = "".join(f"<th>{text(each)}</th>" for each in headings)
    body = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table class="wide"><tr>{head}</tr>{body}</table></div>'


# Plots as SVG, drawn by hand so that a page needs nothing else: a learning curve with its forecast, and a calibration.

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 44, 16, 28, 40


class Axes:
    """Maps labels and percent to the plot's pixels."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.x0, self.x1 = x
        self.y0, self.y1 = y

    def x(self, value: float) -> float:
        """Return the place from the left."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - self.x0) / max(self.x1 - self.x0, 1e-9)

    def y(self, value: float) -> float:
        """Return the place from the top."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.y1 - value) / max(self.y1 - self.y0, 1e-9)

    def frame(self, xs: Sequence[float], ys: Sequence[float], x_name: str, y_name: str) -> list[str]:
        """Return grid lines with their numbers, and the names of the axes."""
        lines = []
        for value in ys:
            y = self.y(value)
            lines.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
            lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        for value in xs:
            lines.append(f'<text x="{self.x(value):.1f}" y="{HEIGHT - 20}" text-anchor="middle">{value:g}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        lines.append(f'<text x="{middle:.0f}" y="{HEIGHT - 4}" text-anchor="middle">{x_name}</text>')
        lines.append(f'<text x="4" y="13">{y_name}</text>')
        return lines


def curve_svg(points: Sequence[AccuracyPoint], band: Sequence[CurveForecast], target: float | None) -> str:
    """Draw accuracy over labels: measured with intervals, then forecast with its band."""
    lows = [point.low if point.low is not None else point.accuracy for point in points] + [one.low for one in band]
    if target is not None:
        lows.append(target)
    bottom = max(10 * (min(lows) // 10), 0.0)
    right = max([point.labels for point in points] + [one.labels for one in band])
    axes = Axes((0.0, float(right)), (bottom, 100.0))
    ticks = [bottom + step * (100 - bottom) / 4 for step in range(5)]
    inside = axes.frame([round(right * part / 4) for part in range(5)], ticks, "labels trained on", "accuracy, %")
    inside += forecast_marks(axes, points, band)
    for point in points:
        if point.low is not None and point.high is not None:
            x, top, low = axes.x(point.labels), axes.y(point.high), axes.y(point.low)
            inside.append(f'<line class="bar" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{low:.1f}"/>')
    inside.append(f'<polyline class="line" points="{_path((axes.x(p.labels), axes.y(p.accuracy)) for p in points)}"/>')
    inside += [f'<circle class="dot" cx="{axes.x(p.labels):.1f}" cy="{axes.y(p.accuracy):.1f}" r="3"/>' for p in points]
    if target is not None:
        y = axes.y(target)
        inside.append(f'<line class="target" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
    return _svg("Accuracy over labels, with a forecast", inside)


def forecast_marks(axes: Axes, points: Sequence[AccuracyPoint], band: Sequence[CurveForecast]) -> list[str]:
    """Return the band and the middle of a forecast, from the last point on."""
    if not band or not points:
        return []
    last = points[-1]
    upper = [(axes.x(last.labels), axes.y(last.accuracy)), *((axes.x(one.labels), axes.y(one.high)) for one in band)]
    lower = [(axes.x(one.labels), axes.y(one.low)) for one in reversed(band)]
    middle = [upper[0], *((axes.x(one.labels), axes.y(one.accuracy)) for one in band)]
    return [
        f'<polygon class="band" points="{_path([*upper, *lower])}"/>',
        f'<polyline class="line dashed" points="{_path(middle)}"/>',
    ]


def calibration_svg(found: Calibration) -> str:
    """Draw what is right against what was expected, with intervals; on the diagonal confidences mean what they say."""
    axes = Axes((0.0, 100.0), (0.0, 100.0))
    inside = axes.frame([0, 25, 50, 75, 100], [0, 25, 50, 75, 100], "confidence, %", "right, %")
    inside.append(f'<line class="target" x1="{axes.x(0)}" y1="{axes.y(0)}" x2="{axes.x(100)}" y2="{axes.y(100)}"/>')
    for one in found.bins:
        x, share = axes.x(100 * one.confidence), one.accuracy
        top, low, y = axes.y(100 * share.high), axes.y(100 * share.low), axes.y(100 * share.value)
        inside.append(f'<line class="bar" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{low:.1f}"/>')
        inside.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
    return _svg("Share of right answers over confidence", inside)


def _path(points: object) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)  # type: ignore[attr-defined]


def _svg(title: str, inside: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}" xmlns="http://www.w3.org/2000/svg">'
    return head + f"<title>{title}</title>" + "".join(inside) + "</svg>"
