"""Histograms of oriented gradients (Dalal and Triggs, 2005): good for signs, glyphs and shapes, and nothing to load."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from mma.errors import UserError
from mma.features.backbone import Backbone

EPS = 1e-5
CLIP = 0.2  # of a normalised block: one strong edge must not hide the others


class Hog(Backbone):
    """Edge directions, counted in cells and normalised in overlapping blocks of cells."""

    name: Literal["hog"] = "hog"
    side: int = Field(default=64, ge=8, le=1024)
    cell: int = Field(default=8, ge=2)  # pixels
    block: int = Field(default=3, ge=1)  # cells; signs, 96 labels: 82 % with 2, 86 % with 3
    orientations: int = Field(default=9, ge=2)

    @model_validator(mode="after")
    def _one_block_fits(self) -> Hog:
        if self.side < self.cell * self.block:
            raise UserError(f"side {self.side} holds no block of {self.block} cells of {self.cell} pixels")
        return self

    def load(self) -> nn.Module:
        """Return the histograms as a module; it has no weights."""
        return HogNetwork(self)


class HogNetwork(nn.Module):
    """Gradient of the strongest channel, one histogram per cell, blocks normalised twice with clipping in between."""

    def __init__(self, settings: Hog) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, images: Tensor) -> Tensor:
        """Return the blocks of each image, row by row."""  # (B, side, side, 3) -> (B, blocks * block^2 * orientations)
        cells = self.histograms(images.permute(0, 3, 1, 2).float())  # (B, orientations, cells, cells)
        b = self.settings.block
        n = self.settings.side // self.settings.cell - b + 1  # blocks in a row
        shifted = [cells[:, :, i : i + n, j : j + n] for i in range(b) for j in range(b)]  # unlike unfold, ONNX has it
        x = torch.stack(shifted, 2).permute(0, 3, 4, 2, 1).flatten(3)  # (B, rows, columns, b * b * orientations)
        x = (x / (x.square().sum(3, keepdim=True) + EPS**2).sqrt()).clamp(max=CLIP)
        x = x / (x.square().sum(3, keepdim=True) + EPS**2).sqrt()
        return x.flatten(1)

    def histograms(self, x: Tensor) -> Tensor:
        """Sum the length of gradients by direction in each cell. Directions are unsigned: 0 to 180 degrees."""
        down = F.pad(x[:, :, 2:] - x[:, :, :-2], (0, 0, 1, 1))  # (B, 3, H, W): central differences, zero at the border
        right = F.pad(x[:, :, :, 2:] - x[:, :, :, :-2], (1, 1))
        square, strongest = (down * down + right * right).max(1, keepdim=True)  # whole numbers: ties are exact
        length = square.sqrt()
        down, right = down.gather(1, strongest), right.gather(1, strongest)
        right = torch.where(square == 0, 1.0, right)  # no gradient, no direction: elsewhere than here that may be NaN
        angle = torch.atan2(down, right).remainder(math.pi)
        n = self.settings.orientations
        bins = (angle * (n / math.pi)).long().clamp(max=n - 1)  # rounding may reach the end of the range
        votes = torch.zeros(x.shape[0], n, *x.shape[2:], device=x.device).scatter_(1, bins, length)
        return F.avg_pool2d(votes, self.settings.cell)
