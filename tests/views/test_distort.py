"""Strong views: each distortion against the obvious way, and what holds for all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mma.rng import rng
from mma.views import pixels as room
from mma.views.pixels import COLOURS, WARPS, distort, uncovered, warp


def images(count: int = 24, channels: int = 3, side: int = 12) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    bytes_ = torch.randint(0, 256, (count, channels, side, side), generator=draw)
    return (bytes_.float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)


def much(value: float, count: int = 24) -> torch.Tensor:
    return torch.full((count, 1, 1, 1), value)


def only(warp: int, strength: float, count: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """One warp in the first round, nothing in the second."""
    kind = np.stack([np.full(count, warp), np.full(count, len(WARPS) + len(COLOURS))])
    return kind, np.full((2, count), strength, np.float32)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 13])
def test_a_strong_view_is_an_image_of_the_same_shape_and_range(channels: int, side: int):
    x = images(200, channels, side)
    views = distort(x, rng(1, "strong"))
    assert views.shape == x.shape
    assert views.min() >= -1 - 1e-6
    assert views.max() <= 1 + 1e-6
    assert views.is_contiguous(memory_format=torch.channels_last)


def test_strong_views_follow_from_the_generator_alone_and_leave_the_images_as_they_were():
    x = images()
    before = x.clone()
    torch.manual_seed(1)
    first = distort(x, rng(1, "strong"))
    torch.manual_seed(2)
    assert torch.equal(first, distort(x, rng(1, "strong")))
    assert not torch.equal(first, distort(x, rng(2, "strong")))
    assert torch.equal(x, before)


def test_images_are_distorted_each_in_its_own_way():
    x = images(1).expand(50, -1, -1, -1)
    views = distort(x, rng(3, "strong"))
    assert len({tuple(view.flatten().tolist()) for view in views}) > 40


NAMES = ["darken", "fade", "discolour", "blur", "stretch", "posterize", "solarize"]


@pytest.mark.parametrize("colour", COLOURS, ids=NAMES)
def test_every_distortion_of_colours_changes_images_and_keeps_their_range(colour):
    x = images()
    out = colour(x, much(0.6))
    assert out.shape == x.shape
    assert out.abs().max() <= 1 + 1e-6
    assert not torch.equal(out, x)


def test_darken_fade_and_discolour_go_most_of_the_way():
    x = images()
    torch.testing.assert_close(room.darken(x, much(1.0)), 0.05 * x - 0.95)
    mean = x.mean((1, 2, 3), keepdim=True)
    torch.testing.assert_close(room.fade(x, much(0.5)), 0.5 * x + 0.5 * mean)
    grey = room.discolour(x, much(1.0))
    assert (grey.amax(1) - grey.amin(1)).max() < 0.06 * (x.amax(1) - x.amin(1)).max()


def test_solarize_turns_around_what_is_brighter_than_the_threshold():
    x = torch.tensor([-1.0, -0.2, 0.3, 1.0]).view(1, 1, 2, 2)
    assert room.solarize(x, much(0.4, 1)).flatten().tolist() == pytest.approx([-1.0, -0.2, -0.3, -1.0])
    assert torch.equal(room.solarize(x, much(1.0, 1)), -x)


@pytest.mark.parametrize(("strength", "bits"), [(0.0, 8), (0.3, 7), (0.5, 6), (0.99, 4)])
def test_posterize_cuts_bits_off(strength: float, bits: int):
    levels = torch.arange(256)
    x = (levels.float() / 127.5 - 1).view(1, 1, 16, 16)
    expected = (levels >> (8 - bits) << (8 - bits)).float() / 127.5 - 1
    torch.testing.assert_close(room.posterize(x, much(strength, 1)).flatten(), expected, atol=1e-5, rtol=0)


def test_stretch_uses_the_whole_range_and_survives_a_flat_image():
    out = room.stretch(0.2 * images(), much(0.5))
    torch.testing.assert_close(out.amin((2, 3)), torch.full((24, 3), -1.0))
    torch.testing.assert_close(out.amax((2, 3)), torch.full((24, 3), 1.0))
    assert torch.isfinite(room.stretch(torch.zeros(1, 3, 4, 4), much(0.5, 1))).all()


def test_a_move_by_whole_pixels_is_a_shift_with_grey_coming_in():
    x = images(side=10)
    kind, strength = only(3, 1.0)  # 0.3 of 10 pixels
    out = warp(x, kind, strength)
    torch.testing.assert_close(out[..., :-3], x[..., 3:], atol=1e-5, rtol=0)
    assert out[..., -3:].abs().max() < 1e-5


def test_a_rotation_there_and_back_leaves_the_middle_alone():
    smooth = torch.linspace(-1, 1, 16).view(1, 1, 1, 16).expand(24, 3, 16, 16)
    there = warp(smooth, *only(0, 0.5))
    back = warp(there, *only(0, -0.5))
    assert (there - smooth).abs().max() > 0.1
    torch.testing.assert_close(back[..., 5:11, 5:11], smooth[..., 5:11, 5:11], atol=0.02, rtol=0)


def test_two_warps_of_one_image_are_one_after_the_other():
    x = images(side=10)
    kind = np.stack([np.full(24, 3), np.full(24, 4)])
    both = warp(x, kind, np.ones((2, 24), np.float32))
    one = warp(warp(x, *only(4, 1.0)), *only(3, 1.0))
    torch.testing.assert_close(both, one, atol=1e-5, rtol=0)


def test_images_whose_turn_it_is_not_are_left_alone():
    x = images()
    kind, strength = only(0, 0.5)
    kind[:, ::2] = len(WARPS) + len(COLOURS)
    out = warp(x, kind, strength)
    assert torch.equal(out[::2], x[::2])
    assert all(not torch.equal(a, b) for a, b in zip(out[1::2], x[1::2], strict=True))


def test_the_grey_square_has_its_side_and_place():
    square = np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.5]], np.float32)  # side of the largest; middle row; column
    seen = uncovered(square, torch.zeros(2, 3, 8, 8))
    hidden = (seen[0, 0] == 0).nonzero()
    assert hidden.amin(0).tolist() == [2, 0]
    assert hidden.amax(0).tolist() == [5, 3]
    assert seen[1].min() == 1
