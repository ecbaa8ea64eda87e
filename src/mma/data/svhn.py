"""SVHN, the street view house numbers: cropped 32 x 32 digits in MATLAB files (version 5)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def _matlab(split: str, size: int, md5: str) -> Original:
    name = f"{split}_32x32.mat"
    return Original(name, size, f"md5:{md5}", f"{SITE}{name}")


TRAIN = _matlab("train", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373")
TEST = _matlab("test", 64_275_384, "eb5a983be6a315427106f1b164d9cef3")
EXTRA = _matlab("extra", 1_329_278_602, "a93ce644f1a588dc4d68dda5feec44a7")


def read_svhn(directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Read SVHN: 73,257 images to learn from, 26,032 to test on; and whether the files are the official ones."""
    return _read(directory, (TRAIN,), accept=accept)


def read_svhn_extra(directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Read SVHN with its extra images in the pool, 604,388 together; and whether the files are the official ones."""
    return _read(directory, (TRAIN, EXTRA), accept=accept)


def _read(directory: Path, pool: tuple[Original, ...], *, accept: bool) -> tuple[Images, Images, bool]:
    paths = {part.name: _path(directory, part) for part in (*pool, TEST)}
    for path in paths.values():
        _check_whole(path)
    official = [
        is_official(part.name, find_difference(paths[part.name], part), accept=accept) for part in (*pool, TEST)
    ]
    train, test = _images([paths[part.name] for part in pool]), _images([paths[TEST.name]])
    return train, test, all(official)


def _images(paths: list[Path]) -> Images:
    counts = [_count(path) for path in paths]
    pixels = np.empty((sum(counts), 32, 32, 3), np.uint8)  # filled part by part: never two whole pools in memory
    labels, start = [], 0
    for path, count in zip(paths, counts, strict=True):
        labels.append(_fill(path, pixels[start : start + count]))
        start += count
    return Images(pixels, np.concatenate(labels), CLASSES)


def _path(directory: Path, part: Original) -> Path:
    path = find(directory, (part.name,))
    if path is None:
        raise UserError(
            f"{printable(str(directory))} has no {part.name}. Put the cropped-digits files of SVHN there, or download "
            "them by leaving out --from."
        )
    return path


def _check_whole(path: Path) -> None:
    """Follow the lengths of a MATLAB file's parts to its end: 128 bytes of header, then parts of type, length, bytes."""
    size, position = path.stat().st_size, HEADER
    with path.open("rb") as file:
        header = file.read(HEADER)
        if not header.startswith(b"MATLAB 5.0"[: len(header)]) or not b"IM".startswith(header[126:]):
            raise refusal(path.name, "is not a little-endian MATLAB file of version 5")
        while position < size:
            file.seek(position)
            tag = file.read(8)
            position += 8 + (struct.unpack("<4xI", tag)[0] if len(tag) == 8 else 0)
    if position != size or size <= HEADER:
        raise refusal(path.name, f"is cut short: it has {size:,} bytes, and its last part is not whole")


@contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    """Refuse the file when scipy cannot make sense of its bytes, which it says in as many ways as there are damages."""
    from scipy.io.matlab import MatReadError

    try:
        yield
    except (MatReadError, ValueError, TypeError, NotImplementedError, OSError, EOFError, zlib.error) as error:
        raise refusal(path.name, f"cannot be read as a MATLAB file, so it is damaged ({error})") from error


def _count(path: Path) -> int:
    """Read from the file's table of contents how many images it holds, before any memory is taken for them."""
    from scipy.io import whosmat

    with _explain_damage(path):
        contents = {name: (shape, kind) for name, shape, kind in whosmat(str(path))}
    x, kind = contents.get("X", ((), ""))
    y, _ = contents.get("y", ((), ""))
    if len(x) != 4 or x[:3] != (32, 32, 3) or y != (x[3], 1) or kind != "uint8" or not 0 < x[3] <= MAX_IMAGES:
        raise refusal(
            path.name,
            f"should hold X, uint8 of shape (32, 32, 3, N), and y of shape (N, 1). It holds {contents or 'nothing'}",
        )
    return int(x[3])


def _fill(path: Path, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Copy the images of a file into `pixels`, (N, 32, 32, 3), and return their labels."""
    from scipy.io import loadmat

    with _explain_damage(path):
        content = loadmat(str(path), variable_names=["X", "y"])
    x, y = content["X"], content["y"]
    if not np.isin(y, np.arange(1, 11)).all():
        raise refusal(path.name, "has labels that are not whole numbers from 1 to 10")
    for start in range(0, len(pixels), CHUNK):
        pixels[start : start + CHUNK] = x[..., start : start + CHUNK].transpose(3, 0, 1, 2)
    return np.asarray(y[:, 0], np.int64) % 10  # SVHN calls the digit 0 class 10
