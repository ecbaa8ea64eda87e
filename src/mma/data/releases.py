"""Published data sets: their official files, and the formats of their releases.

CIFAR has a format of its own, Fashion-MNIST that of MNIST, SVHN that of MATLAB. A download resumes where a broken one stopped,
and keeps nothing that is not exactly the official file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import math
import struct
import tarfile
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from mma.data.images import CHUNK, Images
from mma.errors import UserError
from mma.files import sync_file
from mma.text import Progress, printable

READ = 1 << 20  # bytes read at a time
ATTEMPTS = 5  # of a download, each from where the one before stopped
TIMEOUT = 30  # seconds without a byte
MAX_MEMBERS = 1_000  # files in an archive
BLOCK = 512  # bytes of a header in an archive; files are padded to multiples
MAX_RATIO = 100  # bytes out of an archive for each byte in it; real images do not even reach 2
SLACK = 16 << 20  # bytes of an archive besides twice the files that are wanted


@dataclass(frozen=True)
class Original:
    """One official file. `digest` is ALGORITHM:HEX."""

    name: str
    size: int
    digest: str
    url: str = ""


def find_difference(content: Path | bytes, original: Original) -> str:
    """Say how a file, or the bytes read out of one, differ from the official one in length or hash; "" if they do not."""
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    if size != original.size:
        return f"it has {size:,} bytes, the official one {original.size:,}"
    algorithm, expected = original.digest.split(":")
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    return "" if found == expected else f"its {algorithm} is {found}, the official one {expected}"


def is_official(name: str, content: Path | bytes, original: Original, *, accept: bool) -> bool:
    """Tell whether a file is the official one; one that differs is an error unless `accept`."""
    if (difference := find_difference(content, original)) and not accept:
        raise UserError(
            f"{printable(name)} is not the official file: {difference}. Replace it with the official "
            "one, or add --accept-hash-mismatch to use it as it is."
        )
    return not difference


def refusal(name: str, why: str) -> UserError:
    """Make the error for a file that cannot be used whatever one accepts."""
    return UserError(
        f"{printable(name)} {printable(why)}. Replace it with a whole copy of the official file and run the same command "
        "again, or leave out --from to download it."
    )


def not_there(directory: Path, names: Sequence[str], what: str) -> UserError:
    """Make the error for a file that is in a folder under none of its names."""
    has = f"neither {' nor '.join(names)}" if len(names) > 1 else f"no {names[0]}"
    return UserError(f"{printable(str(directory))} has {has}. Put {what} there, or download it by leaving out --from.")


def find(directory: Path, names: Iterable[str], *folders: str) -> Path | None:
    """Look for a file under one of its names, in `directory` or one of the sub-folders it is usually unpacked into."""
    places = (directory / folder / name for folder in ("", *folders) for name in names)
    return next((place for place in places if place.is_file()), None)


def read_members(archive: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    """Read the files named in `limits` out of a .tar.gz, by base name and up to that many bytes each.

    Nothing is unpacked to disk, and no archive can fill the memory or go on for ever: the headers are read here, since
    tarfile believes what they say of lengths.
    """
    found = dict[str, bytes]()
    left = min(SLACK + 2 * sum(limits.values()), READ + MAX_RATIO * archive.stat().st_size)  # bytes to unpack
    try:
        with gzip.open(archive) as stream:
            for count in itertools.count():
                header = stream.read(BLOCK)
                if not header.strip(b"\0"):
                    break
                if count >= MAX_MEMBERS:
                    raise refusal(archive.name, f"holds more than {MAX_MEMBERS:,} files")
                try:
                    member = tarfile.TarInfo.frombuf(header, "utf-8", "replace")
                    if (size := member.size) < 0:
                        raise tarfile.HeaderError
                except tarfile.HeaderError as error:
                    why = "cannot be read as a .tar.gz (a header in it is damaged)"
                    raise refusal(archive.name, why) from error
                padded = -(-size // BLOCK) * BLOCK
                left -= BLOCK + padded
                name = member.name.rsplit("/", 1)[-1]
                if member.isreg() and name in limits:
                    if size > limits[name]:
                        why = f"holds {member.name} with {size:,} bytes, more than {limits[name]:,}"
                        raise refusal(archive.name, why)
                    found[name] = stream.read(padded)[:size]
                    if len(found[name]) < size:
                        raise EOFError
                elif left >= 0:
                    stream.seek(padded, io.SEEK_CUR)
                if left < 0:
                    raise refusal(archive.name, "unpacks to far more than the official archive")
            while piece := stream.read(READ):  # to the end: a cut archive is found after the wanted files too
                left -= len(piece)
                if left < 0:
                    raise refusal(archive.name, "unpacks to far more than the official archive")
    except EOFError as error:
        raise refusal(archive.name, "is cut short: its end is missing") from error
    except (OSError, zlib.error) as error:
        raise refusal(archive.name, f"cannot be read as a .tar.gz ({error})") from error
    return found


def unzip(path: Path, limit: int) -> bytes:
    """Read a .gz file (or a plain one) of at most `limit` bytes of content."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content: bytes = file.read(limit + 1)
    except EOFError as error:
        raise refusal(path.name, "is cut short: its end is missing") from error
    except (OSError, zlib.error) as error:
        raise refusal(path.name, f"cannot be read ({error})") from error
    if len(content) > limit:
        raise refusal(path.name, f"holds more than {limit:,} bytes")
    return content


