import gzip
import hashlib
import io
import shutil
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from mma.data import SOURCES, Images, Source, catalogue, get, load, originals
from mma.data.cifar import CIFAR10, CIFAR100, CIFAR100_CLASSES, read_release
from mma.data.fashion import CONTENT, PACKAGE_FOLDERS
from mma.data.images import no_images
from mma.data.originals import Original, read_members, unzip


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch):
    """Tests never reach for the network."""
    monkeypatch.setattr("mma.data.sources.fetch", lambda original, directory: pytest.fail(f"downloads {original.name}"))


def records(n, label_bytes, classes, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(n * label_bytes).reshape(n, label_bytes) % classes
    return np.concatenate([labels, random.integers(0, 256, (n, 3_072))], axis=1).astype(np.uint8)


def write_cifar10(folder, n=7):
    folder.mkdir(parents=True, exist_ok=True)
    for i, part in enumerate((*CIFAR10.train, *CIFAR10.test)):
        (folder / part.name).write_bytes(records(n, 1, 10, seed=i).tobytes())
    return folder


def accepted(name, folder, root):
    return get(name, root, directory=folder, accept_hash_mismatch=True)


# digits


def test_digits_need_nothing_and_are_split_by_class():
    data = load("digits")
    assert data.train.pixels.shape == (1_297, 8, 8, 1)
    assert data.test.pixels.shape == (500, 8, 8, 1)
    assert (data.train.pixels.min(), data.train.pixels.max()) == (0, 255)
    assert all(48 <= count <= 51 for count in data.test.class_counts().values())
    assert not data.mirror


def test_digits_are_the_same_every_time():
    assert load("digits").train.digest() == "1bcbcde6f6a343c1690320fcc041703ab267eaf186e5d4074bd77ce10f1ec773"
    assert load("digits").test.digest() == "1726655f87f20fe130a3d76bed7141a6129be47efeb62d4984736f5e28f225d0"


# names


@pytest.mark.parametrize("name", SOURCES)
def test_a_data_set_that_is_not_here_is_an_error_with_the_command(name, tmp_path):
    with pytest.raises(ValueError, match=f"mma data get {name}"):
        load(name, tmp_path)


def test_an_unknown_name_is_an_error_with_the_nearest_one(tmp_path):
    with pytest.raises(ValueError, match=r"no data set 'cifr10'\. Did you mean 'cifar10'\?"):
        load("cifr10", tmp_path)
    with pytest.raises(ValueError, match="folder:NAME"):
        load("folder", tmp_path)


def test_the_catalogue_lists_every_source_with_its_numbers(tmp_path):
    rows = {info.name: info for info in catalogue(tmp_path)}
    assert list(rows) == ["digits", *SOURCES]
    assert rows["svhn-extra"].pool == 604_388
    assert (rows["digits"].shape, rows["fashion-mnist"].shape) == ((8, 8, 1), (28, 28, 1))
    assert [info.ready for info in rows.values()] == [True] + [False] * len(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_every_download_has_a_hash_a_size_and_an_address(name):
    for original in SOURCES[name].downloads:
        assert original.size > 1_000
        assert original.digest.startswith("md5:")
        assert original.url.startswith("http")
        assert original.url.endswith(original.name)


def test_mirroring_is_for_pictures_that_can_be_mirrored():
    assert {name for name, source in SOURCES.items() if source.mirror} == {"cifar10", "cifar100", "fashion-mnist"}


def test_an_own_source_is_one_entry_of_the_table(tmp_path, monkeypatch):
    def read(directory, *, accept):
        pixels = np.fromfile(directory / "pixels.raw", np.uint8).reshape(-1, 2, 2, 1)
        return Images(pixels, np.zeros(len(pixels), np.int64), ["a"]), no_images((2, 2, 1), ("a",)), True

    monkeypatch.setitem(SOURCES, "mine", Source("squares", 3, 0, (2, 2, 1), 1, mirror=True, read=read))
    (tmp_path / "pixels.raw").write_bytes(bytes(12))
    assert get("mine", tmp_path, directory=tmp_path).notes == ()
    assert load("mine", tmp_path).train.pixels.shape == (3, 2, 2, 1)
    shutil.rmtree(tmp_path / "mine")
    with pytest.raises(ValueError, match="mine has no download.*mma data get mine --from DIR"):
        get("mine", tmp_path)


# CIFAR


def test_cifar10_records_become_images_row_by_row_and_colour_by_colour(tmp_path):
    data = accepted("cifar10", write_cifar10(tmp_path / "files"), tmp_path)
    first = records(7, 1, 10, seed=0)
    assert data.train.pixels.shape == (35, 32, 32, 3)
    assert data.train.labels[:7].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert data.train.pixels[3, 5, 9, 2] == first[3, 1 + 2 * 1_024 + 5 * 32 + 9]
    assert data.train.classes[3] == "cat"
    assert not data.verified
    assert "not the official ones" in data.notes[0]
    assert "35 of 50,000 images in the pool, 7 of 10,000 to test on" in data.notes[1]


def test_cifar10_files_may_lie_in_the_folder_they_are_unpacked_to(tmp_path):
    write_cifar10(tmp_path / "files" / "cifar-10-batches-bin")
    assert len(accepted("cifar10", tmp_path / "files", tmp_path).test) == 7


def test_a_file_that_is_cut_short_is_refused_and_nothing_is_created(tmp_path):
    folder = write_cifar10(tmp_path / "files")
    (folder / "data_batch_1.bin").write_bytes(bytes(12_582_912))
    with pytest.raises(
        ValueError, match=r"data_batch_1\.bin is cut short, .* 12,582,912 bytes .* Replace it with a whole copy"
    ):
        get("cifar10", tmp_path / "root", directory=folder)
    assert not (tmp_path / "root").exists()


def test_a_whole_file_with_fewer_images_is_not_called_cut_short(tmp_path):
    folder = write_cifar10(tmp_path / "files")
    with pytest.raises(ValueError, match=r"21,511 bytes, the official one 30,730,000.*--accept-hash-mismatch") as error:
        get("cifar10", tmp_path, directory=folder)
    assert "cut short" not in str(error.value)


def test_a_file_with_another_hash_is_refused_with_both_hashes(tmp_path):
    folder = write_cifar10(tmp_path / "files")
    (folder / "data_batch_1.bin").write_bytes(bytes(30_730_000))
    with pytest.raises(ValueError, match=r"sha1 is [0-9a-f]{40}, the official one aadd24acce.*--accept-hash-mismatch"):
        get("cifar10", tmp_path, directory=folder)


def test_a_file_that_is_too_long_is_refused(tmp_path):
    folder = write_cifar10(tmp_path / "files")
    (folder / "data_batch_1.bin").write_bytes(bytes(30_730_000 + 3_073))
    with pytest.raises(ValueError, match="larger than the official file"):
        accepted("cifar10", folder, tmp_path)


def test_accepting_another_hash_does_not_accept_another_layout(tmp_path):
    folder = write_cifar10(tmp_path / "files")
    (folder / "data_batch_3.bin").write_bytes(bytes(3_073 * 2 + 100))
    with pytest.raises(ValueError, match=r"data_batch_3.bin is cut short, or .* 2 whole records .* and 100 bytes more"):
        accepted("cifar10", folder, tmp_path)
    (folder / "data_batch_3.bin").write_bytes(b"\x0a" * 3_073)
    with pytest.raises(ValueError, match="record 0 has label 10, and labels end at 9"):
        accepted("cifar10", folder, tmp_path)
    (folder / "data_batch_3.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="cut short"):
        accepted("cifar10", folder, tmp_path)


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path):
    folder = write_cifar10(tmp_path / "files")
    (folder / "test_batch.bin").unlink()
    with pytest.raises(ValueError, match=r"neither cifar-10-binary\.tar\.gz nor test_batch\.bin"):
        accepted("cifar10", folder, tmp_path)
    with pytest.raises(ValueError, match=r"nowhere does not exist\. Give the folder of the files"):
        get("cifar10", tmp_path, directory=tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"data_batch_1\.bin is a file\. Give the folder of the files"):
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
def test_another_release_is_named_as_the_wrong_one(tmp_path, name, file):
    (tmp_path / "files" / file).parent.mkdir(parents=True)
    (tmp_path / "files" / file).write_bytes(b"x")
    with pytest.raises(
        ValueError, match=rf"another release .* \({file.split('/')[0]}\).*Put cifar-\d+-binary\.tar\.gz"
    ):
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


def test_cifar100_is_read_out_of_its_archive_with_fine_labels(tmp_path):
    pack(tmp_path / "files" / CIFAR100.archive.name, cifar100_content())
    data = accepted("cifar100", tmp_path / "files", tmp_path)
    assert data.train.labels[:3].tolist() == [1, 3, 5]  # the second byte of each record
    assert data.train.classes == CIFAR100_CLASSES
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


def test_a_wrong_archive_is_refused(tmp_path):
    archive = pack(tmp_path / "files" / CIFAR100.archive.name, cifar100_content())
    archive.write_bytes(archive.read_bytes()[:-1_000])
    with pytest.raises(ValueError, match=r"cifar-100-binary\.tar\.gz is cut short: its end is missing"):
        accepted("cifar100", archive.parent, tmp_path)
    archive.write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"cannot be read as a \.tar\.gz"):
        accepted("cifar100", archive.parent, tmp_path)
    with tarfile.open(archive, "w:gz"):
        pass
    with pytest.raises(ValueError, match=r"has no train\.bin"):
        accepted("cifar100", archive.parent, tmp_path)


def test_there_are_a_hundred_fine_labels_in_alphabetical_order():
    assert len(set(CIFAR100_CLASSES)) == 100
    assert list(CIFAR100_CLASSES) == sorted(CIFAR100_CLASSES)


# archives


def archive_of(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, data, kind in members:
            member = tarfile.TarInfo(name)
            member.size, member.type = len(data), kind
            member.linkname = "/etc/passwd" if kind != tarfile.REGTYPE else ""
            tar.addfile(member, io.BytesIO(data))
    return path


def test_only_the_wanted_regular_files_of_an_archive_are_read(tmp_path):
    members = [
        ("../../a.bin", b"content", tarfile.REGTYPE),
        ("b.bin", b"", tarfile.SYMTYPE),
        ("c.bin", b"unwanted", tarfile.REGTYPE),
    ]
    archive = archive_of(tmp_path / "x.tar.gz", members)
    assert read_members(archive, {"a.bin": 100, "b.bin": 100}) == {"a.bin": b"content"}
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.gz"]


def test_an_archive_bomb_is_refused(tmp_path):
    archive = archive_of(tmp_path / "bomb.tar.gz", [("a.bin", bytes(30_000_000), tarfile.REGTYPE)])
    with pytest.raises(ValueError, match="unpacks to more than 100 times its size"):
        read_members(archive, {"a.bin": 10**9})


def test_a_file_of_an_archive_that_is_too_large_is_not_even_read(tmp_path):
    archive = archive_of(tmp_path / "x.tar.gz", [("a.bin", bytes(101), tarfile.REGTYPE)])
    with pytest.raises(ValueError, match=r"a\.bin with 101 bytes, more than 100"):
        read_members(archive, {"a.bin": 100})


def test_an_archive_of_very_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(originals, "MAX_MEMBERS", 3)
    archive = archive_of(tmp_path / "many.tar.gz", [(f"{i}", b"", tarfile.REGTYPE) for i in range(4)])
    with pytest.raises(ValueError, match="more than 3 files"):
        read_members(archive, {"a.bin": 10**9})


@pytest.mark.parametrize("keep", [0.5, -4])
def test_an_archive_that_is_cut_short_is_refused(tmp_path, keep):
    random = np.random.default_rng(0).bytes(100_000)
    archive = archive_of(tmp_path / "x.tar.gz", [("a.bin", random, tarfile.REGTYPE)])
    content = archive.read_bytes()
    archive.write_bytes(content[: keep if keep < 0 else int(keep * len(content))])
    with pytest.raises(ValueError, match="is cut short"):
        read_members(archive, {"a.bin": 10**9})


def test_a_zipped_file_may_not_hold_more_than_its_limit(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(2_000)))
    assert len(unzip(tmp_path / "x.gz", 2_000)) == 2_000
    with pytest.raises(ValueError, match="more than 1,999 bytes"):
        unzip(tmp_path / "x.gz", 1_999)
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(2_000))[:-9])
    with pytest.raises(ValueError, match="is cut short"):
        unzip(tmp_path / "x.gz", 2_000)


