"""Winograd's convolution is the direct one, with its gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mma.nets import SameConv2d, winograd
from mma.nets.winograd import convolve, worthwhile


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("side", [1, 2, 3, 4, 5, 7, 8, 11, 16])
def test_it_equals_the_direct_convolution_on_maps_of_any_side(side):
    x, w, b = draw(3, 5, side, side), draw(4, 5, 3, 3, seed=1), draw(4, seed=2)
    torch.testing.assert_close(convolve(x, w, b), F.conv2d(x, w, b, padding=1), atol=1e-11, rtol=0)
    torch.testing.assert_close(convolve(x, w), F.conv2d(x, w, padding=1), atol=1e-11, rtol=0)


@pytest.mark.parametrize("side", [3, 8])
def test_its_gradients_are_exact(side):
    inputs = [t.requires_grad_() for t in (draw(2, 3, side, side), draw(2, 3, 3, 3, seed=1), draw(2, seed=2))]
    assert torch.autograd.gradcheck(convolve, inputs)


def test_gradients_do_not_depend_on_what_is_kept(monkeypatch):
    x, w = draw(2, 3, 8, 8), draw(2, 3, 3, 3, seed=1).requires_grad_()
    (kept,) = torch.autograd.grad(convolve(x, w).square().sum(), w)
    monkeypatch.setattr(winograd, "KEPT", 0)
    (again,) = torch.autograd.grad(convolve(x, w).square().sum(), w)
    assert torch.equal(kept, again)


def test_training_after_inference_works():
    winograd._matrices.cache_clear()
    with torch.inference_mode():
        convolve(draw(2, 3, 8, 8), draw(2, 3, 3, 3))
    x = draw(2, 3, 8, 8).requires_grad_()
    convolve(x, draw(2, 3, 3, 3)).sum().backward()
    assert x.grad is not None


def test_gradients_that_nobody_wants_are_not_computed():
    x, w = draw(2, 3, 4, 4), draw(2, 3, 3, 3).requires_grad_()
    convolve(x, w).sum().backward()
    assert x.grad is None
    assert w.grad is not None


@pytest.mark.parametrize(("channels", "side"), [(64, 8), (128, 8), (64, 16)])
def test_single_precision_loses_no_more_than_a_digit(channels, side):
    x, w = draw(8, channels, side, side, dtype=torch.float32), draw(channels, channels, 3, 3, dtype=torch.float32)
    exact = F.conv2d(x.double(), w.double(), padding=1)
    for found in (convolve(x, w), F.conv2d(x, w, padding=1)):
        assert (found - exact).norm() / exact.norm() < 1e-5


def test_the_memory_is_channels_last_whatever_comes_in():
    for x in (draw(2, 3, 8, 8), draw(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)):
        assert convolve(x, draw(4, 3, 3, 3)).is_contiguous(memory_format=torch.channels_last)


def test_it_is_used_where_it_pays():
    wide, narrow = torch.zeros(64, 64, 3, 3), torch.zeros(32, 32, 3, 3)
    assert worthwhile(torch.zeros(2, 64, 8, 8), wide)
    assert not worthwhile(torch.zeros(2, 64, 16, 16), wide)
    assert not worthwhile(torch.zeros(2, 64, 8, 4), wide)
    assert not worthwhile(torch.zeros(2, 32, 8, 8), narrow)
    assert not worthwhile(torch.zeros(2, 64, 8, 8).double(), wide.double())
    assert not worthwhile(torch.zeros(2, 64, 8, 8), torch.zeros(64, 64, 1, 1))
    with torch.autocast("cpu", torch.bfloat16):
        assert not worthwhile(torch.zeros(2, 64, 8, 8), wide)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_layer_gives_the_same_with_and_without_it(stride):
    layer, x = SameConv2d(64, 64, 3, stride), draw(2, 64, 8, 8, dtype=torch.float32)
    exact = layer.double()(x.double())  # double precision is never Winograd's
    torch.testing.assert_close(layer.float()(x), exact.float(), atol=1e-4, rtol=0)
