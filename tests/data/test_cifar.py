import hashlib
import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from mma.data import catalogue, get
from mma.data.releases import CIFAR10, CIFAR100, Original, read_release


def records(n, label_bytes, classes, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(n * label_bytes).reshape(n, label_bytes) % classes
    return np.concatenate([labels, random.integers(0, 256, (n, 3_072))], axis=1).astype(np.uint8)


def write_cifar10(folder, n=7):
    folder.mkdir(parents=True, exist_ok=True)
    for i, part in enumerate((*CIFAR10.train, *CIFAR10.test)):
        (folder / part.name).write_bytes(records(n, 1, 10, seed=i).tobytes())
    return folder


def test_cifar10_records_become_images_row_by_row_and_colour_by_colour(tmp_path, accepted):
    data = accepted("cifar10", write_cifar10(tmp_path / "files"), tmp_path)
    first = records(7, 1, 10, seed=0)
    assert data.train.pixels.shape == (35, 32, 32, 3)
    assert data.train.labels[:7].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert data.train.pixels[3, 5, 9, 2] == first[3, 1 + 2 * 1_024 + 5 * 32 + 9]
    assert data.train.classes[3] == "cat"
    assert not data.verified
    assert "not the official ones" in data.notes[0]
    assert "35 of 50,000 images in the pool, 7 of 10,000 to test on" in data.notes[1]


def test_cifar10_files_may_lie_in_the_folder_they_are_unpacked_to(tmp_path, accepted):
    write_cifar10(tmp_path / "files" / "cifar-10-batches-bin")
    assert len(accepted("cifar10", tmp_path / "files", tmp_path).test) == 7


def test_a_file_that_is_cut_short_is_refused_and_nothing_is_created(tmp_path, refusal):
    folder = write_cifar10(tmp_path / "files")
    (folder / "data_batch_1.bin").write_bytes(bytes(12_582_912))
    with refusal():
        get("cifar10", tmp_path / "root", directory=folder)
    assert not (tmp_path / "root").exists()


def test_a_whole_file_with_fewer_images_is_not_called_cut_short(tmp_path):
    folder = write_cifar10(tmp_path / "files")
    with pytest.raises(ValueError, match=r"21,511 bytes, the official one 30,730,000.*--accept-hash-mismatch") as error:
        get("cifar10", tmp_path, directory=folder)
    assert "cut short" not in str(error.value)


def test_a_file_with_another_hash_is_refused_with_both_hashes(tmp_path, refusal):
    folder = write_cifar10(tmp_path / "files")
    (folder / "data_batch_1.bin").write_bytes(bytes(30_730_000))
    with refusal():
        get("cifar10", tmp_path, directory=folder)


def test_a_file_that_is_too_long_is_refused(tmp_path, accepted, refusal):
    folder = write_cifar10(tmp_path / "files")
    (folder / "data_batch_1.bin").write_bytes(bytes(30_730_000 + 3_073))
    with refusal():
        accepted("cifar10", folder, tmp_path)


def test_accepting_another_hash_does_not_accept_another_layout(tmp_path, accepted, refusal):
    folder = write_cifar10(tmp_path / "files")
    (folder / "data_batch_3.bin").write_bytes(bytes(3_073 * 2 + 100))
    with refusal():
        accepted("cifar10", folder, tmp_path)
    (folder / "data_batch_3.bin").write_bytes(b"\x0a" * 3_073)
    with refusal():
        accepted("cifar10", folder, tmp_path)
    (folder / "data_batch_3.bin").write_bytes(b"")
    with refusal():
        accepted("cifar10", folder, tmp_path)


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path, accepted, refusal):
    folder = write_cifar10(tmp_path / "files")
    (folder / "test_batch.bin").unlink()
    with refusal():
        accepted("cifar10", folder, tmp_path)
    with refusal():
        get("cifar10", tmp_path, directory=tmp_path / "nowhere")
    with refusal():
        get("cifar10", tmp_path, directory=folder / "data_batch_1.bin")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cifar10", "cifar-10-python.tar.gz"),
        ("cifar10", "data_batch_1"),
        ("cifar100", "cifar-100-python/train"),
        ("cifar100", "cifar-100-matlab.tar.gz"),
    ],
)
def test_another_release_is_named_as_the_wrong_one(tmp_path, name, file, accepted, refusal):
    (tmp_path / "files" / file).parent.mkdir(parents=True)
    (tmp_path / "files" / file).write_bytes(b"x")
    with refusal():
        accepted(name, tmp_path / "files", tmp_path)


