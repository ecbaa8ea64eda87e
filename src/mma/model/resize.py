"""Scaling images as training does, to the last bit, in operations that an ONNX file can hold.

Pillow (Lanczos, for networks on pixels) and torch (bicubic, for backbones) scale bytes alike: first along the rows, then along
the columns; the weights of each new pixel add up to one and are rounded to whole numbers, and so is the result of each pass. A
pass is then a product with a matrix that follows from the two sizes. Products and sums of such whole numbers are exact in
float64, so nothing depends on who multiplies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

Filter = Literal["lanczos", "bicubic"]
LONG, SHORT = (
    22,
    15,
)  # bits of a weight: those of Pillow; those that torch has room for, as many as the largest weight fits


class Resize(nn.Module):
    """Scale images of any size to one size."""

    def __init__(self, size: tuple[int, int], filter: Filter) -> None:
        super().__init__()
        self.size, self.filter = size, filter

    def forward(self, images: Tensor) -> Tensor:
        """Return whole numbers from 0 to 255."""  # (B, C, H, W) -> (B, C, height, width), float64
        height, width = self.size
        columns, column_unit = weights(images.shape[3], width, self.filter)
        images = round_off(images.double() @ columns.T, column_unit)
        rows, row_unit = weights(images.shape[2], height, self.filter)
        return round_off(rows @ images, row_unit)


def round_off(sums: Tensor, unit: Tensor) -> Tensor:
    """Divide by what the weights add up to, round, and stay within a byte."""
    return torch.floor((sums + unit / 2) / unit).clamp(0, 255)


def weights(old: int, new: int, filter: Filter) -> tuple[Tensor, Tensor]:
    """Return the weight of each old pixel in each new one, as whole numbers, and what stands for one."""  # (new, old), ()
    shape, reach = FILTERS[filter]
    place = torch.arange(old, dtype=torch.float64)[None]
    scale = (place[:, -1:] + 1.0) / new  # old / new, as a matrix: a number alone would become float32
    wide = scale.clamp(min=1.0)  # where images shrink, the filter grows: this is the antialiasing
    centre = (torch.arange(new, dtype=torch.float64)[:, None] + 0.5) * scale
    begin, end = (torch.floor(centre + side * reach * wide + 0.5) for side in (-1, 1))
    inside = (place >= begin) & (place < end)
    value = torch.where(inside, shape((place - centre + 0.5) * (torch.ones_like(wide) / wide)), 0.0)
    value = value / value.sum(1, keepdim=True)
    unit = torch.tensor(2.0**LONG, dtype=torch.float64) if filter == "lanczos" else fitting_unit(value.max())
    exact = value * unit
    return torch.where(exact < 0, torch.ceil(exact - 0.5), torch.floor(exact + 0.5)), unit


def fitting_unit(largest: Tensor) -> Tensor:
    """Return the power of two, at most 2 ** 22, that keeps the largest weight below 2 ** 15."""
    tried = torch.tensor([2.0**bits for bits in range(1, LONG + 1)], dtype=torch.float64)
    return torch.where(torch.floor(largest * tried + 0.5) < 2.0**SHORT, tried, 1.0).max()


def lanczos(x: Tensor) -> Tensor:
    """A sinc in the window of a three times wider one."""
    inside = (x >= -3.0) & (x < 3.0)
    return torch.where(inside, sinc(x) * sinc(x / 3.0), 0.0)


def sinc(x: Tensor) -> Tensor:
    """Return sin(pi x) / (pi x)."""
    x = x * math.pi
    return torch.where(x == 0.0, 1.0, torch.sin(x) / torch.where(x == 0.0, 1.0, x))


def bicubic(x: Tensor) -> Tensor:
    """Keys' cubic with a = -1/2."""
    x, a = x.abs(), -0.5
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, 0.0))


FILTERS: dict[Filter, tuple[Callable[[Tensor], Tensor], float]] = {"lanczos": (lanczos, 3.0), "bicubic": (bicubic, 2.0)}
