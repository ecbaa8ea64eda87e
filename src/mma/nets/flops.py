"""How much arithmetic a network asks for: the horizontal axis of accuracy over compute."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from mma.nets import winograd


def counted(work: Callable[[], object]) -> int:
    """Return the floating-point operations of convolutions and matrix products in `work`, its backward passes included.

    A multiplication and the addition after it are two. What else a step does (normalising, activating, augmenting) is
    bound by memory, not by arithmetic, and is left out, as is usual. Convolutions are counted as if direct, so that the
    figure is the same on every machine.
    """
    with winograd.switched_off(), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def forward_flop(net: nn.Module, channels: int, side: int) -> int:
    """Return the operations of one forward of one image."""
    image = torch.zeros(1, channels, side, side)
    training = net.training
    with torch.no_grad():
        total = counted(lambda: net.eval()(image))
    net.train(training)
    return total
