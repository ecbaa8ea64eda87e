"""Batches as a function of the step, and views as a function of the generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mma.rng import rng
from mma.training.step import Epochs, Stream, spread_evenly
from mma.views import Pixels, PixelViews, pixel_views
from mma.views.pixels import shifted_positions

CPU = torch.device("cpu")


def stream(config, data, labels=10, round=0):
    pixels = pixel_views(data.train, CPU, config.views, config.growth.steps)
    answers = {i: int(data.train.labels[i]) for i in range(labels)}
    return Stream(config, pixels, np.arange(len(data.train)), answers, config.growth.rounds()[round])


def test_a_batch_depends_on_the_step_alone(tiny, digits):
    forward, backward = stream(tiny(), digits), stream(tiny(), digits)
    wanted = {step: forward[step] for step in range(12)}
    for step in reversed(range(12)):
        found = backward[step]
        assert torch.equal(found.x, wanted[step].x)
        assert torch.equal(found.y, wanted[step].y)
        assert torch.equal(found.u, wanted[step].u)


def test_batches_have_the_promised_shapes_and_range(tiny, digits):
    batch = stream(tiny(), digits)[3]
    assert batch.x.shape == (8, 1, 8, 8)
    assert batch.u.shape == (2, 8, 1, 8, 8)
    assert batch.y.dtype == torch.int64
    assert batch.x.min() >= -1
    assert batch.x.max() <= 1


def test_a_share_of_the_labeled_images_is_shown_distorted_and_nothing_else_changes(tiny, digits):
    weak, half, all_ = (stream(tiny(f"views.strong_labels={share}"), digits)[3] for share in (0.0, 0.5, 1.0))
    assert torch.equal(half.x[::2], weak.x[::2])
    assert all(not torch.equal(a, b) for a, b in zip(half.x[1::2], weak.x[1::2], strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(all_.x, weak.x, strict=True))
    assert half.x.abs().max() <= 1
    for other in (half, all_):
        assert torch.equal(other.y, weak.y)
        assert torch.equal(other.u, weak.u)


def test_labels_are_drawn_as_often_as_they_weigh_and_soft_ones_come_as_rows(tiny, digits):
    config, rows = tiny(), np.arange(len(digits.train))
    pixels = pixel_views(digits.train, CPU, config.views, config.growth.steps)
    soft, weights = torch.eye(4), np.array([5.0, 2.0, 1.0, 0.0])
    options = {"targets": soft, "weights": weights}
    drawn = Stream(config, pixels, rows, dict.fromkeys(range(4), 0), config.growth.rounds()[0], **options)
    shown = torch.cat([drawn[step].y for step in range(40)])  # 8 labels in each step
    assert shown.shape == (320, 4)
    np.testing.assert_allclose(shown.sum(0), 320 * weights / 8, atol=8)
    assert torch.equal(drawn[7].y, drawn[7].y)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5, 0.6, 1.0])
def test_a_share_of_places_is_spread_evenly(share):
    for count in (1, 10, 20, 40):
        places = spread_evenly(share, count)
        assert len(places) == int(share * count + 1e-9)
        assert len(set(places)) == len(places)
        first, second = (np.sum(places < count // 2), np.sum(places >= count // 2))
        assert abs(first - second) <= 1


def test_an_algorithm_without_unlabeled_images_gets_none(tiny, digits):
    assert len(stream(tiny("algorithm=supervised"), digits)[0].u) == 0


def test_an_epoch_shows_every_item_once_and_then_in_another_order():
    epochs = Epochs(10, lambda epoch: rng(1, "order", epoch).permutation(10))
    first, second = epochs.slice(0, 10), epochs.slice(10, 10)
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)
    assert list(epochs.slice(7, 6)) == [*first[7:], *second[:3]]


def test_a_batch_larger_than_the_set_runs_through_several_epochs():
    epochs = Epochs(3, lambda epoch: rng(1, "order", epoch).permutation(3))
    assert np.bincount(epochs.slice(0, 12)).tolist() == [4, 4, 4]


def test_unlabeled_batches_never_hold_labeled_images(tiny, digits):
    labeled = stream(tiny(), digits, labels=200)
    seen = np.concatenate([labeled.unlabeled.slice(i * 100, 100) for i in range(30)])
    assert seen.min() >= 200


def test_unlabeled_order_is_the_same_for_runs_that_pair_by_seed(tiny, digits):
    a, b = stream(tiny(), digits, labels=10), stream(tiny("query=random"), digits, labels=12)
    first, second = a.unlabeled.slice(0, 500), b.unlabeled.slice(0, 500)
    assert [i for i in first if i >= 12][:400] == [i for i in second if i >= 12][:400]


def test_the_network_sees_bytes_as_numbers_from_minus_one_to_one():
    bytes_ = torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 2, 1)
    out = Pixels(bytes_, CPU).plain(np.array([0]))
    assert out.flatten().tolist() == pytest.approx([-1, 1], abs=1e-6)


def test_a_shift_reflects_without_repeating_the_border():
    assert shifted_positions(5, np.array([-2, 0, 2])).tolist() == [[2, 1, 0, 1, 2], [0, 1, 2, 3, 4], [2, 3, 4, 3, 2]]
    assert shifted_positions(1, np.array([-1, 1])).tolist() == [[0], [0]]


def test_views_equal_the_naive_pad_and_crop(digits):
    """One gather against the obvious way: pad by reflection, crop, mirror, image by image."""
    pixels = pixel_views(digits.train, CPU, PixelViews(shift=2, mirror=True), 100)
    index = np.arange(40)
    draw = rng(5, "check")
    down, right = draw.integers(-2, 3, 40), draw.integers(-2, 3, 40)
    flip = draw.integers(0, 2, 40, dtype=bool)
    padded = np.pad(digits.train.pixels[index], ((0, 0), (2, 2), (2, 2), (0, 0)), mode="reflect")
    naive = np.stack([padded[i, 2 + down[i] : 10 + down[i], 2 + right[i] : 10 + right[i]] for i in range(40)])
    naive[flip] = naive[flip][:, :, ::-1]
    found = pixels.weak(index, rng(5, "check"))
    torch.testing.assert_close(found, Pixels(torch.from_numpy(naive), CPU).plain(np.arange(40)), atol=0, rtol=0)
    assert flip.any()


def test_views_are_channels_last_in_memory(digits):
    from mma.data import Images

    colour = Images(np.repeat(digits.train.pixels, 3, axis=3), digits.train.labels, digits.train.classes)
    views = pixel_views(colour, CPU, PixelViews(shift=1, mirror=False), 100).weak(np.arange(4), rng(0, "x"))
    assert views.is_contiguous(memory_format=torch.channels_last)
