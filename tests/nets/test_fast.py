"""The first layer that has nothing to learn, and answers by an image and its mirror image."""

from __future__ import annotations

import pytest
import torch

from mma.nets import NETS, initialise
from mma.nets.small import Cosines, Fast, cosines
from mma.rng import rng


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_cosines_are_an_orthonormal_basis_that_begins_with_the_mean(count):
    basis = cosines(count)
    torch.testing.assert_close(basis @ basis.T, torch.eye(count), atol=1e-6, rtol=0)
    torch.testing.assert_close(basis[0], torch.full((count,), count**-0.5))


def test_over_three_colours_they_are_brightness_and_opponent_colours():
    brightness, red_blue, green = cosines(3)
    torch.testing.assert_close(brightness / brightness[0], torch.tensor([1.0, 1.0, 1.0]))
    torch.testing.assert_close(red_blue / red_blue[0], torch.tensor([1.0, 0.0, -1.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(green / green[0], torch.tensor([1.0, -2.0, 1.0]))


@pytest.mark.parametrize(("channels", "directions"), [(1, 6), (3, 10)])
def test_slow_waves_are_kept_each_with_its_negative(channels, directions):
    x = torch.from_numpy(rng(1, "x").standard_normal((2, channels, 6, 6), dtype="float32"))
    plus, minus = Cosines(channels)(x).chunk(2, dim=1)
    assert plus.shape == (2, directions, 6, 6)
    torch.testing.assert_close(plus, -minus)
    torch.testing.assert_close(
        plus[0, 0, 2, 3], x[0, :, 1:4, 2:5].sum() / (9 * channels) ** 0.5
    )  # the mean comes first
    kernels = Cosines(channels).kernel[:directions].flatten(1)
    torch.testing.assert_close(kernels @ kernels.T, torch.eye(directions), atol=1e-6, rtol=0)


def test_coefficients_of_a_smooth_image_are_less_alike_than_its_pixels():
    noise = torch.from_numpy(rng(2, "x").standard_normal((64, 3, 24, 24), dtype="float32"))
    smooth = torch.nn.functional.avg_pool2d(noise, 5, 1)
    patches = torch.nn.functional.unfold(smooth, 3).transpose(1, 2).reshape(-1, 27)
    coefficients = Cosines(3)(smooth)[:, :10, 1:-1, 1:-1].permute(0, 2, 3, 1).reshape(-1, 10)
    assert alike(coefficients) < alike(patches) / 3


def alike(values: torch.Tensor) -> float:
    """Return the mean absolute correlation of different columns."""
    correlation = torch.corrcoef(values.T)
    return float((correlation - torch.eye(len(correlation))).abs().mean())


def test_nothing_of_it_is_learned():
    net = NETS["fast"](filters=8, stem="cosines").build((32, 32, 3), 10)
    before = net.stem.kernel.clone()
    initialise(net, rng(1, "init"))
    net(torch.zeros(2, 3, 32, 32)).sum().backward()
    assert not list(net.stem.parameters())
    assert not [name for name in net.state_dict() if name.startswith("stem.")]
    assert torch.equal(net.stem.kernel, before)


def test_images_too_small_for_its_poolings_are_refused(refusal):
    with refusal():
        NETS["fast"]().build((7, 7, 3), 10)


def drawn(*, mirrored: bool) -> torch.nn.Module:
    net = NETS["fast"](filters=8, mirrored=mirrored).build((16, 16, 3), 10)
    initialise(net, rng(1, "init"))
    return net


def test_mirrored_answers_are_the_same_for_an_image_and_its_mirror_image():
    net, plain = (drawn(mirrored=mirrored).eval() for mirrored in (True, False))
    x = torch.from_numpy(rng(2, "x").standard_normal((3, 3, 16, 16), dtype="float32"))
    torch.testing.assert_close(net(x), net(x.flip(3)))
    torch.testing.assert_close(net(x), (plain(x) + plain(x.flip(3))) / 2)
    assert not torch.allclose(plain(x), plain(x.flip(3)))


def test_training_sees_images_one_way():
    net, plain = (drawn(mirrored=mirrored) for mirrored in (True, False))
    x = torch.from_numpy(rng(2, "x").standard_normal((3, 3, 16, 16), dtype="float32"))
    assert torch.equal(net(x), plain(x))


def test_a_stem_of_cosines_is_built_without_memory_as_every_stored_model_is_before_it_is_read():
    with torch.device("meta"):
        network = Fast(stem="cosines").build((32, 32, 3), 4)
    assert all(value.is_meta for value in network.state_dict().values())
