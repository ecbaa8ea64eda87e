"""A pool on disk is scored as one in memory, and only the rows that are looked at are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mma.data import Images
from mma.data.cache import open_saved, save
from mma.nets import NETS, initialise
from mma.query import Query
from mma.rng import rng
from mma.training import predict as evaluate
from mma.views import PixelViews, pixel_views

CPU = torch.device("cpu")


def teacher() -> torch.nn.Module:
    net = NETS["small"](filters=4).build((8, 8, 1), 10)
    initialise(net, rng(0, "init"))
    return net.eval()


@pytest.mark.parametrize("name", ["diff2-kmeans", "max.aug-direct", "entropy.aug-infoD", "random"])
def test_a_mapped_pool_gives_the_candidates_of_one_in_memory(name, digits, tmp_path):
    save(replace(digits, name="copy"), tmp_path)
    mapped = open_saved("copy", tmp_path).train
    assert isinstance(mapped.pixels, np.memmap)
    net, query, index = teacher(), Query.parse(name), np.arange(3, 1_200, 2)
    found, expected = (
        evaluate.candidates(net, pixel_views(images, CPU, PixelViews(shift=1, mirror=False), 100), index, query, 1, 2)
        for images in (mapped, digits.train)
    )
    np.testing.assert_array_equal(found.index, expected.index)
    for mine, other in ((found.probs, expected.probs), (found.features, expected.features)):
        assert (mine is None) == (other is None)
        if mine is not None:
            np.testing.assert_array_equal(mine, other)


def test_looking_at_a_mapped_pool_leaves_the_file_alone(digits, tmp_path):
    folder = save(replace(digits, name="copy"), tmp_path)
    before = (folder / "train.npy").read_bytes()
    pixels = pixel_views(open_saved("copy", tmp_path).train, CPU, PixelViews(shift=1, mirror=True), 100)
    pixels.plain(np.arange(50)).zero_()
    pixels.weak(np.arange(50), rng(0, "x")).zero_()
    assert (folder / "train.npy").read_bytes() == before


@pytest.mark.parametrize(("shape", "size"), [((8, 8), 500), ((32, 32), 500), ((64, 32), 250), ((512, 512), 1)])
def test_larger_images_are_looked_at_in_smaller_batches(shape, size):
    images = Images(np.zeros((501, *shape, 1), np.uint8), np.zeros(501, np.int64), ("a",))
    index = np.arange(501)
    parts = evaluate.batches(pixel_views(images, CPU, PixelViews(shift=0, mirror=False), 100), index)
    assert len(parts[0]) == size
    np.testing.assert_array_equal(np.concatenate(parts), index)


def test_rows_arrive_in_pieces_and_stay_in_order():
    rows = evaluate.Rows(7)
    whole = torch.arange(21.0).view(7, 3)
    for piece in whole.split([3, 3, 1]):
        rows.add(piece)
    np.testing.assert_array_equal(rows.array, whole.numpy())


def test_nothing_added_is_nothing():
    assert evaluate.Rows(3).array is None