def pack(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, data in content.items():
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def cifar100_content(n=101):
    return {"train.bin": records(n, 2, 100).tobytes(), "test.bin": records(n, 2, 100, seed=1).tobytes()}


def test_cifar100_is_read_out_of_its_archive_with_fine_labels(tmp_path, accepted):
    pack(tmp_path / "files" / CIFAR100.archive.name, cifar100_content())
    data = accepted("cifar100", tmp_path / "files", tmp_path)
    assert data.train.labels[:3].tolist() == [1, 3, 5]  # the second byte of each record
    assert data.train.classes == CIFAR100.classes
    assert data.train.pixels[0, 0, 1, 0] == records(101, 2, 100)[0, 2 + 1]


def test_loose_files_and_a_repacked_archive_are_official_by_what_is_in_them(tmp_path):
    content = cifar100_content()
    train, test = (Original(n, len(c), f"sha1:{hashlib.sha1(c).hexdigest()}") for n, c in content.items())
    small = replace(CIFAR100, train=(train,), test=(test,))
    pack(tmp_path / "archive" / CIFAR100.archive.name, content)
    (tmp_path / "loose").mkdir()
    for name, data in content.items():
        (tmp_path / "loose" / name).write_bytes(data)
    for folder in ("archive", "loose"):
        *_, official = read_release(small, tmp_path / folder, accept=False)
        assert official


def test_a_whole_archive_with_other_content_is_refused_with_the_way_to_accept_it(tmp_path):
    pack(tmp_path / "files" / CIFAR100.archive.name, cifar100_content())
    with pytest.raises(ValueError, match=r"train\.bin is not the official file.*--accept-hash-mismatch") as error:
        get("cifar100", tmp_path, directory=tmp_path / "files")
    assert "cut short" not in str(error.value)


def test_a_wrong_archive_is_refused(tmp_path, accepted, refusal):
    archive = pack(tmp_path / "files" / CIFAR100.archive.name, cifar100_content())
    archive.write_bytes(archive.read_bytes()[:-1_000])
    with refusal():
        accepted("cifar100", archive.parent, tmp_path)
    archive.write_bytes(b"no archive")
    with refusal():
        accepted("cifar100", archive.parent, tmp_path)
    with tarfile.open(archive, "w:gz"):
        pass
    with refusal():
        accepted("cifar100", archive.parent, tmp_path)


def test_there_are_a_hundred_fine_labels_in_alphabetical_order():
    assert len(set(CIFAR100.classes)) == 100
    assert list(CIFAR100.classes) == sorted(CIFAR100.classes)


def test_what_is_ready_is_not_made_again(tmp_path, accepted):
    accepted("cifar10", write_cifar10(tmp_path / "files"), tmp_path)
    assert {info.name: info for info in catalogue(tmp_path)}["cifar10"].ready
    assert len(get("cifar10", tmp_path).train) == 35
    accepted("cifar10", write_cifar10(tmp_path / "files", n=2), tmp_path)  # unless files are given
    assert len(get("cifar10", tmp_path).train) == 10
    (tmp_path / "cifar10" / "train.npy").unlink()
    with pytest.raises(BaseException, match="downloads cifar-10-binary"):  # a damaged cache is not ready
        get("cifar10", tmp_path)
