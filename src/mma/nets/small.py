"""A compact network for small images: 8x8 digits in milliseconds, 28x28 clothes in tens of them."""

from __future__ import annotations

from torch import Tensor, nn

from mma.nets.network import GroupedNetwork
from mma.nets.norm import GroupedBatchNorm2d
from mma.nets.wrn import BN_EPS, SameConv2d


class SmallNet(GroupedNetwork):
    """One 3x3 convolution per scale and one more at the last, pooling between, channels doubling; a mean; a dense head.

    Few operations count for more than few multiplications here: a second convolution at full size makes
    a step on 8x8 images a third longer and gains nothing on digits.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        side: int,
        *,
        filters: int = 16,
        bn_decay: float = 0.99,  # runs with this network are short: 0.999 would keep the initial values too long
        leak: float = 0.1,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for scale in range(scales(side)):
            layers += [nn.AvgPool2d(2)] if scale else []
            layers += _conv(inputs, filters << scale, bn_decay, leak)
            inputs = filters << scale
        self.trunk = nn.Sequential(*layers, *_conv(inputs, inputs, bn_decay, leak))
        self.head = nn.Linear(inputs, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the mean over the last maps."""  # (B, filters << (scales - 1))
        maps: Tensor = self.trunk(x)
        return maps.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""  # (B, classes)
        logits: Tensor = self.head(self.features(x))
        return logits


def scales(side: int) -> int:
    """Return how many scales fit: at most three; up to 31 pixels the last works on maps of 4 to 7."""
    return min(max(side.bit_length() - 2, 1), 3)


def _conv(inputs: int, outputs: int, bn_decay: float, leak: float) -> list[nn.Module]:
    """Return convolution, batch normalisation and activation; the bias is left to the normalisation."""
    return [
        SameConv2d(inputs, outputs, 3, bias=False),
        GroupedBatchNorm2d(outputs, eps=BN_EPS, momentum=1 - bn_decay),
        nn.LeakyReLU(leak, inplace=True),
    ]