# Fashion-MNIST


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
def test_fashion_mnist_is_read_from_idx_files(tmp_path, packed):
    images = write_fashion(tmp_path / "files", packed=packed)
    data = accepted("fashion-mnist", tmp_path / "files", tmp_path)
    assert np.array_equal(data.train.pixels[..., 0], images)
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.train.classes[9] == "Ankle boot"


@pytest.mark.parametrize(
    ("labels", "message"),
    [(np.array([0, 1, 2]), "3 labels"), (np.full(6, 10), "labels up to 10")],
)
def test_idx_files_that_do_not_belong_together_are_refused(tmp_path, labels, message):
    write_fashion(tmp_path / "files", labels=labels)
    with pytest.raises(ValueError, match=message):
        accepted("fashion-mnist", tmp_path / "files", tmp_path)


def test_idx_files_that_are_cut_or_of_another_kind_are_refused(tmp_path):
    files = tmp_path / "files"
    write_fashion(files, packed=False)
    path = files / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="is cut short: it holds 4,719 bytes, and its header says 4,720"):
        accepted("fashion-mnist", files, tmp_path)
    path.write_bytes(b"\x00\x00\x08\x01" + whole[4:])
    with pytest.raises(ValueError, match="not an idx file of the kind"):
        accepted("fashion-mnist", files, tmp_path)
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte is not the official .*--accept-hash-mismatch"):
        get("fashion-mnist", tmp_path, directory=files)


