"""The one format every source ends in: images as one uint8 array, their labels and the names of the classes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

UNKNOWN = -1  # the label of an image that nobody has labeled
CHUNK = 8_192  # images read at a time when a whole (possibly memory-mapped) array is walked


@dataclass(frozen=True, eq=False)
class Images:
    """Images, what is known about them, and what they can be.

    `pixels` is (N, H, W, C) uint8; it is memory-mapped copy-on-write when it comes from the cache. `labels` is (N,)
    int64, -1 where nobody knows. `names` are the file names (relative, with /) of images that came from a folder.
    """

    pixels: NDArray[np.uint8] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    classes: tuple[str, ...]
    names: tuple[str, ...] | None = field(default=None, repr=False)
    stored_digest: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or self.pixels.dtype != np.uint8:
            got = f"{self.pixels.dtype} of shape {self.pixels.shape}"
            raise ValueError(f"pixels must be uint8 of shape (N, height, width, channels), not {got}.")
        if self.labels.shape != (len(self.pixels),) or self.labels.dtype != np.int64:
            got = f"{self.labels.dtype} of shape {self.labels.shape}"
            raise ValueError(f"labels must be int64, one for each of the {len(self.pixels):,} images, not {got}.")
        if len(self) and not (self.labels.min() >= UNKNOWN and self.labels.max() < len(self.classes)):
            low, high = self.labels.min(), self.labels.max()
            raise ValueError(f"labels must lie in -1..{len(self.classes) - 1}; these go from {low} to {high}.")
        if self.names is not None and len(self.names) != len(self.pixels):
            raise ValueError(f"there are {len(self.names):,} names for {len(self.pixels):,} images.")

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of one image."""
        return self.pixels.shape[1], self.pixels.shape[2], self.pixels.shape[3]

    def key(self, row: int) -> str:
        """Return the sha256 of one image."""
        return hashlib.sha256(np.ascontiguousarray(self.pixels[row]).tobytes()).hexdigest()

    def digest(self) -> str:
        """Name the content by its hash: the one stored in the cache, or computed when there is none."""
        return self.stored_digest or self.computed_digest()

    def computed_digest(self) -> str:
        """Hash shape, classes, labels and pixels, a chunk at a time, whatever was stored."""
        digest = hashlib.blake2b(digest_size=32)
        digest.update(json.dumps([list(self.pixels.shape), list(self.classes)]).encode())
        digest.update(np.ascontiguousarray(self.labels, dtype="<i8").tobytes())
        for start in range(0, len(self), CHUNK):
            digest.update(np.ascontiguousarray(self.pixels[start : start + CHUNK]).tobytes())
        return digest.hexdigest()

    def take(self, index: NDArray[np.int64]) -> Images:
        """Copy the images of `index`, in its order."""
        names = None if self.names is None else tuple(self.names[int(row)] for row in index)
        return Images(np.asarray(self.pixels[index]), self.labels[index], self.classes, names)

    def class_counts(self) -> dict[str, int]:
        """Count the images of each class, in the order of the classes; images without a label are in none."""
        counts = np.bincount(self.labels[self.labels >= 0], minlength=len(self.classes))
        return dict(zip(self.classes, counts.tolist(), strict=True))


@dataclass(frozen=True)
class Quarantined:
    """A file that was left out, and why."""

    file: str
    reason: str


@dataclass(frozen=True, eq=False)
class DataSet:
    """A pool to learn from and ask about, and a test set (which may be empty).

    `mirror` says whether an image and its mirror image mean the same; `verified` whether the files it was made from are
    the official ones (always true where there is nothing official to compare with).
    """

    name: str
    train: Images
    test: Images
    mirror: bool = False
    source: str = ""
    verified: bool = True
    notes: tuple[str, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()


def no_images(shape: tuple[int, int, int], classes: tuple[str, ...]) -> Images:
    """Make the empty set of images, for data sets without a test set."""
    return Images(np.empty((0, *shape), np.uint8), np.empty(0, np.int64), classes)
