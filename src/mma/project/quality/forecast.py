"""What more labels would bring: a learning curve, a forecast with bands, and how earlier forecasts came out. No torch.

The error is taken to fall as c + a * labels**-b, plus noise of each training. For a given b that is a straight line in the
two other numbers, so that their posterior and that of the noise are known exactly; b is averaged over a grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.errors import UserError
from mma.rng import rng

BAND = 0.9  # share of later accuracies that should lie inside a band
DRAWS = 4_000
LEAST = 4  # points on the curve before anything is forecast
POWERS = np.linspace(0.1, 2.0, 20)  # b
FLOOR = (0.0, 20.0)  # c, in points: mean and standard deviation before anything is measured
RANGE = 60.0  # a, in points: standard deviation
NOISE = (3.25, 1.0)  # points at 50 % accuracy and 100 labels: prior size, and how many measurements it is worth
STEADIER = 0.5  # the noise falls with labels to the power of this: trainings with many labels differ less
WORLDS = 16  # curves that are drawn where few photos measured them
WIDE = 2 * 1.96  # standard deviations in a 95 % interval
LUCK = 1.5  # points by which a training differs from the next one, at 50 % accuracy and 100 labels
TURN = 2.0  # how much of that error is a wrong slope, against a wrong height
FARTHEST = 10.0  # times the labels there are: beyond that nothing is said
DECIDES = 4.0  # points: the widest band of a gain that is shown
WORTH = 1.0  # points that the next labels must be able to bring
CHECKED = 5  # earlier forecasts from which on they must come true; at least half of them
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class AccuracyPoint:
    """The accuracy, in percent, with so many labels: measured, with a 95 % interval, or forecast, with a 90 % band."""

    labels: int
    accuracy: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Gain:
    """What the next labels would bring to the model, in points, with its 90 % band: two trainings differ by luck, too.

    What is measured on few photos scatters more: `shown_low` to `shown_high`, also 90 %.
    """

    more: int  # labels
    points: float
    low: float
    high: float
    shown_low: float
    shown_high: float
    minutes: float | None = None  # at the person's speed; None before it is known

    @property
    def decides(self) -> bool:
        """Whether the band is narrow enough to decide something by, and so to be shown."""
        return self.high - self.low <= DECIDES


@dataclass(frozen=True)
class LabelsToTarget:
    """How many labels a target accuracy takes, all counted. None: farther than can be foreseen."""

    target: float
    labels: int | None
    low: int | None
    high: int | None


@dataclass(frozen=True)
class Check:
    """An earlier forecast of what will be measured, and what was."""

    labels: int
    said: float  # gain in points
    low: float
    high: float
    came: float

    @property
    def inside(self) -> bool:
        """Whether it came out inside the band."""
        return self.low <= self.came <= self.high


class Curve:
    """A learning curve and draws from everything it may be."""

    def __init__(self, points: Sequence[AccuracyPoint]) -> None:
        if len(points) < LEAST:
            raise UserError(
                f"a forecast needs {LEAST} models with different numbers of labels; there are {len(points)}."
            )
        self.points = tuple(sorted(points, key=lambda point: point.labels))
        self.last = self.points[-1]
        draw = rng(0, "forecast", *[point.labels for point in self.points])
        labels = np.array([point.labels for point in self.points], np.float64)
        errors, self.scatter = _possible_errors(self.points, draw)
        worlds = [_posterior(labels, error, DRAWS // len(errors), draw) for error in errors]
        self.floor, self.height, self.power, self.noise = np.concatenate(worlds).T
        self.luck, self.other_luck, self.sample = draw.standard_normal((3, len(self.noise)))

    def means(self, labels: int) -> Floats:
        """Return the accuracy at so many labels without the noise of a training, one value per draw."""
        error = self.floor + self.height * (labels / self.last.labels) ** -self.power
        means: Floats = np.clip(100.0 - error, 0.0, 100.0)
        return means

    def at(self, labels: int) -> AccuracyPoint:
        """Forecast the accuracy of the model that will be trained with so many labels."""
        means = self.means(labels)
        drawn = means + self._noise(means, labels) * self.luck
        if self.scatter:  # as the same few photos would show it
            drawn += self.last.accuracy - np.median(self.means(self.last.labels))
        drawn = np.clip(drawn, 0.0, 100.0)
        return AccuracyPoint(labels, float(np.median(drawn)), *_band(drawn))

    def _noise(self, means: Floats, labels: int) -> Floats:
        """Return the noise of a training. Where few photos measure all models, their own noise hides it: one size for all."""
        noise: Floats = (LUCK if self.scatter else self.noise) * spread_at(100.0 - means, labels)
        return noise

    def gain(self, more: int, seconds: float | None = None) -> Gain:
        """Say what `more` labels would bring; a label takes `seconds`."""
        now, later = self.last.labels, self.last.labels + more
        before, after = self.means(now), self.means(later)
        luck = self._noise(after, later) * self.luck - self._noise(before, now) * self.other_luck
        real = after - before + luck
        shown = real + self.scatter * self.sample
        minutes = None if seconds is None else more * seconds / 60.0
        return Gain(more, float(np.median(after - before)), *_band(real), *_band(shown), minutes)

    def labels_to(self, target: float) -> LabelsToTarget:
        """Return how many labels reach the target; each number is None where it is farther than can be foreseen."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = ((100.0 - target - self.floor) / self.height) ** (-1.0 / self.power)
        ratio = np.where((100.0 - target > self.floor) & np.isfinite(ratio), np.maximum(ratio, 0.0), np.inf)
        tail = (1 - BAND) / 2
        ratios = [float(np.quantile(ratio, q, method="lower")) for q in (0.5, tail, 1 - tail)]
        numbers = [math.ceil(each * self.last.labels) if each <= FARTHEST else None for each in ratios]
        return LabelsToTarget(target, *numbers)


