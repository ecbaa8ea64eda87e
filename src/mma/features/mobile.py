"""The block that mobile networks are made of: expand, filter each channel, project, add."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


class ConvNorm(nn.Module):
    """Convolution, batch normalisation and, but for projections, ReLU6.

    `same` pads as TensorFlow does: what is odd goes after the image. Otherwise both sides are padded alike.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        *,
        groups: int = 1,
        same: bool,
        eps: float,
        active: bool = True,
    ) -> None:
        super().__init__()
        self.same, self.active = same, active
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, 0 if same else kernel // 2, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of ceil(side / stride)."""  # (B, inputs, H, W) -> (B, outputs, H', W')
        if self.same:
            padding = _same(x.shape[3], self.conv) + _same(x.shape[2], self.conv)
            x = F.pad(x, padding) if any(padding) else x
        x = self.norm(self.conv(x))
        return F.relu6(x, inplace=True) if self.active else x

    def fold(self) -> None:
        """Multiply the normalisation into the convolution: the same function with half the passes over memory."""
        assert isinstance(self.norm, nn.BatchNorm2d)
        self.conv, self.norm = fuse_conv_bn_eval(self.conv, self.norm), nn.Identity()


class Inverted(nn.Module):
    """An inverted residual block (arXiv:1801.04381): wide inside, narrow outside, added to its input where shapes agree."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, expand: int, *, same: bool, eps: float
    ) -> None:
        super().__init__()
        inner = inputs * expand
        self.expand = ConvNorm(inputs, inner, 1, same=same, eps=eps) if expand > 1 else nn.Identity()
        self.depthwise = ConvNorm(inner, inner, kernel, stride, groups=inner, same=same, eps=eps)
        self.project = ConvNorm(inner, outputs, 1, same=same, eps=eps, active=False)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""  # (B, inputs, H, W) -> (B, outputs, H', W')
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return out + x if self.residual else out


class MobileNetwork(nn.Module):
    """A stem, inverted residual blocks, a 1x1 convolution and the mean over its maps."""

    def __init__(self, stem: ConvNorm, blocks: list[Inverted], last: ConvNorm) -> None:
        super().__init__()
        self.stem, self.blocks, self.last = stem, nn.ModuleList(blocks), last

    def forward(self, x: Tensor) -> Tensor:
        """Return one vector per image."""  # (B, 3, H, W) -> (B, D)
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.last(x)
        return out.mean((2, 3))

    def fold(self) -> MobileNetwork:
        """Fold every normalisation, for a network that is not trained any more."""
        self.eval()
        for module in list(self.modules()):
            if isinstance(module, ConvNorm):
                module.fold()
        return self


def load_state(network: MobileNetwork, tensors: dict[str, Tensor], file: str) -> MobileNetwork:
    """Fill a network with tensors named as its own; anything missing or of another shape is an error."""
    wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    for name, shape in wanted.items():
        if name not in tensors or tuple(tensors[name].shape) != shape:
            found = f"of shape {tuple(tensors[name].shape)}" if name in tensors else "missing"
            raise ValueError(
                f"the weights of {file} do not fit the network: {name} is {found}, and must have shape {shape}."
            )
    network.load_state_dict({name: tensors[name] for name in wanted})
    return network


def _same(side: int, conv: nn.Conv2d) -> tuple[int, int]:
    """Return the padding (before, after) that leaves ceil(side / stride) outputs."""
    kernel, stride = conv.kernel_size[0], conv.stride[0]
    total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2
