"""How numbers are written in every table of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from mma.experiments.report.statistics import interval, pair_by_seed, spread


def plus_minus(mean: float, std: float, sign: str = " ± ") -> str:
    """Write a mean with its standard deviation; without one (NaN), the mean alone."""
    return f"{mean:.2f}" + ("" if math.isnan(std) else f"{sign}{std:.2f}")


def mean_and_deviation(values: Sequence[float]) -> str:
    """Write the mean and standard deviation of some accuracies."""
    return plus_minus(float(np.mean(values)), spread(values))


def interval_text(low: float, high: float) -> str:
    """Write an interval of differences; `-` when it is open."""
    return f"{low:+.2f} to {high:+.2f}" if math.isfinite(low) else "-"


def difference_text(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """Write a paired difference with its 95 % interval."""
    values = pair_by_seed(ours, theirs)
    if not len(values):
        return "-"
    text = f"{values.mean():+.2f}"
    return f"{text} ({interval_text(*interval(values))})" if len(values) > 1 else text
