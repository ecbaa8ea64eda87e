"""The one format every source ends in: images as one uint8 array, with keys, labels and the names of the classes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mma.errors import UserError
from mma.text import printable

UNKNOWN = -1  # the label of an image that nobody has labeled
CHUNK = 8_192  # images read at a time when a whole (possibly memory-mapped) array is walked
KEY_BYTES = 32  # of a sha256
KEY = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class Images:
    """Images, their keys, what is known about them, and what they can be.

    Parameters
    ----------
    pixels : uint8 array of shape (N, H, W, C)
        Memory-mapped copy-on-write when it comes from the cache.
    labels : integer array of shape (N,)
        Class numbers, -1 where nobody knows.
    classes : sequence of str
        Their names; may be empty, and may grow (`with_classes`).
    names, root : optional
        The file names (relative, with /) of images that came from a folder, and that folder.
    stored_digest, stored_keys : optional
        Given where keys cannot be computed from the pixels; see `keys`.

    Examples
    --------
    >>> images = mma.Images(np.zeros((2, 8, 8, 1), np.uint8), np.array([0, -1]), ("cat", "dog"))
    >>> images.shape
    (8, 8, 1)
    """

    pixels: NDArray[np.uint8] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    classes: tuple[str, ...]
    names: tuple[str, ...] | None = field(default=None, repr=False)
    stored_digest: str | None = field(default=None, repr=False)
    stored_keys: NDArray[np.uint8] | None = field(default=None, repr=False)
    root: Path | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or self.pixels.dtype != np.uint8 or 0 in self.pixels.shape[1:]:
            got = f"{self.pixels.dtype} of shape {self.pixels.shape}"
            raise UserError(f"pixels must be uint8 of shape (N, height, width, channels), not {got}.")
        object.__setattr__(self, "classes", tuple(self.classes))
        check_classes(self.classes)
        labels, count = self.labels, len(self)
        if labels.shape != (count,) or not np.issubdtype(labels.dtype, np.integer):
            got = f"{labels.dtype} of shape {labels.shape}"
            raise UserError(f"labels must be whole numbers (int64), one for each of the {count:,} images, not {got}.")
        if count and not (labels.min() >= UNKNOWN and labels.max() < len(self.classes)):
            found = f"{labels.min()} to {labels.max()}"
            raise UserError(f"labels must lie in -1..{len(self.classes) - 1}; these go from {found}.")
        object.__setattr__(self, "labels", labels.astype(np.int64, copy=False))
        if self.names is not None and len(self.names) != len(self):
            raise UserError(f"there are {len(self.names):,} names for {len(self):,} images.")
        if self.stored_keys is not None and self.stored_keys.shape != (len(self), KEY_BYTES):
            raise UserError(f"keys must be uint8 of shape ({len(self)}, {KEY_BYTES}), not {self.stored_keys.shape}.")

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of one image."""
        return self.pixels.shape[1], self.pixels.shape[2], self.pixels.shape[3]

    @cached_property
    def keys(self) -> NDArray[np.uint8]:
        """What identifies each image wherever it lies: the sha256 of its file, or of its pixels without one. (N, 32)"""
        return pixel_keys(self.pixels) if self.stored_keys is None else self.stored_keys

    def key(self, row: int) -> str:
        """Return the key of one image as 64 hexadecimal digits."""
        return bytes(self.keys[row]).hex()

    def rows(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each key; the first one where several images are alike."""
        if bad := [key for key in keys if not KEY.fullmatch(key)]:
            raise UserError(f"the key of an image has 64 hexadecimal digits, and '{printable(bad[0][:100])}' does not.")
        wanted = np.frombuffer(bytes.fromhex("".join(keys)), np.uint8).reshape(-1, KEY_BYTES)
        known, rows = np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.int64)
        if len(self) and len(keys):
            place = np.searchsorted(as_strings(self.keys), as_strings(wanted), sorter=self._key_order)
            rows = self._key_order[np.minimum(place, len(self) - 1)]
            known = (self.keys[rows] == wanted).all(axis=1)
        if not known.all():
            first = keys[int(np.argmin(known))]
            raise UserError(
                f"{np.count_nonzero(~known):,} of {len(keys):,} keys belong to no image here, the first of them {first}. "
                "The images were removed or changed, or the keys are of another data set."
            )
        return rows

    @cached_property
    def _key_order(self) -> NDArray[np.int64]:
        return np.argsort(as_strings(self.keys), kind="stable")

    def digest(self) -> str:
        """Name the content by its hash: the one stored in the cache, or computed when there is none."""
        return self.stored_digest or self.computed_digest()

    def computed_digest(self) -> str:
        """Hash shape, classes, labels and pixels, a chunk at a time, whatever was stored."""
        digest = hashlib.blake2b(json.dumps([list(self.pixels.shape), list(self.classes)]).encode(), digest_size=32)
        digest.update(np.ascontiguousarray(self.labels, dtype="<i8").tobytes())
        for start in range(0, len(self), CHUNK):
            digest.update(np.ascontiguousarray(self.pixels[start : start + CHUNK]).tobytes())
        return digest.hexdigest()

    def take(self, index: NDArray[np.int64]) -> Images:
        """Copy the images of `index`, in its order."""
        names = None if self.names is None else tuple(self.names[int(row)] for row in index)
        keys = None if self.stored_keys is None else np.asarray(self.stored_keys[index])
        pixels = np.asarray(self.pixels[index])
        return Images(pixels, self.labels[index], self.classes, names, stored_keys=keys, root=self.root)

    def with_classes(self, classes: Sequence[str]) -> Images:
        """Return the same images with a longer list of classes; the ids of the classes there are stay what they are."""
        if tuple(classes[: len(self.classes)]) != self.classes:
            raise UserError(
                f"classes can be added, but not removed or reordered: {_list_names(self.classes)} must come first, in "
                f"this order, and the list begins {_list_names(tuple(classes)[: len(self.classes)]) or 'with nothing'}."
            )
        return replace(self, classes=tuple(classes), stored_digest=None)

    def class_counts(self) -> dict[str, int]:
        """Count the images of each class, in the order of the classes; images without a label are in none."""
        counts = np.bincount(self.labels[self.labels >= 0], minlength=len(self.classes))
        return dict(zip(self.classes, counts.tolist(), strict=True))


@dataclass(frozen=True)
class BadFile:
    """A file that was left out, and why."""

    file: str
    reason: str


@dataclass(frozen=True, eq=False)
class DataSet:
    """A pool to learn from and ask about, and a test set (which may be empty).

    Parameters
    ----------
    name : str
        For people and for run folders.
    train, test : Images
        The pool and the test set, of one shape and with the same classes.
    mirror : bool
        Whether an image and its mirror image mean the same. Default: False.
    source, verified, notes, quarantine, options
        Where it comes from, whether its files are the official ones (true where there is nothing official to compare
        with), remarks, files that could not be read, and the options of `mma data get folder` that make it again.
    strangers : bool
        Whether a pool image without a label is of no class: who is asked about it cannot tell. Default: False.

    Examples
    --------
    >>> images = mma.Images(np.zeros((4, 8, 8, 1), np.uint8), np.array([0, 1, -1, -1]), ("cat", "dog"))
    >>> len(mma.DataSet("mine", images, images).train)
    4
    """

    name: str
    train: Images
    test: Images
    mirror: bool = False
    source: str = ""
    verified: bool = True
    notes: tuple[str, ...] = ()
    quarantine: tuple[BadFile, ...] = ()
    strangers: bool = False
    options: str = ""

    @classmethod
    def of(
        cls,
        pool: Examples,
        test: Examples | None = None,
        *,
        name: str = "own",
        classes: Sequence[str] = (),
        side: int | None = None,
        mirror: bool = False,
    ) -> DataSet:
        """Return the data set of one or two torch `Dataset`s, all of it read into memory.

        Classes are those given, or the Dataset's own `classes`, or numbers. PIL images are scaled to `side` where it is given.
        """
        parts = [read_examples(part, side) for part in (pool, test) if part is not None]
        highest = max(int(labels.max()) for _, labels in parts)
        named = tuple(map(str, classes or getattr(pool, "classes", ()) or range(highest + 1)))
        train, *tests = (Images(pixels, labels, named) for pixels, labels in parts)
        return cls(name, train, tests[0] if tests else no_images(train.shape, named), mirror)


class Examples(Protocol):
    """What a torch `Dataset` of images offers, such as torchvision's `ImageFolder`: examples by number, as (image, label)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


OwnData = DataSet | Examples


def as_data_set(given: OwnData | None, name: str) -> DataSet | None:
    """Return a data set as it is, and a torch `Dataset` as a pool without a test set."""
    return given if given is None or isinstance(given, DataSet) else DataSet.of(given, name=name)


def read_examples(examples: Examples, side: int | None) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read a torch `Dataset`: images from PIL, bytes (H, W) or (H, W, C), or tensors (C, H, W), which are in 0..1 if floats."""
    pixels: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    for number in range(len(examples)):
        image, label = examples[number]
        if hasattr(image, "convert"):  # PIL
            image = image if image.mode in ("L", "RGB") else image.convert("RGB")
            image = image if side is None else image.resize((side, side))
        array = np.asarray(image)
        if hasattr(image, "permute") and array.ndim == 3:
            array = array.transpose(1, 2, 0)
        if np.issubdtype(array.dtype, np.floating) and array.min(initial=0) >= 0 and array.max(initial=0) <= 1:
            array = np.round(array * 255).astype(np.uint8)
        array = array[..., None] if array.ndim == 2 else array
        if array.ndim != 3 or array.dtype != np.uint8 or (pixels and array.shape != pixels[0].shape):
            expected = f", and not {pixels[0].shape} as the first" if pixels else ""
            raise UserError(
                f"example {number} of the data is {array.dtype} of shape {array.shape}{expected}. Give images of one size, as "
                "bytes or as floats from 0 to 1; or let PIL images be scaled:  mma.DataSet.of(dataset, side=32)"
            )
        pixels.append(array)
        labels.append(UNKNOWN if label is None else int(label))
    if not pixels:
        raise UserError("the data holds no example. Give a Dataset with images.")
    return np.stack(pixels), np.array(labels, np.int64)


def no_images(shape: tuple[int, int, int], classes: tuple[str, ...]) -> Images:
    """Make the empty set of images, for data sets without a test set."""
    return Images(np.empty((0, *shape), np.uint8), np.empty(0, np.int64), classes)


def pixel_keys(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Hash each image's pixels with sha256, a chunk of images at a time. (N, 32)"""
    keys = np.empty((len(pixels), KEY_BYTES), np.uint8)
    for start in range(0, len(pixels), CHUNK):
        chunk = np.ascontiguousarray(pixels[start : start + CHUNK]).reshape(-1, pixels[0].size)
        hashes = b"".join(hashlib.sha256(image.data).digest() for image in chunk)
        keys[start : start + CHUNK] = np.frombuffer(hashes, np.uint8).reshape(-1, KEY_BYTES)
    return keys


def check_classes(classes: Sequence[str]) -> None:
    """Refuse a list of classes with an empty name, or with one name twice."""
    if not all(isinstance(name, str) and name.strip() for name in classes):
        raise UserError(f"a class needs a name, and one of these has none: {_list_names(classes)}.")
    if len(set(classes)) != len(classes):
        twice = sorted({name for name in classes if classes.count(name) > 1})
        raise UserError(f"each class needs a name of its own, and these are listed twice: {_list_names(twice)}.")


def as_strings(keys: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    """See each key as one string of 32 bytes, which numpy can sort and search. (N,)"""
    return np.ascontiguousarray(keys).view(f"S{KEY_BYTES}")[:, 0]


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(f"'{printable(str(name))}'" for name in names)
