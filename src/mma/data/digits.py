"""scikit-learn's real 8 x 8 handwritten digits: inside the package, nothing to download."""

from __future__ import annotations

import numpy as np

from mma.data.images import Images
from mma.data.subsets import first_of_each_class
from mma.rng import rng
from mma.shares import shares

CLASSES = tuple("0123456789")
TEST = 500


def read() -> tuple[Images, Images]:
    """Make the pool (1,297) and the test set (500): one fixed class-proportional split, both in the package's order."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    labels = digits.target.astype(np.int64)
    pixels = np.round(digits.images * 255 / 16).astype(np.uint8)[..., None]  # 17 levels, 0..16, to 0..255
    order = rng(0, "digits", "test").permutation(len(labels))
    chosen = first_of_each_class(labels[order], shares(np.bincount(labels), TEST))
    everything = Images(pixels, labels, CLASSES)
    test = np.sort(order[chosen])
    return everything.take(np.setdiff1d(np.arange(len(labels)), test)), everything.take(test)
