"""Counted arithmetic against a count by hand."""

from __future__ import annotations

import torch
from torch import nn

from mma.nets import NETS
from mma.nets.network import count_flop, forward_flop


def conv(side: int, inputs: int, outputs: int, kernel: int = 3) -> int:
    """A multiplication and an addition for every weight at every place."""
    return 2 * side * side * kernel * kernel * inputs * outputs


def test_the_fast_network_costs_what_a_count_by_hand_says():
    stages = (16, 32), (8, 64), (4, 128)  # side, channels that come in
    by_hand = conv(32, 3, 32) + sum(conv(s, c, 2 * c) + conv(s, 2 * c, 2 * c) for s, c in stages) + 2 * 256 * 10
    assert forward_flop(NETS["fast"](filters=32).build((32, 32, 3), 10), torch.zeros(1, 3, 32, 32)) == by_hand


def test_the_papers_network_costs_what_a_count_by_hand_says():
    total, width = conv(32, 3, 16), 16
    for stage, side in enumerate((32, 16, 8)):
        out = 32 << stage
        total += conv(side, width, out) + 7 * conv(side, out, out) + conv(side, width, out, kernel=1)
        width = out
    assert (
        forward_flop(NETS["wrn"](filters=32).build((32, 32, 3), 10), torch.zeros(1, 3, 32, 32)) == total + 2 * 128 * 10
    )


def test_the_fast_network_is_five_times_cheaper_than_the_papers():
    fast, paper = (
        forward_flop(NETS[name](filters=32).build((32, 32, 3), 10), torch.zeros(1, 3, 32, 32))
        for name in ("fast", "wrn")
    )
    assert 4.5 < paper / fast < 10


def test_a_backward_is_counted_as_two_forwards():
    layers = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False))
    x = torch.ones(5, 8)
    forward, first = 5 * 2 * (8 * 16 + 16 * 4), 5 * 2 * 8 * 16
    assert count_flop(lambda: layers(x).sum().backward()) == 3 * forward - first  # nobody asks for the gradient of x


def test_counting_leaves_the_network_as_it_was():
    net = NETS["fast"]().build((32, 32, 3), 10).train()
    forward_flop(net, torch.zeros(1, 3, 32, 32))
    assert net.training
    assert not net.stem_bn.running_mean.any()
