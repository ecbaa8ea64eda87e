"""Split a whole number in proportion to sizes, exactly."""

from __future__ import annotations

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
