"""What networks are made of: initial values, batch normalisation of joined batches, dense layers in float32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from mma.errors import UserError


def initialise(net: nn.Module, rng: np.random.Generator) -> None:
    """Draw every trained parameter of `net` anew from `rng`, in place, and set running statistics back to their start.

    Convolutions and dense layers follow the paper's code. Any other module that owns parameters or running statistics is asked
    to `reset_parameters()`, with torch's own generator seeded from `rng`. A module whose parameters are all frozen stays.
    """
    with torch.no_grad():
        for name, module in net.named_modules():
            if is_frozen(module):
                continue
            if isinstance(module, _ConvNd):
                # Original: convolution kernels are normal with deviation sqrt(2 / (kernel area x filters)).
                _draw(module, math.sqrt(2 / (math.prod(module.kernel_size) * module.out_channels)), rng)
            elif isinstance(module, nn.Linear):
                # Original: dense kernels follow Glorot's normal rule, from a normal cut off at two deviations.
                # Differs: ours keeps the deviation and cuts nothing off, which is simpler and only changes the tails.
                _draw(module, math.sqrt(2 / (module.in_features + module.out_features)), rng)
            else:
                owned, buffers = list(module.parameters(recurse=False)), list(module.buffers(recurse=False))
                reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
                if reset is None and owned:
                    raise UserError(
                        f"cannot initialise {name or 'the network'}: {type(module).__name__} owns parameters but has no "
                        "reset_parameters(). Give it one that draws them, so that a run can be repeated from its seed."
                    )
                if reset is not None and (owned or buffers):  # containers own nothing
                    devices = sorted({parameter.get_device() for parameter in owned if parameter.is_cuda})
                    with torch.random.fork_rng(devices=devices):
                        torch.manual_seed(int(rng.integers(2**63)))
                        reset()


def is_frozen(module: nn.Module) -> bool:
    """Return whether a module owns parameters and none of them is trained."""
    owned = list(module.parameters(recurse=False))
    return bool(owned) and not any(parameter.requires_grad for parameter in owned)


def _draw(layer: _ConvNd | nn.Linear, deviation: float, rng: np.random.Generator) -> None:
    """Fill a kernel with normal values and its bias with zeros, each unless it is frozen."""
    values = rng.standard_normal(tuple(layer.weight.shape), dtype=np.float32) * np.float32(deviation)
    if layer.weight.requires_grad:
        layer.weight.copy_(torch.from_numpy(values))
    if layer.bias is not None and layer.bias.requires_grad:
        layer.bias.zero_()


class GroupedBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d`; with `groups` = G > 1 its batch is G equal batches joined.

    In training each of them is normalised by itself, and the first alone moves the running statistics: a step of MixMatch is
    several forwards, which share every convolution so.
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
