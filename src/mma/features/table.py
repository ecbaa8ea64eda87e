"""All backbones, and how they are written: lite0, lite0@96, lite0/float32, hf:DIR, onnx:FILE, lite0+hog."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import SerializeAsAny, ValidationError

from mma.errors import UserError
from mma.extensions import load_plugin
from mma.features.backbone import Backbone
from mma.features.hf import HuggingFace
from mma.features.hog import Hog
from mma.features.onnx import Onnx
from mma.features.pretrained import Lite0, MobileNetV2
from mma.settings import explain, no_entry


class Joined(Backbone):
    """`lite0+hog`: several backbones, each computed and stored by itself. Views and models put their vectors side by side."""

    name: Literal["joined"] = "joined"
    members: tuple[SerializeAsAny[Backbone], ...]

    @property
    def parts(self) -> tuple[Backbone, ...]:
        """The backbones it is made of."""
        return self.members

    def weights(self) -> tuple[str, ...]:
        """Return the digests of the parts."""
        return tuple(part.digest() for part in self.members)

    def identity(self) -> dict[str, Any]:
        """Return nothing of its own but the kind: the digests of the parts say the rest."""
        return {"name": self.name}

    def resolve(self) -> Joined:
        """Resolve every part."""
        return self.model_copy(update={"members": tuple(part.resolve() for part in self.members)})

    def label(self) -> str:
        """Return the labels of the parts with + between them."""
        return "+".join(part.label() for part in self.members)


def unit(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors to length 1; those of length 0 stay."""
    length = np.sqrt(np.einsum("...d,...d->...", values, values))[..., None]
    scaled: NDArray[np.float32] = values / np.maximum(length, np.float32(1e-12))
    return scaled


DEFAULT = "lite0"
BACKBONES: dict[str, type[Backbone]] = {
    "hog": Hog,
    "lite0": Lite0,
    "mobilenetv2": MobileNetV2,
    "hf": HuggingFace,
    "onnx": Onnx,
}


def parse_backbone(text: str) -> Backbone:
    """Read a backbone as people write it. Other settings are given in code: `Hog(cell=6)`."""
    parts: list[Backbone] = []
    for each in text.split("+"):
        match = re.fullmatch(
            r"(?P<name>[^:@/]*)(:(?P<place>.*?))?(@(?P<side>[0-9]+))?(/(?P<precision>float32|bfloat16))?", each
        )
        if match is None or not match["name"]:
            raise UserError(
                f"'{each}' is not a backbone. Write NAME, NAME@SIDE, NAME@SIDE/PRECISION or KIND:PLACE@SIDE, with + between "
                "several: lite0, lite0@96+hog, lite0/float32, hf:DIR, onnx:FILE."
            )
        name = match["name"]
        load_plugin("mma.backbones", name, BACKBONES)
        if name not in BACKBONES:
            raise UserError(f"backbone: {no_entry(name, BACKBONES)}")
        takes_place = "place" in BACKBONES[name].model_fields
        if takes_place != bool(match["place"]):
            right = f"{name}:PLACE" if takes_place else name
            raise UserError(f"'{each}' is not a backbone. Write  {right}")
        settings = {key: int(value) if key == "side" else value for key, value in match.groupdict().items() if value}
        try:
            parts.append(BACKBONES[name].model_validate(settings))
        except ValidationError as error:
            raise UserError(f"backbone {each}: {explain(error)}") from None
    if len(parts) == 1:
        return parts[0]
    labels = [part.label() for part in parts]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise UserError(f"the backbone '{text}' names {', '.join(twice)} twice. Name each part once.")
    return Joined(side=max(part.side for part in parts), members=tuple(parts))


def is_pretrained(backbone: str) -> bool:
    """Return whether a backbone is a network that was trained on photos."""
    return backbone.partition("@")[0].partition("/")[0] != "hog"
