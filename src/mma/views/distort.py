"""Strong augmentation: two random distortions and a grey square for each image, all images at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

OPS = 2  # distortions per image
SQUARE = 0.5  # the largest side of the grey square, as a share of the image's
ROTATE, SHEAR, MOVE = math.radians(30), 0.3, 0.3  # the largest angle, slope, and move as a share of the side


def distort(images: Tensor, generator: np.random.Generator) -> Tensor:
    """Return a strong view of each image, a function of the generator. Images are in [-1, 1], and stay there."""
    count = len(images)
    kind = generator.integers(0, len(WARPS) + len(COLOURS) + 1, (OPS, count))  # the last one leaves the image alone
    strength = generator.random((OPS, count), dtype=np.float32)
    sign = generator.choice(np.array([-1, 1], np.float32), (OPS, count))
    square = generator.random((3, count), dtype=np.float32)
    images = warp(images, kind, strength * sign)
    images = recolour(images, kind - len(WARPS), strength)
    return (images * uncovered(square, images)).contiguous(memory_format=torch.channels_last)


def warp(images: Tensor, kind: np.ndarray, strength: np.ndarray) -> Tensor:
    """Move, rotate and shear the images whose turn it is, all distortions of an image in one go; grey comes in."""
    rows = np.flatnonzero((kind < len(WARPS)).any(0))
    if not len(rows):
        return images.clone()
    matrix = identities(len(rows))
    for kinds, strengths in zip(kind[:, rows], strength[:, rows], strict=True):
        for number, transform in enumerate(WARPS):
            turn = np.flatnonzero(kinds == number)
            matrix[turn] = matrix[turn] @ transform(strengths[turn])
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


def identities(count: int) -> np.ndarray:
    """Return warps that change nothing."""  # (count, 3, 3)
    return np.tile(np.eye(3, dtype=np.float32), (count, 1, 1))


def rotate(strength: np.ndarray) -> np.ndarray:
    """Turn by up to 30 degrees."""
    matrix, angle = identities(len(strength)), strength * ROTATE
    matrix[:, 0, 0] = matrix[:, 1, 1] = np.cos(angle)
    matrix[:, 1, 0] = np.sin(angle)
    matrix[:, 0, 1] = -matrix[:, 1, 0]
    return matrix


def entry(row: int, column: int, largest: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the warp that puts a strength in one place of the matrix: a shear or a move."""

    def transform(strength: np.ndarray) -> np.ndarray:
        matrix = identities(len(strength))
        matrix[:, row, column] = strength * largest
        return matrix

    return transform


def blend(images: Tensor, other: Tensor, strength: Tensor) -> Tensor:
    """Go 5 to 95 % of the way from the image to another one."""
    return torch.lerp(images, other, 0.05 + 0.9 * strength)


def darken(images: Tensor, strength: Tensor) -> Tensor:
    """Towards black."""
    return blend(images, torch.full_like(images, -1.0), strength)


def fade(images: Tensor, strength: Tensor) -> Tensor:
    """Towards the image's mean grey: less contrast."""
    return blend(images, images.mean((1, 2, 3), keepdim=True).expand_as(images), strength)


def discolour(images: Tensor, strength: Tensor) -> Tensor:
    """Towards black and white."""
    return blend(images, images.mean(1, keepdim=True).expand_as(images), strength)


def blur(images: Tensor, strength: Tensor) -> Tensor:
    """Towards the mean of each pixel's neighbours."""
    return blend(images, F.avg_pool2d(images, 3, 1, 1, count_include_pad=False), strength)


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


WARPS: list[Callable[[np.ndarray], np.ndarray]] = [
    rotate,
    entry(0, 1, SHEAR),
    entry(1, 0, SHEAR),
    entry(0, 2, 2 * MOVE),  # coordinates go from -1 to 1
    entry(1, 2, 2 * MOVE),
]
COLOURS: list[Callable[[Tensor, Tensor], Tensor]] = [darken, fade, discolour, blur, stretch, posterize, solarize]
