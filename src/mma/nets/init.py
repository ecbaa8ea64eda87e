"""Initial values of any network, as a function of a generator."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd


def initialise(net: nn.Module, rng: np.random.Generator) -> None:
    """Draw every trained parameter of `net` anew from `rng`, in place, and set running statistics back to their start.

    A module whose parameters are all frozen stays as it came, its running statistics too.

    Convolutions and dense layers follow the paper's code. Any other module that owns parameters or running statistics
    is asked to `reset_parameters()`, with torch's own generator seeded from `rng` and put back afterwards.
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
                _reset(name, module, rng)


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


def _reset(name: str, module: nn.Module, rng: np.random.Generator) -> None:
    """Let a module of another kind draw its own values, reproducibly; containers own nothing and are passed over."""
    owned, buffers = list(module.parameters(recurse=False)), list(module.buffers(recurse=False))
    reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    if reset is None and owned:
        raise ValueError(
            f"cannot initialise {name or 'the network'}: {type(module).__name__} owns parameters but has no "
            "reset_parameters(). Give it one that draws them, so that a run can be repeated from its seed."
        )
    if reset is not None and (owned or buffers):
        devices = sorted({p.get_device() for p in owned if p.is_cuda})
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(rng.integers(2**63)))
            reset()
