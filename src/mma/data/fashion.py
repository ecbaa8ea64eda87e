"""Fashion-MNIST: 28 x 28 grey images of ten kinds of clothing, in the idx format of MNIST."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.data.download import Original, find, find_difference, is_official, refusal, unzip
from mma.data.images import Images
from mma.errors import UserError
from mma.text import printable

CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
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
    Original(f"{name}.gz", size, f"md5:{md5}", f"{SITE}{name}.gz")
    for name, size, md5 in (
        ("train-images-idx3-ubyte", 26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte", 29_515, "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte", 4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte", 5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
    )
)


def read(directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Read the four idx files, packed or not; the third value tells whether all of them are the official ones."""
    train, train_official = _read_split(directory, "train", accept=accept)
    test, test_official = _read_split(directory, "t10k", accept=accept)
    return train, test, train_official and test_official


def _read_split(directory: Path, split: str, *, accept: bool) -> tuple[Images, bool]:
    pixels, images_official = _read_array(directory, f"{split}-images-idx3-ubyte", IMAGES, accept=accept)
    y, labels_official = _read_array(directory, f"{split}-labels-idx1-ubyte", LABELS, accept=accept)
    if pixels.shape[1:] != (28, 28) or len(pixels) != len(y) or not len(y) or y.max() >= len(CLASSES):
        raise UserError(
            f"the {split} files are not Fashion-MNIST: they hold images of shape {pixels.shape} and {len(y):,} labels up "
            f"to {y.max(initial=0)}. Replace them and run the same command again."
        )
    return Images(pixels[..., None], y.astype(np.int64), CLASSES), images_official and labels_official


def _read_array(directory: Path, name: str, magic: int, *, accept: bool) -> tuple[NDArray[np.uint8], bool]:
    path = find(directory, (f"{name}.gz", name))
    if path is None:
        raise UserError(
            f"{printable(str(directory))} has neither {name}.gz nor {name}. Put the four files of Fashion-MNIST there, or "
            "download them by leaving out --from."
        )
    content = unzip(path, LIMIT)
    array = parse_idx(content, magic, path.name)
    return array, is_official(path.name, find_difference(content, CONTENT[name]), accept=accept)


def parse_idx(content: bytes, magic: int, name: str) -> NDArray[np.uint8]:
    """Read an idx file: a magic number whose last byte counts the dimensions, their sizes, then the bytes."""
    dimensions = magic & 0xFF
    header = 4 * (1 + dimensions)
    if len(content) < header or struct.unpack(">I", content[:4])[0] != magic:
        raise refusal(name, "is not an idx file of the kind it should be")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    expected = header + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        cut = "is cut short" if len(content) < expected else "is too long"
        raise refusal(name, f"{cut}: it holds {len(content):,} bytes, and its header says {expected:,}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
