"""A directory of images as a data set: class per sub-directory, or a CSV of labels, or no labels at all."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mma.data.cache import LONGEST, check_name
from mma.data.images import CHUNK, UNKNOWN, BadFile, DataSet, Images, check_classes, no_images
from mma.data.photos import FollowedFolder, Photos, decode_all, explain_bad_file
from mma.data.subsets import first_of_each_class
from mma.data.tables import DEFAULT, read_labels
from mma.errors import UserError
from mma.rng import rng
from mma.shares import shares
from mma.text import printable, quote_path

HOLDOUT = 0.2
SIDES = range(4, 513)
SHOWN = 5  # names in a note
NOT_FOLLOWED = "links to folders are not followed"


@dataclass(frozen=True)
class FolderOptions:
    """How to read a directory of images."""

    name: str | None = None  # None: the directory's
    side: int = 32
    labels: Path | None = None  # None: labels.csv of the directory if there is one, else its sub-directories
    test: Path | None = None
    holdout: float | None = None  # None: HOLDOUT, or nothing when a test directory is given
    mirror: bool = False
    grey: bool = False
    classes: tuple[str, ...] = ()  # declared, in the order of their ids; (): those found in the labels


def folder_name(directory: Path, options: FolderOptions) -> str:
    """Name the data set: as asked for, or after the directory."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", directory.resolve().name).strip("-.")[:LONGEST]
    own = options.name or plain or "images"
    check_name(own)
    return f"folder:{own}"


def write_options(directory: Path, options: FolderOptions) -> str:
    """Write the options of  mma data get folder  that make this data set again, from any working directory."""
    csv = None if options.labels is None else _find_csv(directory, options.labels)
    given = {
        "from": directory.resolve(),
        "name": folder_name(directory, options).partition(":")[2],
        "side": None if options.side == FolderOptions.side else options.side,
        "labels": csv and csv.resolve(),
        "test": options.test and options.test.resolve(),
        "holdout": options.holdout,
        "classes": ",".join(options.classes) or None,
    }
    words = [f"--{option} {quote_path(str(value))}" for option, value in given.items() if value is not None]
    return " ".join(words) + " --mirror" * options.mirror + " --grey" * options.grey


def read_folder(directory: Path, options: FolderOptions) -> DataSet:
    """Decode a directory (and its test directory) into a data set; nothing in them is written, moved or renamed."""
    _check(directory, options)
    listed = [(directory, *_list_labels(directory, options, options.labels))]
    if options.test is not None:
        listed.append((options.test, *_list_labels(options.test, options, None)))
    parts = [_decode(*each, options) for each in listed]  # after both are listed: what is wrong there is found at once
    known, *others = ({label for label in part.labels if label} for part in parts)
    tested = set[str]().union(*others)
    if not options.classes and known and (unknown := sorted(tested - known, key=_natural)):
        raise UserError(
            f"the test folder has classes that the pool does not have: {_quote_some(unknown)}. Remove or rename them, "
            "or add images of them to the pool, and run the same command again."
        )
    classes = options.classes or tuple(sorted(known or tested, key=_natural))  # without labels: those of the test set
    images, *tests = (part.images(classes) for part in parts)
    splits = images, tests[0] if tests else no_images(images.shape, images.classes)
    if not tests:
        # A fixed, class-proportional part of the labeled images; every class keeps at least one in the pool.
        fraction = HOLDOUT if options.holdout is None else options.holdout
        counts = np.array(list(images.class_counts().values()), np.int64)
        quota = np.minimum(shares(counts, round(fraction * int(counts.sum()))), np.maximum(counts - 1, 0))
        order = rng(0, "holdout").permutation(len(images))
        if len(held := np.sort(order[first_of_each_class(images.labels[order], quota)])):
            splits = images.take(np.setdiff1d(np.arange(len(images)), held)), images.take(held)
    bad = tuple(file for part in parts for file in part.bad)
    name, source, again = folder_name(directory, options), str(directory.resolve()), write_options(directory, options)
    return DataSet(name, *splits, options.mirror, source, True, _notes(*splits, options), bad, options=again)


