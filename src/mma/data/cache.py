"""The folder a data set is kept in after it was read once: plain .npy arrays, and meta.json that is written last."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from mma.data.hard import split_hard
from mma.data.images import KEY_BYTES, BadFile, DataSet, Images
from mma.errors import UserError
from mma.files import create_atomically, in_turn, open_synced, sync_folder
from mma.settings import Settings
from mma.text import printable

FORMAT = 2
LONGEST = 100  # characters of a name
MAX_JSON = 256 << 20  # bytes; a million file names are about 60 MB
EMPTY = 4_096  # bytes of a file that holds an array of nothing, at most
Number = TypeVar("Number", np.uint8, np.int64)
FACTS = (
    "name",
    "mirror",
    "source",
    "verified",
    "notes",
    "quarantine",
    "options",
)  # of a data set, as meta.json has them
FILE_NAMES = TypeAdapter(dict[str, tuple[str, ...]])  # names.json: of the images of each split that came from a folder


class SplitMeta(Settings):
    """What meta.json says about the pool or the test set."""

    shape: tuple[NonNegativeInt, PositiveInt, PositiveInt, PositiveInt]
    digest: str = Field(pattern="^[0-9a-f]{64}$")
    keys_digest: str = Field(pattern="^[0-9a-f]{64}$")
    root: str = ""  # the folder its files lie in


class DataSetMeta(Settings):
    """meta.json: everything about a data set but its arrays and file names."""

    format: int
    name: str
    classes: tuple[str, ...]
    mirror: bool
    source: str
    verified: bool
    named: bool
    notes: tuple[str, ...]
    quarantine: tuple[BadFile, ...]
    train: SplitMeta
    test: SplitMeta
    options: str = ""  # of  mma data get folder , for a data set that it can make again


def data_root() -> Path:
    """Return the folder of all data sets: $MMA_DATA, or mma in the user's cache folder."""
    if chosen := os.environ.get("MMA_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mma"


def place(name: str, root: Path | None = None) -> Path:
    """Return the folder of one data set; that of "folder:signs" is folder/signs."""
    parts = name.split(":", 1)
    for part in parts:
        check_name(part)
    return (root or data_root()).joinpath(*parts)


def check_name(name: str) -> None:
    """Refuse a name that could not be a folder's on every system, or that would lead out of the cache."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name) or len(name) > LONGEST:
        raise UserError(
            f"'{printable(name)}' cannot be the name of a data set: names are made of letters, digits, dots, - and _, "
            f"do not begin with a dot or -, and have at most {LONGEST} characters. Choose another name."
        )


def command(name: str, options: str = "") -> str:
    """Write the command that makes a data set (again); `options` are those that a folder was read with, if known."""
    source, _, own = split_hard(name)[1].partition(":")
    if not own:
        return f"mma data get {source}"
    if options:
        return f"mma data get folder {printable(options)}"
    side = re.search(r"-[0-9a-f]{8}-([0-9]+)px$", own)  # as `mma train --data` names it
    return f"mma data get folder --from DIR --name {own}" + (f" --side {side[1]}" if side else "")


def command_in_words(name: str, options: str = "") -> str:
    """Write `command`, and what to add to it where the options of a folder are not known."""
    more = (
        ""
        if options or ":" not in split_hard(name)[1]
        else "  (add --test DIR or other options, if it was made with them)"
    )
    return command(name, options) + more


def check_writable(folder: Path) -> None:
    """Refuse a place that cannot be written to, before any work is done for it; nothing is created."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UserError(
            f"{printable(str(folder))} cannot be written: {printable(str(there))} is not a folder we may write to. Set "
            "MMA_DATA to one that is, and run the same command again."
        )


def is_ready(name: str, root: Path | None = None) -> bool:
    """Tell whether a finished cache is there; opening it checks it."""
    return (place(name, root) / "meta.json").is_file()


def open_saved(name: str, root: Path | None = None) -> DataSet:
    """Open a data set without reading its pixels: they are mapped, and come in as they are used."""
    folder = place(name, root)
    meta = read_meta(name, root)
    again = command_in_words(name, meta.options)
    try:
        names = FILE_NAMES.validate_json(_read_text(folder / "names.json", again)) if meta.named else {}
        listed = [names[split] if meta.named else None for split in ("train", "test")]
    except (ValidationError, KeyError) as error:
        raise _damage(folder, again, "names.json is not the list of names it should be") from error
    train, test = (
        Images(
            _array(folder, again, f"{split}.npy", about.shape, np.uint8),
            np.array(_array(folder, again, f"{split}-labels.npy", about.shape[:1], np.int64)),
            meta.classes,
            files,
            about.digest,
            _array(folder, again, f"{split}-keys.npy", (about.shape[0], KEY_BYTES), np.uint8),
            Path(about.root) if about.root else None,
        )
        for split, about, files in zip(("train", "test"), (meta.train, meta.test), listed, strict=True)
    )
    facts: dict[str, Any] = {name: getattr(meta, name) for name in FACTS}
    return DataSet(train=train, test=test, **facts)


