"""An uncertainty: `--set query=gini.aug-kmeans`."""

import numpy as np

from mma.query import UNCERTAINTY


def gini(probs: np.ndarray) -> np.ndarray:
    """Return the chance that two draws from the prediction differ. Larger = less sure, 0 = certain."""
    return 1.0 - np.square(probs).sum(axis=1)  # (N, classes) -> (N,)


UNCERTAINTY["gini"] = gini
