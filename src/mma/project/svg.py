"""Plots as SVG, drawn by hand so that a page needs nothing else: a learning curve with its forecast, and a calibration."""

from __future__ import annotations

from collections.abc import Sequence

from mma.project.audit import Calibration
from mma.project.forecast import AccuracyPoint, CurveForecast

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
