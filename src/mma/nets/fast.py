"""A network for an hour of a processor: shallow, wide, small maps."""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from mma.nets.network import GroupedNetwork
from mma.nets.norm import GroupedBatchNorm2d
from mma.nets.wrn import BN_EPS, SameConv2d


class FastNet(GroupedNetwork):
    """A stem and three stages, a 2x2 pooling after each but the last; a mean; a dense head.

    A stage is a convolution that doubles the channels and one that adds to its result. Each stage costs as much as the
    next, and none works at full size, where normalising and activating take longer than multiplying.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        side: int,  # any from 8 on: the maps follow
        *,
        filters: int = 32,
        bn_decay: float = 0.98,
        leak: float = 0.1,
    ) -> None:
        super().__init__()
        self.stem = SameConv2d(channels, filters, 3, bias=False)
        self.stem_bn = GroupedBatchNorm2d(filters, eps=BN_EPS, momentum=1 - bn_decay)
        self.leak = leak
        widths = [filters << scale for scale in range(4)]
        stages = [Stage(a, b, bn_decay, leak) for a, b in pairwise(widths)]
        self.stages = nn.ModuleList(stages)
        self.head = nn.Linear(widths[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the mean over the last maps."""  # (B, 8 x filters)
        # The stem pools before it normalises: a quarter of the work, and maxima commute with what follows.
        x = F.leaky_relu(self.stem_bn(F.max_pool2d(self.stem(x), 2)), self.leak, inplace=True)
        first, *others = self.stages
        x = first(x)
        for stage in others:
            x = stage(F.max_pool2d(x, 2))
        return x.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""  # (B, classes)
        logits: Tensor = self.head(self.features(x))
        return logits


class Stage(nn.Module):
    """Convolution, BN, LeakyReLU, twice; the second time added to what came in."""

    def __init__(self, inputs: int, outputs: int, bn_decay: float, leak: float) -> None:
        super().__init__()
        self.leak = leak
        self.widen = SameConv2d(inputs, outputs, 3, bias=False)
        self.bn1 = GroupedBatchNorm2d(outputs, eps=BN_EPS, momentum=1 - bn_decay)
        self.refine = SameConv2d(outputs, outputs, 3, bias=False)
        self.bn2 = GroupedBatchNorm2d(outputs, eps=BN_EPS, momentum=1 - bn_decay)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of the same sides."""  # (B, inputs, H, W) -> (B, outputs, H, W)
        x = F.leaky_relu(self.bn1(self.widen(x)), self.leak, inplace=True)
        out: Tensor = x + F.leaky_relu(self.bn2(self.refine(x)), self.leak, inplace=True)
        return out
