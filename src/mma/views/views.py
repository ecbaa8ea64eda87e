"""What a network is shown of an image. The loop, the algorithms and the queries see images through this alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from mma.data import DataSet, Images
from mma.settings import Settings

Say = Callable[[str], None]


def keep_quiet(message: str) -> None:
    """Say nothing."""


class Views:
    """Plain, weakly augmented and strongly distorted views of images. `index` holds rows of the pool."""

    device: torch.device  # where the network is
    shape: Sequence[int]  # (height, width, channels) of an image, or the lengths of the parts of a feature vector
    names: Sequence[str] = ()  # what the parts of a feature vector are called; nothing for images
    chunk: int  # how many images to score in one forward

    def plain(self, index: np.ndarray) -> Tensor:
        """Return the images themselves."""  # (B, ...)
        raise NotImplementedError

    def weak(self, index: np.ndarray, rng: np.random.Generator) -> Tensor:
        """Return one weak view of each image."""
        raise NotImplementedError

    def distort(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """Turn weak views into strong ones."""
        raise NotImplementedError

    def strong(self, index: np.ndarray, rng: np.random.Generator) -> Tensor:
        """Return one strong view of each image."""
        return self.distort(self.weak(index, rng), rng)

    def for_images(self, images: Images) -> Views:
        """Return the same views of other images: of a test set, say."""
        raise NotImplementedError

    def at_step(self, step: int) -> Self:
        """Return the views that training sees at `step`."""
        return self


class ViewSettings(Settings):
    """How views are made; one class and one line in VIEWS each."""

    name: str
    kind: ClassVar[str]  # what a network must take: "images" or "features"
    mirror: bool = False  # a view may be its mirror image
    strong_labels: float = Field(default=0.0, ge=0.0, le=1.0)  # share of the labeled images that are shown distorted

    @property
    def early_share(self) -> float:
        """Share of the run's steps that are made with smaller inputs than the rest."""
        return 0.0

    def open(self, data: DataSet, device: torch.device, steps: int, say: Say = keep_quiet) -> Views:
        """Return the views of the pool, for a run of `steps` steps. `say` hears how far it is where that takes long."""
        raise NotImplementedError

    def digest(self) -> str | None:
        """Name what the views are made of beside the images, by its hash; None when that is nothing."""
        return None
