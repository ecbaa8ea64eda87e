import shutil
from pathlib import Path

import numpy as np
import pytest

from mma.data import SOURCES, Images, Source, catalogue, get, load_data, verify
from mma.data import releases as originals
from mma.data.cache import command
from mma.data.images import no_images
from mma.errors import UserError


def test_digits_need_nothing_and_are_split_by_class():
    data = load_data("digits")
    assert data.train.pixels.shape == (1_297, 8, 8, 1)
    assert data.test.pixels.shape == (500, 8, 8, 1)
    assert (data.train.pixels.min(), data.train.pixels.max()) == (0, 255)
    assert all(48 <= count <= 51 for count in data.test.class_counts().values())
    assert not data.mirror


def test_digits_are_the_same_every_time():
    assert load_data("digits").train.digest() == "1bcbcde6f6a343c1690320fcc041703ab267eaf186e5d4074bd77ce10f1ec773"
    assert load_data("digits").test.digest() == "1726655f87f20fe130a3d76bed7141a6129be47efeb62d4984736f5e28f225d0"


# names


@pytest.mark.parametrize("name", SOURCES)
def test_a_data_set_that_is_not_here_is_an_error_with_the_command(name, tmp_path):
    with pytest.raises(UserError) as refused:
        load_data(name, tmp_path)
    assert str(refused.value).endswith(f"Get it with  {command(name)}")


def test_an_unknown_name_is_an_error_with_the_nearest_one(tmp_path, refusal):
    with refusal():
        load_data("cifr10", tmp_path)
    with refusal():
        load_data("folder", tmp_path)


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


def test_an_own_source_is_one_entry_of_the_table(tmp_path, monkeypatch, refusal):
    def read(directory, *, accept):
        pixels = np.fromfile(directory / "pixels.raw", np.uint8).reshape(-1, 2, 2, 1)
        return Images(pixels, np.zeros(len(pixels), np.int64), ["a"]), no_images((2, 2, 1), ("a",)), True

    monkeypatch.setitem(SOURCES, "mine", Source("squares", 3, 0, (2, 2, 1), 1, mirror=True, read=read))
    (tmp_path / "pixels.raw").write_bytes(bytes(12))
    assert get("mine", tmp_path, directory=tmp_path).notes == ()
    assert load_data("mine", tmp_path).train.pixels.shape == (3, 2, 2, 1)
    shutil.rmtree(tmp_path / "mine")
    with refusal():
        get("mine", tmp_path)


def test_a_folder_is_not_made_by_name(tmp_path, refusal):
    with refusal():
        get("folder:x", tmp_path)


def test_no_module_of_this_room_imports_torch():
    room = Path(originals.__file__).parent
    assert not [path.name for path in room.glob("*.py") if "import torch" in path.read_text()]


def test_a_hard_data_set_is_verified_by_its_base():
    assert verify("hard:long-tail:digits").train.digest() == load_data("hard:long-tail:digits").train.digest()


def test_a_hard_data_set_is_made_by_its_base(tmp_path, monkeypatch, refusal):
    def read(directory, *, accept):
        images = Images(np.zeros((60, 2, 2, 1), np.uint8), np.arange(60) % 2, ["a", "b"])
        return images, no_images((2, 2, 1), ("a", "b")), True

    monkeypatch.setitem(SOURCES, "mine", Source("squares", 60, 0, (2, 2, 1), 2, mirror=True, read=read))
    data = get("hard:long-tail:mine", tmp_path, directory=tmp_path)
    assert (data.name, data.train.class_counts()) == ("hard:long-tail:mine", {"a": 30, "b": 1})
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["mine"]
    assert verify("hard:long-tail:mine", tmp_path).name == "hard:long-tail:mine"
    with refusal():
        get("hard:long-tail:folder:x", tmp_path)
