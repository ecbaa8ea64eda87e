"""MobileNetV2 (arXiv:1801.04381), trained on ImageNet."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field
from torch import nn

from mma.features.backbone import Embedder, NetworkBackbone
from mma.features.pretrained import MOBILENETV2, ConvNorm, Inverted, MobileNetwork, load_state, load_weights

EPS = 1e-5
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of ImageNet, in units of 0..255
STEM, LAST = 32, 1280
# expansion, channels, repeats, stride
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class MobileNetV2(NetworkBackbone):
    """MobileNetV2: 2.2 million parameters, 1280 numbers."""

    name: Literal["mobilenetv2"] = "mobilenetv2"
    side: int = Field(default=160, ge=32, le=1024)

    def load(self) -> nn.Module:
        """Return the network with its normalisation folded."""
        return Embedder(self.network().fold(), MEAN, STD, self.resolve().precision or "float32")

    def network(self) -> MobileNetwork:
        """Return the network as it was trained, with its batch normalisation: a place to fine-tune from."""
        tensors = {rename(name): tensor for name, tensor in load_weights(MOBILENETV2, self.name).items()}
        return load_state(build(), tensors, MOBILENETV2.path)

    def weights(self) -> tuple[str, ...]:
        """Return the sha256 of the package's file."""
        return (MOBILENETV2.sha256,)


def build() -> MobileNetwork:
    """Return the network; weights are not set."""
    blocks, inputs = [], STEM
    for expand, outputs, repeats, first in STAGES:
        for repeat in range(repeats):
            stride = first if repeat == 0 else 1
            blocks.append(Inverted(inputs, outputs, 3, stride, expand, same=False, eps=EPS))
            inputs = outputs
    stem, last = ConvNorm(3, STEM, 3, 2, same=False, eps=EPS), ConvNorm(inputs, LAST, 1, same=False, eps=EPS)
    return MobileNetwork(stem, blocks, last)


def rename(name: str) -> str:
    """Translate a tensor's name in the file into ours: features.0 is the stem, 1..17 the blocks, 18 the last convolution.

    Inside a block, the parts are numbered: the first block, which does not expand, has one less.
    """
    match = re.fullmatch(r"features\.(\d+)\.(.+)\.(\w+)", name)
    if match is None:
        return name
    place, inside, tensor = int(match[1]), match[2], match[3]
    if place in (0, 18):
        return f"{'stem' if place == 0 else 'last'}.{'conv' if inside == '0' else 'norm'}.{tensor}"
    inside = inside.removeprefix("conv.")
    parts = {"0.0": "depthwise.conv", "0.1": "depthwise.norm", "1": "project.conv", "2": "project.norm"}
    if place > 1:
        parts = {"0.0": "expand.conv", "0.1": "expand.norm", "1.0": "depthwise.conv", "1.1": "depthwise.norm"}
        parts |= {"2": "project.conv", "3": "project.norm"}
    return f"blocks.{place - 1}.{parts[inside]}.{tensor}"
