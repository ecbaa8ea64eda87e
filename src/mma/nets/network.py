"""What every network offers: its settings, embeddings, a dense head, logits made of the two; and its arithmetic, counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from mma.nets import winograd
from mma.nets.layers import in_groups, initialise
from mma.settings import Settings

Shape = Sequence[int]  # height, width, channels of one image; or the lengths of the parts of one feature vector


class Net(Settings):
    """A network owns its settings, its shape and its initial weights. One class and one line in NETS, also in user code.

    A parameter that `build` leaves with `requires_grad=False` is frozen: it stays as it came, and is not stored.
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
        with in_groups(self, groups):
            logits: Tensor = self(x)
        return logits


def count_flop(work: Callable[[], object]) -> int:
    """Return the floating-point operations of convolutions and matrix products in `work`, its backward passes included.

    A multiplication and the addition after it are two. What else a step does (normalising, activating, augmenting) is
    bound by memory, not by arithmetic, and is left out, as is usual. Convolutions are counted as if direct, so that the
    figure is the same on every machine.
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
