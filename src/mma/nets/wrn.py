"""The paper's network: WRN-28 of the realistic-evaluation framework, down to TensorFlow's padding."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mma.features.pretrained import same_padding
from mma.nets import winograd
from mma.nets.network import Dense, GroupedBatchNorm2d, GroupedNetwork, Net, Shape, mean_over_maps

STEM_FILTERS = 16  # Original: the first convolution has 16 filters whatever the width of the stages.
# Original: batch normalisation divides by sqrt(variance + 1e-3), TensorFlow's default and not PyTorch's 1e-5.
BN_EPS = 1e-3
LEAK = 0.1  # Original: LeakyReLU has slope 0.1 below zero.


class Wrn(Net):
    """The paper's wide residual network."""

    name: Literal["wrn"] = "wrn"
    # Paper: the network has 32 filters, and 128 for CIFAR-100 (appendix table).
    # Below 8 torch 2.13 on a CPU corrupts memory in a strided 1x1 backward.
    filters: int = Field(default=32, ge=8)
    blocks: int = Field(default=4, gt=0)  # Paper: four residual blocks per stage make 28 layers.
    # Original: the running averages of batch normalisation decay by 0.999 per step.
    bn_decay: float = Field(default=0.999, ge=0.0, lt=1.0)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return a network whose depth follows from the longer side of the images."""
        return WideResNet(shape, classes, self)


class SameConv2d(nn.Conv2d):
    """A convolution whose output side is ceil(side / stride), padded as TensorFlow pads 'same'.

    Where the padding is odd, the larger part goes after the image.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, with a padding that follows from the size of `x`."""  # (B, C, H, W) -> (B, out, H', W')
        if self.stride == (1, 1) and winograd.worthwhile(x, self.weight):
            return winograd.convolve(x, self.weight, self.added())
        top, bottom = same_padding(x.shape[-2], self.kernel_size[0], self.stride[0])
        left, right = same_padding(x.shape[-1], self.kernel_size[1], self.stride[1])
        if (top, left) == (bottom, right):  # the convolution pads by itself: no copy of the image
            return F.conv2d(x, self.weight, self.added(), self.stride, (top, left))
        return F.conv2d(F.pad(x, (left, right, top, bottom)), self.weight, self.added(), self.stride)

    def added(self) -> Tensor | None:
        """Return what is added to every output."""
        return self.bias


class NormalisedConv2d(SameConv2d):
    """A convolution whose output reaches the rest of the network only through batch normalisation.

    That takes any bias away again, so in training the bias has a gradient of exactly zero, and none is computed.
    """

    def added(self) -> Tensor | None:
        """Return the bias, as a constant in training."""
        # Original: computes the gradient, whose rounding Adam turns into steps. Differs: the bias stays what it was.
        return self.bias.detach() if self.training and self.bias is not None else self.bias


class Block(nn.Module):
    """BN, LeakyReLU, conv, BN, LeakyReLU, conv, added to a shortcut.

    `activate_first` is for the very first block of a network: its shortcut sees the activated input.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, bn_decay: float, *, activate_first: bool) -> None:
        super().__init__()
        self.activate_first = activate_first
        self.bn1 = GroupedBatchNorm2d(inputs, eps=BN_EPS, momentum=1 - bn_decay)
        self.conv1 = NormalisedConv2d(inputs, outputs, 3, stride)
        self.bn2 = GroupedBatchNorm2d(outputs, eps=BN_EPS, momentum=1 - bn_decay)
        self.conv2 = NormalisedConv2d(outputs, outputs, 3)
        # Original: a 1x1 convolution stands in the shortcut only where the channel counts differ.
        self.shortcut = NormalisedConv2d(inputs, outputs, 1, stride) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output; `stride` divides the sides."""  # (B, inputs, H, W) -> (B, outputs, H', W')
        # In place is safe: the backward of BN looks at its input, never at its output.
        activated = F.leaky_relu(self.bn1(x), LEAK, inplace=True)
        kept = activated if self.activate_first else x
        kept = kept if self.shortcut is None else self.shortcut(kept)
        hidden = F.leaky_relu(self.bn2(self.conv1(activated)), LEAK, inplace=True)
        out: Tensor = self.conv2(hidden)
        return out.add_(kept)


class WideResNet(GroupedNetwork):
    """WRN-28 at 4 blocks and 3 stages; any depth, width, input size and number of channels.

    Modules are named as in the recorded numbers: `trunk.stem`, `trunk.stage0.block1.conv2`, `trunk.final_bn`, `head`.
    """

    def __init__(self, shape: Shape, classes: int, settings: Wrn) -> None:
        super().__init__()
        height, width, channels = shape
        parts: OrderedDict[str, nn.Module] = OrderedDict(stem=NormalisedConv2d(channels, STEM_FILTERS, 3))
        inputs = STEM_FILTERS
        for s in range(stages(max(height, width))):
            blocks: OrderedDict[str, nn.Module] = OrderedDict()
            for r in range(settings.blocks):  # the first block widens and, but in stage 0, halves the sides
                stride, outputs = 2 if s > 0 and r == 0 else 1, settings.filters << s
                first = s == r == 0
                blocks[f"block{r}"] = Block(inputs, outputs, stride, settings.bn_decay, activate_first=first)
                inputs = outputs
            parts[f"stage{s}"] = nn.Sequential(blocks)
        parts["final_bn"] = GroupedBatchNorm2d(inputs, eps=BN_EPS, momentum=1 - settings.bn_decay)
        parts["leaky"] = nn.LeakyReLU(LEAK, inplace=True)
        self.trunk = nn.Sequential(parts)
        self.head = Dense(inputs, classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the mean over the last maps."""  # (B, filters << (stages - 1))
        # Original: queries look at the unpooled 8x8x128 map.
        # Differs: the embedding is the pooled vector that the dense layer sees, which is 64 times smaller.
        return mean_over_maps(self.trunk(x))


def stages(side: int) -> int:
    """Return log2(side) - 2, rounded down, at least one: the last stage works on maps of about 8 x 8."""
    return max(side.bit_length() - 3, 1)
