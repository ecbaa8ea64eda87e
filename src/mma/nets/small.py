"""A compact network for small images: 8x8 digits in milliseconds, 28x28 clothes in tens of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from mma.nets.dense import Dense, mean_over_maps
from mma.nets.network import GroupedNetwork, Net, Shape
from mma.nets.norm import GroupedBatchNorm2d
from mma.nets.wrn import BN_EPS, LEAK, SameConv2d


class Small(Net):
    """A small network for small images and short runs."""

    name: Literal["small"] = "small"
    filters: int = Field(default=32, gt=0)
    bn_decay: float = Field(default=0.95, ge=0.0, lt=1.0)  # short runs cannot wait for 0.999

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return a network with one to three scales, as the longer side allows."""
        return SmallNet(shape, classes, self)


class SmallNet(GroupedNetwork):
    """One 3x3 convolution per scale and one more at the last, pooling between, channels doubling; a mean; a dense head.

    Few operations count for more than few multiplications here: a second convolution at full size makes
    a step on 8x8 images a third longer and gains nothing on digits.
    """

    def __init__(self, shape: Shape, classes: int, settings: Small) -> None:
        super().__init__()
        height, width, inputs = shape
        layers: list[nn.Module] = []
        for scale in range(scales(height, width)):
            layers += [nn.AvgPool2d(2)] if scale else []
            layers += _conv(inputs, settings.filters << scale, settings.bn_decay)
            inputs = settings.filters << scale
        self.trunk = nn.Sequential(*layers, *_conv(inputs, inputs, settings.bn_decay))
        self.head = Dense(inputs, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the mean over the last maps."""  # (B, filters << (scales - 1))
        maps: Tensor = self.trunk(x)
        return mean_over_maps(maps)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""  # (B, classes)
        logits: Tensor = self.head(self.features(x))
        return logits


def scales(height: int, width: int) -> int:
    """Return how many scales fit: at most three; up to 31 pixels the last works on maps of 4 to 7.

    A narrow image has as many as its shorter side can be halved: 1 x 8 pixels make one scale.
    """
    wanted = min(max(max(height, width).bit_length() - 2, 1), 3)
    return min(wanted, min(height, width).bit_length())


def _conv(inputs: int, outputs: int, bn_decay: float) -> list[nn.Module]:
    """Return convolution, batch normalisation and activation; the bias is left to the normalisation."""
    return [
        SameConv2d(inputs, outputs, 3, bias=False),
        GroupedBatchNorm2d(outputs, eps=BN_EPS, momentum=1 - bn_decay),
        nn.LeakyReLU(LEAK, inplace=True),
    ]
