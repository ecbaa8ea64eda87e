"""Networks: settings, `build` and `reset`; `features(x)` gives embeddings, `head` turns them into logits."""

from __future__ import annotations

from mma.nets.head import Head, HeadNet
from mma.nets.network import GroupedNetwork, Net, Network, Shape, initialise, without_embeddings
from mma.nets.small import Fast, Small, SmallNet
from mma.nets.tuned import Tuned, TunedLite0, TunedMobileNetV2, TunedNet
from mma.nets.wrn import SameConv2d, WideResNet, Wrn

__all__ = ["NETS", "Fast", "GroupedNetwork", "Head", "HeadNet", "Net", "Network", "SameConv2d", "Shape", "Small"]
__all__ += ["SmallNet", "Tuned", "TunedLite0", "TunedNet", "WideResNet", "Wrn", "initialise", "without_embeddings"]

NETS: dict[str, type[Net]] = {
    "wrn": Wrn,
    "small": Small,
    "fast": Fast,
    "head": Head,
    "lite0": TunedLite0,
    "mobilenetv2": TunedMobileNetV2,
}
