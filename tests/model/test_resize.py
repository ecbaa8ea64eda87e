"""Scaling in an ONNX file is the scaling of training, to the last bit."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from mma.data.photos import squash_photo
from mma.features.inputs import squash
from mma.model.onnx import INPUT, Resize, to_grey, to_onnx

SIZES = [(1, 1), (3, 2), (7, 90), (90, 7), (64, 64), (100, 333), (333, 100), (427, 640), (17, 31), (250, 129)]


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), dtype=np.uint8)


def as_batch(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(image.copy())[None].permute(0, 3, 1, 2)


def as_image(batch: torch.Tensor) -> np.ndarray:
    return batch[0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("new", [(8, 8), (32, 32), (64, 40), (160, 160)])
def test_lanczos_is_that_of_the_photos_networks_are_trained_on(size, new):
    image = noise(*size)
    expected = squash_photo(Image.fromarray(image), (new[1], new[0]), grey=False)
    assert np.array_equal(as_image(Resize(new, "lanczos")(as_batch(image))), expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("side", [8, 32, 64, 160, 224])
def test_bicubic_is_that_of_the_features_heads_are_trained_on(size, side):
    image = noise(*size)
    expected = squash(image[None], side)[0]
    assert np.array_equal(as_image(Resize((side, side), "bicubic")(as_batch(image))), expected)


@pytest.mark.parametrize("filter", ["lanczos", "bicubic"])
def test_onnxruntime_scales_to_the_same_bytes(filter):
    class Scale(torch.nn.Module):
        def forward(self, images):
            return Resize((24, 31), filter)(images.permute(0, 3, 1, 2))

    session = onnxruntime.InferenceSession(to_onnx(Scale()), providers=["CPUExecutionProvider"])
    for size in SIZES:
        image = noise(*size)
        (found,) = session.run(None, {INPUT: image[None]})
        assert np.array_equal(found, Resize((24, 31), filter)(as_batch(image)).numpy()), size


def test_tall_photos_are_scaled_in_the_same_order_by_every_version_of_pillow():
    """Newer ones would begin with the columns, and round differently."""
    image = Image.fromarray(noise(300, 40))
    rows_first = image.resize((32, 300), Image.Resampling.LANCZOS).resize((32, 32), Image.Resampling.LANCZOS)
    assert np.array_equal(squash_photo(image, (32, 32), grey=False), np.asarray(rows_first))


def test_grey_is_that_of_pillow():
    image = noise(40, 60)
    assert np.array_equal(to_grey(as_batch(image))[0, 0].numpy(), np.asarray(Image.fromarray(image).convert("L")))