def fetch(original: Original, directory: Path) -> Path:
    """Download `original` into `directory` unless it is there already, whole and right."""
    path = directory / original.name
    if path.is_file() and not find_difference(path, original):
        return path
    part = path.with_name(path.name + ".part")
    problem, have, before = "", part.stat().st_size if part.exists() else 0, -1
    for _ in range(ATTEMPTS):
        if have >= original.size or (problem and have <= before):  # not a byte further: asking again would not help
            break
        problem, before = _attempt(original, part, have), have
        have = part.stat().st_size if part.exists() else 0
    if have < original.size:
        raise UserError(
            f"{original.name} could not be downloaded from {original.url}: {problem or 'the connection was closed'} "
            f"({have:,} of {original.size:,} bytes are here). Run the same command again: it goes on from there; "
            "or give the folder where the file lies with --from DIR."
        )
    if difference := find_difference(part, original):
        part.unlink()
        raise UserError(
            f"{original.url} did not send the official file: {difference}. The download was deleted. Get "
            f"{original.name} elsewhere and give its folder with --from DIR."
        )
    sync_file(part)
    part.replace(path)
    return path


def _attempt(original: Original, part: Path, have: int) -> str:
    """Ask for the bytes from `have` on and append them; return what went wrong, "" if nothing did."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "mma"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with urlopen(Request(original.url, headers=headers), timeout=TIMEOUT) as response:
            if response.status != 206:  # the server cannot resume, or was not asked to
                have = 0
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                raise HTTPException("the server sent another part of the file than it was asked for")
            part.parent.mkdir(parents=True, exist_ok=True)  # not before a server has answered
            with part.open("ab") as file, Progress() as progress:
                file.truncate(have)
                while piece := response.read1(READ):
                    file.write(piece)
                    if file.tell() > original.size:
                        file.truncate(0)
                        raise UserError(
                            f"{original.url} sends more than the {original.size:,} bytes of the official file, so it is "
                            f"not that file. Get {original.name} elsewhere and give its folder with --from DIR."
                        )
                    here = f"{original.name}: {file.tell() / 1e6:,.1f} of {original.size / 1e6:,.1f} MB"
                    progress.update(file.tell(), original.size, here.__str__)
        return ""
    except HTTPError as error:
        error.close()
        if error.code == 416:  # the server has no such range: what lies here is not the beginning of its file
            part.unlink(missing_ok=True)
        return f"the server answered {error.code} {error.reason}"
    except (URLError, HTTPException, ConnectionError, TimeoutError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__


# CIFAR-10 and CIFAR-100: records of labels and bytes, as an archive or loose files.

PUBLISHED: dict[str, Any] = tomllib.loads(Path(__file__).with_name("releases.toml").read_text("utf-8"))
PIXELS = 3 * 32 * 32  # red, green and blue plane, each row by row


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


def _files(name: str, part: str, *, download: bool = False) -> tuple[Original, ...]:
    site = PUBLISHED[name]["site"]
    rows = PUBLISHED[name][part]
    return tuple(Original(file, size, digest, f"{site}{file}" if download else "") for file, size, digest in rows)


def _release(name: str) -> Release:
    facts, (archive,) = PUBLISHED[name], _files(name, "archive", download=True)
    parts = archive, facts["folder"], _files(name, "train"), _files(name, "test"), tuple(facts["classes"].split())
    return Release(facts["name"], *parts, facts["label_bytes"], tuple(facts["wrong_releases"]))


CIFAR10, CIFAR100 = _release("cifar10"), _release("cifar100")


def read_release(release: Release, directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Check and convert the record files, loose or in an archive; the third value tells whether all are the official ones."""
    parts = (*release.train, *release.test)
    if archive := find(directory, (release.archive.name,)):
        contents = read_members(archive, {part.name: part.size for part in parts})
        if missing := [part.name for part in parts if part.name not in contents]:
            raise refusal(archive.name, f"is not the binary release of {release.name}: it has no {missing[0]}")
    else:
        contents = {}
        for part in parts:
            path = find(directory, (part.name,), release.folder)
            wrong = [name for name in release.wrong_releases if (directory / name).exists()]
            if path is None and wrong:
                raise UserError(
                    f"{printable(str(directory))} holds another release of {release.name} ({wrong[0]}): mma reads the binary "
                    f"one, not that for Python or MATLAB. Put {release.archive.name} there, or download it by leaving out "
                    "--from."
                )
            if path is None:
                wanted = (release.archive.name, part.name)
                raise not_there(directory, wanted, f"the binary release of {release.name}")
            if path.stat().st_size > part.size:
                raise refusal(part.name, f"is larger than the official file ({part.size:,} bytes)")
            contents[part.name] = path.read_bytes()
    train, test = (_read_records(release, split, contents) for split in (release.train, release.test))
    official = [is_official(part.name, contents[part.name], part, accept=accept) for part in parts]
    return train, test, all(official)