def test_the_files_of_debians_package_are_the_official_ones(tmp_path):
    if not PACKAGE_FOLDERS[0].is_dir():
        pytest.skip(f"{PACKAGE_FOLDERS[0]} is not there (apt-get install dataset-fashion-mnist)")
    data = get("fashion-mnist", tmp_path)
    assert data.verified
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    assert set(data.train.class_counts().values()) == {6_000}
    assert len(CONTENT) == 4


# SVHN


def write_svhn(folder, counts, first=1):
    folder.mkdir(parents=True, exist_ok=True)
    images = {}
    for split, n in counts.items():
        images[split] = np.random.default_rng(n).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        labels = (np.arange(n) % 10 + first).astype(np.uint8)[:, None]
        content = {"X": images[split].transpose(1, 2, 3, 0), "y": labels}
        savemat(folder / f"{split}_32x32.mat", content, do_compression=True)
    return images


def test_svhn_is_read_from_matlab_files_and_class_ten_is_the_digit_zero(tmp_path):
    images = write_svhn(tmp_path / "files", {"train": 12, "test": 5})
    data = accepted("svhn", tmp_path / "files", tmp_path)
    assert np.array_equal(data.train.pixels, images["train"])
    assert data.train.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert data.train.classes == tuple("0123456789")
    assert len(data.test) == 5


