"""CIFAR-10 and CIFAR-100 from their binary releases: the archive, or the files that were in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.data.download import Original, find, find_difference, is_official, read_members, refusal
from mma.data.images import Images
from mma.errors import UserError
from mma.text import printable

SITE = "https://www.cs.toronto.edu/~kriz/"
PIXELS = 3 * 32 * 32  # red, green and blue plane, each row by row
FINE_LABELS = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
    forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
    mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
    willow_tree wolf woman worm
"""


@dataclass(frozen=True)
class Release:
    """One binary release: its archive, the files in it, and how a record begins."""

    name: str
    archive: Original
    folder: str
    train: tuple[Original, ...]
    test: tuple[Original, ...]
    classes: tuple[str, ...]
    label_bytes: int  # the label is the last of them: CIFAR-100 writes the coarse label first
    wrong_releases: tuple[str, ...]  # files and folders of the releases for Python and MATLAB

    @property
    def record(self) -> int:
        """Bytes of one image with its labels."""
        return self.label_bytes + PIXELS


def _archive(name: str, size: int, md5: str) -> Original:
    return Original(name, size, f"md5:{md5}", f"{SITE}{name}")


def _files(size: int, **sha1: str) -> tuple[Original, ...]:
    return tuple(Original(f"{name}.bin", size, f"sha1:{digest}") for name, digest in sha1.items())


CIFAR10 = Release(
    "CIFAR-10",
    _archive("cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),
    "cifar-10-batches-bin",
    _files(
        30_730_000,
        data_batch_1="aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        data_batch_2="c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        data_batch_3="1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        data_batch_4="aab85764eb3584312d3c7f65fd2fd016e36a258e",
        data_batch_5="26e2849e66a845b7f1e4614ae70f4889ae604628",
    ),
    _files(30_730_000, test_batch="67eb016db431130d61cd03c7ad570b013799c88c"),
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    label_bytes=1,
    wrong_releases=(
        *("cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1"),
        *("cifar-10-matlab.tar.gz", "cifar-10-batches-mat", "data_batch_1.mat"),
    ),
)
CIFAR100 = Release(
    "CIFAR-100",
    _archive("cifar-100-binary.tar.gz", 168_513_733, "03b5dce01913d631647c71ecec9e9cb8"),
    "cifar-100-binary",
    _files(153_700_000, train="e207cd2e05b73b1393c74c7f5e7bea451d63e08e"),
    _files(30_740_000, test="8fb6623e830365ff53cf14adec797474f5478006"),
    tuple(FINE_LABELS.split()),
    label_bytes=2,
    wrong_releases=(
        *("cifar-100-python.tar.gz", "cifar-100-python", "train"),
        *("cifar-100-matlab.tar.gz", "cifar-100-matlab", "train.mat"),
    ),
)


def read_release(release: Release, directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Check and convert the record files; the third value tells whether all of them are the official ones.

    An archive is checked by what is in it, so a repacked one is as good.
    """
    parts = (*release.train, *release.test)
    contents = _contents(release, parts, directory)
    records = {part.name: _records(release, part.name, contents[part.name]) for part in parts}
    official = [is_official(part.name, find_difference(contents[part.name], part), accept=accept) for part in parts]
    train, test = (_images(release, [records[part.name] for part in split]) for split in (release.train, release.test))
    return train, test, all(official)


def _contents(release: Release, parts: tuple[Original, ...], directory: Path) -> dict[str, bytes]:
    """Read the record files out of the archive if it is there, else as loose files."""
    archive = find(directory, (release.archive.name,))
    if archive is None:
        return {part.name: _loose(release, part, directory) for part in parts}
    members = read_members(archive, {part.name: part.size for part in parts})
    if missing := [part.name for part in parts if part.name not in members]:
        raise refusal(archive.name, f"is not the binary release of {release.name}: it has no {missing[0]}")
    return members


def _loose(release: Release, part: Original, directory: Path) -> bytes:
    path = find(directory, (part.name,), release.folder)
    shown = printable(str(directory))
    if path is None and (wrong := [name for name in release.wrong_releases if (directory / name).exists()]):
        raise UserError(
            f"{shown} holds another release of {release.name} ({wrong[0]}): mma reads the binary one, not that for Python "
            f"or MATLAB. Put {release.archive.name} there, or download it by leaving out --from."
        )
    if path is None:
        raise UserError(
            f"{shown} has neither {release.archive.name} nor {part.name}. Put the binary release of {release.name} there, "
            "or download it by leaving out --from."
        )
    if path.stat().st_size > part.size:
        raise refusal(part.name, f"is larger than the official file ({part.size:,} bytes)")
    return path.read_bytes()


def _images(release: Release, parts: list[NDArray[np.uint8]]) -> Images:
    records = np.concatenate(parts)
    labels = records[:, release.label_bytes - 1]
    planes = records[:, release.label_bytes :].reshape(-1, 3, 32, 32)
    return Images(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels.astype(np.int64), release.classes)


def _records(release: Release, name: str, content: bytes) -> NDArray[np.uint8]:
    """Cut a file into records, (N, record) uint8, and refuse one that is not made of whole, possible records."""
    whole, rest = divmod(len(content), release.record)
    if not content or rest:
        raise refusal(
            name,
            f"is cut short, or is not {release.name}: {len(content):,} bytes are {whole:,} whole records of "
            f"{release.record:,} bytes and {rest:,} bytes more",
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, release.record)
    labels = records[:, release.label_bytes - 1]
    if labels.max() >= len(release.classes):
        bad = int(np.argmax(labels >= len(release.classes)))
        last = len(release.classes) - 1
        raise refusal(name, f"is not {release.name}: record {bad:,} has label {labels[bad]}, and labels end at {last}")
    return records
