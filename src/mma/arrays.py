"""From a user's arrays to pixels and class numbers, and checks of a user's numbers. Without torch."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from mma.data.images import UNKNOWN


@dataclass(frozen=True)
class Frame:
    """How samples become pixels, learned in `fit` and the same ever after."""

    given: tuple[int, ...]  # shape of one sample: (features,) or (H, W, C)
    shape: tuple[int, int, int]  # height, width and channels of one image; plain rows are one pixel of many channels
    low: np.ndarray  # the least number seen: one for images, one per column for plain rows
    high: np.ndarray
    bytes: bool  # images of type uint8: not scaled at all
    mean: np.ndarray  # of each column of plain rows; of all numbers of images
    std: np.ndarray

    @property
    def plain_rows(self) -> bool:
        """Whether the samples are no images."""
        return self.shape[:2] == (1, 1)

    def pixels(self, X: np.ndarray) -> np.ndarray:
        """Return (N, H, W, C) in 0..255: bytes where the images are bytes, float32 otherwise."""
        check_shape(X, self.given)
        scaled = self._as_bytes(X) if self.bytes else self._scaled(X)
        return np.require(scaled.reshape(len(X), *self.shape), requirements=["C", "W"])

    def vectors(self, X: np.ndarray) -> np.ndarray:
        """Return plain rows (N, features) with columns of mean 0 and equal spread, about of length one."""
        spread = np.where(self.std > 0, self.std, 1.0) * np.sqrt(len(self.std))
        rows: np.ndarray = np.ascontiguousarray((X - self.mean) / spread, np.float32)
        return rows

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        span = np.where(self.high > self.low, self.high - self.low, 1.0)
        scaled: np.ndarray = ((np.clip(X, self.low, self.high) - self.low) * (255.0 / span)).astype(np.float32)
        return scaled

    def _as_bytes(self, X: np.ndarray) -> np.ndarray:
        whole = X.dtype.kind in "iub"
        if not whole or X.min() < 0 or X.max() > 255:
            raise ValueError(
                f"fit saw images of type uint8, but these are {X.dtype} from {X.min():.4g} to {X.max():.4g}. Convert "
                "them to the bytes 0..255, or fit with this type."
            )
        return X.astype(np.uint8, copy=False)


def frame_of(X: np.ndarray, image_shape: tuple[int, ...] | None) -> Frame:
    """Learn from the samples of `fit` how samples become pixels."""
    given = sample_shape(X)
    shape = image_of(given, image_shape)
    plain_rows = len(given) == 1 and image_shape is None
    axis = 0 if plain_rows else None
    low, high = (np.asarray(f(X, axis=axis), np.float64) for f in (np.min, np.max))
    mean, std = (np.asarray(f(X, axis=axis, dtype=np.float64)) for f in (np.mean, np.std))
    return Frame(given, shape, low, high, bytes=X.dtype == np.uint8 and not plain_rows, mean=mean, std=std)


def dimensions(X: Any) -> int:
    """Return how many dimensions an array-like has; a table with column names is left as it is."""
    return int(X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim)


def sample_shape(X: np.ndarray) -> tuple[int, ...]:
    """Return (features,) for rows and (H, W, C) for images, grey ones too."""
    if X.ndim > 4:
        raise ValueError(f"X has shape {X.shape}. Images are (N, height, width) or (N, height, width, channels).")
    return (*X.shape[1:], 1) if X.ndim == 3 else X.shape[1:]


def check_shape(X: np.ndarray, given: tuple[int, ...]) -> None:
    """Refuse samples of another shape than `fit` saw."""
    if sample_shape(X) != given:
        raise ValueError(
            f"these samples have the shape {sample_shape(X)}, but fit saw {given}. Bring them into that shape."
        )


def image_of(given: tuple[int, ...], image_shape: tuple[int, ...] | None) -> tuple[int, int, int]:
    """Return height, width and channels of one sample; a row that is no image is one pixel with a channel per column."""
    if image_shape is None:
        if len(given) == 3 and given[0] in (1, 3, 4) and given[2] > 4:
            raise ValueError(
                f"images of shape {given} seem to have their channels first. Put them last: np.moveaxis(X, 1, -1)."
            )
        height, width, channels = given if len(given) == 3 else (1, 1, given[0])
        return height, width, channels
    sides = tuple(at_least("image_shape", side, 1) for side in image_shape)
    if len(sides) not in (2, 3) or np.prod(sides) != np.prod(given) or (len(given) == 3 and (*sides, 1)[:3] != given):
        raise ValueError(
            f"image_shape={image_shape} does not fit samples of shape {given}. Use (height, width) or (height, width, "
            "channels) with as many numbers as a sample has, or leave it out for images."
        )
    height, width, channels = (*sides, 1)[:3]
    return height, width, channels


def encode_labels(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes, sorted, and for each sample the number of its class, -1 where it has no label."""
    texts = np.array([isinstance(label, str) for label in y.tolist()])
    if "-1" in y[texts].tolist():
        raise ValueError(
            "y holds the text '-1'. Unlabeled samples are marked by the number -1; to have it beside text, make y an "
            "array of objects: np.array(['cat', 'dog', -1], dtype=object)."
        )
    labeled = texts | (y != -1) if y.dtype.kind == "O" else texts if y.dtype.kind == "U" else y != -1
    if not labeled.any():
        raise ValueError("every label in y is -1, which means unlabeled. Label at least one sample of each class.")
    if texts.any() and not texts[labeled].all():
        raise ValueError("y mixes text and numbers other than -1, so the classes have no order. Use one of the two.")
    labels = y[labeled] if texts.any() else np.asarray(y[labeled].tolist())
    check_classification_targets(labels)
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only, {classes[0]!r}, and nothing can be told apart by it. -1 means unlabeled: a problem with "
            "the classes -1 and 1 needs other names for them, such as 0 and 1."
        )
    codes = np.full(len(y), UNKNOWN, np.int64)
    codes[labeled] = numbers
    return classes, codes


def at_least(name: str, value: Any, least: int) -> int:
    """Return a whole number that is large enough."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")
    return int(value)


def positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return a number above zero, or zero where that makes sense."""
    number = float(value) if isinstance(value, Real) else -1.0
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise ValueError(f"{name}={value!r} must be a number {'of at least' if zero else 'above'} 0.")
    return number
