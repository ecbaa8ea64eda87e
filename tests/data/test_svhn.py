import struct

import numpy as np
import pytest
from scipy.io import savemat

from mma.data import get


def write_svhn(folder, counts, first=1):
    folder.mkdir(parents=True, exist_ok=True)
    images = {}
    for split, n in counts.items():
        images[split] = np.random.default_rng(n).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        labels = (np.arange(n) % 10 + first).astype(np.uint8)[:, None]
        content = {"X": images[split].transpose(1, 2, 3, 0), "y": labels}
        savemat(folder / f"{split}_32x32.mat", content, do_compression=True)
    return images


def test_svhn_is_read_from_matlab_files_and_class_ten_is_the_digit_zero(tmp_path, accepted):
    images = write_svhn(tmp_path / "files", {"train": 12, "test": 5})
    data = accepted("svhn", tmp_path / "files", tmp_path)
    assert np.array_equal(data.train.pixels, images["train"])
    assert data.train.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert data.train.classes == tuple("0123456789")
    assert len(data.test) == 5


def test_svhn_extra_is_train_then_extra(tmp_path, accepted):
    images = write_svhn(tmp_path / "files", {"train": 12, "test": 5, "extra": 20})
    data = accepted("svhn-extra", tmp_path / "files", tmp_path)
    assert np.array_equal(data.train.pixels, np.concatenate([images["train"], images["extra"]]))
    assert len(data.train.labels) == 32


def test_a_matlab_file_of_another_kind_is_refused(tmp_path, accepted, refusal):
    files = tmp_path / "files"
    write_svhn(files, {"train": 12, "test": 5}, first=0)
    with refusal():
        accepted("svhn", files, tmp_path)
    savemat(files / "train_32x32.mat", {"X": np.zeros((3, 3)), "y": np.zeros(3)})
    with refusal():
        accepted("svhn", files, tmp_path)
    (files / "train_32x32.mat").write_bytes(b"no matlab file, but long enough to have a header" * 10)
    with refusal():
        accepted("svhn", files, tmp_path)
    (files / "train_32x32.mat").unlink()
    with refusal():
        accepted("svhn", files, tmp_path)


@pytest.mark.parametrize("keep", [0, 10, 128, 130, 0.5, -1])
def test_a_matlab_file_that_is_cut_short_is_refused_as_such(tmp_path, keep, refusal):
    files = tmp_path / "files"
    write_svhn(files, {"train": 12, "test": 5})
    path = files / "train_32x32.mat"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    for accept in (True, False):
        with refusal():
            get("svhn", tmp_path, directory=files, accept_hash_mismatch=accept)


def test_a_matlab_file_that_ends_after_its_first_part_is_refused(tmp_path, accepted, refusal):
    files = tmp_path / "files"
    write_svhn(files, {"train": 12, "test": 5})
    content = (files / "train_32x32.mat").read_bytes()
    length = struct.unpack("<I", content[132:136])[0]
    (files / "train_32x32.mat").write_bytes(content[: 136 + length])
    with refusal():
        accepted("svhn", files, tmp_path)


@pytest.mark.parametrize("header", [b"MATLAB 7.3 MAT-file", b"MATLAB 5.0".ljust(126) + b"MI"])
def test_a_matlab_file_of_another_version_is_refused_as_such(tmp_path, accepted, header, refusal):
    files = tmp_path / "files"
    write_svhn(files, {"train": 12, "test": 5})
    content = (files / "train_32x32.mat").read_bytes()
    (files / "train_32x32.mat").write_bytes(header + content[len(header) :])
    with refusal():
        accepted("svhn", files, tmp_path)


def test_images_of_another_type_are_refused_before_they_are_loaded(tmp_path, accepted, refusal):
    write_svhn(tmp_path / "files", {"train": 12, "test": 5})
    content = {"X": np.zeros((32, 32, 3, 4)), "y": np.ones((4, 1), np.uint8)}
    savemat(tmp_path / "files" / "train_32x32.mat", content)
    with refusal():
        accepted("svhn", tmp_path / "files", tmp_path)


def test_a_damaged_matlab_file_is_refused_as_damaged(tmp_path, accepted, refusal):
    files = tmp_path / "files"
    write_svhn(files, {"train": 12, "test": 5})
    content = bytearray((files / "train_32x32.mat").read_bytes())
    content[len(content) // 2 : len(content) // 2 + 50] = bytes(50)
    (files / "train_32x32.mat").write_bytes(content)
    with refusal():
        accepted("svhn", files, tmp_path)


def test_a_whole_matlab_file_that_is_not_official_is_not_called_cut_short(tmp_path):
    write_svhn(tmp_path / "files", {"train": 12, "test": 5})
    with pytest.raises(ValueError, match=r"not the official file: it has .*--accept-hash-mismatch") as error:
        get("svhn", tmp_path, directory=tmp_path / "files")
    assert "cut short" not in str(error.value)