@dataclass(frozen=True)
class _Part:
    """The images of one directory."""

    directory: Path
    names: tuple[str, ...]
    labels: tuple[str, ...]  # of each file; "" where nobody knows
    photos: Photos
    bad: list[BadFile]

    def images(self, classes: tuple[str, ...]) -> Images:
        number = {name: row for row, name in enumerate(classes)}
        labels, root = np.array([number.get(each, UNKNOWN) for each in self.labels], np.int64), self.directory.resolve()
        return Images(self.photos.pixels, labels, classes, self.names, stored_keys=self.photos.keys, root=root)


def _check(directory: Path, options: FolderOptions) -> None:
    if options.side not in SIDES:
        raise UserError(
            f"images cannot be stored with {options.side} pixels on a side. Choose a side from {SIDES[0]} to {SIDES[-1]}."
        )
    if options.holdout is not None and not 0 <= options.holdout < 1:
        raise UserError(
            f"--holdout {options.holdout} is not possible. Choose a fraction from 0 up to, not including, 1."
        )
    check_classes(options.classes)
    if options.test is None:
        return
    if options.holdout:
        raise UserError("--test and --holdout were both given. Leave one of them out.")
    test, pool = options.test.resolve(), directory.resolve()
    if test.is_relative_to(pool) or pool.is_relative_to(test):
        raise UserError(
            f"of the folders {printable(str(directory))} and {printable(str(options.test))} one lies in the other, so test "
            "images would be learned from. Give two separate folders."
        )


def _list_labels(directory: Path, options: FolderOptions, csv: Path | None) -> tuple[dict[str, str], list[BadFile]]:
    """Find the files of one directory and their labels, without opening an image."""
    names, bad = list_files(directory)
    csv = _find_csv(directory, csv)
    if csv is not None:
        names = [name for name in names if (directory / name).resolve() != csv.resolve()]
    if not names and not bad:
        raise UserError(f"{printable(str(directory))} holds no images. Put some there, or give another folder.")
    if csv is not None:
        given = read_labels(csv, names, options.classes)
        return {name: given.get(name, "") for name in names}, bad
    labels = {name: name.partition("/")[0] if "/" in name else "" for name in names}  # the first folder on the way
    if options.classes and (unknown := sorted(set(labels.values()).difference(options.classes, {""}), key=_natural)):
        raise UserError(
            f"{printable(str(directory))} has sub-folders that are not among the declared classes: {_quote_some(unknown)}. "
            "Rename or remove them, or add them to --classes. If sub-folders are not classes here, give the labels in a "
            "CSV file with --labels FILE; it may hold the line  file_name,label  alone."
        )
    return labels, bad


def _decode(directory: Path, labels: dict[str, str], bad: list[BadFile], options: FolderOptions) -> _Part:
    names = list(labels)
    photos = decode_all(directory, names, options.side, grey=options.grey)
    bad = [*bad, *photos.bad]
    if not len(photos.rows):
        reasons = _some([f"{printable(file.file)} ({file.reason})" for file in bad])
        raise UserError(
            f"none of the {len(bad):,} files in {printable(str(directory))} can be used: {reasons}. "
            "Give another folder, one with images."
        )
    good = tuple(names[row] for row in photos.rows)
    return _Part(directory, good, tuple(labels[name] for name in good), photos, bad)


