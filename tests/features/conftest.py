"""Backbones, images and photos for the tests of this room; every test has a data folder of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from mma.data import DataSet, FolderOptions, get_folder
from mma.data.images import pixel_keys
from mma.features import ArrayImages, Backbone, PhotoFiles


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


class Means(nn.Module):
    """Mean colours of the four quarters, and a counter of the images seen."""

    seen = 0

    def forward(self, images: Tensor) -> Tensor:
        Means.seen += len(images)
        return nn.functional.adaptive_avg_pool2d(images.permute(0, 3, 1, 2).float(), 2).flatten(1)


class Tiny(Backbone):
    """A backbone of 12 numbers, as user code would write it."""

    name: Literal["tiny"] = "tiny"
    side: int = 16

    def load(self) -> nn.Module:
        return Means()


@pytest.fixture
def tiny() -> Tiny:
    return Tiny()


def noise(count: int, side: int = 12, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def array_images(count: int, side: int = 12, seed: int = 0) -> ArrayImages:
    pixels = noise(count, side, seed)
    return ArrayImages(pixels, pixel_keys(pixels))


def waves(side: int, number: int) -> NDArray[np.uint8]:
    """A picture with soft waves and hard edges, from a formula: the reference outputs were recorded on these."""
    y, x = np.mgrid[0:side, 0:side] / side
    waves = [np.sin(2 * np.pi * ((c + 1) * x * (number + 1) + (3 - c) * y * 1.5 + 0.3 * c * number)) for c in range(3)]
    image = 127.5 + 100 * np.stack(waves, -1)
    image[side // 4 : side // 2, side // 3 : 2 * side // 3] = [250, 20 * number, 40]
    return image.clip(0, 255).astype(np.uint8)


def save_photos(folder: Path, count: int) -> list[str]:
    for number in range(count):
        place = folder / "ab"[number % 2] / f"{number:03}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(1, 40, number)[0]).save(place)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))


@pytest.fixture
def photos(tmp_path: Path) -> PhotoFiles:
    """Forty photos of 40 x 40 pixels in a folder."""
    names = save_photos(tmp_path / "photos", 40)
    keys = [hashlib.sha256((tmp_path / "photos" / name).read_bytes()).digest() for name in names]
    return PhotoFiles((tmp_path / "photos").resolve(), names, np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 32))


@pytest.fixture
def folder_data(tmp_path: Path) -> DataSet:
    save_photos(tmp_path / "photos", 40)
    save_photos(tmp_path / "tests", 6)
    return get_folder(tmp_path / "photos", FolderOptions(name="mine", test=tmp_path / "tests"))


def batch(count: int, side: int) -> Tensor:
    return torch.from_numpy(noise(count, side))
