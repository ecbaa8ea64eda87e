"""Networks that start from pretrained weights and are fine-tuned on pixels.

Their depthwise convolutions have gradients of their own: the library's gradient of a 5x5 depthwise kernel takes 10 to 40 times
as long as its forward, and in bfloat16 so does the gradient of the input of a strided one. That of a 3x3 kernel is fast, and
four of them, moved, cover a 5x5 one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mma.errors import UserError
from mma.features.pretrained import ConvNorm, Inverted, Lite0, Mobile, MobileNetV2
from mma.nets.head import fit_logistic
from mma.nets.network import Dense, GroupedBatchNorm2d, GroupedNetwork, Net, Shape, initialise, mean_over_maps

SMALL = 3  # the side of a kernel whose gradient is fast
PARTS = 9  # the stem, seven stages, and the last convolution
CHUNK = 64  # images per forward before the head starts


class DepthwiseConv2d(nn.Conv2d):
    """A convolution of each channel by itself."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""  # (B, C, H, W) -> (B, C, H', W')
        if x.device.type != "cpu" or not torch.is_grad_enabled() or not (x.requires_grad or self.weight.requires_grad):
            return super().forward(x)
        half = torch.is_autocast_enabled("cpu")
        dtype, padding = torch.get_autocast_dtype("cpu") if half else x.dtype, int(self.padding[0])
        padded = F.pad(x, (padding,) * 4) if padding else x
        bias = None if self.bias is None else self.bias.to(dtype)
        inputs = padded.to(dtype), self.weight.to(dtype), bias, self.stride[0]
        out: Tensor = _Depthwise.apply(*inputs)  # type: ignore[no-untyped-call]
        return out


class _Depthwise(torch.autograd.Function):
    """A depthwise convolution without padding, and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return F.conv2d(x, weight, bias, stride, 0, 1, len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        to_x = None
        if needs_x:  # that of a strided convolution in float32
            dtype = x.dtype if ctx.stride == 1 else torch.promote_types(x.dtype, torch.float32)
            wide, kernel = x.to(dtype), weight.to(dtype)
            to_x = _backward(gradient.to(dtype), wide, kernel, ctx.stride, (True, False))[0].to(x.dtype)
        to_weight = kernel_gradient(gradient, x, weight, ctx.stride) if needs_weight else None
        return to_x, to_weight, gradient.sum((0, 2, 3)) if needs_bias else None, None


def kernel_gradient(gradient: Tensor, x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Return the gradient of a kernel, in pieces of 3x3 that may overlap: each is that of a part of the input."""
    side, (height, width) = weight.shape[-1], gradient.shape[2:]
    if side <= SMALL:
        return _backward(gradient, x, weight, stride, (False, True))[1]
    whole, piece = torch.empty_like(weight), weight[:, :, :SMALL, :SMALL].contiguous()
    rows, columns = (height - 1) * stride + SMALL, (width - 1) * stride + SMALL
    places = [*range(0, side - SMALL, SMALL - 1), side - SMALL]
    for top in places:
        for left in places:
            part = x[:, :, top : top + rows, left : left + columns].contiguous(memory_format=torch.channels_last)
            here = _backward(gradient, part, piece, stride, (False, True))[1]
            whole[:, :, top : top + SMALL, left : left + SMALL] = here
    return whole


def _backward(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: int, wanted: tuple[bool, bool]
) -> tuple[Tensor, Tensor]:
    """Return the library's gradients of the input and of the kernel, those that are wanted."""
    layout = [stride] * 2, [0, 0], [1, 1], False, [0, 0], len(weight)
    to_x, to_weight, _ = torch.ops.aten.convolution_backward(gradient, x, weight, None, *layout, [*wanted, False])
    return to_x, to_weight


