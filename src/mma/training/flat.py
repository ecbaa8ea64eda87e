"""All trainable parameters of a network as views of one vector, so that an update is a few passes over memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


class Flat:
    """The trained parameters of `net`, kernels first (they decay), convolutions before dense ones, then biases and BN.

    `net` goes on working, on the vector. Frozen parameters are not in it.
    """

    def __init__(self, net: nn.Module, *, gradients: bool) -> None:
        trained = [(name, parameter) for name, parameter in net.named_parameters() if parameter.requires_grad]
        named = sorted(trained, key=lambda item: (item[1].ndim != 4, item[1].ndim < 2))  # stable
        self.shapes = {name: parameter.shape for name, parameter in named}
        self.vector = torch.cat([in_memory_order(parameter.detach()) for _, parameter in named]).clone()
        self.kernels = sum(p.numel() for _, p in named if p.ndim >= 2)
        self.convolutions = sum(p.numel() for _, p in named if p.ndim == 4)
        self.gradient = torch.zeros_like(self.vector) if gradients else None
        grads = dict(self.views(self.gradient)) if self.gradient is not None else {}
        values = dict(self.views(self.vector))
        for name, parameter in named:
            parameter.data = values[name]
            parameter.grad = grads.get(name)
            parameter.requires_grad_(gradients)

    def views(self, vector: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Cut a vector of this layout into named tensors of the parameters' shapes."""
        begin = 0
        for name, shape in self.shapes.items():
            yield name, in_shape(vector[begin : begin + math.prod(shape)], shape)
            begin += math.prod(shape)

    def spread(self, factors: Mapping[str, float]) -> Tensor | None:
        """Return a vector of this layout that holds each parameter's factor, 1 where none is given; None without any."""
        if not factors:
            return None
        vector = torch.ones_like(self.vector)
        for name, part in self.views(vector):
            part.fill_(factors.get(name, 1.0))
        return vector

    def convolution_kernels(self, vector: Tensor) -> Iterator[Tensor]:
        """Cut the kernels of convolutions out of such a vector, as they lie there: (outputs, height, width, inputs)."""
        for _, kernel in self.views(vector):
            if kernel.ndim == 4:
                yield kernel.permute(0, 2, 3, 1)


def in_memory_order(tensor: Tensor) -> Tensor:
    """Flatten; convolution kernels channels-last, which is how they are used."""
    return (tensor.permute(0, 2, 3, 1) if tensor.ndim == 4 else tensor).reshape(-1)


def in_shape(part: Tensor, shape: torch.Size) -> Tensor:
    """Undo `in_memory_order` without a copy."""
    if len(shape) != 4:
        return part.view(shape)
    out, channels, height, width = shape
    return part.view(out, height, width, channels).permute(0, 3, 1, 2)
