"""Compare an exported file with the model it was made from, on real images of mixed sizes."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.config import config_of
from mma.data import Images, load_data
from mma.data.folder import list_files
from mma.data.photos import read_unscaled_photo
from mma.model.find import PROJECT, Origin
from mma.model.graph import in_float32
from mma.model.model import Model
from mma.model.onnx_file import load_onnx
from mma.rng import rng
from mma.run import Run

TOLERANCE = 1e-4  # the largest difference of a probability
OWN, BORROWED = 12, 8  # images of the model's own kind; pieces of scikit-learn's photos, for sizes that these lack
ENOUGH = 640  # pixels per side that a photo is decoded with here
Photo = NDArray[np.uint8]  # (H, W, 3)


@dataclass(frozen=True)
class Agreement:
    """How far an exported file is from the model."""

    images: int
    sizes: int  # different ones
    largest: float  # difference of a probability
    trained: float  # the same, against the arithmetic that the model was trained with
    same_answer: int  # images with the same most likely class as in that arithmetic


def compare(path: Path, model: Model, photos: Sequence[Photo]) -> Agreement:
    """Load an exported file back and run it; refuse it when it computes something else than the model."""
    found = load_onnx(path).predict(photos).probs
    exact, trained = in_float32(model).predict(photos).probs, model.predict(photos).probs
    largest = float(np.abs(found - exact).max())
    if not largest <= TOLERANCE:  # also for NaN
        raise ValueError(
            f"the ONNX file computes other probabilities than the model, by up to {largest:.1e} on {len(photos)} images. It "
            "was not exported. Export with  --to safetensors,labels  and report this."
        )
    same = int((found.argmax(1) == trained.argmax(1)).sum())
    sizes = len({photo.shape for photo in photos})
    return Agreement(len(photos), sizes, largest, float(np.abs(found - trained).max()), same)


def real_images(origin: Origin) -> list[Photo]:
    """Return real images to compare on: some of those that the model was made for, and pieces of other photos."""
    return [*own_images(origin), *borrowed_images()]


def own_images(origin: Origin) -> list[Photo]:
    """Return images of a run's data set or a project's folder; none where they are not there."""
    if origin.is_run:
        data = load_data(config_of(Run.open(origin.place)).data.name)
        return _of_data(data.test if len(data.test) else data.train)
    if origin.project is not None:
        settings = tomllib.loads((origin.project / PROJECT).read_text("utf-8"))
        folder = origin.project / str(settings.get("images", ""))
        return _of_files(folder.resolve(), _some(list_files(folder)[0])) if folder.is_dir() else []
    return []


def _of_data(images: Images) -> list[Photo]:
    if images.root is not None and images.names is not None and images.root.is_dir():
        return _of_files(images.root.resolve(), _some(images.names))
    rows = rng(0, "export").permutation(len(images))[:OWN]
    return [np.broadcast_to(images.pixels[row], (*images.shape[:2], 3)).copy() for row in rows]


def _of_files(root: Path, names: Sequence[str]) -> list[Photo]:
    found = []
    for name in names:
        try:
            found.append(read_unscaled_photo(root, name, ENOUGH)[0])
        except Exception:  # decoders raise anything at all; what cannot be read is nothing to compare on
            continue
    return found


def _some(names: Sequence[str]) -> list[str]:
    return [names[row] for row in np.sort(rng(0, "export").permutation(len(names))[:OWN])]


def borrowed_images() -> list[Photo]:
    """Return pieces of two photos that come with scikit-learn, from 1 x 1 pixel to a whole photo."""
    from sklearn.datasets import load_sample_images

    draw, photos = rng(0, "export", "pieces"), [np.asarray(image) for image in load_sample_images().images]
    pieces = [photos[0], photos[1][:1, :1]]
    for number in range(BORROWED - 2):
        photo = photos[number % 2]
        height, width = (int(draw.integers(8, side)) for side in photo.shape[:2])
        pieces.append(photo[:height, -width:])
    return [np.ascontiguousarray(piece) for piece in pieces]
