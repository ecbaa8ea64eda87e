"""A network of your own: its settings, its layers, and (if you want) its initial weights.

mma --use docs/examples/own_network.py train digits --set net=dense --set net.width=128
"""

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from mma.nets import NETS, Net, Shape


class Dense(Net):
    """Fields are settings: --set net.width=128."""

    name: Literal["dense"] = "dense"
    width: int = Field(64, gt=0)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return the module for images of this shape: (height, width, channels)."""
        height, width, channels = shape
        return DenseNet(height * width * channels, self.width, classes)

    # reset(module, rng) draws the initial weights. The one of `Net` treats dense layers and convolutions as the paper does.


class DenseNet(nn.Module):
    """Queries look at features(), training at the logits: forward(x) must be head(features(x))."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, width)
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return one embedding per image."""  # (B, C, H, W) in [-1, 1] -> (B, width)
        return self.hidden(x.flatten(1)).relu()

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""  # (B, classes)
        return self.head(self.features(x))


NETS["dense"] = Dense
