"""Batch normalisation over one batch, or over several that lie one after another in one tensor.

A step of MixMatch is several forwards whose batches must be normalised apart. Joined into one tensor they share every
convolution; only the statistics are taken group by group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GroupedBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d`; with `groups` = G > 1 its batch is G equal batches joined.

    In training each of them is normalised by itself, and the first alone moves the running statistics.
    """

    groups = 1

    def forward(self, x: Tensor) -> Tensor:
        """Normalise."""  # (B, C, H, W)
        if self.groups == 1 or not self.training:
            return super().forward(x)
        first, *others = x.chunk(self.groups)
        parts = [super().forward(first)]
        parts += [F.batch_norm(part, None, None, self.weight, self.bias, True, 0.0, self.eps) for part in others]
        return torch.cat(parts)


@contextmanager
def in_groups(net: nn.Module, groups: int) -> Iterator[None]:
    """Let every `GroupedBatchNorm2d` of `net` take its batch for `groups` equal ones joined."""
    norms = [module for module in net.modules() if isinstance(module, GroupedBatchNorm2d)]
    for norm in norms:
        norm.groups = groups
    try:
        yield
    finally:
        for norm in norms:
            norm.groups = 1
