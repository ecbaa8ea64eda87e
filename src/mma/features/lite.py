"""EfficientNet-Lite (arXiv:1905.11946 without squeeze-and-excitation, with ReLU6), trained on ImageNet."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from mma.features.backbone import Embedder, NetworkBackbone
from mma.features.pretrained import (
    LITE0,
    LITE1,
    LITE2,
    ConvNorm,
    Inverted,
    MobileNetwork,
    WeightsFile,
    load_state,
    load_weights,
)

EPS = 1e-3
STEM, LAST = 32, 1280  # channels; the Lite variants do not widen these
# repeats, kernel, stride, expansion, channels
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class Lite(NetworkBackbone):
    """What the three sizes share."""

    file: ClassVar[WeightsFile]
    width: ClassVar[float] = 1.0
    depth: ClassVar[float] = 1.0

    def load(self) -> nn.Module:
        """Return the network with its normalisation folded. It was trained on (x - 127) / 128."""
        precision = self.resolve().precision or "float32"
        return Embedder(self.network().fold(), (127.0,) * 3, (128.0,) * 3, precision)

    def network(self) -> MobileNetwork:
        """Return the network as it was trained, with its batch normalisation: a place to fine-tune from."""
        tensors = {rename(name): tensor for name, tensor in load_weights(self.file, self.name).items()}
        return load_state(build(self.width, self.depth), tensors, self.file.path)

    def weights(self) -> tuple[str, ...]:
        """Return the sha256 of the package's file."""
        return (self.file.sha256,)


class Lite0(Lite):
    """EfficientNet-Lite0: 3.4 million parameters, 1280 numbers."""

    name: Literal["lite0"] = "lite0"
    side: int = Field(default=160, ge=32, le=1024)  # 224 takes twice the time for 1 or 2 points
    file: ClassVar[WeightsFile] = LITE0


class Lite1(Lite):
    """EfficientNet-Lite1: the same widths, deeper."""

    name: Literal["lite1"] = "lite1"
    side: int = Field(default=240, ge=32, le=1024)
    file: ClassVar[WeightsFile] = LITE1
    depth: ClassVar[float] = 1.1


class Lite2(Lite):
    """EfficientNet-Lite2: wider and deeper."""

    name: Literal["lite2"] = "lite2"
    side: int = Field(default=260, ge=32, le=1024)
    file: ClassVar[WeightsFile] = LITE2
    width: ClassVar[float] = 1.1
    depth: ClassVar[float] = 1.2


def build(width: float, depth: float) -> MobileNetwork:
    """Return the network with its widths and depths scaled; weights are not set."""
    blocks = [Inverted(*shape, same=True, eps=EPS) for shape in _blocks(width, depth)]
    stem = ConvNorm(3, STEM, 3, 2, same=True, eps=EPS)
    last = ConvNorm(_scale(STAGES[-1][-1], width), LAST, 1, same=True, eps=EPS)
    return MobileNetwork(stem, blocks, last)


def _blocks(width: float, depth: float) -> Iterator[tuple[int, int, int, int, int]]:
    inputs = STEM
    for number, (repeats, kernel, stride, expand, channels) in enumerate(STAGES):
        outputs = _scale(channels, width)
        fixed = number in (0, len(STAGES) - 1)  # the first and the last stage are not deepened
        for repeat in range(repeats if fixed else math.ceil(depth * repeats)):
            yield inputs, outputs, kernel, stride if repeat == 0 else 1, expand
            inputs = outputs


def _scale(channels: int, width: float) -> int:
    """Scale a number of channels to a multiple of 8, never down by more than a tenth."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


def rename(name: str) -> str:
    """Translate a tensor's name in the package's file into ours."""
    match = re.fullmatch(r"_blocks\.(\d+)\.(_\w+)\.(\w+)", name)
    if match is None:
        top = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "last.conv", "_bn1": "last.norm"}
        module, _, tensor = name.partition(".")
        return f"{top.get(module, module)}.{tensor}"
    block, module, tensor = match.groups()
    parts = {
        "_expand_conv": "expand.conv",
        "_bn0": "expand.norm",
        "_depthwise_conv": "depthwise.conv",
        "_bn1": "depthwise.norm",
        "_project_conv": "project.conv",
        "_bn2": "project.norm",
    }
    return f"blocks.{block}.{parts[module]}.{tensor}"