def _read_records(release: Release, files: tuple[Original, ...], contents: dict[str, bytes]) -> Images:
    """Return the images of some files, and refuse one that is not made of whole, possible records."""
    last = len(release.classes) - 1
    for name, content in ((file.name, contents[file.name]) for file in files):
        whole, rest = divmod(len(content), release.record)
        if not content or rest:
            raise refusal(
                name,
                f"is cut short, or is not {release.name}: {len(content):,} bytes are {whole:,} whole records of "
                f"{release.record:,} bytes and {rest:,} bytes more",
            )
        labels = np.frombuffer(content, np.uint8)[release.label_bytes - 1 :: release.record]
        if labels.max() > last:
            bad = int(np.argmax(labels > last))
            why = f"is not {release.name}: record {bad:,} has label {labels[bad]}, and labels end at {last}"
            raise refusal(name, why)
    records = np.frombuffer(b"".join(contents[file.name] for file in files), np.uint8).reshape(-1, release.record)
    labels, planes = records[:, release.label_bytes - 1], records[:, release.label_bytes :].reshape(-1, 3, 32, 32)
    return Images(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels.astype(np.int64), release.classes)


# Fashion-MNIST: 28 x 28 grey images of ten kinds of clothing.

FASHION_CLASSES = tuple(PUBLISHED["fashion-mnist"]["classes"])
PACKAGE_FOLDERS = (Path("/usr/share/datasets/fashion-mnist"),)  # Debian: dataset-fashion-mnist
LIMIT = 64 << 20  # bytes of content; the largest official file has 47,040,016
IMAGES, LABELS = 0x0803, 0x0801  # idx magic numbers: uint8 in three and in one dimension
DOWNLOADS = _files("fashion-mnist", "downloads", download=True)
CONTENT = {original.name: original for original in _files("fashion-mnist", "content")}


