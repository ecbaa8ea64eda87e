import json
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from mma.data import BadFile, DataSet, Images, data_root, load_data, verify
from mma.data.cache import check_writable, command, is_ready, open_saved, place, read_meta, save
from mma.data.images import no_images


@pytest.fixture
def data():
    pixels = np.random.default_rng(0).integers(0, 256, (10, 4, 4, 3), dtype=np.uint8)
    train = Images(pixels, np.array([0, 1] * 5), ("a", "b"), tuple(f"{i}.png" for i in range(10)))
    bad = (BadFile("x\x1b.png", "it is broken"),)
    return DataSet("folder:mine", train, no_images((4, 4, 3), ("a", "b")), True, "/photos", True, ("a note",), bad)


def test_what_is_saved_is_opened_again_with_everything(data, tmp_path):
    save(data, tmp_path)
    again = load_data("folder:mine", tmp_path)
    assert np.array_equal(again.train.pixels, data.train.pixels)
    assert np.array_equal(again.train.labels, data.train.labels)
    assert again.train.names == data.train.names
    assert again.train.digest() == data.train.digest() == again.train.computed_digest()
    assert (len(again.test), again.test.shape, again.test.classes) == (0, (4, 4, 3), ("a", "b"))
    assert (again.mirror, again.notes, again.quarantine) == (True, ("a note",), data.quarantine)
    assert np.array_equal(again.train.keys, data.train.keys)
    verify("folder:mine", tmp_path)


def test_pixels_are_mapped_and_writing_to_them_does_not_reach_the_file(data, tmp_path):
    save(data, tmp_path)
    pixels = load_data("folder:mine", tmp_path).train.pixels
    assert isinstance(pixels, np.memmap)
    assert isinstance(load_data("folder:mine", tmp_path).train.keys, np.memmap)
    assert pixels.flags.writeable
    pixels[:] = 0  # copy-on-write: the file keeps its content
    verify("folder:mine", tmp_path)


def test_nothing_is_left_beside_a_saved_data_set(data, tmp_path):
    save(data, tmp_path)
    save(data, tmp_path)
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["mine"]


def test_a_save_replaces_the_old_content_and_open_arrays_live_on(data, tmp_path):
    save(data, tmp_path)
    old = load_data("folder:mine", tmp_path).train
    other = Images(255 - data.train.pixels, data.train.labels, data.train.classes)
    save(DataSet("folder:mine", other, data.test), tmp_path)
    assert np.array_equal(load_data("folder:mine", tmp_path).train.pixels, other.pixels)
    assert old.computed_digest() == data.train.digest()


@pytest.mark.parametrize("file", ["train.npy", "train-labels.npy", "train-keys.npy", "test.npy", "names.json"])
def test_a_missing_file_is_reported_with_the_command(data, tmp_path, file, refusal):
    (save(data, tmp_path) / file).unlink()
    with refusal():
        load_data("folder:mine", tmp_path)


@pytest.mark.parametrize(
    "file", ["train.npy", "train-labels.npy", "train-keys.npy", "test.npy", "names.json", "meta.json"]
)
@pytest.mark.parametrize("keep", [0, 5, -1])
def test_a_cut_file_is_reported_with_the_command(data, tmp_path, file, keep, refusal):
    path = save(data, tmp_path) / file
    path.write_bytes(path.read_bytes()[:keep])
    with refusal():
        load_data("folder:mine", tmp_path)


def test_bytes_appended_to_an_array_are_reported(data, tmp_path, refusal):
    path = save(data, tmp_path) / "train.npy"
    path.write_bytes(path.read_bytes() + b"x")
    with refusal():
        load_data("folder:mine", tmp_path)


def test_an_array_of_objects_is_refused_unread(data, tmp_path, refusal):
    path = save(data, tmp_path) / "train-labels.npy"
    np.save(path, np.array([print] * 10, dtype=object), allow_pickle=True)
    with refusal():
        load_data("folder:mine", tmp_path)


def test_an_array_of_another_shape_is_refused(data, tmp_path, refusal):
    np.save(save(data, tmp_path) / "train.npy", np.zeros((10, 3, 4, 4), np.uint8))
    with refusal():
        load_data("folder:mine", tmp_path)


