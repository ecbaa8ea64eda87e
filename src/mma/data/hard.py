"""Data sets made hard on purpose: `hard:KIND:NAME` is NAME with another pool, the same on any machine, and its own test set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mma.data.images import UNKNOWN, DataSet, Images
from mma.errors import UserError
from mma.rng import rng
from mma.text import did_you_mean, printable

PREFIX = "hard"
IMBALANCE = 50  # images of the first class for one of the last
COPIED, COPIES = 0.05, 10  # share of the images that are copied, and how often
NOISE = 4  # grey levels by which a near-duplicate differs, at most
STRANGERS = 0.25  # images of no class for each image of the pool
PATCHES = 4  # an image of no class is one whose 4 x 4 patches are shuffled


def long_tail(images: Images, draw: np.random.Generator) -> Images:
    """Keep fewer and fewer images of each class, in the order of the classes: 50 of the first for one of the last."""
    counts = np.bincount(images.labels[images.labels >= 0], minlength=len(images.classes))
    last = max(len(counts) - 1, 1)
    most = min(int(count * IMBALANCE ** (c / last)) for c, count in enumerate(counts))
    kept = [
        draw.permutation(np.flatnonzero(images.labels == c))[: max(round(most * IMBALANCE ** (-c / last)), 1)]
        for c in range(len(counts))
    ]
    return images.take(np.sort(np.concatenate(kept)))


def near_duplicates(images: Images, draw: np.random.Generator) -> Images:
    """Add ten noisy copies of every twentieth image: a third of the pool looks like another image."""
    rows = np.repeat(draw.permutation(len(images))[: max(round(COPIED * len(images)), 1)], COPIES)
    noise = draw.integers(-NOISE, NOISE + 1, (len(rows), *images.shape), dtype=np.int16)
    copies = np.clip(images.pixels[rows].astype(np.int16) + noise, 0, 255).astype(np.uint8)
    return joined(images, copies, images.labels[rows])


def wrong_answers(share: float, images: Images, draw: np.random.Generator) -> Images:
    """Give a share of the images another class than their own."""
    known = np.flatnonzero(images.labels != UNKNOWN)
    rows = draw.permutation(known)[: round(share * len(known))]
    labels = images.labels.copy()
    labels[rows] = (labels[rows] + draw.integers(1, len(images.classes), len(rows))) % len(images.classes)
    return replace(images, labels=labels, stored_digest=None)


def no_class(images: Images, draw: np.random.Generator) -> Images:
    """Add images of no class, one for four others: their patches are those of an image, shuffled."""
    rows = draw.permutation(len(images))[: round(STRANGERS * len(images))]
    strange = np.array(images.pixels[rows])  # (N, H, W, C); rows and columns that fill no patch stay where they are
    high, wide = strange.shape[1] // PATCHES, strange.shape[2] // PATCHES
    corners = [(y * high, x * wide) for y in range(PATCHES) for x in range(PATCHES)]
    for shuffled, row in zip(strange, rows, strict=True):
        for (y, x), place in zip(corners, draw.permutation(len(corners)), strict=True):
            top, left = corners[int(place)]
            shuffled[y : y + high, x : x + wide] = images.pixels[row, top : top + high, left : left + wide]
    return joined(images, strange, np.full(len(rows), UNKNOWN))


def joined(images: Images, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Images:
    """Return the images and others behind them, named by their pixels."""
    both = np.concatenate([np.asarray(images.pixels), pixels])
    return Images(both, np.concatenate([images.labels, labels]), images.classes)


HARD: dict[str, Callable[[Images, np.random.Generator], Images]] = {
    "long-tail": long_tail,
    "near-duplicates": near_duplicates,
    "wrong-5": partial(wrong_answers, 0.05),
    "wrong-20": partial(wrong_answers, 0.2),
    "no-class": no_class,
}


def split_hard(name: str) -> tuple[str, str]:
    """Return kind and data set of `hard:KIND:NAME`; "" and the name of any other data set."""
    if not name.startswith(f"{PREFIX}:"):
        return "", name
    _, kind, base = [*name.split(":", 2), "", ""][:3]
    if kind not in HARD or not base or base.startswith(f"{PREFIX}:"):
        raise UserError(
            f"no data set '{printable(name)}'.{did_you_mean(kind, HARD)} A hard one is called hard:KIND:NAME, with one of "
            f"{', '.join(HARD)}, like hard:long-tail:digits."
        )
    return kind, base


def make_hard(data: DataSet, kind: str) -> DataSet:
    """Return the data set with a hard pool, or as it is for no kind. Who is asked about an image of no class cannot tell."""
    if not kind:
        return data
    train = HARD[kind](data.train, rng(0, "hard", kind, data.name))
    return replace(data, name=f"{PREFIX}:{kind}:{data.name}", train=train, strangers=kind == "no-class")
