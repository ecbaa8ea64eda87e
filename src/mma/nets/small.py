"""Networks for short runs on a processor: `small` for 8x8 digits and 28x28 clothes, `fast`, shallow and wide, for photos."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mma.errors import UserError
from mma.nets.network import Dense, GroupedBatchNorm2d, GroupedNetwork, Net, Shape, mean_over_maps
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

    Few operations count for more than few multiplications: a second convolution at full size takes a third longer on 8x8
    images and gains nothing on digits.
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

    def embed(self, x: Tensor) -> Tensor:
        """Return the mean over the last maps."""  # (B, filters << (scales - 1))
        return mean_over_maps(self.trunk(x))


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


WAVES = 2  # of a fixed first layer, at most so many over both sides and the channels together


class Fast(Net):
    """A shallow, wide network that pools early: the most accuracy for an hour of a processor."""

    name: Literal["fast"] = "fast"
    filters: int = Field(default=32, ge=8)  # of a learned first layer; the last has eight times as many
    stem: Literal["learned", "cosines"] = "learned"  # cosines = a fixed first layer that decorrelates patches
    mirrored: bool = False  # evaluate and score the pool by an image and its mirror image: twice the work there
    bn_decay: float = Field(default=0.98, ge=0.0, lt=1.0)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return the network; it pools three times, so images need a side of 8 or more."""
        if (side := min(shape[:2])) < 8:
            raise UserError(
                f"the network fast pools three times, so images of side {side} are too small. Use  --set net=small"
            )
        return FastNet(shape, classes, self)


class FastNet(GroupedNetwork):
    """A stem and three stages, a 2x2 pooling after each but the last; a mean; a dense head.

    A stage is a convolution that doubles the channels and one that adds to its result. Each stage costs as much as the
    next, and none works at full size, where normalising and activating take longer than multiplying.
    """

    def __init__(self, shape: Shape, classes: int, settings: Fast) -> None:
        super().__init__()
        filters, decay, self.mirrored = settings.filters, settings.bn_decay, settings.mirrored
        self.stem = Cosines(shape[2]) if settings.stem == "cosines" else SameConv2d(shape[2], filters, 3, bias=False)
        self.stem_bn = GroupedBatchNorm2d(self.stem.out_channels, eps=BN_EPS, momentum=1 - decay)
        widths = [self.stem.out_channels, *(filters << scale for scale in (1, 2, 3))]
        self.stages = nn.ModuleList([Stage(a, b, decay) for a, b in pairwise(widths)])
        self.head = Dense(widths[-1], classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the embeddings of images as they are."""  # (B, 8 x filters)
        # The stem pools before it normalises: a quarter of the work, and the same where the normalisation's weight is positive.
        x = F.leaky_relu(self.stem_bn(F.max_pool2d(self.stem(x), 2)), LEAK, inplace=True)
        for number, stage in enumerate(self.stages):
            x = stage(F.max_pool2d(x, 2) if number else x)
        return mean_over_maps(x)


class Cosines(nn.Module):
    """A first layer that has nothing to learn: 3x3 patches in a basis of cosines, each with its negative.

    The principal directions of patches of photos are close to such a basis (over red, green and blue it gives brightness
    and the two opponent colours), and the batch normalisation that follows makes their variances alike. So the layers
    behind see decorrelated inputs from the first step on, and learn faster. The fast waves carry little and are left out.
    """

    kernel: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        with torch.device("cpu"):  # also where a network is built without memory: what is slow depends on values
            across, along = cosines(channels), cosines(3)
            basis = torch.einsum("cz,ay,bx->cabzyx", across, along, along)  # (C, 3, 3, C, 3, 3): waves, then pixels
            waves = sum(torch.meshgrid(*map(torch.arange, basis.shape[:3]), indexing="ij"))  # (C, 3, 3)
            slow = basis[waves <= WAVES]
            kernel = torch.cat([slow, -slow]).contiguous(memory_format=torch.channels_last)
        self.register_buffer("kernel", kernel, persistent=False)  # the same for every run
        self.out_channels = len(kernel)

    def forward(self, x: Tensor) -> Tensor:
        """Return the coefficients of every patch and their negatives."""  # (B, C, H, W) -> (B, 20 for colours, H, W)
        return F.conv2d(x, self.kernel, padding=1)


def cosines(count: int) -> Tensor:
    """Return the orthonormal cosine basis of `count` values, from the mean to the fastest wave."""  # (count, count)
    waves = [[math.cos(math.pi * (place + 0.5) * wave / count) for place in range(count)] for wave in range(count)]
    return F.normalize(torch.tensor(waves, dtype=torch.float64)).float()


class Stage(nn.Module):
    """Convolution, BN, LeakyReLU, twice; the second time added to what came in."""

    def __init__(self, inputs: int, outputs: int, bn_decay: float) -> None:
        super().__init__()
        self.widen, self.bn1, _ = _conv(inputs, outputs, bn_decay)
        self.refine, self.bn2, _ = _conv(outputs, outputs, bn_decay)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of the same sides."""  # (B, inputs, H, W) -> (B, outputs, H, W)
        x = F.leaky_relu(self.bn1(self.widen(x)), LEAK, inplace=True)
        out: Tensor = x + F.leaky_relu(self.bn2(self.refine(x)), LEAK, inplace=True)
        return out