def test_svhn_extra_is_train_then_extra(tmp_path):
    images = write_svhn(tmp_path / "files", {"train": 12, "test": 5, "extra": 20})
    data = accepted("svhn-extra", tmp_path / "files", tmp_path)
    assert np.array_equal(data.train.pixels, np.concatenate([images["train"], images["extra"]]))
    assert len(data.train.labels) == 32


def test_a_matlab_file_of_another_kind_is_refused(tmp_path):
    files = tmp_path / "files"
    write_svhn(files, {"train": 12, "test": 5}, first=0)
    with pytest.raises(ValueError, match="whole numbers from 1 to 10"):
        accepted("svhn", files, tmp_path)
    savemat(files / "train_32x32.mat", {"X": np.zeros((3, 3)), "y": np.zeros(3)})
    with pytest.raises(ValueError, match=r"should hold X, uint8 of shape \(32, 32, 3, N\)"):
        accepted("svhn", files, tmp_path)
    (files / "train_32x32.mat").write_bytes(b"no matlab file, but long enough to have a header" * 10)
    with pytest.raises(ValueError, match=r"train_32x32\.mat is not a MATLAB file of version 5"):
        accepted("svhn", files, tmp_path)
    (files / "train_32x32.mat").unlink()
    with pytest.raises(ValueError, match=r"has no train_32x32\.mat"):
        accepted("svhn", files, tmp_path)


