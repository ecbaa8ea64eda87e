"""Features are computed once, found by the image's key, and survive kills and company."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mma.errors import UserError
from mma.features import (
    FeatureProgress,
    Features,
    StoredViews,
    compute_block,
    extract,
    features,
    image_source,
)
from mma.features.extract import Appender, open_store
from tests.features.conftest import Means, Tiny, array_images

ROOT = Path(__file__).parents[2]


def files_of(data_folder: Path) -> dict[str, bytes]:
    paths = sorted((data_folder / "features").rglob("*.bin"))
    return {str(path.relative_to(data_folder)): path.read_bytes() for path in paths}


def test_features_are_the_vectors_of_the_backbone_in_float16_and_mapped(tiny):
    images = array_images(50)
    found = features(images, tiny, StoredViews(mirror=True))
    assert found.values.shape == (50, 2, 12)
    assert found.values.dtype == np.float16
    assert isinstance(found.values, np.memmap)
    assert np.array_equal(found.values, compute_block(images, tiny, np.arange(50), StoredViews(mirror=True)))
    assert found.digest == tiny.digest()
    assert np.array_equal(found.keys, images.keys)


def test_new_images_cost_only_themselves(tiny):
    features(array_images(40), tiny)
    Means.seen = 0
    more = array_images(64)  # the first forty and others
    more.pixels[:40], more.keys[:40] = array_images(40).pixels, array_images(40).keys
    found = features(more, tiny)
    assert Means.seen == 32  # 24 new ones: a batch, filled up
    assert np.array_equal(found.values, compute_block(more, tiny, np.arange(64)))


def test_what_is_stored_is_not_computed_again(tiny):
    first = features(array_images(40), tiny)
    Means.seen = 0
    assert np.array_equal(features(array_images(40), tiny).values, first.values)
    assert Means.seen == 0


def test_images_in_another_order_and_twice_find_their_rows(tiny):
    images, rows = array_images(20), np.array([7, 3, 3, 19, 0])
    features(images, tiny)
    found = features(images.take(rows), tiny)
    assert np.array_equal(found.values, compute_block(images, tiny, rows))
    assert np.array_equal(found.take(np.array([1, 4])), compute_block(images, tiny, rows[[1, 4]])[:, 0])


def test_one_view_for_each_image_can_be_taken(tiny):
    found = features(array_images(5), tiny, StoredViews(crops=2))
    views = np.array([2, 0, 1])
    taken = found.take(np.array([4, 1, 0]), views)
    assert np.array_equal(taken, found.values[[4, 1, 0], views])


def test_no_images_have_no_features(tiny):
    assert len(features(array_images(3).take(np.array([], np.int64)), tiny)) == 0


def test_progress_ends_at_the_total_with_nothing_left(tiny):
    seen: list[FeatureProgress] = []
    features(array_images(70), tiny, progress=seen.append)
    assert [each.done for each in seen] == [32, 64, 70]
    assert seen[-1].total == 70
    assert seen[-1].seconds_left == 0


def test_photos_and_their_stored_pixels_do_not_share_features(folder_data, tiny):
    import shutil

    photos, _ = image_source(folder_data.train)
    from_photos = features(photos, tiny).values
    assert folder_data.train.root is not None
    shutil.rmtree(folder_data.train.root)
    stored, note = image_source(folder_data.train)
    assert note
    assert not np.array_equal(features(stored, tiny).values, from_photos)


def test_centring_gives_vectors_of_length_one_around_the_mean_of_the_pool(tiny):
    found = features(array_images(50), tiny)
    centring = found.centring()
    plain = found.values[:, 0].astype(np.float32)
    assert centring.mean == pytest.approx(plain.mean(axis=0), rel=1e-4)
    vectors = centring(plain)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    expected = (plain[0] - plain.mean(axis=0)) / np.linalg.norm(plain[0] - plain.mean(axis=0))
    assert vectors[0] == pytest.approx(expected, abs=1e-3)


def test_the_mean_of_a_large_pool_is_taken_over_images_spread_evenly(monkeypatch):
    stored = np.arange(1_000, dtype=np.float16).reshape(-1, 1, 1)
    found = Features(stored, np.arange(1_000), np.zeros((1_000, 32), np.uint8), "digest")
    assert found.centring().mean == pytest.approx(499.5)
    monkeypatch.setattr(extract, "AVERAGED", 100)
    assert found.centring().mean == pytest.approx(495.0)  # 0, 10, 20, ...


@pytest.mark.parametrize("tail", [b"", b"x", b"x" * 24 * 5])
@pytest.mark.parametrize("keys", [7, 32 * 3 + 5])
def test_a_torn_tail_is_cut_and_the_file_ends_byte_equal(tiny, data_folder, tail, keys):
    images = array_images(40)
    features(images, tiny)
    whole = files_of(data_folder)
    store = open_store(images, tiny, StoredViews()).folder
    with (store / "values.bin").open("ab") as file:
        file.write(tail)
    os.truncate(store / "keys.bin", 40 * 32 - keys)
    found = features(images, tiny)
    assert files_of(data_folder) == whole
    assert np.array_equal(found.values, compute_block(images, tiny, np.arange(40)))


@pytest.mark.parametrize("damage", [{"views": 7}, {"views": None}, {"content": "other"}, {"digest": 5}])
def test_a_store_whose_meta_names_other_features_is_refused(tiny, damage):
    import json

    features(array_images(3), tiny)
    meta = open_store(array_images(3), tiny, StoredViews()).folder / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), **damage}))
    with pytest.raises(UserError):
        features(array_images(3), tiny)


def test_values_lost_behind_their_keys_are_computed_again(tiny, data_folder):
    images = array_images(40)
    features(images, tiny)
    whole = files_of(data_folder)
    os.truncate(open_store(images, tiny, StoredViews()).folder / "values.bin", 24 * 10 + 3)
    features(images, tiny)
    assert files_of(data_folder) == whole


def test_a_backbone_that_changed_without_a_new_version_is_refused(tiny, data_folder, refusal):
    features(array_images(5), tiny)

    class Wider(Tiny):
        def load(self):
            import torch

            module = torch.nn.Identity()
            module.forward = lambda images: images.float().flatten(1)[:, :20]
            return module

    with refusal():
        features(array_images(9, seed=2), Wider())


def test_rows_that_another_process_added_meanwhile_are_not_added_again(tiny):
    images = array_images(12)
    store, values = open_store(images, tiny, StoredViews()), compute_block(images, tiny, np.arange(12))
    one, other = Appender(store, 0), Appender(store, 0)
    for appender, rows in ((one, [0, 1]), (other, [8, 9]), (one, [2, 3]), (one, [8, 9, 10]), (other, [0, 10, 11])):
        appender.append(images.keys[rows], values[rows])
    assert np.array_equal(store.keys(), images.keys[[0, 1, 8, 9, 2, 3, 10, 11]])
    assert np.array_equal(store.values(), values[[0, 1, 8, 9, 2, 3, 10, 11]])


WORKER = """
import sys, time
import numpy as np
from tests.features.conftest import Means, Tiny, array_images
from mma.features import features
import mma.features.extract as extract

