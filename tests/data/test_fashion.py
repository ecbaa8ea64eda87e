import gzip
import struct

import numpy as np
import pytest

from mma.data import get
from mma.data.releases import CONTENT, PACKAGE_FOLDERS


def write_fashion(folder, n=6, labels=None, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.arange(n) % 10 if labels is None else labels
    images = np.random.default_rng(0).integers(0, 256, (n, 28, 28), dtype=np.uint8)
    for split in ("train", "t10k"):
        contents = {
            f"{split}-images-idx3-ubyte": struct.pack(">4I", 0x803, n, 28, 28) + images.tobytes(),
            f"{split}-labels-idx1-ubyte": struct.pack(">2I", 0x801, len(labels)) + bytes(labels.tolist()),
        }
        for name, content in contents.items():
            path = folder / (name + ".gz" * packed)
            path.write_bytes(gzip.compress(content) if packed else content)
    return images


@pytest.mark.parametrize("packed", [True, False])
def test_fashion_mnist_is_read_from_idx_files(tmp_path, packed, accepted):
    images = write_fashion(tmp_path / "files", packed=packed)
    data = accepted("fashion-mnist", tmp_path / "files", tmp_path)
    assert np.array_equal(data.train.pixels[..., 0], images)
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.train.classes[9] == "Ankle boot"


@pytest.mark.parametrize("labels", [np.array([0, 1, 2]), np.full(6, 10)])
def test_idx_files_that_do_not_belong_together_are_refused(tmp_path, labels, refusal, accepted):
    write_fashion(tmp_path / "files", labels=labels)
    with refusal():
        accepted("fashion-mnist", tmp_path / "files", tmp_path)


def test_idx_files_that_are_cut_or_of_another_kind_are_refused(tmp_path, accepted, refusal):
    files = tmp_path / "files"
    write_fashion(files, packed=False)
    path = files / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with refusal():
        accepted("fashion-mnist", files, tmp_path)
    path.write_bytes(b"\x00\x00\x08\x01" + whole[4:])
    with refusal():
        accepted("fashion-mnist", files, tmp_path)
    path.write_bytes(whole)
    with refusal():
        get("fashion-mnist", tmp_path, directory=files)


def test_the_files_of_debians_package_are_the_official_ones(tmp_path):
    if not PACKAGE_FOLDERS[0].is_dir():
        pytest.skip(f"{PACKAGE_FOLDERS[0]} is not there (apt-get install dataset-fashion-mnist)")
    data = get("fashion-mnist", tmp_path)
    assert data.verified
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    assert set(data.train.class_counts().values()) == {6_000}
    assert len(CONTENT) == 4
