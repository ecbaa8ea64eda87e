"""Features on disk: one row per image, appended and never changed, found by the image's key.

`values.bin` holds float16 rows, `keys.bin` the key of each. Values are on disk before their keys, so a row that has a key is
whole. A kill leaves at most rows without keys, or half of one; the next writer cuts them off.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.data.images import KEY_BYTES
from mma.errors import UserError
from mma.files import append_bytes, explain_write_errors, read_json, write_atomically
from mma.files import locked as hold

FORMAT = 1
LARGEST = 100_000_000  # numbers of a vector, or views of an image: more is a damaged file
PATIENCE = 60.0  # seconds
Keys = NDArray[np.uint8]
Values = NDArray[np.float16]


@dataclass(frozen=True)
class FeatureStore:
    """The folder of one backbone's features of one kind of images and views."""

    folder: Path

    def create(self, about: dict[str, object]) -> None:
        """Make the folder, or check that it is of this layout."""
        with explain_write_errors(self.folder, "the same command"):
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / "meta.json").exists():
                with self.locked():
                    write_atomically(self.folder / "meta.json", _json({"format": FORMAT, **about}))
        found = read_json(self.folder / "meta.json").get("format")
        if found != FORMAT:
            raise UserError(
                f"{self.folder} has format {found}, and this mma reads {FORMAT}. Delete the folder to compute again."
            )

    def width(self) -> int | None:
        """Return how many numbers a view has; None before the first row."""
        return self._number("shape.json", "width") if (self.folder / "shape.json").exists() else None

    def views(self) -> int:
        """Return how many views a row has."""
        return self._number("meta.json", "views")

    def _number(self, file: str, name: str) -> int:
        value = read_json(self.folder / file).get(name)
        if type(value) is not int or not 0 < value <= LARGEST:
            raise UserError(f"{self.folder / file} is damaged. Delete the folder to compute again.")
        return value

    def count(self) -> int:
        """Count the whole rows."""
        width = self.width()
        if width is None:
            return 0
        return min(_size(self.keys_file) // KEY_BYTES, _size(self.values_file) // (2 * width * self.views()))

    def keys(self, start: int = 0) -> Keys:
        """Read the keys of all rows from `start` on. (M, 32)"""
        count = self.count() - start
        if count <= 0:
            return np.zeros((0, KEY_BYTES), np.uint8)
        return np.fromfile(self.keys_file, np.uint8, count * KEY_BYTES, offset=start * KEY_BYTES).reshape(-1, KEY_BYTES)

    def values(self) -> Values:
        """Map the values of all rows; nothing is read before it is used. (M, views, width)"""
        count, width = self.count(), self.width() or 0
        if not count:
            return np.zeros((0, self.views(), width), np.float16)
        return np.memmap(self.values_file, np.float16, "r", shape=(count, self.views(), width))

    def check_width(self, width: int) -> None:
        """Write down how many numbers a view has, or refuse another number."""
        known = self.width()
        if known is None:
            write_atomically(self.folder / "shape.json", _json({"width": width}))
        elif known != width:
            raise UserError(
                f"the backbone returns {width} numbers, and {self.folder} holds rows of {known}. The code of the backbone has "
                "changed: raise its version."
            )

    def cut_tail(self) -> int:
        """Remove what a kill left unfinished and return how many rows there are."""
        count, width = self.count(), self.width() or 0
        for path, size in ((self.values_file, 2 * width * self.views()), (self.keys_file, KEY_BYTES)):
            if _size(path) > count * size:
                os.truncate(path, count * size)
        return count

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, after waiting for others: they hold it only while they append."""
        deadline = time.monotonic() + PATIENCE
        busy = (
            f"another process has been writing to {self.folder} for {PATIENCE:.0f} s. Wait for it, then run this again."
        )
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(hold(self.folder / "lock", busy))
                    break
                except ValueError:
                    if time.monotonic() > deadline:
                        raise
            yield

    @property
    def keys_file(self) -> Path:
        """The keys, 32 bytes each."""
        return self.folder / "keys.bin"

    @property
    def values_file(self) -> Path:
        """The values, float16."""
        return self.folder / "values.bin"


class Appender:
    """Adds the rows that one caller chose when there were `known` rows. What others add meanwhile is not added again."""

    def __init__(self, store: FeatureStore, known: int) -> None:
        self.store, self.known = store, known
        self.others: set[bytes] = set()  # keys that others added since: any of them may be of a row still to come

    def append(self, keys: Keys, values: Values) -> None:
        """Add rows; they are on disk when this returns."""
        store = self.store
        with explain_write_errors(store.folder, "the same command"), store.locked():
            store.check_width(values.shape[2])
            count = store.cut_tail()
            self.others |= {bytes(key) for key in store.keys(self.known)}
            new = np.array([bytes(key) not in self.others for key in keys], np.bool_)
            append_bytes(store.values_file, np.ascontiguousarray(values[new]).tobytes())
            append_bytes(store.keys_file, np.ascontiguousarray(keys[new]).tobytes())
            self.known = count + int(new.sum())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _json(content: dict[str, object]) -> str:
    return json.dumps(content, indent=1, sort_keys=True) + "\n"