@pytest.mark.parametrize("file", ["train.npy", "train-labels.npy", "train-keys.npy"])
def test_a_flipped_byte_is_found_by_verify(data, tmp_path, file, refusal):
    path = save(data, tmp_path) / file
    content = bytearray(path.read_bytes())
    content[-1 if file != "train-labels.npy" else -8] ^= 1
    path.write_bytes(content)
    with refusal():
        verify("folder:mine", tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"format": 3},
        {"surprise": 1},
        {"classes": "ab"},
        {"name": "folder:other"},
        {"train": {"shape": [10, 4, 4], "digest": "0" * 64, "keys_digest": "0" * 64}},
        {"train": {"shape": [-1, 4, 4, 3], "digest": "0" * 64, "keys_digest": "0" * 64}},
    ],
)
def test_meta_that_does_not_fit_the_schema_is_refused(data, tmp_path, change, refusal):
    path = save(data, tmp_path) / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with refusal():
        load_data("folder:mine", tmp_path)


def test_a_folder_without_meta_is_not_a_data_set(data, tmp_path, refusal):
    (save(data, tmp_path) / "meta.json").unlink()
    assert not is_ready("folder:mine", tmp_path)
    with refusal():
        load_data("folder:mine", tmp_path)


CRASH = """
import os, sys
from pathlib import Path
import numpy as np
import mma.data.cache as module
from mma.data import DataSet, Images

images = Images(np.zeros((3, 2, 2, 1), np.uint8), np.zeros(3, np.int64), ("a",))
writes = 0
real = module.open_synced
def dying(path):
    global writes
    writes += 1
    if writes == int(sys.argv[2]):
        os._exit(9)  # as a kill -9 would, in the middle of things
    return real(path)
module.open_synced = dying
module.save(DataSet("folder:mine", images, images), Path(sys.argv[1]))
"""


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_build_that_dies_leaves_no_data_set_and_is_cleared_next_time(data, tmp_path, at):
    died = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path), str(at)], check=False)
    assert died.returncode == 9
    leftovers = list((tmp_path / "folder").iterdir())
    assert len(leftovers) == 1
    assert not is_ready("folder:mine", tmp_path)
    save(data, tmp_path)
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["mine"]


def test_a_build_that_dies_leaves_the_old_data_set_as_it_was(data, tmp_path):
    save(data, tmp_path)
    subprocess.run([sys.executable, "-c", CRASH, str(tmp_path), "4"], check=False)
    assert load_data("folder:mine", tmp_path).train.computed_digest() == data.train.digest()


def test_writers_go_in_turn_and_the_last_one_stays_whole(data, tmp_path):
    light = Images(255 - data.train.pixels, data.train.labels, data.train.classes)
    both = [data, DataSet("folder:mine", light, data.test)] * 4
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda each: save(each, tmp_path), both))
    saved = verify("folder:mine", tmp_path).train.computed_digest()
    assert saved in {each.train.computed_digest() for each in both}


def test_a_root_that_cannot_be_written_is_an_error_with_the_way_out(data, tmp_path, refusal):
    (tmp_path / "folder").write_text("a file where a folder should be")
    (tmp_path / "folder").chmod(0o755)
    with refusal():
        save(data, tmp_path)
    with refusal():
        check_writable(place("folder:mine", tmp_path))
    check_writable(tmp_path / "new" / "place")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["folder:../x", "folder:", "folder:a/b", "folder:.hidden", "folder:a\nb", "folder:-x"])
def test_names_that_lead_out_of_the_cache_are_refused(name, tmp_path, refusal):
    with refusal():
        load_data(name, tmp_path)


def test_the_root_is_chosen_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "a"))
    assert data_root() == tmp_path / "a"
    monkeypatch.delenv("MMA_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_root() == tmp_path / "mma"
    assert place("folder:x") == tmp_path / "mma" / "folder" / "x"


def test_meta_can_be_read_alone(data, tmp_path):
    save(data, tmp_path)
    assert read_meta("folder:mine", tmp_path).train.shape == (10, 4, 4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_saved("folder:mine", tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cifar10", "mma data get cifar10"),
        ("hard:long-tail:cifar10", "mma data get cifar10"),
        ("folder:mine", "mma data get folder --from DIR --name mine"),
        ("hard:wrong-5:folder:mine", "mma data get folder --from DIR --name mine"),
        ("folder:P-0123abcd", "mma data get folder --from DIR --name P-0123abcd"),
        ("folder:P-0123abcd-128px", "mma data get folder --from DIR --name P-0123abcd-128px --side 128"),
    ],
)
def test_the_command_of_a_data_set_that_is_not_here_is_made_from_its_name(name, expected, tmp_path, refusal):
    assert command(name) == expected
    with refusal():
        load_data(name, tmp_path)


def test_the_command_of_a_damaged_folder_has_the_options_it_was_made_with(data, tmp_path, refusal):
    options = "--from /photos --name mine --side 4 --test /tests"
    (save(replace(data, options=options), tmp_path) / "train.npy").unlink()
    with refusal():
        load_data("folder:mine", tmp_path)
