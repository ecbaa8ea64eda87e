"""Depthwise convolutions whose gradients take as long as they should, also in bfloat16.

The library's gradient of a 5x5 depthwise kernel takes 10 to 40 times as long as its forward, and in bfloat16 so does the
gradient of the input of a strided one. That of a 3x3 kernel is fast, and four of them, moved, cover a 5x5 one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

SMALL = 3  # the side of a kernel whose gradient is fast


class DepthwiseConv2d(nn.Conv2d):
    """A convolution of each channel by itself."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""  # (B, C, H, W) -> (B, C, H', W')
        if x.device.type != "cpu" or not torch.is_grad_enabled() or not (x.requires_grad or self.weight.requires_grad):
            return super().forward(x)
        half = torch.is_autocast_enabled("cpu")
        dtype, padding = torch.get_autocast_dtype("cpu") if half else x.dtype, int(self.padding[0])
        padded = F.pad(x, (padding,) * 4) if padding else x
        bias = None if self.bias is None else self.bias.to(dtype)
        out: Tensor = _Depthwise.apply(  # type: ignore[no-untyped-call]
            padded.to(dtype), self.weight.to(dtype), bias, self.stride[0]
        )
        return out


class _Depthwise(torch.autograd.Function):
    """A depthwise convolution without padding, and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
        """Convolve."""
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return F.conv2d(x, weight, bias, stride, 0, 1, len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        """Return the gradients of input, kernel and bias."""
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        to_x = input_gradient(gradient, x, weight, ctx.stride) if needs_x else None
        to_weight = kernel_gradient(gradient, x, weight, ctx.stride) if needs_weight else None
        return to_x, to_weight, gradient.sum((0, 2, 3)) if needs_bias else None, None


def input_gradient(gradient: Tensor, x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Return the gradient of the input; that of a strided convolution in float32."""  # like x
    dtype = x.dtype if stride == 1 else torch.promote_types(x.dtype, torch.float32)
    found = _backward(gradient.to(dtype), x.to(dtype), weight.to(dtype), stride, (True, False))[0]
    return found.to(x.dtype)


def kernel_gradient(gradient: Tensor, x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Return the gradient of a kernel, in pieces of 3x3 that may overlap: each is that of a part of the input."""
    side, (height, width) = weight.shape[-1], gradient.shape[2:]
    if side <= SMALL:
        return _backward(gradient, x, weight, stride, (False, True))[1]
    found, piece = torch.empty_like(weight), weight[:, :, :SMALL, :SMALL].contiguous()
    rows, columns = (height - 1) * stride + SMALL, (width - 1) * stride + SMALL
    places = [*range(0, side - SMALL, SMALL - 1), side - SMALL]
    for top in places:
        for left in places:
            part = x[:, :, top : top + rows, left : left + columns].contiguous(memory_format=torch.channels_last)
            here = _backward(gradient, part, piece, stride, (False, True))[1]
            found[:, :, top : top + SMALL, left : left + SMALL] = here
    return found


def _backward(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: int, wanted: tuple[bool, bool]
) -> tuple[Tensor, Tensor]:
    """Return the library's gradients of the input and of the kernel, those that are wanted."""
    to_x, to_weight, _ = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, [stride] * 2, [0, 0], [1, 1], False, [0, 0], len(weight), [*wanted, False]
    )
    return to_x, to_weight
