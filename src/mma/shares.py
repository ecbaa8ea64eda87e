"""Shares: a whole number split in proportion, and a measured share (0 to 1) with its exact interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def shares(sizes: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Split n among groups in proportion to their sizes by largest remainder, in whole numbers.

    No group gets more than it has as long as n <= sum(sizes): seats left over are fewer than groups with a remainder,
    and a remainder means that the group's exact share, rounded up, still fits.
    """
    total = int(sizes.sum())
    if total == 0:
        return np.zeros_like(sizes)
    share, remainder = np.divmod(sizes.astype(np.int64) * n, total)  # no rounding error can change a share
    share[np.argsort(-remainder, kind="stable")[: n - int(share.sum())]] += 1
    return share


LEVEL = 0.95


@dataclass(frozen=True)
class Share:
    """A share of right answers, with its 95 % interval."""

    value: float
    low: float
    high: float
    right: int
    of: int


@dataclass(frozen=True)
class AuditRecord:
    """Audit photos, one of near-duplicates each, as models judged them that had not seen them: promises follow from it."""

    confidence: tuple[float, ...]
    right: tuple[bool, ...]
    pool: tuple[float, ...]  # evenly spaced quantiles of the confidence in photos without a label


@dataclass(frozen=True)
class Promise:
    """Answers with at least this confidence: at most a share of them is wrong (95 % sure), and so many photos have one."""

    max_error: float
    threshold: float
    share: float


def describe_accuracy(percent: float, images: int) -> str:
    """Write an accuracy with its interval: "97.20 % accuracy (95 % interval 95.3 to 98.5)"."""
    low, high = (100 * share for share in exact_interval(round(percent * images / 100), images))
    return f"{percent:.2f} % accuracy ({100 * LEVEL:.0f} % interval {low:.1f} to {high:.1f})"


def exact_interval(right: float, of: float, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval (0 to 1) that holds the true share with probability `level` (Clopper and Pearson, 1934)."""
    from scipy.stats import beta

    if not 0 <= right <= of or of <= 0:
        raise ValueError(f"{right} of {of} is no share.")
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, right, of - right + 1)) if right else 0.0
    high = float(beta.ppf(1 - tail, right + 1, of - right)) if right < of else 1.0
    return low, high
