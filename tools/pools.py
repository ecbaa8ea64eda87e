"""Make small pools of real images as vectors, one .npz each, so that strategies are compared without decoding anything again.

    python tools/pools.py OUT --raw DIR [--photos DIR] [POOL ...]

DIR of --raw holds cifar10, cifar100 and svhn as `mma data get` reads them, DIR of --photos the folders signs and objects. A
pool that is in OUT already is left alone. Two pools are held out: the last four signs and the last twenty classes of CIFAR-100.
Nothing may be chosen on them, and only the duel at its end reads them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.data import Images, load_data
from mma.data.releases import CIFAR10, CIFAR100, PACKAGE_FOLDERS, TRAIN, read_fashion, read_release, read_svhn
from mma.features.backbone import Backbone
from mma.features.extract import compute_block
from mma.features.inputs import ArrayImages, ImageSource, PhotoFiles
from mma.features.table import parse_backbone
from mma.project.photos import Alike
from mma.project.scan import look
from mma.rng import rng

SEED = 32
SIGNS, OBJECTS, HUNDRED = 8, 20, 80  # classes of a pool; the signs and CIFAR-100's classes behind them are held out
TAIL = 20  # times as many images of the first class as of the last in `long_tail`
Part = tuple[ImageSource, NDArray[np.int64]]
Made = tuple[Part, Part, tuple[str, ...]]  # what is asked about, what is tested on, the classes


def drawn(images: Images, count: int, name: str, first: int = 0, last: int | None = None) -> Part:
    """Draw images of some classes, numbered from 0 on."""
    last = len(images.classes) if last is None else last
    rows = np.flatnonzero((images.labels >= first) & (images.labels < last))
    rows = np.sort(rng(SEED, "pools", name).permutation(rows)[:count])
    part = images.take(rows)
    return ArrayImages(np.asarray(part.pixels), part.keys), part.labels - first


def photos(root: Path, classes: list[str]) -> Part:
    """Read the photos of some sub-folders."""
    files = [(label, path) for label, name in enumerate(classes) for path in sorted((root / name).iterdir())]
    names = [path.relative_to(root).as_posix() for _, path in files]
    keys = np.array([list(bytes.fromhex(fact.image)) for fact in look(root, names)], np.uint8)
    return PhotoFiles(root, names, keys), np.array([label for label, _ in files], np.int64)


def folder(root: Path, first: int, last: int) -> Made:
    """Read some classes of a folder with pool/ and test/, in the order of their names."""
    classes = sorted(path.name for path in (root / "pool").iterdir())[first:last]
    return photos(root / "pool", classes), photos(root / "test", classes), tuple(classes)


def halves(
    pool: Images, test: Images, counts: tuple[int, int], name: str, first: int = 0, last: int | None = None
) -> Made:
    """Draw from both halves of a published data set."""
    chosen = drawn(pool, counts[0], f"{name}/pool", first, last), drawn(test, counts[1], f"{name}/test", first, last)
    return *chosen, pool.classes[first:last]


def recipes(raw: Path, folders: Path) -> dict[str, Callable[[], Made]]:
    """Say how each pool is made, the small ones first."""

    def digits() -> Made:
        data = load_data("digits")
        return halves(data.train, data.test, (1_297, 500), "digits")

    def cifar(ten: bool, counts: tuple[int, int], name: str, first: int = 0, last: int | None = None) -> Made:
        release, where = (CIFAR10, "cifar10") if ten else (CIFAR100, "cifar100")
        return halves(*read_release(release, raw / where, accept=True)[:2], counts, name, first, last)

    return {
        "digits": digits,
        "signs": lambda: folder(folders / "signs", 0, SIGNS),
        "objects": lambda: folder(folders / "objects", 0, OBJECTS),
        "cifar10": lambda: cifar(True, (6_000, 2_000), "cifar10"),
        "fashion-mnist": lambda: halves(
            *read_fashion(PACKAGE_FOLDERS[0], accept=True)[:2], (6_000, 2_000), "fashion-mnist"
        ),
        "cifar100": lambda: cifar(False, (8_000, 2_400), "cifar100", 0, HUNDRED),
        "svhn": lambda: halves(*read_svhn((TRAIN,), raw / "svhn", accept=True)[:2], (6_000, 2_000), "svhn"),
        "signs-held": lambda: folder(folders / "signs", SIGNS, 12),
        "cifar100-held": lambda: cifar(False, (6_000, 2_000), "cifar100-held", HUNDRED),
    }


def near_groups(source: ImageSource) -> NDArray[np.int64]:
    """Number the groups of near-duplicate photos as a project finds them: the row of the first, -1 for an image alone."""
    if not isinstance(source, PhotoFiles):
        return np.full(len(source), -1)
    alike, facts = Alike(), look(source.root, source.names)
    first = np.array([int(alike.group(str(row), fact.phash)) for row, fact in enumerate(facts)])
    return np.where(np.bincount(first, minlength=len(first))[first] > 1, first, -1)


def long_tail(labels: NDArray[np.int64], name: str) -> NDArray[np.int64]:
    """Return rows of which the first class has 20 times as many as the last, falling geometrically."""
    draw, counts = rng(SEED, "pools", name, "long tail"), np.bincount(labels)
    kept = [
        draw.permutation(np.flatnonzero(labels == c))[
            : max(1, round(int(counts.min()) * TAIL ** (-c / (len(counts) - 1))))
        ]
        for c in range(len(counts))
    ]
    return np.sort(np.concatenate(kept))


def vectors(source: ImageSource) -> dict[str, NDArray[np.float16]]:
    """Compute both backbones' features of the plain images."""
    backbones: dict[str, Backbone] = {"hog": parse_backbone("hog"), "lite0": parse_backbone("lite0")}
    return {
        name: compute_block(source, backbone.resolve(), np.arange(len(source)), threads=1)[:, 0]
        for name, backbone in backbones.items()
    }


def main() -> None:
    """Make the pools that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("pools", nargs="*")
    parser.add_argument("--raw", type=Path, default=Path())
    parser.add_argument("--photos", type=Path, default=Path())
    asked = parser.parse_intermixed_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, make in recipes(asked.raw, asked.photos).items():
        path = asked.out / f"{name}.npz"
        if path.exists() or (asked.pools and name not in asked.pools):
            continue
        (pool, labels), (test, test_labels), classes = make()
        arrays = {**vectors(pool), **{f"test_{key}": value for key, value in vectors(test).items()}}
        arrays |= {"labels": labels, "test_labels": test_labels, "groups": near_groups(pool)}
        if name in ("cifar10", "fashion-mnist", "digits", "svhn"):
            arrays["long_tail"] = long_tail(labels, name)
        if name == "objects":
            strangers, _ = photos(asked.photos / name, ["no-class"])
            arrays |= {f"none_{key}": value for key, value in vectors(strangers).items()}
        unfinished = path.with_suffix(".part.npz")
        np.savez(unfinished, classes=np.array(classes), **arrays)
        unfinished.rename(path)
        print(name, {key: value.shape for key, value in arrays.items()}, flush=True)


if __name__ == "__main__":
    main()
