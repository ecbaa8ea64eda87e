"""Networks of a user's own, for tests: adding an entry to the table is all it takes."""

from __future__ import annotations

import os
from typing import Literal

import torch
from torch import Tensor, nn

from mma.nets import NETS, Net, Shape


class Dense(nn.Module):
    """No batch normalisation: what it makes of an image does not depend on the images beside it."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        height, width, channels = shape
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class DenseNet(Net):
    name: Literal["test-dense"] = "test-dense"
    filters: int = 4  # the settings of the tests set it

    def build(self, shape: Shape, classes: int) -> nn.Module:
        return Dense(shape, classes)


class StartingNet(DenseNet):
    """Starts from the labels, and says so."""

    name: Literal["test-starting"] = "test-starting"

    def start_from(self, module: nn.Module, x: Tensor, y: Tensor) -> dict[str, object]:
        module.head.bias.copy_(torch.bincount(y, minlength=len(module.head.bias)).log1p())
        return {"labels": len(y)}


class UnevenNet(Net):
    """Another network in every process."""

    name: Literal["test-uneven"] = "test-uneven"
    filters: int = 4  # the settings of the tests set it

    def build(self, shape: Shape, classes: int) -> nn.Module:
        net = Dense(shape, classes)
        net.register_buffer("mine", torch.tensor([float(os.environ.get("RANK", 0))]))
        return net


class FlatNet(Net):
    """Logits alone, without features() and head."""

    name: Literal["test-flat"] = "test-flat"
    filters: int = 4  # the settings of the tests set it

    def build(self, shape: Shape, classes: int) -> nn.Module:
        height, width, channels = shape
        return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))


class HalfFrozenNet(Net):
    """A first layer with batch normalisation that stays as it came, and a head that is trained."""

    name: Literal["test-half-frozen"] = "test-half-frozen"
    filters: int = 4  # the settings of the tests set it
    fill: float = 0.1  # what the frozen weights are made of

    def build(self, shape: Shape, classes: int) -> nn.Module:
        net = Dense(shape, classes)
        height, width, channels = shape
        net.body = nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 32), nn.BatchNorm1d(32), nn.ReLU())
        weights = torch.linspace(-self.fill, self.fill, net.body[1].weight.numel())
        net.body[1].weight.data.copy_(weights.view_as(net.body[1].weight))
        net.body[1].bias.data.zero_()
        net.body[2].weight.data.fill_(0.7)
        net.body[2].running_mean.fill_(0.3)
        for parameter in net.body.parameters():
            parameter.requires_grad_(False)
        return net


OWN: dict[str, type[Net]] = {
    "test-dense": DenseNet,
    "test-starting": StartingNet,
    "test-uneven": UnevenNet,
    "test-flat": FlatNet,
    "test-half-frozen": HalfFrozenNet,
}
NETS.update(OWN)
