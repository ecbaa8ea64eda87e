"""Several backbones as one: their vectors side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import SerializeAsAny, ValidationError
from torch import Tensor, nn

from mma.features.backbone import Backbone
from mma.features.hf import HuggingFace
from mma.features.hog import Hog
from mma.features.lite import Lite0, Lite1, Lite2
from mma.features.mobilenetv2 import MobileNetV2
from mma.features.onnx import Onnx
from mma.settings import explain, no_entry


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


# All backbones, and how they are written: lite0, lite0@96, lite0/float32, hf:DIR, onnx:FILE, lite0+hog.

DEFAULT = "lite0"
BACKBONES: dict[str, type[Backbone]] = {
    "hog": Hog,
    "lite0": Lite0,
    "lite1": Lite1,
    "lite2": Lite2,
    "mobilenetv2": MobileNetV2,
    "hf": HuggingFace,
    "onnx": Onnx,
}


def parse_backbone(text: str) -> Backbone:
    """Read a backbone as people write it. Other settings are given in code: `Hog(cell=6)`."""
    parts = [_parse_part(part) for part in text.split("+")]
    if len(parts) == 1:
        return parts[0]
    labels = [part.label() for part in parts]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise ValueError(f"the backbone '{text}' names {', '.join(twice)} twice. Name each part once.")
    return Joined(side=max(part.side for part in parts), parts=tuple(parts))


def _parse_part(text: str) -> Backbone:
    match = re.fullmatch(
        r"(?P<name>[^:@/]*)(:(?P<place>.*?))?(@(?P<side>[0-9]+))?(/(?P<precision>float32|bfloat16))?", text
    )
    if match is None or not match["name"]:
        raise ValueError(
            f"'{text}' is not a backbone. Write NAME, NAME@SIDE, NAME@SIDE/PRECISION or KIND:PLACE@SIDE, with + between "
            "several: lite0, lite0@96+hog, lite0/float32, hf:DIR, onnx:FILE."
        )
    name = match["name"]
    if name not in BACKBONES:
        raise ValueError(f"backbone: {no_entry(name, BACKBONES)}")
    kind = BACKBONES[name]
    takes_place = "place" in kind.model_fields
    if takes_place != bool(match["place"]):
        right = f"{name}:PLACE" if takes_place else name
        raise ValueError(f"'{text}' is not a backbone. Write  {right}")
    settings: dict[str, object] = {"place": match["place"]} if takes_place else {}
    if match["side"]:
        settings["side"] = int(match["side"])
    if match["precision"]:
        settings["precision"] = match["precision"]
    try:
        return kind.model_validate({"name": name, **settings})
    except ValidationError as error:
        raise ValueError(f"backbone {text}: {explain(error)}") from None
