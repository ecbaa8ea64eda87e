"""CIFAR-10 and CIFAR-100 from their binary releases: the archive, or the files that were in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mma.data.images import Images
from mma.data.originals import Checked, Original, find, is_official, read_members
from mma.text import printable

SITE = "https://www.cs.toronto.edu/~kriz/"
PIXELS = 3 * 32 * 32  # red, green and blue plane, each row by row
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FINE_LABELS = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
    forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
    mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
    willow_tree wolf woman worm
"""
CIFAR100_CLASSES = tuple(FINE_LABELS.split())


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
    class_names: str = ""  # the file of class names in the archive

    @property
    def record(self) -> int:
        """Bytes of one image with its labels."""
        return self.label_bytes + PIXELS


def _binary(name: str, size: int, sha1: str = "") -> Original:
    return Original(f"{name}.bin", size, f"sha1:{sha1}" if sha1 else "")


CIFAR10 = Release(
    "CIFAR-10",
    Original(
        "cifar-10-binary.tar.gz",
        170_052_171,
        "md5:c32a1d4ab5d03f1284b67883e8d87530",
        f"{SITE}cifar-10-binary.tar.gz",
    ),
    "cifar-10-batches-bin",
    (
        _binary("data_batch_1", 30_730_000, "aadd24acce27caa71bf4b10992e9e7b2d74c2540"),
        _binary("data_batch_2", 30_730_000, "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795"),
        _binary("data_batch_3", 30_730_000, "1dd00a74ab1d17a6e7d73e185b69dbf31242f295"),
        _binary("data_batch_4", 30_730_000, "aab85764eb3584312d3c7f65fd2fd016e36a258e"),
        _binary("data_batch_5", 30_730_000, "26e2849e66a845b7f1e4614ae70f4889ae604628"),
    ),
    (_binary("test_batch", 30_730_000, "67eb016db431130d61cd03c7ad570b013799c88c"),),
    CIFAR10_CLASSES,
    label_bytes=1,
)
CIFAR100 = Release(
    "CIFAR-100",
    Original(
        "cifar-100-binary.tar.gz",
        168_513_733,
        "md5:03b5dce01913d631647c71ecec9e9cb8",
        f"{SITE}cifar-100-binary.tar.gz",
    ),
    "cifar-100-binary",
    (_binary("train", 153_700_000),),  # nobody publishes hashes of the loose files, only that of the archive
    (_binary("test", 30_740_000),),
    CIFAR100_CLASSES,
    label_bytes=2,
    class_names="fine_label_names.txt",
)


def read_cifar10(directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Read CIFAR-10; the third value tells whether all files are the official ones."""
    return _read(CIFAR10, directory, accept=accept)


def read_cifar100(directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Read CIFAR-100 with its 100 fine labels; the third value tells whether all files are the official ones."""
    return _read(CIFAR100, directory, accept=accept)


def _read(release: Release, directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    files = {file.name: file for file in _contents(release, directory, accept=accept)}
    classes = _class_names(release, files.pop(release.class_names, None))
    train, test = (
        _images(release, [files[part.name] for part in parts], classes) for parts in (release.train, release.test)
    )
    return train, test, all(file.official for file in files.values())


def _contents(release: Release, directory: Path, *, accept: bool) -> list[Checked]:
    """Read the record files (and the class names) out of the archive if it is there, else as loose files."""
    wanted = [part.name for part in (*release.train, *release.test)]
    archive = find(directory, (release.archive.name,))
    if archive is None:
        return _loose(release, directory, accept=accept)
    official = is_official(archive, release.archive, accept=accept)
    members = read_members(archive, [*wanted, release.class_names])
    if missing := [name for name in wanted if name not in members]:
        raise ValueError(f"{archive.name} has no {missing[0]}. Replace it and run the same command again.")
    return [Checked(name, content, official) for name, content in members.items()]


def _loose(release: Release, directory: Path, *, accept: bool) -> list[Checked]:
    checked = []
    for part in (*release.train, *release.test):
        path = find(directory, (part.name,), release.folder)
        if path is None:
            raise ValueError(
                f"{printable(str(directory))} has neither {release.archive.name} nor {part.name}. Put the binary release "
                f"of {release.name} there, or download it by leaving out --from."
            )
        official = is_official(path, part, accept=accept)
        if path.stat().st_size > part.size:
            raise ValueError(f"{part.name} is larger than the official file ({part.size:,} bytes). Replace it.")
        checked.append(Checked(part.name, path.read_bytes(), official))
    names = find(directory, (release.class_names,), release.folder) if release.class_names else None
    return checked if names is None else [*checked, Checked(release.class_names, names.read_bytes(), True)]


def _class_names(release: Release, file: Checked | None) -> tuple[str, ...]:
    """Take the class names from the release when it brings them."""
    if file is None:
        return release.classes
    names = tuple(file.content.decode("utf-8", errors="replace").split())
    if len(names) != len(release.classes) or len(set(names)) != len(names):
        raise ValueError(
            f"{file.name} names {len(names)} classes, not {len(release.classes)} different ones. "
            "Delete it and run the same command again: the well-known names are used then."
        )
    return names


def _images(release: Release, files: list[Checked], classes: tuple[str, ...]) -> Images:
    records = np.concatenate([_records(release, file) for file in files])
    labels = records[:, release.label_bytes - 1].astype(np.int64)
    planes = records[:, release.label_bytes :].reshape(-1, 3, 32, 32)
    return Images(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels, classes)


def _records(release: Release, file: Checked) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Cut a file into records, (N, record) uint8, and refuse one that is not made of whole, possible records."""
    size = len(file.content)
    if size == 0 or size % release.record:
        whole = size // release.record
        raise ValueError(
            f"{file.name} is cut short or is not {release.name}: {size:,} bytes are {whole:,} whole records of "
            f"{release.record:,} bytes and {size % release.record:,} bytes more. Delete it and run the same command again."
        )
    records = np.frombuffer(file.content, np.uint8).reshape(-1, release.record)
    labels = records[:, release.label_bytes - 1]
    if labels.max() >= len(release.classes):
        bad = int(np.argmax(labels >= len(release.classes)))
        raise ValueError(
            f"{file.name} is not {release.name}: record {bad:,} has label {labels[bad]}, and labels go from 0 to "
            f"{len(release.classes) - 1}. Replace it and run the same command again."
        )
    return records
