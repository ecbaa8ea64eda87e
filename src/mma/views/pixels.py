"""Views of pixels: the image itself, shifted and mirrored, or distorted.

A strong view has two random distortions and a grey square; all images are distorted at once.
"""

# mypy: disable-error-code=override
# Views declare attributes, and some kinds of views compute theirs on first use.
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from mma.data import DataSet, Images
from mma.errors import UserError
from mma.views.views import Say, Views, ViewSettings, keep_quiet

OPS = 2  # distortions per image
SQUARE = 0.5  # the largest side of the grey square, as a share of the image's
ROTATE, SHEAR, MOVE = math.radians(30), 0.3, 0.3  # the largest angle, slope, and move as a share of the side
SCORED = 500  # images per forward when nothing is trained: inference needs no room for gradients
SCORED_PIXELS = SCORED * 32 * 32  # of all of them: larger images come in smaller batches


def distort(images: Tensor, generator: np.random.Generator) -> Tensor:
    """Return a strong view of each image, a function of the generator. Images are in [-1, 1], and stay there."""
    count = len(images)
    kind = generator.integers(0, len(WARPS) + len(COLOURS) + 1, (OPS, count))  # the last one leaves the image alone
    strength = generator.random((OPS, count), dtype=np.float32)
    sign = generator.choice(np.array([-1, 1], np.float32), (OPS, count))
    square = generator.random((3, count), dtype=np.float32)
    images = recolour(warp(images, kind, strength * sign), kind - len(WARPS), strength)
    return (images * uncovered(square, images)).contiguous(memory_format=torch.channels_last)


