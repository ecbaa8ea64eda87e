"""The compact network."""

from __future__ import annotations

import pytest
import torch

from mma.nets import Small
from mma.nets.small import scales


@pytest.mark.parametrize(
    ("side", "count"), [(1, 1), (4, 1), (7, 1), (8, 2), (15, 2), (16, 3), (28, 3), (32, 3), (64, 3)]
)
def test_scales_follow_the_side(side: int, count: int):
    assert scales(side, side) == count


@pytest.mark.parametrize("side", [1, 2, 3, 5, 8, 64])
def test_even_tiny_images_have_features(side: int):
    assert torch.isfinite(Small(filters=4).build((side, side, 1), 3)(torch.zeros(2, 1, side, side))).all()


def test_running_averages_forget_as_told():
    net = Small(bn_decay=0.9).build((8, 8, 1), 3)
    assert [m.momentum for m in net.modules() if hasattr(m, "momentum")] == [pytest.approx(0.1)] * 3