def read_meta(name: str, root: Path | None = None) -> DataSetMeta:
    """Read meta.json, and refuse one that a newer mma wrote or that says something impossible."""
    folder, again = place(name, root), command_in_words(name)
    text = _read_text(folder / "meta.json", again)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damage(folder, again, "meta.json is not JSON") from error
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and version != FORMAT:
        raise UserError(
            f"{printable(str(folder))} was made by another version of mma (format {version}; this one reads {FORMAT}). "
            f"Make the data set again:  {again}"
        )
    try:
        meta = DataSetMeta.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _damage(folder, again, f"meta.json: {where or 'its content'}: {first['msg']}") from error
    if meta.name != name or meta.train.shape[1:] != meta.test.shape[1:]:
        raise _damage(folder, again, "meta.json describes another data set")
    return meta


def keys_digest(images: Images) -> str:
    """Hash the keys of all images, in their order."""
    return hashlib.sha256(np.ascontiguousarray(images.keys).data).hexdigest()


def _array(folder: Path, again: str, file: str, shape: tuple[int, ...], dtype: type[Number]) -> NDArray[Number]:
    """Map one array, after its length, shape and type were found to be what meta.json says."""
    path, expected = folder / file, math.prod(shape) * np.dtype(dtype).itemsize
    size = path.stat().st_size if path.is_file() else -1
    if size < 0:
        raise _damage(folder, again, f"{file} is missing")
    try:
        if not expected and size > EMPTY:
            raise ValueError("too long for an array of nothing")
        # "c" is copy-on-write: nobody can write into the cache, and torch accepts the array without a copy
        array: NDArray[Number] = np.load(path, mmap_mode="c" if expected else None, allow_pickle=False)
    except Exception as error:  # numpy parses the header as Python's literals, which fail in any way
        raise _damage(folder, again, f"{file} is cut short or damaged ({size:,} bytes)") from error
    offset = getattr(array, "offset", size - expected)
    if array.shape != shape or array.dtype != np.dtype(dtype) or size != offset + expected:
        raise _damage(folder, again, f"{file} holds {array.dtype} {array.shape}, not {np.dtype(dtype)} {shape}")
    return array


def _read_text(path: Path, again: str) -> bytes:
    if not path.is_file() or path.stat().st_size > MAX_JSON:
        why = f"larger than {MAX_JSON:,} bytes" if path.is_file() else "missing"
        raise _damage(path.parent, again, f"{path.name} is {why}")
    return path.read_bytes()


def _damage(folder: Path, again: str, what: str) -> UserError:
    return UserError(f"{printable(str(folder))} is damaged: {printable(what)}. Make the data set again:  {again}")


def save(data: DataSet, root: Path | None = None) -> Path:
    """Write a data set whole or not at all, one writer at a time. A program that has the old arrays open keeps them."""
    target = place(data.name, root)

    def fill(folder: Path) -> None:
        folder.mkdir()
        about: dict[str, Any] = {}
        for split, images in (("train", data.train), ("test", data.test)):
            for kind, array in (("", images.pixels), ("-labels", images.labels), ("-keys", images.keys)):
                with open_synced(folder / f"{split}{kind}.npy") as file:
                    np.save(file, np.asarray(array), allow_pickle=False)
            about[split] = SplitMeta(
                shape=(len(images), *images.shape),
                digest=images.computed_digest(),
                keys_digest=keys_digest(images),
                root="" if images.root is None else str(images.root),
            )
        if data.train.names is not None:
            with open_synced(folder / "names.json") as file:
                file.write(json.dumps({"train": data.train.names, "test": data.test.names or ()}).encode())
        facts: dict[str, Any] = {name: getattr(data, name) for name in FACTS}
        named = data.train.names is not None
        meta = DataSetMeta(format=FORMAT, classes=data.train.classes, named=named, **facts, **about)
        with open_synced(folder / "meta.json") as file:  # last: a folder without it is not a data set
            file.write(meta.model_dump_json(indent=1).encode())
        sync_folder(folder)

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with in_turn((root or data_root()) / ".lock"):
            create_atomically(target, fill)
    except OSError as error:
        raise UserError(
            f"{printable(str(target))} could not be written: {error.strerror or error}. Make room or make the folder "
            "writable, or set MMA_DATA to another folder; then run the same command again."
        ) from error
    return target
