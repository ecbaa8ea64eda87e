"""An image to classify, whatever it comes as: a file, an array, or an image of Pillow."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mma.data.photos import FORMATS, check_file

Opener = Callable[[], Image.Image]  # opens the image anew each time: a decoded one cannot be decoded at another size
Given = Path | str | np.ndarray | Image.Image


def opener(given: Given, root: Path | None = None) -> Opener:
    """Return what opens an image. A file must lie below `root` where one is given. Nothing is decoded yet."""
    if isinstance(given, (str, Path)):
        return _file_opener(Path(given), root)
    if isinstance(given, Image.Image):
        return given.copy
    image = image_of_array(given)
    return image.copy


def _file_opener(path: Path, root: Path | None) -> Opener:
    if root is None:
        if not path.exists():
            raise ValueError("there is no such file")
        if path.is_dir():
            raise ValueError("it is a folder, and mma.predict_folder classifies those")
        path = path.resolve(strict=True)
        root = path.parent
    check_file(path, root)
    data = path.read_bytes()
    return lambda: Image.open(io.BytesIO(data), formats=FORMATS)


def image_of_array(array: Any) -> Image.Image:
    """Return an array as an image: (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) with alpha, uint8 or uint16."""
    array = np.asarray(array)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    plain = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    if not plain or 0 in array.shape:
        raise ValueError(
            f"an array of shape {array.shape} is no image. Images are (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), and many "
            "images of one size are (N, H, W, C): channels come last"
        )
    if array.dtype == np.uint16:
        array = (array // 257).astype(np.uint8)  # as 16-bit files are read
    if array.dtype != np.uint8:
        raise ValueError(f"an array of type {array.dtype} is no image. Convert it to uint8, from 0 to 255")
    return Image.fromarray(np.ascontiguousarray(array))
