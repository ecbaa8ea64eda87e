"""Several backbones as one: their vectors side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import SerializeAsAny
from torch import Tensor, nn

from mma.features.backbone import Backbone


class Joined(Backbone):
    """`lite0+hog`. Each part is scaled to length 1 first.

    Otherwise the part with the larger numbers would decide every distance, and the other would be there for nothing.
    """

    name: Literal["joined"] = "joined"
    parts: tuple[SerializeAsAny[Backbone], ...]

    def load(self) -> nn.Module:
        """Return a network that takes images at the largest side and scales them down for the other parts."""
        return JoinedNetwork([part.load() for part in self.parts], [part.side for part in self.parts])

    def weights(self) -> tuple[str, ...]:
        """Return the digests of the parts."""
        return tuple(part.digest() for part in self.parts)

    def identity(self) -> dict[str, Any]:
        """Return nothing of its own but the kind: the digests of the parts say the rest."""
        return {"name": self.name}

    def resolve(self) -> Joined:
        """Resolve every part."""
        return self.model_copy(update={"parts": tuple(part.resolve() for part in self.parts)})

    def label(self) -> str:
        """Return the labels of the parts with + between them."""
        return "+".join(part.label() for part in self.parts)


class JoinedNetwork(nn.Module):
    """The parts side by side, as one module: for new images at one size."""

    def __init__(self, networks: Sequence[nn.Module], sides: Sequence[int]) -> None:
        super().__init__()
        self.networks, self.sides = nn.ModuleList(networks), tuple(sides)

    def forward(self, images: Tensor) -> Tensor:
        """Return the parts' vectors, each of length 1."""  # (B, side, side, 3) -> (B, sum of D)
        return torch.cat(
            [F.normalize(net(shrink(images, side))) for net, side in zip(self.networks, self.sides, strict=True)], 1
        )


def shrink(images: Tensor, side: int) -> Tensor:
    """Scale images with antialiasing."""  # (B, H, W, 3) -> (B, side, side, 3)
    if images.shape[1] == side:
        return images
    small = F.interpolate(images.permute(0, 3, 1, 2), (side, side), mode="bicubic", antialias=True, align_corners=False)
    return small.permute(0, 2, 3, 1)


def join(parts: Sequence[NDArray[np.float16]]) -> NDArray[np.float16]:
    """Scale each part to length 1 and put them side by side. (..., D) each -> (..., sum of D)"""
    return np.concatenate([unit(part.astype(np.float32)) for part in parts], axis=-1).astype(np.float16)


def unit(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors to length 1; those of length 0 stay."""
    length = np.sqrt(np.einsum("...d,...d->...", values, values))[..., None]
    scaled: NDArray[np.float32] = values / np.maximum(length, np.float32(1e-12))
    return scaled
