"""Depthwise convolutions: the fast gradients are those of the library."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mma.nets.tuned import DepthwiseConv2d


def pair(side: int, stride: int, padding: int, *, bias: bool = False) -> tuple[DepthwiseConv2d, nn.Conv2d]:
    """Return our convolution and the library's with the same kernel."""
    torch.manual_seed(1)
    ours = DepthwiseConv2d(6, 6, side, stride, padding, groups=6, bias=bias).double()
    theirs = nn.Conv2d(6, 6, side, stride, padding, groups=6, bias=bias).double()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def gradients(conv: nn.Conv2d, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = conv(x)
    out.backward(torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out))
    return [out.detach(), x.grad, *(parameter.grad for parameter in conv.parameters())]


@pytest.mark.parametrize("side", [3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_the_gradients_are_those_of_the_library(side, stride, padding, bias):
    x = torch.randn(3, 6, 11, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ours, theirs = pair(side, stride, padding, bias=bias)
    for found, wanted in zip(gradients(ours, x), gradients(theirs, x), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("stride", [1, 2])
def test_in_half_precision_the_gradients_are_close_to_those_of_the_library(stride):
    x = torch.randn(4, 6, 9, 9, generator=torch.Generator().manual_seed(2))
    ours, theirs = (conv.float() for conv in pair(5, stride, 2))
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(ours, x)
    assert found[0].dtype == torch.bfloat16
    assert found[2].dtype == torch.float32
    for half, whole in zip(found, gradients(theirs, x), strict=True):
        torch.testing.assert_close(half.float(), whole, atol=0.02 * float(whole.abs().max()), rtol=0.02)
