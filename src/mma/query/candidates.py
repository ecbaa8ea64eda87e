"""What goes into a query, checked once: indices, probabilities and embeddings; and what a strategy returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.errors import UserError

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

SUM_TOLERANCE = 1e-2  # a softmax in half precision is off by about 1e-3; logits are off by far more than this


@dataclass(frozen=True, eq=False)
class Candidates:
    """Images we may ask about. For `.aug` the caller has already averaged `probs` over the views.

    Parameters
    ----------
    index : array of shape (N,)
        The images' positions in the data set, each once.
    probs : array of shape (N, classes), optional
        What the model says; rows sum to 1. Only where the query uses it (`Query.needs_probs`).
    features : array of shape (N, D), optional
        Embeddings, kept as float32. Only where the query uses them (`Query.needs_features`).

    Examples
    --------
    >>> import numpy as np
    >>> len(Candidates(np.arange(3), probs=np.full((3, 2), 0.5)))
    3
    """

    index: Ints  # (N,) positions in the data set, each once
    probs: Floats | None = None  # (N, classes), rows sum to 1
    features: Floats | None = None  # (N, D), kept as float32

    def __post_init__(self) -> None:
        index = np.asarray(self.index)
        if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
            raise UserError(
                f"The candidates' index has shape {index.shape} and type {index.dtype}; it must be one row of whole "
                "numbers, the positions of the images in the data set."
            )
        if len(np.unique(index)) != len(index):
            raise UserError(
                "The candidates' index names an image twice, so it could be asked about twice. Pass each once."
            )
        object.__setattr__(self, "index", index.astype(np.int64, copy=False))
        if self.probs is not None:
            object.__setattr__(self, "probs", _check_probs(self.probs, len(self.index)))
        if self.features is not None:
            object.__setattr__(self, "features", _check_features(self.features, len(self.index)))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def probabilities(self) -> Floats:
        """`probs`, for a query that needs them: never None."""
        return _present("probs", self.probs)

    @property
    def embeddings(self) -> Floats:
        """`features`, for a query that needs them: never None."""
        return _present("features", self.features)


@dataclass(frozen=True, eq=False)
class Labeled:
    """The images that have a label, as the query sees them.

    Parameters
    ----------
    features : array of shape (L, D), optional
        Embeddings from the same network as those of the candidates. Default: none are labeled.
    labels : array of shape (L,), optional
        Class numbers from 0 on, -1 for an image that people could not tell. Default: all unknown.

    Examples
    --------
    >>> import numpy as np
    >>> Labeled(np.eye(2), np.array([0, -1])).classes
    array([ 0, -1])
    """

    features: Floats | None = None  # (L, D); None = none
    labels: Ints | None = None  # (L,)

    def __post_init__(self) -> None:
        count = 0 if self.features is None else len(self.features)
        labels = np.full(count, -1) if self.labels is None else np.asarray(self.labels)
        if labels.shape != (count,) or (count and labels.dtype.kind not in "iu"):
            raise UserError(
                f"The labeled set has labels of shape {labels.shape} and type {labels.dtype}, but {count} embeddings. "
                "Pass one whole number for each: its class, or -1."
            )
        if count and labels.min() < -1:
            raise UserError(
                f"The labeled set has the label {labels.min()}. A label is a class number from 0 on, or -1."
            )
        object.__setattr__(self, "labels", labels.astype(np.int64, copy=False))
        if self.features is not None:
            object.__setattr__(self, "features", _check_features(self.features, count, "labeled set's"))

    def __len__(self) -> int:
        return 0 if self.features is None else len(self.features)

    @property
    def classes(self) -> Ints:
        """The labels (L,), -1 where unknown."""
        assert self.labels is not None  # set when it was made
        return self.labels

    def features_like(self, features: Floats) -> Floats:
        """Return the embeddings (L, D), as wide as those of the candidates; without any, an empty matrix."""
        if self.features is None or not len(self.features):
            return np.zeros((0, features.shape[1]), np.float32)
        if self.features.shape[1] != features.shape[1]:
            raise UserError(
                f"The labeled set's embeddings have {self.features.shape[1]} numbers and the candidates' "
                f"{features.shape[1]}. Compute both with the same network."
            )
        return self.features


def _present(name: str, values: Floats | None) -> Floats:
    if values is None:
        raise UserError(f"The query needs {name}, but the candidates have none. Pass Candidates(..., {name}=...).")
    return values


def _check_probs(probs: Floats, n: int) -> Floats:
    probs = _matrix(probs, "probs", n)
    if probs.dtype == np.float16:
        probs = probs.astype(np.float32)  # 1 - p in half precision would make ties of different images
    if len(probs) == 0:
        return probs
    with np.errstate(invalid="ignore"):  # NaN and infinities fail the comparison below
        low, high, off = probs.min(), probs.max(), np.abs(probs.sum(axis=1) - 1).max()
    if not (low >= -SUM_TOLERANCE and high <= 1 + SUM_TOLERANCE and off <= SUM_TOLERANCE):
        raise UserError(
            f"The candidates' probs range from {low:.3g} to {high:.3g} and a row misses the sum of 1 by {off:.3g}. "
            "They must be finite probabilities; if these are logits, apply softmax first."
        )
    return probs


def _check_features(features: Floats, n: int, whose: str = "candidates'") -> Floats:
    with np.errstate(over="ignore"):  # a float64 too large for float32 becomes inf and is refused below
        features = _matrix(features, "features", n, whose).astype(np.float32, copy=False)
    # The extremes carry any NaN or infinity with them, without a mask as large as the pool.
    if features.size and not np.isfinite([features.min(), features.max()]).all():
        raise UserError(
            f"The {whose} features hold NaN, an infinity, or numbers beyond float32: "
            "distances between images mean nothing then. The network that made them has probably diverged; take its last good "
            "checkpoint."
        )
    return features


def _matrix(values: Floats, name: str, n: int, whose: str = "candidates'") -> Floats:
    values = np.asarray(values)
    if values.ndim != 2 or len(values) != n or values.shape[1] == 0:
        wide = "classes" if name == "probs" else "D"
        raise UserError(
            f"The {whose} {name} have shape {values.shape}, but with {n} indices they "
            f"must be ({n}, {wide}): one row per image, in the order of the index."
        )
    if values.dtype.kind not in "fiub":
        raise UserError(f"The {whose} {name} are of type {values.dtype}; they must be numbers.")
    return values if values.dtype.kind == "f" else values.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Picks:
    """Rows of the candidates, the most wanted first, with what each is worth and why they were picked."""

    rows: Ints  # (n,) each once
    scores: Floats  # (n,) finite, never rising
    why: str = ""  # one sentence
