"""Networks: `features(x)` gives embeddings, `head` turns them into logits."""

from __future__ import annotations

from typing import Any

from torch import nn

from mma.nets.fast import FastNet
from mma.nets.init import initialise
from mma.nets.network import GroupedNetwork, Network, without_embeddings
from mma.nets.small import SmallNet
from mma.nets.wrn import SameConv2d, WideResNet

__all__ = [
    "NETS",
    "FastNet",
    "GroupedNetwork",
    "Network",
    "SameConv2d",
    "SmallNet",
    "WideResNet",
    "build",
    "initialise",
    "without_embeddings",
]


def build(name: str, channels: int, classes: int, side: int, **settings: Any) -> nn.Module:
    """Return the network called `name` for (channels, side, side) images; `settings` are its own keyword arguments."""
    if name not in NETS:
        raise ValueError(f"no network {name!r}. There are: {', '.join(NETS)}.")
    return NETS[name](channels, classes, side, **settings)


NETS: dict[str, type[nn.Module]] = {
    "wrn": WideResNet,
    "small": SmallNet,
    "fast": FastNet,
}