def read_fashion(directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Read the four idx files, packed or not; the third value tells whether all of them are the official ones."""
    splits, official = [], []
    for split in ("train", "t10k"):
        pixels, *first = _read_idx(directory, f"{split}-images-idx3-ubyte", IMAGES, accept=accept)
        y, *second = _read_idx(directory, f"{split}-labels-idx1-ubyte", LABELS, accept=accept)
        if pixels.shape[1:] != (28, 28) or len(pixels) != len(y) or not len(y) or y.max() >= len(FASHION_CLASSES):
            raise UserError(
                f"the {split} files are not Fashion-MNIST: they hold images of shape {pixels.shape} and {len(y):,} labels up "
                f"to {y.max(initial=0)}. Replace them and run the same command again."
            )
        splits.append(Images(pixels[..., None], y.astype(np.int64), FASHION_CLASSES))
        official += first + second
    return splits[0], splits[1], all(official)


def _read_idx(directory: Path, name: str, magic: int, *, accept: bool) -> tuple[NDArray[np.uint8], bool]:
    path = find(directory, (f"{name}.gz", name))
    if path is None:
        raise not_there(directory, (f"{name}.gz", name), "the four files of Fashion-MNIST")
    content = unzip(path, LIMIT)
    # A magic number whose last byte counts the dimensions, their sizes, then the bytes.
    header = 4 * (1 + (dimensions := magic & 0xFF))
    if len(content) < header or struct.unpack(">I", content[:4])[0] != magic:
        raise refusal(path.name, "is not an idx file of the kind it should be")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    expected = header + math.prod(shape)
    if len(content) != expected:
        cut = "is cut short" if len(content) < expected else "is too long"
        raise refusal(path.name, f"{cut}: it holds {len(content):,} bytes, and its header says {expected:,}")
    array = np.frombuffer(content, np.uint8, offset=header).reshape(shape)
    return array, is_official(path.name, content, CONTENT[name], accept=accept)


# SVHN, the street view house numbers: cropped 32 x 32 digits in MATLAB files (version 5).

DIGITS = tuple("0123456789")
HEADER = 128  # bytes
MAX_IMAGES = 600_000  # in one file; the largest has 531,131
MAX_ARRAYS = 100
TRAIN, TEST, EXTRA = _files("svhn", "downloads", download=True)


def read_svhn(pool: tuple[Original, ...], directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Read the files of a pool and the test set; the third value tells whether all of them are the official ones."""
    parts, paths = (*pool, TEST), []
    for part in parts:
        path = find(directory, (part.name,))
        if path is None:
            raise not_there(directory, (part.name,), "the cropped-digits files of SVHN")
        paths.append(path)
    with ExitStack() as stack:
        files = [
            _open_arrays(path, stack) for path in paths
        ]  # one that is cut short is called so, and not another file
        official = [is_official(part.name, path, part, accept=accept) for part, path in zip(parts, paths, strict=True)]
        return _read_cropped_digits(files[:-1]), _read_cropped_digits(files[-1:]), all(official)


def _read_cropped_digits(files: list[tuple[MatlabArray, MatlabArray]]) -> Images:
    pixels = np.empty((sum(x.shape[3] for x, _ in files), 32, 32, 3), np.uint8)  # never two whole pools in memory
    labels, start = [], 0
    for x, y in files:
        name, count = x.path.name, x.shape[3]
        with _explain_damage(x.path):
            if (kind := x.open_numbers()) != np.uint8:
                raise refusal(name, f"has pixels of type {kind}, not uint8")
            for first in range(start, start + count, CHUNK):
                last = min(first + CHUNK, start + count)
                images = np.frombuffer(x.read((last - first) * 3_072), np.uint8)
                pixels[first:last] = images.reshape(-1, 3, 32, 32).transpose(0, 3, 2, 1)  # stored by columns
            kind = y.open_numbers()
            digits = np.frombuffer(y.read(count * kind.itemsize), kind)
        if not np.isin(digits, np.arange(1, 11)).all():
            raise refusal(name, "has labels that are not whole numbers from 1 to 10")
        labels.append(digits.astype(np.int64) % 10)  # SVHN calls the digit 0 class 10
        start += count
    return Images(pixels, np.concatenate(labels), DIGITS)


# The two arrays of a MATLAB file (version 5). scipy's reader has ended the process on damaged files, and takes as much memory
# as a file claims to need; this one reads what is expected, and nothing else.

NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
MATRIX, COMPRESSED, UINT8 = 14, 15, 9
DESCRIBED = 4_096  # bytes of an array's flags, shape and name, at most


class MatlabArray:
    """One array of a MATLAB file: what it is, then its numbers, decompressed piece by piece."""

    def __init__(self, path: Path, file: IO[bytes], *, compressed: bool) -> None:
        self.path, self.file = path, file  # which stands where the array begins
        self.stream = zlib.decompressobj() if compressed else None
        if self.tag()[0] != MATRIX:
            raise refusal(path.name, "cannot be read as a MATLAB file: it holds something else than arrays")
        flags, shape, name = (self.part() for _ in range(3))
        sides = np.frombuffer(shape[: len(shape) // 4 * 4], "<i4").tolist()
        if len(flags) < 4 or not sides or min(sides) < 0:
            raise refusal(path.name, "cannot be read as a MATLAB file: it describes an array that cannot be")
        self.name, self.kind, self.shape = name.decode("latin-1"), flags[0], tuple(sides)

    def read(self, count: int) -> bytes:
        """Return exactly so many bytes."""
        content = b"" if self.stream else self.file.read(count)
        while self.stream and len(content) < count and not self.stream.eof:
            packed = self.stream.unconsumed_tail or self.file.read(1 << 20)
            piece = self.stream.decompress(packed, count - len(content))
            if not packed and not piece:
                break
            content += piece
        if len(content) < count:
            raise refusal(self.path.name, "is cut short: an array in it has fewer bytes than its shape needs")
        return content

    def part(self) -> bytes:
        """Read one part of what the array is."""
        _, length, content = self.tag()
        if length > DESCRIBED:
            raise refusal(self.path.name, f"cannot be read as a MATLAB file: a part in it has {length:,} bytes")
        return (content or self.read(-(-length // 8) * 8))[:length]  # parts begin at multiples of 8

    def tag(self) -> tuple[int, int, bytes]:
        """Read the type and the length of a part; up to four bytes of content may lie in the tag itself."""
        tag = self.read(8)
        kind, length = struct.unpack("<II", tag)
        return (kind & 0xFFFF, kind >> 16, tag[4:]) if kind >> 16 else (kind, length, b"")

    def open_numbers(self) -> np.dtype[Any]:
        """Go on to the numbers, and tell of which type they are stored."""
        kind, length, content = self.tag()
        if kind not in NUMBERS or length != math.prod(self.shape) * np.dtype(NUMBERS[kind]).itemsize:
            why = f"cannot be read as a MATLAB file: {length:,} bytes are not an array of {self.shape}"
            raise refusal(self.path.name, why)
        if content:  # a few labels in the tag itself
            self.file, self.stream = io.BytesIO(content), None
        return np.dtype(NUMBERS[kind])


@contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (zlib.error, struct.error) as error:
        raise refusal(path.name, f"cannot be read as a MATLAB file, so it is damaged ({error})") from error


def _open_arrays(path: Path, stack: ExitStack) -> tuple[MatlabArray, MatlabArray]:
    """Find images and labels by following the lengths of a file's parts to its end. No memory is taken for them yet."""
    size, position, found = path.stat().st_size, HEADER, dict[str, MatlabArray]()
    with path.open("rb") as file, _explain_damage(path):
        header = file.read(HEADER)
        if not header.startswith(b"MATLAB 5.0"[: len(header)]) or not b"IM".startswith(header[126:]):
            raise refusal(path.name, "is not a little-endian MATLAB file of version 5")
        while position < size and len(found) < MAX_ARRAYS:
            file.seek(position)
            tag = file.read(8)
            if len(tag) < 8 or (end := position + 8 + struct.unpack("<4xI", tag)[0]) > size:
                raise refusal(path.name, f"is cut short: it has {size:,} bytes, and its last part is not whole")
            if (kind := struct.unpack("<I4x", tag)[0]) in (MATRIX, COMPRESSED):
                own = stack.enter_context(path.open("rb"))
                own.seek(position + 8 if kind == COMPRESSED else position)
                array = MatlabArray(path, own, compressed=kind == COMPRESSED)
                found[array.name] = array
            position = end
    if size <= HEADER:
        raise refusal(path.name, f"is cut short: it has {size:,} bytes, and no array")
    x, y = found.get("X"), found.get("y")
    shape = x.shape if x else ()
    fits = len(shape) == 4 and shape[:3] == (32, 32, 3) and 0 < shape[3] <= MAX_IMAGES
    if not x or not y or not fits or x.kind != UINT8 or y.shape != (shape[3], 1):
        shapes = {
            printable(name[:20]): (array.shape, "uint8" if array.kind == UINT8 else "not uint8")
            for name, array in list(found.items())[:5]
        }
        wanted = "X, uint8 of shape (32, 32, 3, N), and y of shape (N, 1)"
        raise refusal(path.name, f"should hold {wanted}. It holds {shapes or 'nothing'}")
    return x, y