class Tuned(Net):
    """What fine-tuned networks share. Their lower parts learn more slowly than the upper ones, or not at all."""

    backbone: ClassVar[Mobile]
    side: int = Field(default=128, ge=32, le=512)  # pixels the network sees; images are scaled to it
    stride: Literal[16, 32] = 32  # pixels per position of the last maps; at 16 the first layer keeps every pixel
    frozen: int = Field(default=0, ge=0, le=PARTS)  # parts that stay as they came: stem, seven stages, last layer
    statistics: Literal["batch", "pretrained"] = "pretrained"  # what trained parts are normalised by
    bn_decay: float = Field(default=0.98, ge=0.0, lt=1.0)  # of the running statistics of batches
    rate: float = Field(default=0.1, gt=0.0)  # learning rate of the last part, as a share of the head's
    fall: float = Field(default=0.9, gt=0.0, le=1.0)  # and of each part below, as a share of the one above it
    mirrored: bool = False  # evaluate and score the pool by an image and its mirror image: twice the work there
    start: Literal["logistic", "random"] = "logistic"  # of the head
    penalty: float = Field(default=0.0001, gt=0.0)  # of the logistic regression: its L2 weight, per label

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return the pretrained network with a head for these classes."""
        return TunedNet(shape, classes, self)

    def reset(self, module: nn.Module, rng: np.random.Generator) -> None:
        """Draw the head; the rest becomes what it was before any training."""
        assert isinstance(module, TunedNet)
        module.load_state_dict(TunedNet(module.shape, module.head.out_features, self).state_dict())
        initialise(module.head, rng)

    def start_from(self, module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any] | None:
        """Start the head from a logistic regression on what the pretrained network makes of the labeled images."""
        assert isinstance(module, TunedNet)
        if self.start == "logistic":
            modes = [(part, part.training) for part in module.modules()]
            module.eval()
            with torch.no_grad():
                features = torch.cat([module.features(part) for part in torch.split(x, CHUNK)]).cpu().numpy()
            for part, mode in modes:  # every module keeps its own mode
                part.training = mode
            labels, centre = y.cpu().numpy(), features.mean(0)
            scale = max(float(np.linalg.norm(features - centre, axis=1).mean()), 1e-6)
            weight, bias = fit_logistic((features - centre) / scale, labels, module.head.out_features, self.penalty)
            weight /= scale
            module.head.weight.copy_(torch.from_numpy(weight))
            module.head.bias.copy_(torch.from_numpy(bias - weight @ centre))
        return None

    def photo_side(self) -> int:
        """Return the side the network sees."""
        return self.side

    def rates(self, module: nn.Module) -> dict[str, float]:
        """Return the smaller learning rates of the lower parts."""
        assert isinstance(module, TunedNet)
        return {
            f"parts.{number}.{name}": self.rate * self.fall ** (PARTS - 1 - number)
            for number, part in enumerate(module.parts)
            for name, _ in part.named_parameters()
        }


class TunedLite0(Tuned):
    """EfficientNet-Lite0, fine-tuned."""

    name: Literal["lite0"] = "lite0"
    backbone = Lite0()


class TunedMobileNetV2(Tuned):
    """MobileNetV2, fine-tuned."""

    name: Literal["mobilenetv2"] = "mobilenetv2"
    backbone = MobileNetV2()


class TunedNet(GroupedNetwork):
    """A pretrained network in nine parts, a mean over its last maps, and a dense head."""

    def __init__(self, shape: Shape, classes: int, settings: Tuned) -> None:
        super().__init__()
        if shape[2] not in (1, 3):
            raise UserError(
                f"the network {settings.name} takes grey or RGB images, and these have {shape[2]} channels. "
                "Use  --set net=small"
            )
        self.shape, self.side, self.mirrored = shape, settings.side, settings.mirrored
        network = settings.backbone.network()
        if settings.stride == 16:
            network.stem.conv.stride = (1, 1)
        parts: list[list[nn.Module]] = [[network.stem]]
        for block in network.blocks:
            assert isinstance(block, Inverted)
            if not block.residual:  # a stage begins with a block that changes shapes
                parts.append([])
            parts[-1].append(block)
        parts.append([network.last])
        self.parts = nn.ModuleList(nn.Sequential(*layers) for layers in parts)
        assert len(self.parts) == PARTS
        for number, part in enumerate(self.parts):
            prepare(part, settings, frozen=number < settings.frozen)
        self.head = Dense(network.last.conv.out_channels, classes)
        self.normalise = Normalise(settings.backbone.mean, settings.backbone.std)

    def embed(self, x: Tensor) -> Tensor:
        """Return the embeddings of images as they are."""  # (B, 1280)
        x = self.normalise(resize(x, self.side))
        for part in self.parts:
            x = part(x)
        return mean_over_maps(x)


class Normalise(nn.Module):
    """Turn pixels in [-1, 1] into those a network was trained on; grey becomes RGB."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        centre, width = (torch.tensor(values).view(-1, 1, 1) / 127.5 for values in (mean, std))
        self.offset = nn.Parameter((1 - centre) / width, requires_grad=False)
        self.scale = nn.Parameter(1 / width, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Scale and move."""  # (B, 1 or 3, H, W) -> (B, 3, H, W)
        return x * self.scale + self.offset


def prepare(part: nn.Module, settings: Tuned, *, frozen: bool) -> None:
    """Make one part ready to train, or freeze it. Normalisation by fixed statistics is multiplied into the convolution."""
    part.requires_grad_(not frozen)
    for layer in [module for module in part.modules() if isinstance(module, ConvNorm)]:
        if frozen or settings.statistics == "pretrained":
            layer.eval().fold()
            layer.requires_grad_(not frozen)
        else:  # the same normalisation, able to keep joined batches apart
            norm = layer.norm
            assert isinstance(norm, nn.BatchNorm2d)
            layer.norm = GroupedBatchNorm2d(norm.num_features, eps=norm.eps, momentum=1 - settings.bn_decay)
            layer.norm.load_state_dict(norm.state_dict())
        if (conv := layer.conv).groups > 1:  # the same convolution with faster gradients
            channels, sides = conv.out_channels, (conv.kernel_size[0], conv.stride[0], conv.padding[0])
            layer.conv = DepthwiseConv2d(channels, channels, *sides, groups=channels, bias=conv.bias is not None)
            layer.conv.weight, layer.conv.bias = conv.weight, conv.bias
    part.train()


def resize(images: Tensor, side: int) -> Tensor:
    """Scale images to a square."""  # (B, C, H, W) -> (B, C, side, side)
    if images.shape[2:] == (side, side):
        return images
    shrinks = min(images.shape[2:]) > side
    return F.interpolate(images, (side, side), mode="bilinear", align_corners=False, antialias=shrinks)
