"""Write a data set into the cache so that it is there whole or not at all, whatever happens meanwhile."""

from __future__ import annotations

import glob
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from mma.data.cache import FORMAT, DataSetMeta, SplitMeta, keys_digest, place
from mma.data.images import DataSet, Images
from mma.files import open_synced, sync_folder
from mma.text import printable

DAY = 86_400  # seconds


def save(data: DataSet, root: Path | None = None) -> Path:
    """Write a data set beside its place and move it there when it is whole; clear away what crashes left behind."""
    target = place(data.name, root)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(target)
        with _build_folder(target) as folder:
            _write(data, folder)
            _move(folder, target)
    except OSError as error:
        raise ValueError(
            f"{printable(str(target))} could not be written: {error.strerror or error}. Make room or make the folder "
            "writable, or set MMA_DATA to another folder; then run the same command again."
        ) from error
    return target


def _write(data: DataSet, folder: Path) -> None:
    for split, images in (("train", data.train), ("test", data.test)):
        _write_array(folder / f"{split}.npy", images.pixels)
        _write_array(folder / f"{split}-labels.npy", images.labels)
        _write_array(folder / f"{split}-keys.npy", images.keys)
    if data.train.names is not None:
        with open_synced(folder / "names.json") as file:
            file.write(json.dumps({"train": data.train.names, "test": data.test.names or ()}).encode())
    with open_synced(folder / "meta.json") as file:  # last: a folder without it is not a data set
        file.write(_meta(data).model_dump_json(indent=1).encode())
    sync_folder(folder)


def _write_array(path: Path, array: NDArray[np.uint8] | NDArray[np.int64]) -> None:
    with open_synced(path) as file:
        np.save(file, array, allow_pickle=False)


def _meta(data: DataSet) -> DataSetMeta:
    return DataSetMeta(
        format=FORMAT,
        name=data.name,
        classes=data.train.classes,
        mirror=data.mirror,
        source=data.source,
        verified=data.verified,
        named=data.train.names is not None,
        notes=data.notes,
        quarantine=data.quarantine,
        train=_split_meta(data.train),
        test=_split_meta(data.test),
        options=data.options,
    )


def _split_meta(images: Images) -> SplitMeta:
    shape = (len(images), *images.shape)
    root = "" if images.root is None else str(images.root)
    return SplitMeta(shape=shape, digest=images.computed_digest(), keys_digest=keys_digest(images), root=root)


@contextmanager
def _build_folder(target: Path) -> Iterator[Path]:
    """Make a folder beside `target` whose name says who builds in it; remove it if it is still there at the end."""
    folder = target.parent / f".{target.name}.building-{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move(folder: Path, target: Path) -> None:
    """Put the new folder in the place of the old one; a program that has the old arrays open keeps them."""
    old = folder.with_name(folder.name + "-old")
    if target.exists():
        target.rename(old)
    folder.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _clear_leftovers(target: Path) -> None:
    for folder in target.parent.glob(f".{glob.escape(target.name)}.building-*"):
        if _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Tell whether the process that built here is gone; of another machine's we only know after a day of silence."""
    host, process, *_ = folder.name.rpartition(".building-")[2].removesuffix("-old").rsplit("-", 2)
    if os.name != "posix" or host != socket.gethostname() or not process.isdigit():
        return time.time() - folder.stat().st_mtime > DAY
    try:
        os.kill(int(process), 0)  # signal 0 only asks
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return int(process) == os.getpid()  # we build one thing at a time, so this is from an earlier life of our number