def list_files(directory: Path) -> tuple[list[str], list[BadFile]]:
    """List the files of a directory and below, in natural order (2 before 10), and what is left out of it.

    Hidden files and folders are passed by; links to folders are not followed, except in a `FollowedFolder`, and there once
    each. A sub-folder that may not be read is left out.
    """
    if not directory.is_dir():
        raise UserError(f"there is no folder {printable(str(directory))}. Give a folder of images that is there.")
    names: list[str] = []
    bad: list[BadFile] = []
    unlisted: list[OSError] = []
    follow, seen = isinstance(directory, FollowedFolder), {os.path.realpath(directory)}
    for folder, inner, files in os.walk(directory, onerror=unlisted.append, followlinks=follow):
        inside = "" if folder == str(directory) else f"{Path(folder).relative_to(directory).as_posix()}/"
        inner[:] = sorted(name for name in inner if not name.startswith("."))  # sorted: the same list on every system
        links = [name for name in inner if os.path.islink(os.path.join(folder, name))]
        if follow:  # a link that leads back would never end
            targets = {name: os.path.realpath(os.path.join(folder, name)) for name in inner}
            inner[:] = [name for name in inner if targets[name] not in seen]
            seen.update(targets.values())
        else:
            bad += [BadFile(printable(inside + link), NOT_FOLLOWED) for link in links]
        names += [inside + file for file in files if not file.startswith(".")]
    bad += [describe_unlisted(directory, error) for error in unlisted]
    # Bytes of a name that the system could not decode are kept as lone surrogates.
    unreadable = [name for name in names if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name)]
    bad += [BadFile(printable(name), "its name is not valid text") for name in sorted(unreadable)]
    return sorted(set(names).difference(unreadable), key=_natural), bad


def describe_unlisted(directory: Path, error: OSError) -> BadFile:
    """Describe a sub-folder whose files could not be listed. `directory` itself is an error: without it there is nothing."""
    folder, reason = Path(error.filename or directory), explain_bad_file(error)
    if folder == directory:
        raise UserError(
            f"the folder {printable(str(directory))} cannot be listed: {reason}. Make it readable, for example with  "
            f"chmod u+rx {quote_path(directory)}  and run the same command again."
        ) from error
    return BadFile(printable(folder.relative_to(directory).as_posix()), reason)


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    pieces = re.findall(r"([0-9]+)|([^0-9]+)", name)
    return [(int(number) if number else -1, text) for number, text in pieces], name


def _find_csv(directory: Path, given: Path | None) -> Path | None:
    if given is None:
        return directory / DEFAULT if (directory / DEFAULT).is_file() else None
    return directory / given if not given.exists() and (directory / given).is_file() else given


def _notes(train: Images, test: Images, options: FolderOptions) -> tuple[str, ...]:
    """Collect what a person should know about the data before they train on it."""
    notes = []
    unlabeled = int(np.count_nonzero(train.labels == UNKNOWN))
    if not train.classes:
        notes.append(
            "no class is known yet; name what people can answer:  mma data get folder --from DIR --classes cat,dog"
        )
    elif unlabeled:
        notes.append(f"{unlabeled:,} of {len(train):,} images in the pool have no label")
    pool, tests = train.class_counts(), test.class_counts()
    single = [printable(name) for name, count in pool.items() if count + tests[name] == 1]
    if single and not unlabeled:
        notes.append(f"a class with a single image cannot be learned or tested: {_some(single)}")
    constant, coloured = list[int](), False  # images of one single colour; whether any image has colours
    for start in range(0, len(train), CHUNK):
        pixels = train.pixels[start : start + CHUNK]
        constant += (start + np.flatnonzero((pixels == pixels[:, :1, :1]).all(axis=(1, 2, 3)))).tolist()
        coloured = coloured or bool((pixels != pixels[..., :1]).any())
    if constant:
        names = [printable((train.names or ())[row]) for row in constant]
        notes.append(f"{len(constant):,} images are of one single colour: {_some(names)}")
    if not options.grey and not coloured:
        notes.append("all images are grey;  mma data get folder --grey  stores them with one channel instead of three")
    return tuple(notes)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _quote_some(names: list[str]) -> str:
    return _some([f"'{printable(name)}'" for name in names])
