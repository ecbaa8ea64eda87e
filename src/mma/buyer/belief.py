"""What the buyer expects of labels and images.

The error follows power laws, error = e0 x labels^a x images^b x steps^c: a straight line in logarithms. The exponent `a` is
one number for few labels per class and another for many. The prior of the exponents comes from published numbers: the
paper's three tables, and for few labels the errors of MixMatch in arXiv:2001.07685. Measurements of the run update it by
Bayesian linear regression in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mma.buyer.situation import Situation
from mma.cost import open_table, paper_sources

Floats = NDArray[np.float64]
DRAWS = 500
KNEE = 25  # labels per class: below it a label is worth much more than above
# Errors of MixMatch in percent at 4 and at 25 labels per class: CIFAR-10, SVHN, CIFAR-100 (arXiv:2001.07685, table 2).
FEW_LABELS = ((47.54, 11.05), (42.55, 3.98), (67.61, 39.94))
DOUBT = 2.0  # another data set may differ from the paper's by more than its three tables do from each other
TRAINING = (-0.3, 0.3)  # exponent of the steps and its deviation: errors fall while training, by how much is unknown
ROUGH = 0.05  # relative error of any power law
PAIRED = (
    0.5  # of a measurement's spread; the rest comes from the choice of held-out images, the same in every measurement
)


@dataclass(frozen=True, eq=False)
class Belief:
    """Exponents of the power laws: mean, deviation, and draws of those of labels and images."""

    mean: Floats  # (5,) error, few labels, many labels, images, steps
    deviation: Floats  # (5,)
    draws: Floats  # (DRAWS, 3)
    knee: float  # number of labels at which few become many

    def factors(self, labels: int, images: int, more_labels: Floats, more_images: Floats) -> Floats:
        """Return by what the error is multiplied when labels and images are added. (DRAWS, M)"""
        before, after = (split_logs(np.asarray(n, np.float64), self.knee) for n in (labels, labels + more_labels))
        growth = [*(x - y for x, y in zip(after, before, strict=True)), np.log1p(more_images / images)]
        factors: Floats = np.exp(self.draws @ np.stack(np.broadcast_arrays(*growth)))
        return factors


def split_logs(labels: Floats, knee: float) -> tuple[Floats, Floats]:
    """Return the logarithm of the labels in two parts: up to the knee, and beyond it."""
    return np.log(np.minimum(labels, knee)), np.log(np.maximum(labels, knee))


@cache
def published_exponents() -> tuple[Floats, Floats]:
    """Return mean and deviation, over three data sets each, of the exponents of few labels, many labels and images."""
    few = [math.log(many / few) / math.log(25 / 4) for few, many in FEW_LABELS]
    fits = []
    for source in paper_sources():
        table = open_table(source)
        use = table.measured & (table.totals[:, None] > table.labels[None, :])
        rows, columns = np.nonzero(use)
        x = np.stack([np.ones(len(rows)), np.log(table.labels[columns]), np.log(table.totals[rows])], axis=1)
        fits.append(np.linalg.lstsq(x, np.log(100 - table.accuracy[use]), rcond=None)[0][1:])
    every = np.column_stack([few, fits])
    return every.mean(axis=0), every.std(axis=0, ddof=1)


def believe(history: Sequence[Situation], rng: np.random.Generator, classes: int = 10) -> Belief:
    """Return the belief after `history`, of which entries without a measurement are left out."""
    exponents, deviations = published_exponents()
    mean = np.array([math.log(0.5), *exponents, TRAINING[0]])
    precision = np.diag(1 / np.array([2.0, *(DOUBT * deviations), TRAINING[1]]) ** 2)
    knee = float(KNEE * classes)
    if any(entry.measured for entry in history):
        x, y, sure = regression_rows(history, knee)
        before, precision = precision, precision + (x * sure[:, None]).T @ x
        mean = np.linalg.solve(precision, before @ mean + (x * sure[:, None]).T @ y)
    covariance = np.linalg.inv(precision)
    draws = rng.multivariate_normal(mean, covariance, DRAWS, method="cholesky")[:, 1:4]
    draws[:, :2] = np.minimum(draws[:, :2], 0.0)  # more labels never hurt; more images may
    return Belief(mean, np.sqrt(np.diag(covariance)), draws, knee)


def regression_rows(history: Sequence[Situation], knee: float) -> tuple[Floats, Floats, Floats]:
    """Return regressors relative to the first measurement, log errors and their precisions."""
    found = [(entry, entry.measured) for entry in history if entry.measured]
    few, many = split_logs(np.array([entry.labels for entry, _ in found], np.float64), knee)
    images, steps = (np.log([getattr(entry, name) for entry, _ in found]) for name in ("images", "step"))
    x = np.stack([few, many, images, steps], axis=1)
    error = np.array([max(measured.error, 1e-4) for _, measured in found])
    spread = PAIRED * np.array([measured.spread for _, measured in found]) / error
    return np.column_stack([np.ones(len(x)), x - x[0]]), np.log(error), 1 / (spread**2 + ROUGH**2)