def warp(images: Tensor, kind: np.ndarray, strength: np.ndarray) -> Tensor:
    """Move, rotate and shear the images whose turn it is, all distortions of an image in one go; grey comes in."""
    rows = np.flatnonzero((kind < len(WARPS)).any(0))
    if not len(rows):
        return images.clone()
    nothing = np.tile(np.eye(3, dtype=np.float32), (len(rows), 1, 1))
    matrix = nothing.copy()
    for kinds, strengths in zip(kind[:, rows], strength[:, rows], strict=True):
        for number, transform in enumerate(WARPS):
            turn, change = kinds == number, nothing[kinds == number]
            transform(change, strengths[turn])
            matrix[turn] = matrix[turn] @ change
    where = torch.from_numpy(rows).to(images.device, non_blocking=True)
    chosen = images[where]
    affine = torch.from_numpy(matrix[:, :2]).to(images, non_blocking=True)
    grid = F.affine_grid(affine, list(chosen.shape), align_corners=False)
    sampled = F.grid_sample(chosen, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return images.index_copy(0, where, sampled)


def recolour(images: Tensor, kind: np.ndarray, strength: np.ndarray) -> Tensor:
    """Change the colours of the images whose turn it is, one distortion after the other, in place."""
    for kinds, strengths in zip(kind, strength, strict=True):
        for number, colour in enumerate(COLOURS):
            rows = np.flatnonzero(kinds == number)
            if len(rows):
                where = torch.from_numpy(rows).to(images.device, non_blocking=True)
                much = torch.from_numpy(strengths[rows]).to(images, non_blocking=True).view(-1, 1, 1, 1)
                images.index_copy_(0, where, colour(images[where], much))
    return images


def uncovered(square: np.ndarray, images: Tensor) -> Tensor:
    """Return zeros where the grey square of each image lies, ones elsewhere."""  # (B, 1, H, W)
    side, *centre = square
    inside = []
    for middle, pixels in zip(centre, images.shape[2:], strict=True):
        away = np.abs((np.arange(pixels, dtype=np.float32) + 0.5)[None] / pixels - middle[:, None])
        inside.append(torch.from_numpy(away < side[:, None] * (SQUARE / 2)).to(images.device, non_blocking=True))
    rows, columns = inside  # (B, H), (B, W)
    return 1.0 - (rows[:, None, :, None] & columns[:, None, None, :]).to(images.dtype)


def rotate(matrix: np.ndarray, strength: np.ndarray) -> None:
    """Turn by up to 30 degrees."""
    angle = strength * ROTATE
    matrix[:, 0, 0] = matrix[:, 1, 1] = np.cos(angle)
    matrix[:, 1, 0] = np.sin(angle)
    matrix[:, 0, 1] = -matrix[:, 1, 0]


def entry(row: int, column: int, largest: float) -> Callable[[np.ndarray, np.ndarray], None]:
    """Return the warp that puts a strength in one place of the matrix: a shear or a move."""

    def transform(matrix: np.ndarray, strength: np.ndarray) -> None:
        matrix[:, row, column] = strength * largest

    return transform


def towards(other: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the change of colours that goes 5 to 95 % of the way from an image to another one."""
    return lambda images, strength: torch.lerp(images, other(images), 0.05 + 0.9 * strength)


darken = towards(lambda images: torch.full_like(images, -1.0))
fade = towards(lambda images: images.mean((1, 2, 3), keepdim=True).expand_as(images))  # its mean grey: less contrast
discolour = towards(lambda images: images.mean(1, keepdim=True).expand_as(images))  # black and white
blur = towards(lambda images: F.avg_pool2d(images, 3, 1, 1, count_include_pad=False))


def stretch(images: Tensor, strength: Tensor) -> Tensor:
    """Spread each channel over the whole range."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return (images - low) / (high - low).clamp_min(1e-6) * 2 - 1


def posterize(images: Tensor, strength: Tensor) -> Tensor:
    """Leave 16 to 256 levels: cut off up to four of eight bits."""
    step = torch.exp2((strength * 5).floor()) / 127.5
    return (torch.floor((images + 1 + 1e-4) / step) * step - 1).clamp(-1, 1)


def solarize(images: Tensor, strength: Tensor) -> Tensor:
    """Turn around what is brighter than a threshold."""
    return torch.where(images >= 1 - 2 * strength, -images, images)


WARPS: list[Callable[[np.ndarray, np.ndarray], None]] = [rotate, entry(0, 1, SHEAR), entry(1, 0, SHEAR)]
WARPS += [entry(0, 2, 2 * MOVE), entry(1, 2, 2 * MOVE)]  # coordinates go from -1 to 1
COLOURS: list[Callable[[Tensor, Tensor], Tensor]] = [darken, fade, discolour, blur, stretch, posterize, solarize]


class PixelViews(ViewSettings):
    """Images as they are, shifted and mirrored."""

    name: Literal["pixels"] = "pixels"
    kind: ClassVar[str] = "images"
    shift: int = Field(default=4, ge=0)  # pixels a view may move
    small_side: int | None = Field(default=None, ge=8)  # pixels to which images are averaged down in the first steps
    small_share: float = Field(default=0.0, ge=0.0, le=1.0)  # share of the run's steps that are made so small

    @model_validator(mode="after")
    def _small_means_both(self) -> PixelViews:
        if (self.small_side is None) != (self.small_share == 0.0):
            raise UserError(
                "views.small_side and views.small_share go together: how small, and for what share of the steps. "
                "Write both:  --set views.small_side=16 --set views.small_share=0.5"
            )
        return self

    @property
    def early_share(self) -> float:
        """Share of the run's steps that are made with smaller images."""
        return self.small_share

    def open(self, data: DataSet, device: torch.device, steps: int, say: Say = keep_quiet) -> Pixels:
        """Return the views of the pool."""
        return pixel_views(data.train, device, self, steps)


@dataclass(frozen=True)
class Pixels(Views):
    """Images on the device that trains, or on the host when they do not fit. Inputs are (C, H, W) floats in [-1, 1]."""

    array: Tensor  # (N, H, W, C) uint8
    device: torch.device
    shift: int = 0  # pixels a view may move
    mirror: bool = False  # a view may be its mirror image
    side: int | None = None  # to which images are averaged down; None = not at all
    small_side: int | None = None  # the side in the first steps
    small_until: float = 0.0  # the step at which images take their own size

    @cached_property
    def shape(self) -> Sequence[int]:
        """Height, width and channels."""
        return tuple(self.array.shape[1:])

    @cached_property
    def chunk(self) -> int:
        """As many images as fit the processor's cache well."""
        height, width, _ = self.shape
        return max(min(SCORED, SCORED_PIXELS // (height * width)), 1)

    def plain(self, index: np.ndarray) -> Tensor:
        """Return the images themselves."""  # (B, C, H, W)
        return self._as_input(self.array[torch.from_numpy(index).to(self.array.device)])

    def weak(self, index: np.ndarray, rng: np.random.Generator) -> Tensor:
        """Return each image after a random shift that reflects at the border, perhaps mirrored."""  # (B, C, H, W)
        _, height, width, _ = self.array.shape
        count = len(index)
        rows = shifted_positions(height, rng.integers(-self.shift, self.shift + 1, count))  # (B, H)
        columns = shifted_positions(width, rng.integers(-self.shift, self.shift + 1, count))  # (B, W)
        if self.mirror:
            flip = rng.integers(0, 2, count, dtype=bool)
            columns[flip] = columns[flip, ::-1]
        home = self.array.device
        where = [torch.from_numpy(a).to(home, non_blocking=True) for a in (index, rows, columns)]
        return self._as_input(self.array[where[0][:, None, None], where[1][:, :, None], where[2][:, None, :]])

    def distort(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """Warp, recolour and cover a part of each image."""
        return distort(inputs, rng)

    def for_images(self, images: Images) -> Pixels:
        """Return the same views of other images."""
        return replace(self, array=on_device(images, self.device))

    def at_step(self, step: int) -> Pixels:
        """Return the views at the size that the network is trained with at `step`."""
        small = self.small_side is not None and step < self.small_until
        return replace(self, side=self.small_side) if small else self

    def _as_input(self, chosen: Tensor) -> Tensor:
        """Turn (B, H, W, C) bytes into (B, C, H, W) floats in [-1, 1]; the memory stays channels-last without a copy."""
        floats = chosen.to(self.device, non_blocking=True).to(torch.float32).mul_(1.0 / 127.5).sub_(1.0)
        return smaller(floats.permute(0, 3, 1, 2), self.side)


def pixel_views(images: Images, device: torch.device, settings: PixelViews, steps: int) -> Pixels:
    """Return the views of some images."""
    side = min(images.pixels.shape[1:3])
    if settings.shift >= side:
        raise UserError(
            f"views.shift={settings.shift} moves images of side {side} out of sight. Use  --set views.shift={side - 1}  "
            "at most."
        )
    array, until = on_device(images, device), settings.small_share * steps
    return Pixels(array, device, settings.shift, settings.mirror, small_side=settings.small_side, small_until=until)


def on_device(images: Images, device: torch.device) -> Tensor:
    """Bring images to the device, if they take at most half of the free memory there."""
    array = torch.from_numpy(images.pixels)
    fits = device.type == "cuda" and array.numel() < torch.cuda.mem_get_info(device)[0] // 2
    return array.to(device) if fits else array


def smaller(images: Tensor, side: int | None) -> Tensor:
    """Average images down to `side` pixels; smaller ones and None are left alone."""  # -> (B, C, side, side)
    return images if side is None or side >= max(images.shape[2:]) else F.adaptive_avg_pool2d(images, side)


def shifted_positions(side: int, offsets: np.ndarray) -> np.ndarray:
    """Return which pixel each position shows after a shift, reflecting at the border without repeating it. (B, side)"""
    last = max(side - 1, 1)
    positions = np.abs(np.arange(side)[None, :] + offsets[:, None])
    reflected = np.where(positions > last, np.abs(2 * last - positions), positions)
    shown: np.ndarray = np.minimum(reflected, side - 1)
    return shown
