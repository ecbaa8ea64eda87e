"""Images at the size a backbone sees: from arrays or from the original photos, and the views of them that are stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from mma.data import DataSet, Images
from mma.data.cache import command_in_words
from mma.data.photos import SMALLEST, explain_bad_file, open_photo, unscaled_photo
from mma.errors import UserError
from mma.rng import rng
from mma.settings import Settings
from mma.text import printable

Rows = NDArray[np.int64]
Box = tuple[float, float, float, float]  # left, top, width, height, as shares of the image
CROPPED = 0.5  # share of the area that a crop keeps, at least
DECODED = 128  # pixels per side that a large JPEG is decoded with at least, also for a backbone that sees fewer


class ImageSource(Protocol):
    """Images that can be decoded at any size. Also yours: pass one to `features`."""

    @property
    def keys(self) -> NDArray[np.uint8]:
        """What identifies each image: a sha256. (N, 32)"""

    @property
    def content(self) -> str:
        """What a key stands for, in letters, digits and -: the same key may name a photo and its small copy."""

    def __len__(self) -> int: ...

    def decode(self, rows: Rows, side: int) -> NDArray[np.uint8]:
        """Return images squashed to a square. (B, side, side, 3)"""

    def take(self, rows: Rows) -> ImageSource:
        """Return a source of these images alone, small enough to send to another machine."""


class ArrayImages:
    """Images of one array, scaled to the size asked for."""

    def __init__(self, pixels: NDArray[np.uint8], keys: NDArray[np.uint8]) -> None:
        height, width, channels = pixels.shape[1:]
        if min(height, width) < SMALLEST or channels not in (1, 3):
            raise UserError(
                f"images of {height} x {width} pixels and {channels} channels are not for backbones: they need {SMALLEST} x "
                f"{SMALLEST} pixels at least, and 1 or 3 channels. Make the data set again with a larger --side."
            )
        self.pixels, self.keys = pixels, keys

    @property
    def content(self) -> str:
        """The size of the array's images."""
        return "pixels-" + "x".join(map(str, self.pixels.shape[1:]))

    def __len__(self) -> int:
        return len(self.pixels)

    def decode(self, rows: Rows, side: int) -> NDArray[np.uint8]:
        """Return the images of `rows`, scaled with antialiasing; grey becomes three equal channels."""
        images = squash(np.asarray(self.pixels[rows]), side)
        return images.repeat(3, axis=3) if images.shape[3] == 1 else images

    def take(self, rows: Rows) -> ArrayImages:
        """Copy the images of `rows`."""
        return ArrayImages(np.asarray(self.pixels[rows]), np.asarray(self.keys[rows]))


class PhotoFiles:
    """The original photos of a folder. Each is compared with its key every time it is read."""

    content = "files"

    def __init__(self, root: Path, names: Sequence[str], keys: NDArray[np.uint8], again: str | None = None) -> None:
        self.root, self.names, self.keys = root, tuple(names), keys
        self.again = again or "make the data set again:  mma data info NAME  shows the command."  # see `make_again`

    def __len__(self) -> int:
        return len(self.names)

    def decode(self, rows: Rows, side: int) -> NDArray[np.uint8]:
        """Read photos as the pool does, at this size. One that changed, moved or broke is an error that names it."""
        small = []
        for row in rows.tolist():
            name, remedy = printable(str(self.root / self.names[row])), f"Restore it, or {self.again}"
            try:
                with open_photo(self.root, self.names[row]) as (image, key):
                    photo = unscaled_photo(image, decoded_side(side))
            except Exception as error:  # decoders raise anything at all on broken bytes
                raise UserError(f"{name} cannot be read any more: {explain_bad_file(error)}. {remedy}") from error
            if not np.array_equal(key, self.keys[row]):
                was, now = bytes(self.keys[row]).hex(), bytes(key).hex()
                raise UserError(f"{name} has changed: its sha256 was {was} and is {now}. {remedy}")
            height, width = photo.shape[:2]
            if min(height, width) < SMALLEST:
                raise UserError(
                    f"{name} has {width} x {height} pixels, and backbones need {SMALLEST} x {SMALLEST} at least. Take it "
                    f"out of the folder and {self.again}"
                )
            small.append(squash_one(photo, side))
        return np.stack(small)

    def take(self, rows: Rows) -> PhotoFiles:
        """Return the photos of `rows`; whoever decodes them needs to reach the same folder."""
        return PhotoFiles(self.root, [self.names[row] for row in rows], np.asarray(self.keys[rows]), self.again)


def decoded_side(side: int) -> int:
    """Return how many pixels per side a large JPEG is decoded with. Its decoder halves an image well, and at no cost."""
    return max(side, DECODED)


def squash_one(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Scale one image to a square. (H, W, C) -> (side, side, C)"""
    # `image[None]` would have a stride of 0, which torch does not take for channels-last: the same bytes in twice the time.
    small: NDArray[np.uint8] = squash(image.reshape(1, *image.shape), side)[0]
    return small


def squash(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Scale images to a square, bicubic with antialiasing. (B, H, W, C) -> (B, side, side, C)"""
    if images.shape[1:3] == (side, side):
        return images
    x = torch.from_numpy(images).permute(0, 3, 1, 2)  # channels-last
    x = F.interpolate(x, (side, side), mode="bicubic", antialias=True, align_corners=False)
    return np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())


def make_again(data: DataSet) -> str:
    """Say how to make a data set again after its photos changed."""
    return f"make the data set again:  {command_in_words(data.name, data.options)}"


def image_source(images: Images, again: str | None = None) -> tuple[ImageSource, str]:
    """Return the best source of a data set's images, and a note where it is not the original photos.

    Photos are decoded at the backbone's size. Where their folder is gone, the small stored images are scaled up. `again` tells
    what to do about a photo that changed; see `make_again`.
    """
    stored = ArrayImages(images.pixels, images.keys)
    if images.root is None or images.names is None:
        return stored, ""
    if images.root.is_dir():
        return PhotoFiles(images.root.resolve(), images.names, images.keys, again), ""
    height, width, _ = images.shape
    return stored, (
        f"the photos are not in {printable(str(images.root))} any more, so features are computed from the stored images of "
        f"{height} x {width} pixels and are less accurate."
    )


class StoredViews(Settings):
    """How many views of each image are stored. View 0 is the image, then its mirror image, then crops."""

    mirror: bool = False  # only where an image and its mirror image mean the same
    crops: int = Field(default=0, ge=0, le=64)

    def __len__(self) -> int:
        return 1 + self.mirror + self.crops

    def label(self) -> str:
        """Name the views in letters, digits and -, for the folder they are stored in."""
        return "plain" + ("-mirror" if self.mirror else "") + (f"-crops{self.crops}" if self.crops else "")

    def make(self, images: Tensor, keys: NDArray[np.uint8]) -> list[Tensor]:
        """Return each view of a batch. A crop is a function of the image's key and the crop's number alone."""
        views = [images]  # (B, side, side, 3) uint8
        if self.mirror:
            views.append(images.flip(2))
        for number in range(self.crops):
            views.append(cut(images, [crop_box(bytes(key).hex(), number) for key in keys]))
        return views


def crop_box(key: str, number: int) -> Box:
    """Draw a crop: its area, its shape (3:4 to 4:3) and its place."""
    draw = rng(0, "crop", key, number)
    area, aspect = draw.uniform(CROPPED, 1.0), math.exp(draw.uniform(-1, 1) * math.log(4 / 3))
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
