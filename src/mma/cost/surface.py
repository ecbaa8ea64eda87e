"""A smooth accuracy surface over (labels, total), for forecasts beyond the table. How well it predicts: docs/cost.md.

The error in percent is fitted by three formulas e = floor + exp(...), by least squares in logarithms for each of a few floors.
The forecast is the geometric mean of the three. Its interval comes from refits of tables drawn from the noise, each by one of
the formulas, so it widens where they disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mma.cost.exchange import LEVEL
from mma.cost.table import CostTable, Floats
from mma.errors import UserError
from mma.rng import rng

FLOORS = np.linspace(0, 0.95, 12)  # share of the smallest error measured that no amount of data removes
MODEL_ERROR = 0.03  # relative error of any formula; it limits the weight of a cell
FEWEST = 6  # cells with unlabeled images that a fit needs
FURTHEST = 10  # times beyond the data; further out the formulas disagree completely


# Regressors from the logarithms of labels (n) and total (m).
FORMS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "interaction": lambda n, m: np.stack([np.ones_like(n), n, m, n * m], axis=-1),
    "curved": lambda n, m: np.stack([np.ones_like(n), n, m, m**2], axis=-1),
    # with the labeled share: MixMatch is tuned for |L| << |U|
    "crowded": lambda n, m: np.stack([np.ones_like(n), n, m, np.exp(n - m)], axis=-1),
}
SCALE = np.array([1e3, 1e4])  # keeps the logarithms near 0, so that the columns of a fit are of one size


@dataclass(frozen=True, eq=False)
class Formula:
    """A fit: error = floor + exp(form(log labels, log total) . weights)."""

    form: str
    floor: float
    weights: Floats
    scatter: float  # of log(error) around the fit

    def log_error(self, points: Floats) -> Floats:
        """Return the log of the error in percent at (M, 2) points of (labels, total)."""
        x = FORMS[self.form](*np.log(points / SCALE).T)
        # an error above 100 % is meaningless and would overflow far outside the data
        error: Floats = self.floor + np.exp(np.minimum(x @ self.weights, np.log(100.0)))
        return np.log(np.minimum(error, 100.0))


@dataclass(frozen=True)
class Forecast:
    """The accuracy expected at a point, its 90 % interval, and how far the point lies outside the table."""

    labels: int
    total: int
    accuracy: float
    low: float | None
    high: float | None
    reach_labels: float  # factor beyond the largest (or below the smallest) count measured; 1 = inside
    reach_total: float

    @property
    def beyond(self) -> bool:
        """Whether the point lies outside the table."""
        return max(self.reach_labels, self.reach_total) > 1

    def __str__(self) -> str:
        spread = "" if self.low is None or self.high is None else f" ({self.low:.1f} to {self.high:.1f})"
        far = f"{self.reach_labels:.2g} times the labels, {self.reach_total:.2g} times the images"
        where = f"beyond the data by {far}" if self.beyond else "within the data"
        return f"{self.labels:,} labels, {self.total:,} images: {self.accuracy:.1f} %{spread}, {where}"


@dataclass(frozen=True, eq=False)
class Surface:
    """The fitted formulas, and refits of drawn tables for the interval."""

    formulas: tuple[Formula, ...]
    refits: tuple[Formula, ...]  # one per draw; the forms take turns
    noise: Floats  # (draws,) standard normal, for the scatter around a formula
    labels: tuple[int, int]  # smallest and largest measured
    totals: tuple[int, int]

    def predict(self, points: Floats) -> Floats:
        """Return the accuracy in percent at (M, 2) points of (labels, total)."""
        for labels, total in points:
            far = max(self.reach(int(labels), int(total)))
            if far > FURTHEST:
                raise UserError(
                    f"{labels:,.0f} labels and {total:,.0f} images lie {far:,.0f} times outside what was measured (labels "
                    f"from {self.labels[0]:,} to {self.labels[1]:,}, images from {self.totals[0]:,} to {self.totals[1]:,}): "
                    f"a forecast means nothing there. Ask within {FURTHEST} times, or measure nearer."
                )
        return _accuracy(np.mean([f.log_error(points) for f in self.formulas], axis=0))

    def predict_draws(self, points: Floats) -> Floats:
        """Return one accuracy per draw and point, (draws, M); a draw's scatter moves all points the same way.

        The scatter grows by half with every doubling beyond the data. Without that, the intervals held 71 % of the held-out
        cells instead of 90 %.
        """
        beyond = 1 + 0.5 * np.log2([max(self.reach(int(n), int(m))) for n, m in points])
        logs = [f.log_error(points) + z * f.scatter * beyond for f, z in zip(self.refits, self.noise, strict=True)]
        return _accuracy(np.array(logs).reshape(len(self.refits), len(points)))

    def forecast(self, labels: int, total: int) -> Forecast:
        """Return the forecast at one point; UserError more than FURTHEST times outside the table."""
        if not 1 <= labels <= total:
            raise UserError(f"{labels:,} labels among {total:,} images in total cannot be: labeled images count too.")
        point = np.array([[labels, total]], dtype=np.float64)
        drawn = self.predict_draws(point)[:, 0]
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist() if len(drawn) else (None, None)
        return Forecast(labels, total, float(self.predict(point)[0]), low, high, *self.reach(labels, total))

    def reach(self, labels: int, total: int) -> tuple[float, float]:
        """Return the factors by which a point lies beyond the measured labels and totals; 1 = inside."""
        (few, many), (small, large) = self.labels, self.totals
        return max(labels / many, few / labels, 1.0), max(total / large, small / total, 1.0)


def fit_surface(table: CostTable, *, forms: Sequence[str] = tuple(FORMS), draws: int = 200, seed: int = 0) -> Surface:
    """Fit the formulas to the cells with unlabeled images; the others were trained by another method."""
    use = table.measured & (table.totals[:, None] > table.labels[None, :])
    if use.sum() < FEWEST:
        raise UserError(
            f"{table.name} has {use.sum()} cells with unlabeled images; a surface needs at least {FEWEST}. Measure more."
        )
    rows, columns = np.nonzero(use)
    points = np.stack([table.labels[columns], table.totals[rows]], axis=1).astype(np.float64)
    spread = np.nan_to_num(table.error[use])
    fitted = tuple(_fit(name, points, table.accuracy[use], spread) for name in forms)
    tables = table.draws(draws, seed)[:, use]
    refits = tuple(_fit(forms[i % len(forms)], points, drawn, spread) for i, drawn in enumerate(tables))
    noise = rng(seed, "cost", "surface").standard_normal(len(refits))
    edges = [(int(values.min()), int(values.max())) for values in points.T]
    return Surface(fitted, refits, noise, edges[0], edges[1])


def _fit(form: str, points: Floats, accuracy: Floats, spread: Floats) -> Formula:
    """Fit by weighted least squares in log space for each floor; return the best."""
    error = np.maximum(100 - accuracy, 0.01)
    x, sure = FORMS[form](*np.log(points / SCALE).T), np.hypot(spread / error, MODEL_ERROR)
    best, least = None, np.inf
    for floor in FLOORS * error.min():
        above = error - floor
        weight = 1 / np.hypot(spread / above, MODEL_ERROR)
        solution = np.linalg.lstsq(x * weight[:, None], np.log(above) * weight, rcond=None)[0]
        off = np.log((floor + np.exp(x @ solution)) / error) / sure  # noisy cells count less
        if (loss := float(np.sum(off**2))) < least:
            freedom = max(len(error) - x.shape[1] - 1, 1)
            best, least = Formula(form, float(floor), solution, float(MODEL_ERROR * np.sqrt(loss / freedom))), loss
    assert best is not None
    return best


def _accuracy(log_error: Floats) -> Floats:
    accuracy: Floats = np.clip(100 - np.exp(log_error), 0, 100)
    return accuracy
