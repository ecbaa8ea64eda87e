"""The last layers of a network, in float32 also where the rest computes in bfloat16."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dense(nn.Linear):
    """A dense layer whose logits are never rounded to bfloat16: guesses and queries hang on small differences of them."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""  # (B, inputs) -> (B, classes)
        if not torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype))


def mean_over_maps(maps: Tensor) -> Tensor:
    """Return the mean over the last maps, in float32 or better."""  # (B, C, H, W) -> (B, C)
    return maps.mean((2, 3), dtype=torch.promote_types(maps.dtype, torch.float32))
