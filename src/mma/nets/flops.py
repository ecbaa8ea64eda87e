"""How much arithmetic a network asks for: the horizontal axis of accuracy over compute."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from mma.nets import winograd


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
