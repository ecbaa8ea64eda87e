"""The loaders meet real files. They lie beside the checkout (../shared/data: CIFAR-100 and SVHN, packed) or are not there."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mma.data import get

SHARED = Path(__file__).parents[2].parent / "shared" / "data"

pytestmark = pytest.mark.slow


def real_files(name, folder):
    """Write the original files with the script that lies beside them."""
    script = SHARED / f"get-{name}"
    if not script.is_file():
        pytest.skip(f"{script}, which writes real files of {name}, is not there")
    subprocess.run([sys.executable, str(script), str(folder)], check=True, capture_output=True)
    return folder


def test_the_loose_files_of_cifar100_are_the_official_ones(tmp_path):
    files = real_files("cifar100", tmp_path / "files")
    data = get("cifar100", tmp_path, directory=files)
    assert (data.verified, data.notes) == (True, ())
    assert (len(data.train), len(data.test)) == (50_000, 10_000)
    assert set(data.train.class_counts().values()) == {500}
    assert data.train.classes == tuple((files / "fine_label_names.txt").read_text().split())


def test_the_first_images_of_svhn_are_accepted_and_called_partial(tmp_path, refusal):
    files = real_files("svhn", tmp_path / "files")
    with refusal():
        get("svhn", tmp_path, directory=files)
    data = get("svhn", tmp_path, directory=files, accept_hash_mismatch=True)
    assert not data.verified
    assert "30,000 of 73,257 images in the pool, 10,000 of 26,032 to test on" in data.notes[1]
    assert len(get("svhn", tmp_path).train) == 30_000  # ready: nothing is downloaded
    assert np.array_equal(data.train.rows([data.train.key(row) for row in (0, 29_999)]), [0, 29_999])
    whole = (files / "train_32x32.mat").read_bytes()
    (files / "train_32x32.mat").write_bytes(whole[: len(whole) // 2])
    with refusal():
        get("svhn", tmp_path, directory=files, accept_hash_mismatch=True)
