"""Published data sets in the formats of their releases.

CIFAR-10 and CIFAR-100 as an archive or loose files, Fashion-MNIST in the format of MNIST, SVHN in that of MATLAB.
"""

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

from mma.data.download import Original, find, find_difference, is_official, read_members, refusal, unzip
from mma.data.images import CHUNK, Images
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


def _download(site: str, name: str, size: int, md5: str) -> Original:
    return Original(name, size, f"md5:{md5}", f"{site}{name}")


def _files(size: int, **sha1: str) -> tuple[Original, ...]:
    return tuple(Original(f"{name}.bin", size, f"sha1:{digest}") for name, digest in sha1.items())


CIFAR10 = Release(
    "CIFAR-10",
    _download(SITE, "cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),
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
    _download(SITE, "cifar-100-binary.tar.gz", 168_513_733, "03b5dce01913d631647c71ecec9e9cb8"),
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
    if (archive := find(directory, (release.archive.name,))) is None:
        contents = {part.name: _loose(release, part, directory) for part in parts}
    else:
        contents = read_members(archive, {part.name: part.size for part in parts})
        if missing := [part.name for part in parts if part.name not in contents]:
            raise refusal(archive.name, f"is not the binary release of {release.name}: it has no {missing[0]}")
    splits = (release.train, release.test)
    train, test = (_read_records(release, {part.name: contents[part.name] for part in split}) for split in splits)
    official = [is_official(part.name, find_difference(contents[part.name], part), accept=accept) for part in parts]
    return train, test, all(official)


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


def _read_records(release: Release, contents: dict[str, bytes]) -> Images:
    """Return the images of some files, and refuse one that is not made of whole, possible records."""
    parts = []
    for name, content in contents.items():
        whole, rest = divmod(len(content), release.record)
        if not content or rest:
            raise refusal(
                name,
                f"is cut short, or is not {release.name}: {len(content):,} bytes are {whole:,} whole records of "
                f"{release.record:,} bytes and {rest:,} bytes more",
            )
        records = np.frombuffer(content, np.uint8).reshape(-1, release.record)
        labels, last = records[:, release.label_bytes - 1], len(release.classes) - 1
        if labels.max() > last:
            bad = int(np.argmax(labels > last))
            raise refusal(
                name, f"is not {release.name}: record {bad:,} has label {labels[bad]}, and labels end at {last}"
            )
        parts.append(records)
    records = np.concatenate(parts)
    labels, planes = records[:, release.label_bytes - 1], records[:, release.label_bytes :].reshape(-1, 3, 32, 32)
    return Images(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels.astype(np.int64), release.classes)


# Fashion-MNIST: 28 x 28 grey images of ten kinds of clothing.

FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
FASHION_SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
PACKAGE_FOLDERS = (Path("/usr/share/datasets/fashion-mnist"),)  # Debian: dataset-fashion-mnist
LIMIT = 64 << 20  # bytes of content; the largest official file has 47,040,016
IMAGES, LABELS = 0x0803, 0x0801  # idx magic numbers: uint8 in three and in one dimension

# The packed files differ between distributions (a gzip header names a file and a time); what is in them does not.
CONTENT = {
    name: Original(name, size, f"sha256:{sha256}")
    for name, size, sha256 in (
        ("train-images-idx3-ubyte", 47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
        ("train-labels-idx1-ubyte", 60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
        ("t10k-images-idx3-ubyte", 7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
        ("t10k-labels-idx1-ubyte", 10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
    )
}
DOWNLOADS = tuple(
    _download(FASHION_SITE, f"{name}.gz", size, md5)
    for name, size, md5 in (
        ("train-images-idx3-ubyte", 26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte", 29_515, "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte", 4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte", 5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
    )
)


def read_fashion(directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Read the four idx files, packed or not; the third value tells whether all of them are the official ones."""
    train, train_official = _read_split(directory, "train", accept=accept)
    test, test_official = _read_split(directory, "t10k", accept=accept)
    return train, test, train_official and test_official


def _read_split(directory: Path, split: str, *, accept: bool) -> tuple[Images, bool]:
    pixels, images_official = _read_idx(directory, f"{split}-images-idx3-ubyte", IMAGES, accept=accept)
    y, labels_official = _read_idx(directory, f"{split}-labels-idx1-ubyte", LABELS, accept=accept)
    if pixels.shape[1:] != (28, 28) or len(pixels) != len(y) or not len(y) or y.max() >= len(FASHION_CLASSES):
        raise UserError(
            f"the {split} files are not Fashion-MNIST: they hold images of shape {pixels.shape} and {len(y):,} labels up "
            f"to {y.max(initial=0)}. Replace them and run the same command again."
        )
    return Images(pixels[..., None], y.astype(np.int64), FASHION_CLASSES), images_official and labels_official


def _read_idx(directory: Path, name: str, magic: int, *, accept: bool) -> tuple[NDArray[np.uint8], bool]:
    path = find(directory, (f"{name}.gz", name))
    if path is None:
        raise UserError(
            f"{printable(str(directory))} has neither {name}.gz nor {name}. Put the four files of Fashion-MNIST there, or "
            "download them by leaving out --from."
        )
    content = unzip(path, LIMIT)
    # A magic number whose last byte counts the dimensions, their sizes, then the bytes.
    header = 4 * (1 + (dimensions := magic & 0xFF))
    if len(content) < header or struct.unpack(">I", content[:4])[0] != magic:
        raise refusal(path.name, "is not an idx file of the kind it should be")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    expected = header + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        cut = "is cut short" if len(content) < expected else "is too long"
        raise refusal(path.name, f"{cut}: it holds {len(content):,} bytes, and its header says {expected:,}")
    array = np.frombuffer(content, np.uint8, offset=header).reshape(shape)
    return array, is_official(path.name, find_difference(content, CONTENT[name]), accept=accept)


# SVHN, the street view house numbers: cropped 32 x 32 digits in MATLAB files (version 5).

SVHN_SITE = "http://ufldl.stanford.edu/housenumbers/"
DIGITS = tuple("0123456789")
HEADER = 128  # bytes
MAX_IMAGES = 600_000  # in one file; the largest has 531,131
MAX_ARRAYS = 100


TRAIN = _download(SVHN_SITE, "train_32x32.mat", 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373")
TEST = _download(SVHN_SITE, "test_32x32.mat", 64_275_384, "eb5a983be6a315427106f1b164d9cef3")
EXTRA = _download(SVHN_SITE, "extra_32x32.mat", 1_329_278_602, "a93ce644f1a588dc4d68dda5feec44a7")


def read_svhn(pool: tuple[Original, ...], directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
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
    train, test = _read_cropped_digits([paths[part.name] for part in pool]), _read_cropped_digits([paths[TEST.name]])
    return train, test, all(official)


def _read_cropped_digits(paths: list[Path]) -> Images:
    counts = [_arrays(path)[0].shape[3] for path in paths]
    pixels = np.empty((sum(counts), 32, 32, 3), np.uint8)  # filled part by part: never two whole pools in memory
    labels, start = [], 0
    for path, count in zip(paths, counts, strict=True):
        x, y = _arrays(path)
        with _numbers(path, x) as (unpacked, kind):
            if kind != np.uint8:
                raise refusal(path.name, f"has pixels of type {kind}, not uint8")
            for first in range(start, start + count, CHUNK):
                last = min(first + CHUNK, start + count)
                images = np.frombuffer(unpacked.read((last - first) * 3_072), np.uint8)
                pixels[first:last] = images.reshape(-1, 3, 32, 32).transpose(0, 3, 2, 1)  # stored by columns
        with _numbers(path, y) as (unpacked, kind):
            labels.append(np.frombuffer(unpacked.read(y.size * kind.itemsize), kind))
        if not np.isin(labels[-1], np.arange(1, 11)).all():
            raise refusal(path.name, "has labels that are not whole numbers from 1 to 10")
        labels[-1] = labels[-1].astype(np.int64) % 10  # SVHN calls the digit 0 class 10
        start += count
    return Images(pixels, np.concatenate(labels), DIGITS)


# The two arrays of a MATLAB file (version 5). scipy's reader has ended the process on damaged files, and takes as much memory
# as a file claims to need; this one reads what is expected, and nothing else.

NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
MATRIX, COMPRESSED, UINT8 = 14, 15, 9
DESCRIBED = 4_096  # bytes of an array's flags, shape and name, at most


class MatlabArray:
    """One array of a MATLAB file: what it is, and its bytes from there on, decompressed piece by piece."""

    def __init__(self, path: Path, file: IO[bytes], start: int, *, compressed: bool) -> None:
        file.seek(start)
        self.path, self.file, self.start, self.compressed = path, file, start, compressed
        self.stream = zlib.decompressobj() if compressed else None
        if self.tag()[0] != MATRIX:
            raise refusal(path.name, "cannot be read as a MATLAB file: it holds something else than arrays")
        (_, flags), (_, shape), (_, name) = (self.part(DESCRIBED) for _ in range(3))
        sides = np.frombuffer(shape[: len(shape) // 4 * 4], "<i4").tolist()
        if len(flags) < 4 or not sides or min(sides) < 0:
            raise refusal(path.name, "cannot be read as a MATLAB file: it describes an array that cannot be")
        self.name, self.kind, self.shape, self.size = name.decode("latin-1"), flags[0], tuple(sides), math.prod(sides)

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
            if (kind := struct.unpack("<I4x", tag)[0]) in (MATRIX, COMPRESSED):
                start = position + 8 if kind == COMPRESSED else position
                array = MatlabArray(path, file, start, compressed=kind == COMPRESSED)
                arrays[array.name] = array
            position = end
    if size <= HEADER:
        raise refusal(path.name, f"is cut short: it has {size:,} bytes, and no array")
    return arrays


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
def _numbers(path: Path, array: MatlabArray) -> Iterator[tuple[MatlabArray, np.dtype[Any]]]:
    """Open an array at its numbers, and tell of which type they are stored."""
    with path.open("rb") as file, _explain_damage(path):
        unpacked = MatlabArray(path, file, array.start, compressed=array.compressed)
        kind, length, content = unpacked.tag()
        if kind not in NUMBERS or length != array.size * np.dtype(NUMBERS[kind]).itemsize:
            raise refusal(
                path.name, f"cannot be read as a MATLAB file: {length:,} bytes are not an array of {array.shape}"
            )
        if content:  # a few labels in the tag itself
            unpacked.file, unpacked.stream = io.BytesIO(content), None
        yield unpacked, np.dtype(NUMBERS[kind])
