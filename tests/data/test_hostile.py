"""Damaged and hostile files: every loader reads them or refuses them in a sentence, in little memory and time.

MMA_FUZZ=5000 tries that many damaged copies of each file instead of 60.
"""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from scipy.io import savemat

from mma.data import FolderOptions, get_folder, load_data, releases
from mma.data.releases import CIFAR10, read_fashion, read_members, read_release
from mma.errors import UserError

CASES = int(os.environ.get("MMA_FUZZ", "60"))
SECONDS = 5.0  # for one file
MEGABYTES = 200  # beyond those that the whole file takes


def damaged(content: bytes, seed: int) -> bytes:
    """Flip bits, overwrite numbers, cut, repeat or lengthen a file at random; most of it in the beginning, where lengths are."""
    draw = np.random.default_rng(seed)
    data = bytearray(content)
    for _ in range(int(draw.integers(1, 6))):
        where = int(draw.integers(0, min(len(data), 400) if draw.random() < 0.7 else len(data)))
        match int(draw.integers(0, 6)):
            case 0:
                data[where] ^= 1 << int(draw.integers(0, 8))
            case 1:
                data[where : where + 4] = struct.pack("<I", int(draw.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1])))
            case 2:
                data[where : where + 8] = draw.bytes(8)
            case 3:
                del data[max(where, 1) :]
            case 4:
                data[where:where] = data[where : where + 64]
            case 5:
                data[where : where + 12] = b"77777777777\0"  # 8 GB, as tar writes sizes
    return bytes(data)


def attack(folder, name, content, read):
    """Read damaged copies of one file; anything but a result or a refusal fails."""
    slowest = most = refused = 0
    tracemalloc.start()
    try:
        for seed in range(CASES):
            (folder / name).write_bytes(damaged(content, seed))
            tracemalloc.reset_peak()
            begin = time.monotonic()
            try:
                read()
            except UserError:
                refused += 1
            slowest, most = max(slowest, time.monotonic() - begin), max(most, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
        (folder / name).write_bytes(content)
    print(f"{name}: {CASES} cases, {refused} refused, {slowest:.1f} s and {most >> 20} MB at most")
    assert refused > CASES // 4
    assert slowest < SECONDS
    assert most < MEGABYTES << 20


def test_damaged_matlab_files(tmp_path):
    for name, compressed in (("train_32x32.mat", True), ("test_32x32.mat", False)):
        pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 5), dtype=np.uint8)
        content = {"X": pixels, "y": np.ones((5, 1), np.uint8)}
        savemat(tmp_path / name, content, do_compression=compressed)
    for name in ("train_32x32.mat", "test_32x32.mat"):
        attack(
            tmp_path,
            name,
            (tmp_path / name).read_bytes(),
            lambda: releases.read_svhn((releases.TRAIN,), tmp_path, accept=True),
        )


def test_a_matlab_array_that_unpacks_without_end_takes_no_memory(tmp_path):
    shape = struct.pack("<IIIIII", 5, 16, 32, 32, 3, 600_000)
    start = struct.pack("<IIQ", 6, 8, 9) + shape + struct.pack("<IIHHI", 14, 0, 1, 1, 0)[8:]
    body = struct.pack("<II", 14, 2**31) + start + bytes(2**24)
    packed = zlib.compress(body)
    header = b"MATLAB 5.0".ljust(124) + b"\0\1IM"
    (tmp_path / "train_32x32.mat").write_bytes(header + struct.pack("<II", 15, len(packed)) + packed)
    (tmp_path / "test_32x32.mat").write_bytes(header + struct.pack("<II", 15, len(packed)) + packed)
    tracemalloc.start()
    with pytest.raises(UserError):
        releases.read_svhn((releases.TRAIN,), tmp_path, accept=True)
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()


def test_damaged_archives_and_record_files(tmp_path):
    record = bytes([3]) + np.random.default_rng(0).bytes(3_072)
    with tarfile.open(tmp_path / CIFAR10.archive.name, "w:gz") as tar:
        for part in (*CIFAR10.train, *CIFAR10.test):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{part.name}")
            member.size = len(record)
            tar.addfile(member, io.BytesIO(record))
    packed = (tmp_path / CIFAR10.archive.name).read_bytes()
    attack(tmp_path, CIFAR10.archive.name, packed, lambda: read_release(CIFAR10, tmp_path, accept=True))
    plain = gzip.decompress(packed)
    archive = tmp_path / CIFAR10.archive.name

    def read_packed():
        archive.write_bytes(gzip.compress((tmp_path / "plain.tar").read_bytes(), 1))
        read_release(CIFAR10, tmp_path, accept=True)

    attack(tmp_path, "plain.tar", plain, read_packed)


@pytest.mark.parametrize("kind", [b"0", b"L", b"x", b"g", b"5"])
@pytest.mark.parametrize("size", [b"77777777777\0", b"\x80" + b"\xff" * 11])
def test_a_tar_header_of_any_length_is_refused_at_once(tmp_path, kind, size):
    header = bytearray(tarfile.TarInfo("a.bin").tobuf())
    header[124:136], header[156:157] = size, kind
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header[:512]):06o}\0 ".encode()
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(bytes(header) + bytes(10_240)))
    begin = time.monotonic()
    with pytest.raises(UserError):
        read_members(tmp_path / "x.tar.gz", {"a.bin": 1_000})
    assert time.monotonic() - begin < 1


def test_damaged_idx_files(tmp_path):
    for split in ("train", "t10k"):
        images = struct.pack(">IIII", 0x0803, 4, 28, 28) + bytes(4 * 28 * 28)
        (tmp_path / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (tmp_path / f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x0801, 4) + bytes(4))
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte"):
        attack(tmp_path, name, (tmp_path / name).read_bytes(), lambda: read_fashion(tmp_path, accept=True))


def test_damaged_stored_data_sets(tmp_path, photo_folder):
    get_folder(photo_folder, FolderOptions(name="x", side=8), tmp_path)
    folder = tmp_path / "folder" / "x"
    for path in sorted(folder.iterdir()):
        attack(folder, path.name, path.read_bytes(), lambda: load_data("folder:x", tmp_path))
    for text in ("[" * 200_000, '{"a":' * 200_000):
        (folder / "meta.json").write_text(text)
        with pytest.raises(UserError):
            load_data("folder:x", tmp_path)