def _possible_errors(points: Sequence[AccuracyPoint], draw: np.random.Generator) -> tuple[Sequence[Floats], float]:
    """Return the errors in percent and how far the last one may be off; where that is, several curves of what may be true.

    All models are measured on the same few photos, so that a whole curve is too high or too low, and to some part too steep.
    """
    if any(point.low is None or point.high is None for point in points):
        return [np.array([100.0 - point.accuracy for point in points])], 0.0
    sizes = np.log([point.labels for point in points])
    back = (sizes - sizes[-1]) / max(sizes[-1] - sizes[0], 1e-9)  # -1 at the first point, 0 at the last one
    low, high = np.array([(100.0 - (point.high or 0.0), 100.0 - (point.low or 0.0)) for point in points]).T
    scatter, errors = (
        (high - low) / WIDE,
        (low + high) / 2,
    )  # not the share itself: no mistake in ten photos is not none
    shifts, turns = draw.standard_normal((2, WORLDS, 1))
    found: Floats = np.clip(errors + scatter * (shifts + TURN * turns * back), 0.0, 100.0)
    return list(found), float(scatter[-1])


def _posterior(labels: Floats, error: Floats, wanted: int, draw: np.random.Generator) -> Floats:
    """Draw floor, height at the last point, power and noise; falling curves alone are kept. (wanted, 4)"""
    x, even = labels / labels[-1], 1.0 / spread_at(error, labels)
    size, worth = NOISE
    prior = np.diag([1 / FLOOR[1] ** 2, 1 / RANGE**2]) * size**2  # precision, in units of the noise's variance
    centre = np.array([FLOOR[0], 0.0])
    fits, evidence = [], np.zeros(len(POWERS))
    for place, power in enumerate(POWERS):  # a straight line with unknown noise (normal-inverse-gamma)
        basis, target = np.stack([np.ones_like(x), x**-power], 1) * even[:, None], error * even
        precision = prior + basis.T @ basis
        mean = np.linalg.solve(precision, prior @ centre + basis.T @ target)
        shape = worth / 2 + len(error) / 2
        rate = worth * size**2 / 2
        rate += 0.5 * float(target @ target + centre @ prior @ centre - mean @ precision @ mean)
        fits.append((mean, np.linalg.inv(precision), shape, rate))
        logs = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(precision)[1]
        evidence[place] = 0.5 * logs - shape * math.log(rate)
    weight = np.exp(evidence - evidence.max())
    counts, drawn = draw.multinomial(8 * wanted, weight / weight.sum()), []
    for power, (mean, covariance, shape, rate), many in zip(POWERS, fits, counts.tolist(), strict=True):
        noise = np.sqrt(rate / draw.gamma(shape, size=many))
        line = mean + noise[:, None] * (draw.standard_normal((many, 2)) @ np.linalg.cholesky(covariance).T)
        possible = (line >= 0).all(axis=1)  # an error that falls, to a floor that is not below zero
        drawn.append(np.column_stack([line[possible], np.full(possible.sum(), power), noise[possible]]))
    found = np.concatenate(drawn)
    if len(found) < wanted // 10:  # a curve that only falls: nothing is gained, by its own noise
        flat = draw.standard_normal(wanted) * error.std() / math.sqrt(len(error)) + error.mean()
        found = np.stack([flat, np.zeros(wanted), np.ones(wanted), np.full(wanted, (error * even).std())], 1)
    return found[draw.integers(len(found), size=wanted)]