class Slow(Means):
    def forward(self, images):
        time.sleep(float(sys.argv[1]))
        return super().forward(images)

Tiny.load = lambda self: Slow()
extract.BLOCK = 64
features(array_images(1_000), Tiny(), threads=2)
"""


def start(delay: float, data_folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "MMA_DATA": str(data_folder), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", WORKER, str(delay)]
    return subprocess.Popen(command, env=environment)


def wait_for_rows(data_folder: Path, process: subprocess.Popen[bytes], size: int) -> None:
    while process.poll() is None:
        if any(path.stat().st_size >= size for path in data_folder.rglob("keys.bin")):
            return
        time.sleep(0.01)


def test_killed_anywhere_it_goes_on_and_the_file_ends_byte_equal(data_folder, tmp_path, tiny):
    for rows in (64, 640):
        process = start(0.03, data_folder)
        wait_for_rows(data_folder, process, rows * 32)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert 0 < sum(path.stat().st_size for path in data_folder.rglob("keys.bin")) < 1_000 * 32
    found = features(array_images(1_000), tiny)
    straight = features(array_images(1_000), tiny, root=tmp_path / "other")
    assert np.array_equal(found.values, straight.values)
    assert files_of(data_folder) == files_of(tmp_path / "other")


def test_several_processes_fill_one_store_without_a_row_twice(data_folder, tiny):
    processes = [start(0.0, data_folder) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    Means.seen = 0
    found = features(array_images(1_000), tiny)
    assert Means.seen == 0
    assert len(found.stored) == 1_000
    assert np.array_equal(found.values, compute_block(array_images(1_000), tiny, np.arange(1_000)))


MEMORY = """
import hashlib, resource, sys
from typing import Literal
import numpy as np, torch
from pathlib import Path
from mma.features import Backbone, features

class Many:
    content = "made"
    keys = np.frombuffer(b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(200_000)), np.uint8).reshape(-1, 32)
    def __len__(self): return len(self.keys)
    def decode(self, rows, side): return np.repeat(self.keys[rows, None, :side], side, 1)[..., None].repeat(3, 3)
    def take(self, rows): raise NotImplementedError

class Fake(Backbone):
    name: Literal["fake"] = "fake"
    side: int = 8
    def load(self):
        module = torch.nn.Identity()
        module.forward = lambda images: images.float().flatten(1).repeat(1, 3)[:, :512]
        return module

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

before, peak = anonymous(), 0
def watch(progress):
    global peak
    peak = max(peak, anonymous())
found = features(Many(), Fake(), progress=watch, threads=1)
found.centring()
peak = max(peak, anonymous())
assert found.values.shape == (200_000, 1, 512)
print((peak - before) / 1e3)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_two_hundred_thousand_rows_are_streamed_in_bounded_memory(data_folder):
    environment = {**os.environ, "MMA_DATA": str(data_folder), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", MEMORY], env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 80  # MB; the features have 205


def test_the_command_stores_features_that_are_then_found(tmp_path, monkeypatch, capsys, refusal):
    from mma.cli.data import features_

    monkeypatch.setenv("MMA_DATA", str(tmp_path))
    features_("digits", backbone="hog@32+hog@24", crops=0, engine="local")
    assert capsys.readouterr().out.count("1,297 images, 1 views") == 2
    assert len(list((tmp_path / "features").iterdir())) == 2
    with refusal():
        features_("digits", backbone="hog@40", engine="cloud")
