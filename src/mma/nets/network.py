"""What every network offers: its settings, embeddings, a dense head, logits made of the two; and its arithmetic, counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.flop_counter import FlopCounterMode

from mma.errors import UserError
from mma.nets import winograd
from mma.settings import Settings

Shape = Sequence[int]  # height, width, channels of one image; or the lengths of the parts of one feature vector


class Net(Settings):
    """A network owns its settings, its shape and its initial weights. One class and one line in NETS, also in user code.

    A parameter that `build` leaves with `requires_grad=False` is frozen: it stays as it came, and is not stored.

    Examples
    --------
    >>> from mma.nets import NETS
    >>> module = NETS["wrn"](filters=8).build((32, 32, 3), classes=10)
    >>> module.head.out_features
    10
    """

    name: str
    takes: ClassVar[str] = "images"  # or "features"

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return the module for images of this shape: features() gives embeddings, `head` turns them into logits."""
        raise NotImplementedError

    def reset(self, module: nn.Module, rng: np.random.Generator) -> None:
        """Draw the initial values of everything that is trained, in place, as a function of `rng`."""
        initialise(module, rng)

    def start_from(self, module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any] | None:
        """Start from the labeled images, after each `reset`; return what to write down about it. Most networks do not."""
        return None

    def photo_side(self) -> int | None:
        """Return the side, in pixels, at which a folder of photos is best stored for this network; None = the usual one."""
        return None

    def rates(self, module: nn.Module) -> Mapping[str, float]:
        """Return factors of the learning rate and of the decay by parameter name; those that are not named have 1."""
        return {}


@runtime_checkable
class Network(Protocol):
    """The contract of a network, also of a user's own `nn.Module`.

    Images arrive as float (B, C, H, W) in channels-last memory format, in [-1, 1]. `forward(x)` is
    `head(features(x))`, so that queries can look at the embeddings and training at the logits.
    """

    head: nn.Module  # (B, D) -> (B, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return one embedding per image."""  # (B, D)
        ...

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits: `head(features(x))`."""  # (B, classes)
        ...


def without_embeddings(net: nn.Module, query: str) -> str:
    """Say what a network of one's own lacks for a query."""
    return (
        f"'{query}' looks at embeddings, but {type(net).__name__} has no features() and head. Give your network both, so that "
        "its forward(x) is head(features(x)), or use the query 'random'."
    )


class GroupedNetwork(nn.Module):
    """A network that can keep batches apart that pass through it as one tensor: only `GroupedBatchNorm2d` mixes images."""

    mirrored = False  # evaluate by an image and its mirror image: the mean of both embeddings

    def embed(self, x: Tensor) -> Tensor:
        """Return the embeddings of images as they are."""  # (B, D)
        raise NotImplementedError

    def features(self, x: Tensor) -> Tensor:
        """Return the embeddings; where asked for, and not to train on, the mean with those of the mirror images."""
        embedding = self.embed(x)  # (B, D)
        return embedding if self.training or not self.mirrored else (embedding + self.embed(x.flip(3))) / 2

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""  # (B, classes)
        logits: Tensor = self.head(self.features(x))  # type: ignore[operator]
        return logits

    def joined(self, x: Tensor, groups: int) -> Tensor:
        """Return the logits of `groups` equal batches in `x`, as of one forward each; the first alone moves statistics."""
        norms = [module for module in self.modules() if isinstance(module, GroupedBatchNorm2d)]
        for norm in norms:
            norm.groups = groups
        try:
            return self.forward(x)
        finally:
            for norm in norms:
                norm.groups = 1


def count_flop(work: Callable[[], object]) -> int:
    """Return the floating-point operations of convolutions and matrix products in `work`, its backward passes included.

    A multiplication and the addition after it are two. What else a step does is bound by memory, and is left out, as is
    usual. Convolutions are counted as if direct, so that the figure is the same on every machine.
    """
    with winograd.switched_off(), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def forward_flop(net: nn.Module, example: Tensor) -> int:
    """Return the operations of one forward of one input, such as the example."""
    training = net.training
    with torch.no_grad():
        total = count_flop(lambda: net.eval()(example[:1]))
    net.train(training)
    return total


def initialise(net: nn.Module, rng: np.random.Generator) -> None:
    """Draw every trained parameter of `net` anew from `rng`, in place, and set running statistics back to their start.

    Convolutions and dense layers follow the paper's code. Any other module that owns parameters or running statistics is asked
    to `reset_parameters()`, with torch's own generator seeded from `rng`. A module whose parameters are all frozen stays.
    """
    with torch.no_grad():
        for name, module in net.named_modules():
            if is_frozen(module):
                continue
            if isinstance(module, _ConvNd):
                # Original: convolution kernels are normal with deviation sqrt(2 / (kernel area x filters)).
                _draw(module, math.sqrt(2 / (math.prod(module.kernel_size) * module.out_channels)), rng)
            elif isinstance(module, nn.Linear):
                # Original: dense kernels follow Glorot's normal rule, from a normal cut off at two deviations.
                # Differs: ours keeps the deviation and cuts nothing off, which is simpler and only changes the tails.
                _draw(module, math.sqrt(2 / (module.in_features + module.out_features)), rng)
            elif owned := [*module.parameters(recurse=False), *module.buffers(recurse=False)]:  # containers own nothing
                reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
                if reset is not None:
                    devices = sorted({tensor.get_device() for tensor in owned if tensor.is_cuda})
                    with torch.random.fork_rng(devices=devices):
                        torch.manual_seed(int(rng.integers(2**63)))
                        reset()
                elif any(isinstance(tensor, nn.Parameter) for tensor in owned):
                    raise UserError(
                        f"cannot initialise {name or 'the network'}: {type(module).__name__} owns parameters but has no "
                        "reset_parameters(). Give it one that draws them, so that a run can be repeated from its seed."
                    )


def is_frozen(module: nn.Module) -> bool:
    """Return whether a module owns parameters and none of them is trained."""
    owned = list(module.parameters(recurse=False))
    return bool(owned) and not any(parameter.requires_grad for parameter in owned)


def _draw(layer: _ConvNd | nn.Linear, deviation: float, rng: np.random.Generator) -> None:
    """Fill a kernel with normal values and its bias with zeros, each unless it is frozen."""
    values = rng.standard_normal(tuple(layer.weight.shape), dtype=np.float32) * np.float32(deviation)
    if layer.weight.requires_grad:
        layer.weight.copy_(torch.from_numpy(values))
    if layer.bias is not None and layer.bias.requires_grad:
        layer.bias.zero_()


class GroupedBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d`; with `groups` = G > 1 its batch is G equal batches joined.

    In training each of them is normalised by itself, and the first alone moves the running statistics: a step of MixMatch is
    several forwards, which share every convolution so.
    """

    groups = 1

    def forward(self, x: Tensor) -> Tensor:
        """Normalise."""  # (B, C, H, W)
        if self.groups == 1 or not self.training:
            return super().forward(x)
        first, *others = x.chunk(self.groups)
        parts = [super().forward(first)]
        parts += [F.batch_norm(part, None, None, self.weight, self.bias, True, 0.0, self.eps) for part in others]
        return torch.cat(parts)


class Dense(nn.Linear):
    """A dense layer whose logits are never rounded to bfloat16: guesses and queries hang on small differences of them."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""  # (B, inputs) -> (B, classes)
        if not torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype))


def mean_over_maps(maps: Tensor) -> Tensor:
    """Return the mean over the last maps, in float32 or better."""  # (B, C, H, W) -> (B, C)
    return maps.mean((2, 3), dtype=torch.promote_types(maps.dtype, torch.float32))