def spread_at(error: Floats, labels: float | Floats) -> Floats:
    """Return the noise of a training at this error and so many labels against that at 50 % and 100 labels."""
    share = np.clip(error, 1.0, 99.0)
    spread: Floats = np.sqrt(share * (100.0 - share)) / 50.0 * (np.asarray(labels) / 100.0) ** -STEADIER
    return spread


def _band(drawn: Floats) -> tuple[float, float]:
    tail = (1 - BAND) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def check_forecasts(earlier: Sequence[tuple[int, Gain]], points: Sequence[AccuracyPoint]) -> tuple[Check, ...]:
    """Compare earlier forecasts with what came. Each is (labels it was made with, gain it promised at labels + more)."""
    checks = []
    for labels, gain in earlier:
        then = [point for point in points if point.labels == labels]
        later = [point for point in points if point.labels >= labels + gain.more]
        if then and later:
            came = later[0].accuracy - then[0].accuracy
            checks.append(Check(labels, gain.points, gain.shown_low, gain.shown_high, came))
    return tuple(checks)


def fails(checks: Sequence[Check]) -> bool:
    """Tell whether the track record of a project forbids forecasts."""
    return len(checks) >= CHECKED and 2 * sum(check.inside for check in checks) < len(checks)


def forecast_words(gain: Gain | None, checks: Sequence[Check] = (), points: str = "models") -> str:
    """Return what the next labels would bring with the track record; else what would make that possible to say."""
    if gain is None:
        return f"No forecast yet: it takes {LEAST} {points} with different numbers of labels."
    if fails(checks):
        inside = sum(check.inside for check in checks)
        return f"No forecast: only {inside} of the last {len(checks)} came true here. More labels make it steadier."
    if not gain.decides:
        return (
            f"No forecast yet: the next {gain.more} labels could bring {max(gain.low, 0.0):.0f} to {gain.high:.0f} points. "
            "More answers about random photos and a few more models make one possible."
        )
    minutes = None if gain.minutes is None else max(round(gain.minutes), 1)
    time = "" if minutes is None else f", about {minutes} minute{'' if minutes == 1 else 's'} at your speed"
    record = f" {sum(check.inside for check in checks)} of {len(checks)} earlier forecasts came true." if checks else ""
    return f"Next {gain.more} labels: {gain.points:+.1f} points ({gain.low:.1f} to {gain.high:.1f}){time}.{record}"
