"""3x3 convolutions of small maps with a quarter of the multiplications (Winograd's minimal filtering, arXiv:1509.09308).

A tile of 4x4 outputs needs 6x6 inputs. Transformed, both become 36 numbers per channel, and the convolution a product of
matrices for each of the 36: 2.25 multiplications per output and pair of channels instead of 9. The transforms themselves
are products with small matrices, so everything here is matrix multiplication, also the way back: all gradients are those
of matrix products. Rounding grows about tenfold over the direct convolution, to some 1e-5 of a typical output.

    y = A (B x * G w) A'          for each tile; A, B and G act on rows and on columns alike
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE, TAPS = 4, 3
POINTS = TILE + TAPS - 1
KEPT = 2 << 20  # numbers of an input up to which its transform, 2.25 times as large, is kept for the way back

# Interpolation at 0, 1, -1, 2, -2 and infinity.
INPUT = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0]]
INPUT += [[0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]
KERNEL = ((6, 0, 0), (-4, -4, -4), (-4, 4, -4), (1, 2, 4), (1, -2, 4), (0, 0, 24))  # times 24
OUTPUT = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))

_on = ContextVar("winograd", default=True)


@contextmanager
def switched_off() -> Iterator[None]:
    """Let every convolution be direct: to count operations, or to compare."""
    token = _on.set(False)
    try:
        yield
    finally:
        _on.reset(token)


def worthwhile(x: Tensor, weight: Tensor) -> bool:
    """Whether this beats the direct convolution: on a CPU with many channels on small maps (`bench/share.py`).

    On maps of 16 x 16 it gained a little on processors with narrow vector units, and lost two thirds on one with wide ones.
    """
    (out, channels, *kernel), side = weight.shape, x.shape[2]
    return (
        not torch.compiler.is_compiling()  # first: the compiler cannot follow what comes next
        and _on.get()
        and kernel == [TAPS, TAPS]
        and min(out, channels) >= max(64, 8 * side)
        and x.shape[3] == side
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
    )


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the 3x3 convolution of square maps with zeros around them, at stride 1."""
    y: Tensor = _Winograd.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y


