"""Stored views: the image, its mirror image, and crops that depend on nothing but the image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from mma.features.inputs import CROPPED, StoredViews, crop_box, cut
from tests.features.conftest import array_images, batch


def test_view_0_is_the_image_and_view_1_its_mirror_image():
    images, keys = batch(2, 16), array_images(2).keys
    views = StoredViews(mirror=True, crops=3).make(images, keys)
    assert len(views) == len(StoredViews(mirror=True, crops=3)) == 5
    assert torch.equal(views[0], images)
    assert torch.equal(views[1], images.flip(2))


def test_a_crop_depends_on_the_key_and_its_number_alone():
    boxes = {crop_box("a", 0), crop_box("a", 1), crop_box("b", 0), crop_box("a", 0)}
    assert len(boxes) == 3
    images, keys = batch(3, 16), array_images(3).keys
    together = StoredViews(crops=2).make(images, keys)
    alone = StoredViews(crops=2).make(images[1:2], keys[1:2])
    assert torch.equal(together[2][1], alone[2][0])
    alike = StoredViews(crops=1).make(images[[0, 0]], keys[:2])[1]
    assert not torch.equal(alike[0], alike[1])


def test_a_crop_lies_in_the_image_and_keeps_its_share():
    for number in range(200):
        left, top, width, height = crop_box("key", number)
        assert min(left, top) >= 0
        assert max(left + width, top + height) <= 1 + 1e-9
        assert width * height >= 0.74 * CROPPED  # a long crop is cut at the border


def test_a_box_of_the_whole_image_returns_the_image():
    images = batch(2, 16)
    assert torch.equal(cut(images, [(0.0, 0.0, 1.0, 1.0)] * 2), images)


def test_a_box_shows_its_own_corner():
    images = torch.zeros(1, 16, 16, 3, dtype=torch.uint8)
    images[:, :8, 8:] = 200  # top right
    assert (cut(images, [(0.5, 0.0, 0.5, 0.5)]) > 90).all()
    assert (cut(images, [(0.0, 0.5, 0.5, 0.5)]) < 110).all()


def test_views_of_another_kind_have_another_name():
    kinds = [StoredViews(), StoredViews(mirror=True), StoredViews(crops=2), StoredViews(crops=3)]
    assert len({kind.label() for kind in kinds}) == 4
    with pytest.raises(ValidationError):
        StoredViews(crops=-1)


def test_crops_are_uint8_images():
    crop = StoredViews(crops=1).make(batch(2, 16), array_images(2).keys)[1]
    assert crop.dtype == torch.uint8
    assert crop.shape == (2, 16, 16, 3)
    assert not np.array_equal(crop.numpy(), batch(2, 16).numpy())
