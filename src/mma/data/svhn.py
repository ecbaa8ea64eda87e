"""SVHN, the street view house numbers: cropped 32 x 32 digits in MATLAB files (version 5)."""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mma.data.download import Original, find, find_difference, is_official, refusal
from mma.data.images import CHUNK, Images
from mma.errors import UserError
from mma.text import printable

SITE = "http://ufldl.stanford.edu/housenumbers/"
CLASSES = tuple("0123456789")
HEADER = 128  # bytes
MAX_IMAGES = 600_000  # in one file; the largest has 531,131
MAX_ARRAYS = 100


def _matlab(split: str, size: int, md5: str) -> Original:
    name = f"{split}_32x32.mat"
    return Original(name, size, f"md5:{md5}", f"{SITE}{name}")


TRAIN = _matlab("train", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373")
TEST = _matlab("test", 64_275_384, "eb5a983be6a315427106f1b164d9cef3")
EXTRA = _matlab("extra", 1_329_278_602, "a93ce644f1a588dc4d68dda5feec44a7")


def read(pool: tuple[Original, ...], directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Read the files of a pool and the test set; the third value tells whether all of them are the official ones."""
    paths = {}
    for part in (*pool, TEST):
        path = find(directory, (part.name,))
        if path is None:
            raise UserError(
                f"{printable(str(directory))} has no {part.name}. Put the cropped-digits files of SVHN there, or download "
                "them by leaving out --from."
            )
        paths[part.name] = path
    for path in paths.values():
        _find_arrays(path)  # one that is cut short is called so, and not another file
    official = [
        is_official(part.name, find_difference(paths[part.name], part), accept=accept) for part in (*pool, TEST)
    ]
    train, test = _images([paths[part.name] for part in pool]), _images([paths[TEST.name]])
    return train, test, all(official)


def _images(paths: list[Path]) -> Images:
    counts = [_arrays(path)[0].shape[3] for path in paths]
    pixels = np.empty((sum(counts), 32, 32, 3), np.uint8)  # filled part by part: never two whole pools in memory
    labels, start = [], 0
    for path, count in zip(paths, counts, strict=True):
        labels.append(_fill(path, pixels[start : start + count]))
        start += count
    return Images(pixels, np.concatenate(labels), CLASSES)


# The two arrays of a MATLAB file (version 5). scipy's reader has ended the process on damaged files, and takes as much memory
# as a file claims to need; this one reads what is expected, and nothing else.

NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
MATRIX, COMPRESSED, UINT8 = 14, 15, 9
DESCRIBED = 4_096  # bytes of an array's flags, shape and name, at most


@dataclass(frozen=True)
class MatlabArray:
    """One array of a MATLAB file: what it is, and where it lies in the file."""

    start: int
    compressed: bool
    kind: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


class Unpacker:
    """Bytes of a file from some position on, decompressed piece by piece."""

    def __init__(self, path: Path, file: IO[bytes], start: int, *, compressed: bool) -> None:
        file.seek(start)
        self.path, self.file, self.stream = path, file, zlib.decompressobj() if compressed else None

    def read(self, count: int) -> bytes:
        """Return exactly so many bytes."""
        if self.stream is None:
            content = self.file.read(count)
        else:
            content = b""
            while len(content) < count and not self.stream.eof:
                packed = self.stream.unconsumed_tail or self.file.read(1 << 20)
                piece = self.stream.decompress(packed, count - len(content))
                if not packed and not piece:
                    break
                content += piece
        if len(content) < count:
            raise refusal(self.path.name, "is cut short: an array in it has fewer bytes than its shape needs")
        return content

    def part(self, limit: int) -> tuple[int, bytes]:
        """Read one part of at most `limit` bytes: its type and its content."""
        kind, length, content = self.tag()
        if length > limit:
            raise refusal(
                self.path.name,
                f"cannot be read as a MATLAB file: a part in it has {length:,} bytes",
            )
        if content:
            return kind, content[:length]
        whole = self.read(-(-length // 8) * 8)  # parts begin at multiples of 8
        return kind, whole[:length]

    def tag(self) -> tuple[int, int, bytes]:
        """Read the type and the length of a part; up to four bytes of content may lie in the tag itself."""
        tag = self.read(8)
        kind, length = struct.unpack("<II", tag)
        return (kind & 0xFFFF, kind >> 16, tag[4:]) if kind >> 16 else (kind, length, b"")


@contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (zlib.error, struct.error) as error:
        raise refusal(path.name, f"cannot be read as a MATLAB file, so it is damaged ({error})") from error


def _find_arrays(path: Path) -> dict[str, MatlabArray]:
    """Find the arrays of a file by following the lengths of its parts to its end."""
    size, position, arrays = path.stat().st_size, HEADER, dict[str, MatlabArray]()
    with path.open("rb") as file, _explain_damage(path):
        header = file.read(HEADER)
        if not header.startswith(b"MATLAB 5.0"[: len(header)]) or not b"IM".startswith(header[126:]):
            raise refusal(path.name, "is not a little-endian MATLAB file of version 5")
        while position < size and len(arrays) < MAX_ARRAYS:
            file.seek(position)
            tag = file.read(8)
            if len(tag) < 8 or (end := position + 8 + struct.unpack("<4xI", tag)[0]) > size:
                raise refusal(path.name, f"is cut short: it has {size:,} bytes, and its last part is not whole")
            kind = struct.unpack("<I4x", tag)[0]
            if kind in (MATRIX, COMPRESSED):
                name, array = _describe(path, file, position, compressed=kind == COMPRESSED)
                arrays[name] = array
            position = end
    if size <= HEADER:
        raise refusal(path.name, f"is cut short: it has {size:,} bytes, and no array")
    return arrays


def _describe(path: Path, file: IO[bytes], position: int, *, compressed: bool) -> tuple[str, MatlabArray]:
    start = position + 8 if compressed else position
    unpacked = Unpacker(path, file, start, compressed=compressed)
    if unpacked.tag()[0] != MATRIX:
        raise refusal(path.name, "cannot be read as a MATLAB file: it holds something else than arrays")
    (_, flags), (_, shape), (_, name) = (unpacked.part(DESCRIBED) for _ in range(3))
    sides = np.frombuffer(shape[: len(shape) // 4 * 4], "<i4").tolist()
    if len(flags) < 4 or not sides or min(sides) < 0:
        raise refusal(path.name, "cannot be read as a MATLAB file: it describes an array that cannot be")
    return name.decode("latin-1"), MatlabArray(start, compressed, flags[0], tuple(sides))


def _arrays(path: Path) -> tuple[MatlabArray, MatlabArray]:
    """Return images and labels, before any memory is taken for them."""
    found = _find_arrays(path)
    x, y = found.get("X"), found.get("y")
    shape = x.shape if x else ()
    fits = len(shape) == 4 and shape[:3] == (32, 32, 3) and 0 < shape[3] <= MAX_IMAGES
    if not x or not y or not fits or x.kind != UINT8 or y.shape != (shape[3], 1):
        shapes = {
            printable(name[:20]): (array.shape, "uint8" if array.kind == UINT8 else "not uint8")
            for name, array in list(found.items())[:5]
        }
        raise refusal(
            path.name,
            f"should hold X, uint8 of shape (32, 32, 3, N), and y of shape (N, 1). It holds {shapes or 'nothing'}",
        )
    return x, y


@contextmanager
def _numbers(path: Path, array: MatlabArray) -> Iterator[tuple[Unpacker, np.dtype[Any]]]:
    """Open an array at its numbers, and tell of which type they are stored."""
    with path.open("rb") as file, _explain_damage(path):
        unpacked = Unpacker(path, file, array.start, compressed=array.compressed)
        unpacked.tag()
        for _ in range(3):
            unpacked.part(DESCRIBED)
        kind, length, content = unpacked.tag()
        if kind not in NUMBERS or length != array.size * np.dtype(NUMBERS[kind]).itemsize:
            raise refusal(
                path.name, f"cannot be read as a MATLAB file: {length:,} bytes are not an array of {array.shape}"
            )
        if content:  # a few labels in the tag itself
            unpacked.file, unpacked.stream = io.BytesIO(content), None
        yield unpacked, np.dtype(NUMBERS[kind])


def _fill(path: Path, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Copy the images of a file into `pixels`, (N, 32, 32, 3), and return their labels."""
    x, y = _arrays(path)
    with _numbers(path, x) as (unpacked, kind):
        if kind != np.uint8:
            raise refusal(path.name, f"has pixels of type {kind}, not uint8")
        for start in range(0, len(pixels), CHUNK):
            count = min(CHUNK, len(pixels) - start)
            images = np.frombuffer(unpacked.read(count * 3_072), np.uint8)
            pixels[start : start + count] = images.reshape(count, 3, 32, 32).transpose(0, 3, 2, 1)  # stored by columns
    with _numbers(path, y) as (unpacked, kind):
        labels = np.frombuffer(unpacked.read(y.size * kind.itemsize), kind)
    if not np.isin(labels, np.arange(1, 11)).all():
        raise refusal(path.name, "has labels that are not whole numbers from 1 to 10")
    return labels.astype(np.int64) % 10  # SVHN calls the digit 0 class 10