class _Winograd(torch.autograd.Function):
    """Transform, multiply, transform back; `backward` is the same with every matrix transposed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # (B, C, S, S), (out, C, 3, 3), (out,) -> (B, out, S, S)
        _, gather = _matrices(x.shape[2], x.dtype)
        out, channels = weight.shape[:2]
        taps = weight.permute(2, 3, 1, 0).reshape(TAPS**2, -1)  # (9, C * out)
        kernels = (_kernel_matrix(weight) @ taps).view(-1, channels, out)  # (36, C, out)
        inputs = _inputs(x)  # (tiles, 36, tiles * B, C)
        ctx.large = x.numel() > KEPT
        ctx.save_for_backward(x if ctx.large else inputs, kernels)
        return _maps_last(_transformed(gather, _products(inputs, kernels)), len(x), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        kept, kernels = ctx.saved_tensors
        spread, gather = (tuple(m.T for m in pair) for pair in _matrices(dy.shape[2], dy.dtype))
        given = _points(_transformed(gather, _maps_first(dy)), dy.shape[1])  # (tiles, 36, tiles * B, out)
        dx = dweight = None
        dbias = dy.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None
        if ctx.needs_input_grad[0]:
            dx = _maps_last(_transformed(spread, _products(given, kernels.transpose(1, 2))), len(dy))
        if ctx.needs_input_grad[1]:
            inputs = _inputs(kept) if ctx.large else kept
            dkernels = torch.zeros_like(kernels)
            for known, wanted in zip(inputs, given, strict=True):
                dkernels.baddbmm_(known.transpose(1, 2), wanted)
            taps = _kernel_matrix(dkernels).T @ dkernels.view(POINTS**2, -1)  # (9, C * out)
            dweight = taps.view(TAPS, TAPS, *dkernels.shape[1:]).permute(3, 2, 0, 1)
        return dx, dweight, dbias


Pair = tuple[Tensor, ...]  # a matrix for the rows of a map, and one for its columns


@lru_cache
def _matrices(side: int, dtype: torch.dtype) -> tuple[Pair, Pair]:
    """Return what spreads maps into points and what gathers maps from points, all tiles of a row at once.

    The points of rows are ordered (tile, point) and those of columns (point, tile), so that in the end the two point
    numbers lie side by side, and the tiles of a row beside the images.
    """
    tiles = -(-side // TILE)  # the last may reach over the border
    spread = torch.zeros(tiles, POINTS, tiles * TILE + 2, dtype=torch.float64)  # with the zeros around the map
    gather = torch.zeros(tiles * TILE, tiles, POINTS, dtype=torch.float64)
    for t in range(tiles):
        spread[t, :, t * TILE : t * TILE + POINTS] = torch.tensor(INPUT)
        gather[t * TILE : (t + 1) * TILE, t] = torch.tensor(OUTPUT)
    spread, gather = spread[:, :, 1 : side + 1], gather[:side]
    rows = spread.reshape(-1, side), gather.reshape(side, -1)
    columns = spread.transpose(0, 1).reshape(-1, side), gather.transpose(1, 2).reshape(side, -1)
    first, second = ((r.to(dtype), c.to(dtype)) for r, c in zip(rows, columns, strict=True))
    return first, second


def _maps_first(x: Tensor) -> Tensor:
    """Bring images into the order (row, column, image and channel)."""  # (B, C, S, S) -> (S, S, B * C)
    return x.permute(2, 3, 0, 1).reshape(*x.shape[2:], -1)


def _maps_last(maps: Tensor, batch: int, bias: Tensor | None = None) -> Tensor:
    """Undo `_maps_first` and add the bias; the memory is channels-last."""  # (S, S, B * C) -> (B, C, S, S)
    apart = maps.view(*maps.shape[:2], batch, -1)  # (S, S, B, C)
    images = torch.empty_like(apart.permute(2, 3, 0, 1), memory_format=torch.channels_last)
    torch.add(apart, 0 if bias is None else bias, out=images.permute(2, 3, 0, 1))
    return images


def _transformed(pair: Pair, maps: Tensor) -> Tensor:
    """Multiply the columns and the rows of every map by their matrices."""  # (R, C, X) -> (R', C', X)
    rows, columns = pair
    wide = torch.bmm(columns.expand(len(maps), -1, -1), maps)  # (R, C', X)
    return torch.mm(rows, wide.view(len(maps), -1)).view(len(rows), *wide.shape[1:])


def _inputs(x: Tensor) -> Tensor:  # (B, C, S, S) -> (tiles, 36, tiles * B, C)
    spread, _ = _matrices(x.shape[2], x.dtype)
    return _points(_transformed(spread, _maps_first(x)), x.shape[1])


def _points(maps: Tensor, channels: int) -> Tensor:
    """View (tiles * 6, 6 * tiles, B * C) as (tiles, 36, tiles * B, C)."""
    return maps.view(len(maps) // POINTS, POINTS**2, -1, channels)


def _products(points: Tensor, kernels: Tensor) -> Tensor:
    """Multiply each of the 36 points by its kernel and return maps."""  # (T, 36, T * B, C) -> (T * 6, 6 * T, B * out)
    out = points.new_empty(*points.shape[:3], kernels.shape[2])
    for part, result in zip(points, out, strict=True):
        torch.bmm(part, kernels, out=result)
    return out.view(len(out) * POINTS, POINTS * len(out), -1)


def _kernel_matrix(like: Tensor) -> Tensor:
    """Return what turns nine taps into 36 points."""  # (36, 9)
    g = torch.tensor(KERNEL, dtype=torch.float64) / 24
    return torch.kron(*[g.to(like.dtype)] * 2)
