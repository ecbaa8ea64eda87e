"""The views of an image whose features are stored: itself, its mirror image, and a few crops."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from mma.rng import rng
from mma.settings import Settings

Box = tuple[float, float, float, float]  # left, top, width, height, as shares of the image


class StoredViews(Settings):
    """How many views of each image are stored. View 0 is the image, then its mirror image, then crops."""

    mirror: bool = False  # only where an image and its mirror image mean the same
    crops: int = Field(default=0, ge=0, le=64)
    smallest: float = Field(default=0.5, gt=0.0, le=1.0)  # share of the area that a crop keeps, at least

    def __len__(self) -> int:
        return 1 + self.mirror + self.crops

    def label(self) -> str:
        """Name the views in letters, digits and -, for the folder they are stored in."""
        crops = f"-crops{self.crops}" + (f"-{round(1000 * self.smallest)}" if self.smallest != 0.5 else "")
        return "plain" + ("-mirror" if self.mirror else "") + (crops if self.crops else "")

    def make(self, images: Tensor, keys: NDArray[np.uint8]) -> list[Tensor]:
        """Return each view of a batch. A crop is a function of the image's key and the crop's number alone."""
        views = [images]  # (B, side, side, 3) uint8
        if self.mirror:
            views.append(images.flip(2))
        for number in range(self.crops):
            boxes = [crop_box(bytes(key).hex(), number, self.smallest) for key in keys]
            views.append(cut(images, boxes))
        return views


def crop_box(key: str, number: int, smallest: float) -> Box:
    """Draw a crop: its area, its shape (3:4 to 4:3) and its place."""
    draw = rng(0, "crop", key, number)
    area, aspect = draw.uniform(smallest, 1.0), math.exp(draw.uniform(-1, 1) * math.log(4 / 3))
    width, height = min(1.0, math.sqrt(area * aspect)), min(1.0, math.sqrt(area / aspect))
    return draw.uniform(0, 1 - width), draw.uniform(0, 1 - height), width, height


def cut(images: Tensor, boxes: list[Box]) -> Tensor:
    """Cut a box out of each image and scale it up to the image's size."""  # (B, side, side, 3) uint8
    left, top, width, height = torch.tensor(boxes, dtype=torch.float32).T
    zero = torch.zeros_like(left)
    across = torch.stack([width, zero, 2 * left + width - 1], 1)  # grid coordinates run from -1 to 1
    down = torch.stack([zero, height, 2 * top + height - 1], 1)
    x = images.permute(0, 3, 1, 2).float()
    grid = F.affine_grid(torch.stack([across, down], 1), list(x.shape), align_corners=False)
    out = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return out.round().to(torch.uint8).permute(0, 2, 3, 1)