@pytest.mark.parametrize("keep", [0, 10, 128, 130, 0.5, -1])
def test_a_matlab_file_that_is_cut_short_is_refused_as_such(tmp_path, keep):
    files = tmp_path / "files"
    write_svhn(files, {"train": 12, "test": 5})
    path = files / "train_32x32.mat"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    for accept in (True, False):
        with pytest.raises(ValueError, match=r"train_32x32\.mat is cut short"):
            get("svhn", tmp_path, directory=files, accept_hash_mismatch=accept)


def test_a_matlab_file_that_ends_after_its_first_part_is_refused(tmp_path):
    files = tmp_path / "files"
    write_svhn(files, {"train": 12, "test": 5})
    content = (files / "train_32x32.mat").read_bytes()
    length = struct.unpack("<I", content[132:136])[0]
    (files / "train_32x32.mat").write_bytes(content[: 136 + length])
    with pytest.raises(ValueError, match=r"should hold X.*and y"):
        accepted("svhn", files, tmp_path)


def test_a_damaged_matlab_file_is_refused_as_damaged(tmp_path):
    files = tmp_path / "files"
    write_svhn(files, {"train": 12, "test": 5})
    content = bytearray((files / "train_32x32.mat").read_bytes())
    content[len(content) // 2 : len(content) // 2 + 50] = bytes(50)
    (files / "train_32x32.mat").write_bytes(content)
    with pytest.raises(ValueError, match="so it is damaged"):
        accepted("svhn", files, tmp_path)


def test_a_whole_matlab_file_that_is_not_official_is_not_called_cut_short(tmp_path):
    write_svhn(tmp_path / "files", {"train": 12, "test": 5})
    with pytest.raises(ValueError, match=r"not the official file: it has .*--accept-hash-mismatch") as error:
        get("svhn", tmp_path, directory=tmp_path / "files")
    assert "cut short" not in str(error.value)


# getting twice


def test_what_is_ready_is_not_made_again(tmp_path):
    accepted("cifar10", write_cifar10(tmp_path / "files"), tmp_path)
    assert {info.name: info for info in catalogue(tmp_path)}["cifar10"].ready
    assert len(get("cifar10", tmp_path).train) == 35
    (tmp_path / "cifar10" / "train.npy").unlink()
    with pytest.raises(BaseException, match="downloads cifar-10-binary"):  # a damaged cache is not ready
        get("cifar10", tmp_path)


def test_a_folder_is_not_made_by_name(tmp_path):
    with pytest.raises(ValueError, match="mma data get folder --from DIR"):
        get("folder:x", tmp_path)


def test_no_module_of_this_room_imports_torch():
    room = Path(originals.__file__).parent
    assert not [path.name for path in room.glob("*.py") if "import torch" in path.read_text()]
