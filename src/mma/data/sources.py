"""Every data set there is: where it comes from, how it is made, and how it is opened again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mma.data import cache, releases
from mma.data.folder import FolderOptions, folder_name, read_folder, write_options
from mma.data.hard import make_hard, split_hard
from mma.data.images import DataSet, Images
from mma.data.parquet import packed_files, unpack
from mma.data.releases import CIFAR10, CIFAR100, EXTRA, TEST, TRAIN, Original, fetch
from mma.data.subsets import first_of_each_class
from mma.errors import UserError
from mma.extensions import load_plugin
from mma.rng import rng
from mma.shares import shares
from mma.text import did_you_mean, printable

FOLDER = "folder"
DIGITS = "digits"
OWN_IMAGES = "a folder of images"


# Reads pool and test set out of a directory, (directory, *, accept), and tells whether all files are the official ones.
Reader = Callable[..., tuple[Images, Images, bool]]


@dataclass(frozen=True)
class Source:
    """A published data set made of original files."""

    about: str
    pool: int
    test: int
    shape: tuple[int, int, int]
    classes: int
    mirror: bool
    read: Reader
    downloads: tuple[Original, ...] = ()
    package_folders: tuple[Path, ...] = ()  # where a system's package puts the files
    download_folder: str = ""  # shared with another source; the source's own name if empty


def load_data(name: str, root: Path | None = None) -> DataSet:
    """Open a data set.

    Parameters
    ----------
    name : str
        "digits", "cifar10", "folder:NAME", ...: what `mma data list` shows. Only digits needs no `mma data get` before.
    root : path, optional
        Where data sets are stored. Default: the usual place.

    Examples
    --------
    >>> len(mma.load_data("digits").train)
    1297
    """
    kind, base = split_hard(name)
    check_known(base)
    if base != DIGITS and not cache.is_ready(base, root):
        where = printable(str(cache.place(base, root)))
        raise UserError(f"the data set {base} is not here yet ({where}). Get it with  {cache.command_in_words(base)}")
    return make_hard(_digits() if base == DIGITS else cache.open_saved(base, root), kind)


def verify(name: str, root: Path | None = None) -> DataSet:
    """Open a data set as `load_data` does, after every byte of it was read and compared with its digest."""
    kind, base = split_hard(name)
    data = load_data(base, root)
    meta = None if base == DIGITS else cache.read_meta(base, root)
    splits = (("train", data.train, meta.train), ("test", data.test, meta.test)) if meta else ()
    for split, images, about in splits:
        if images.computed_digest() != about.digest or cache.keys_digest(images) != about.keys_digest:
            raise UserError(
                f"the {split} images of {base} have changed on disk since they were saved: their digest is not the stored one "
                f"any more. Make the data set again:  {cache.command_in_words(base, data.options)}"
            )
    return make_hard(data, kind)


def get(
    name: str, root: Path | None = None, *, directory: Path | None = None, accept_hash_mismatch: bool = False
) -> DataSet:
    """Make a published data set from `directory`, or from the official download if it is not ready yet, and return it."""
    base = split_hard(name)[1]
    check_known(base)
    if base == DIGITS:
        return load_data(name, root)
    if base not in SOURCES:
        raise UserError(f"{printable(base)} is made from a folder of images:  {printable(cache.command(base))}")
    if directory is None and cache.is_ready(base, root):
        with suppress(UserError):  # a damaged one is made again, which is what its error advises
            return load_data(name, root)
    source = SOURCES[base]
    cache.check_writable(cache.place(base, root))
    where = _find_originals(base, source, root, directory)
    train, test, official = source.read(where, accept=accept_hash_mismatch)
    notes = []
    if not official:
        notes.append("made from files that are not the official ones (--accept-hash-mismatch)")
    if (len(train), len(test)) != (source.pool, source.test):
        notes.append(
            f"not the whole data set: {len(train):,} of {source.pool:,} images in the pool, {len(test):,} of "
            f"{source.test:,} to test on; results cannot be compared with published ones"
        )
    cache.save(DataSet(base, train, test, source.mirror, str(where), official, tuple(notes)), root)
    return load_data(name, root)


def get_folder(directory: Path, options: FolderOptions, root: Path | None = None) -> DataSet:
    """Make a data set out of a directory of images, or of Parquet or Arrow files, and return it as `load_data` does."""
    name, pool, read = folder_name(directory, options), directory, options
    cache.check_writable(cache.place(name, root))
    if packed_files(directory):  # a data set of Hugging Face, whose images are unpacked to files first
        store = (root or cache.data_root()) / "unpacked"
        pool, test = unpack(directory, store)
        if options.test is not None:
            test = unpack(options.test, store)[0] if packed_files(options.test) else options.test
        read = replace(options, name=name.partition(":")[2], test=None if options.holdout is not None else test)
    data = read_folder(pool, read)
    cache.save(replace(data, source=str(directory.resolve()), options=write_options(directory, options)), root)
    return cache.open_saved(name, root)


def photo_options(directory: Path, test: Path | None = None, side: int | None = None) -> FolderOptions:
    """Return the options of a folder that is trained on directly: its name tells folders, and sides for pixels, apart."""
    where = hashlib.sha256(f"{directory.resolve()}\n{test.resolve() if test else ''}".encode()).hexdigest()[:8]
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in directory.resolve().name).strip("-") or "photos"
    end = f"-{where}" if side is None else f"-{where}-{side}px"
    return FolderOptions(plain[: cache.LONGEST - len(end)] + end, side or FolderOptions.side, test=test)


def names(root: Path | None = None) -> list[str]:
    """List the data sets `load_data` knows: the published ones and the folders that were read."""
    made = ((root or cache.data_root()) / FOLDER).glob("[!.]*/meta.json")
    return [DIGITS, *SOURCES, *sorted(f"{FOLDER}:{path.parent.name}" for path in made)]


@dataclass(frozen=True)
class DataSetInfo:
    """One line of the catalogue; `command` makes the data set, `problem` says why one that is there cannot be used."""

    name: str
    about: str
    pool: int
    test: int
    classes: int
    shape: tuple[int, int, int]  # height, width, channels; zeros where they are not known
    ready: bool
    command: str
    problem: str = ""


def catalogue(root: Path | None = None) -> list[DataSetInfo]:
    """Describe every data set, without opening its images: the published ones as published, the others as they are."""
    found = [DataSetInfo(DIGITS, "handwritten digits", 1_297, 500, 10, (8, 8, 1), True, cache.command(DIGITS))]
    for name in names(root)[1:]:
        info = DataSetInfo(name, OWN_IMAGES, 0, 0, 0, (0, 0, 0), False, cache.command(name))
        if one := SOURCES.get(name):
            info = replace(info, about=one.about, pool=one.pool, test=one.test, classes=one.classes, shape=one.shape)
        if cache.is_ready(name, root):
            try:
                meta = cache.read_meta(name, root)
                numbers = meta.train.shape[0], meta.test.shape[0], len(meta.classes), meta.train.shape[1:]
                info = DataSetInfo(name, info.about, *numbers, True, cache.command(name, meta.options))
            except UserError as error:
                info = replace(info, problem=str(error))
        found.append(info)
    return found


def check_known(name: str) -> None:
    """Refuse a name that no data set has, with the nearest one that does."""
    name = split_hard(name)[1]
    if name.startswith(f"{FOLDER}:"):
        return
    load_plugin("mma.sources", name, (DIGITS, *SOURCES))
    if name in (DIGITS, *SOURCES):
        return
    own = " A folder of images has a name of its own: folder:NAME."
    hint = own if name == FOLDER else did_you_mean(name, [DIGITS, *SOURCES, FOLDER])
    raise UserError(
        f"no data set '{printable(name)}'.{hint}   mma data list  shows them all. One from your own code needs  mma --use "
        "MODULE ; a run on arrays is continued in Python, with data=..."
    )


def _find_originals(name: str, source: Source, root: Path | None, given: Path | None) -> Path:
    """Find the directory of the original files: the given one, that of a system package, or that of the downloads."""
    if given is not None:
        if not given.is_dir():
            problem = "is a file" if given.exists() else "does not exist"
            raise UserError(f"{printable(str(given))} {problem}. Give the folder of the files with --from DIR.")
        return given
    for directory in source.package_folders:
        if directory.is_dir():
            return directory
    if not source.downloads:
        raise UserError(f"{name} has no download. Give the folder of its files:  mma data get {name} --from DIR")
    directory = (root or cache.data_root()) / "downloads" / (source.download_folder or name)
    for original in source.downloads:
        fetch(original, directory)
    return directory


def _digits() -> DataSet:
    """Make scikit-learn's 8 x 8 digits: 1,297 to learn from, 500 to test on, by one fixed class-proportional split."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    labels = digits.target.astype(np.int64)
    pixels = np.round(digits.images * 255 / 16).astype(np.uint8)[..., None]  # 17 levels, 0..16, to 0..255
    order = rng(0, "digits", "test").permutation(len(labels))
    test = np.sort(order[first_of_each_class(labels[order], shares(np.bincount(labels), 500))])
    everything = Images(pixels, labels, tuple("0123456789"))
    pool = np.setdiff1d(np.arange(len(labels)), test)
    return DataSet(DIGITS, everything.take(pool), everything.take(test), source="scikit-learn")


def _published(name: str, read: Reader, *downloads: Original, **more: Any) -> Source:
    facts = releases.PUBLISHED[name]["source"]
    return Source(**facts | {"shape": tuple(facts["shape"])}, read=read, downloads=downloads, **more)


SOURCES: dict[str, Source] = {
    "fashion-mnist": _published(
        "fashion-mnist", releases.read_fashion, *releases.DOWNLOADS, package_folders=releases.PACKAGE_FOLDERS
    ),
    "cifar10": _published("cifar10", partial(releases.read_release, CIFAR10), CIFAR10.archive),
    "cifar100": _published("cifar100", partial(releases.read_release, CIFAR100), CIFAR100.archive),
    "svhn": _published("svhn", partial(releases.read_svhn, (TRAIN,)), TRAIN, TEST),
    "svhn-extra": _published(
        "svhn-extra", partial(releases.read_svhn, (TRAIN, EXTRA)), TRAIN, EXTRA, TEST, download_folder="svhn"
    ),
}
