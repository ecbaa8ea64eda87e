"""The rate over a run, the size of the images over a run, and more unlabeled images than labeled ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mma.config import Optim
from mma.training.ask import DatasetLabels
from mma.training.checkpoint import shared_end
from mma.training.host import Host
from mma.training.loop import train
from mma.training.step import Stream, at_step
from mma.views import PixelViews, pixel_views
from mma.views.pixels import smaller

ONE = Host(threads=1)
CPU = torch.device("cpu")


def rates(end: int = 100, **settings) -> list[float]:
    optim = Optim(lr=0.01, **settings)
    return [at_step(optim, step, step, end).lr for step in range(end)]


def stream(config, data):
    pixels = pixel_views(data.train, CPU, config.views, config.growth.steps)
    answers = {i: int(data.train.labels[i]) for i in range(10)}
    return Stream(config, pixels, np.arange(len(data.train)), answers, config.growth.rounds()[0])


def test_without_a_schedule_the_settings_are_the_same_object():
    optim = Optim()
    assert at_step(optim, 5, 5, 10) is optim


def test_a_linear_decay_falls_from_the_rate_to_zero():
    linear = rates(decay="linear")
    assert linear[0] == 0.01
    assert linear[50] == pytest.approx(0.005)
    assert linear[-1] == pytest.approx(0.0001)
    assert linear == sorted(linear, reverse=True)


def test_warming_up_rises_in_equal_steps_and_again_after_a_refresh():
    assert rates(warmup=4)[:6] == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.01, 0.01])
    assert at_step(Optim(lr=0.01, warmup=4), 70, 0, 100).lr == pytest.approx(0.002)


def test_the_rate_of_kernels_rises_and_falls_with_the_other():
    optim = Optim(lr=0.01, kernel_lr=0.04, decay="linear", warmup=4)
    for step in (0, 2, 30, 99):
        now = at_step(optim, step, step, 100)
        assert now.kernel_lr == pytest.approx(4 * now.lr)


def test_a_decayed_run_ends_where_a_constant_one_still_moves(new_run, digits):
    """The teacher follows the student at once here, so that the last steps show how large they were."""
    moves = {}
    for decay in ("constant", "linear"):
        run = new_run(decay, f"optim.decay={decay}", "optim.ema_decay=0.0", "log.checkpoint=35")
        train(run, DatasetLabels(digits.train), on=ONE, data=digits)
        from mma.training.checkpoint import read

        (_, before), (_, after) = (read(run.checkpoint_path(step)) for step in (35, 36))
        moves[decay] = sum(float(np.abs(after[k] - before[k]).sum()) for k in after if k.startswith("student/"))
    assert moves["linear"] < 0.1 * moves["constant"]


def test_budgets_share_nothing_where_the_length_of_the_run_matters(tiny):
    small, large = tiny("growth.budget=15"), tiny("growth.budget=20")
    assert shared_end(small, large) == 20
    decayed = [tiny("growth.budget=15", "optim.decay=linear"), tiny("growth.budget=20", "optim.decay=linear")]
    assert shared_end(*decayed) == 0
    warmed = [tiny("growth.budget=15", "optim.warmup=5"), tiny("growth.budget=20", "optim.warmup=5")]
    assert shared_end(*warmed) == 20


def test_more_unlabeled_images_than_labeled_ones_each_once_per_epoch(tiny, digits):
    batches = stream(tiny("optim.unlabeled_ratio=3"), digits)
    assert batches[4].x.shape[0] == 8
    assert batches[4].u.shape[:2] == (2, 24)
    whole = np.concatenate([batches.unlabeled.slice(24 * step, 24) for step in range(20)])
    assert len(set(whole)) == 480


def test_small_images_are_means_and_only_at_first(tiny, digits):
    config = tiny("views.small_side=8", "views.small_share=0.5")
    pixels = pixel_views(digits.train, CPU, config.views, config.growth.steps)
    assert [pixels.at_step(step).side for step in (0, 17, 18, 35)] == [8, 8, None, None]
    x = torch.arange(64.0).view(1, 1, 8, 8)
    assert torch.equal(smaller(x, 4), torch.nn.functional.avg_pool2d(x, 2))
    assert smaller(x, None) is x
    assert smaller(x, 16) is x


def test_small_batches_are_the_large_ones_averaged_down(tiny, digits):
    from mma.data import Images

    wide = Images(np.repeat(np.repeat(digits.train.pixels, 2, 1), 2, 2), digits.train.labels, digits.train.classes)
    settings = PixelViews(shift=2, mirror=False, small_side=8, small_share=1.0)
    pixels = pixel_views(wide, CPU, settings, 100)
    full = pixels.weak(np.arange(5), np.random.default_rng(0))
    small = pixels.at_step(0).weak(np.arange(5), np.random.default_rng(0))
    torch.testing.assert_close(small, torch.nn.functional.avg_pool2d(full, 2))


@pytest.mark.parametrize("setting", ["views.small_side=16", "views.small_share=0.5"])
def test_one_half_of_the_small_settings_is_an_error(tiny, setting, refusal):
    with refusal():
        tiny(setting)
