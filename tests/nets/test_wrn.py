"""The paper's network, down to its numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mma.nets import SameConv2d, Wrn, wrn


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_the_paper_network_has_1469642_parameters():
    assert parameters(Wrn().build((32, 32, 3), 10)) == 1_469_642


def test_the_recorded_network_has_175626_parameters():
    assert parameters(Wrn(filters=16, blocks=2).build((32, 32, 3), 10)) == 175_626


def test_the_paper_network_has_28_convolutions():
    assert sum(isinstance(m, nn.Conv2d) for m in Wrn().build((32, 32, 3), 10).modules()) == 28


def test_a_shortcut_convolution_stands_only_where_channels_change():
    names = [name for name, _ in Wrn().build((32, 32, 3), 10).named_modules() if name.endswith("shortcut")]
    assert names == [f"trunk.stage{s}.block0.shortcut" for s in range(3)]
    names = [name for name, _ in Wrn(filters=16).build((32, 32, 3), 10).named_modules() if name.endswith("shortcut")]
    assert names == [f"trunk.stage{s}.block0.shortcut" for s in (1, 2)]


@pytest.mark.parametrize(
    ("side", "stages"), [(4, 1), (8, 1), (15, 1), (16, 2), (28, 2), (32, 3), (33, 3), (64, 4), (96, 4)]
)
def test_stages_follow_the_side(side: int, stages: int):
    assert wrn.stages(side) == stages
    assert Wrn(filters=8, blocks=1).build((side, side, 3), 10).head.in_features == 8 << (stages - 1)


@pytest.mark.parametrize("momentum_of", ["trunk.stage0.block0.bn1", "trunk.stage2.block3.bn2", "trunk.final_bn"])
def test_batch_normalisation_has_the_original_numbers(momentum_of: str):
    bn = Wrn().build((32, 32, 3), 10).get_submodule(momentum_of)
    assert bn.eps == 1e-3
    assert bn.momentum == pytest.approx(0.001)


def same(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's rule, found by trying: pad as little as leaves ceil(side / stride) outputs, the odd one after."""
    wanted = (side + stride - 1) // stride
    total = next(t for t in range(kernel) if (side + t - kernel) // stride + 1 == wanted)
    return total // 2, total - total // 2


@pytest.mark.parametrize("side", range(3, 13))
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (1, 1), (1, 2), (5, 3)])
def test_padding_is_tensorflows_same(side: int, kernel: int, stride: int):
    conv = SameConv2d(2, 3, kernel, stride)
    x = torch.randn(1, 2, side, side + 1, generator=torch.Generator().manual_seed(0))
    pads = (*same(side + 1, kernel, stride), *same(side, kernel, stride))
    expected = nn.functional.conv2d(nn.functional.pad(x, pads), conv.weight, conv.bias, stride)
    torch.testing.assert_close(conv(x), expected)


def test_an_even_side_at_stride_two_pads_only_after():
    conv = SameConv2d(1, 1, 3, 2, bias=False)
    nn.init.ones_(conv.weight)
    corner = torch.zeros(1, 1, 4, 4)
    corner[..., 0, 0] = 1
    assert torch.equal(conv(corner), torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]]))
    inner = torch.zeros(1, 1, 4, 4)
    inner[..., 1, 1] = 1  # PyTorch's padding=1 would show it to all four outputs
    assert torch.equal(conv(inner), torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]]))


def test_only_the_first_block_activates_before_the_split():
    net = Wrn().build((32, 32, 3), 10)
    flags = [m.activate_first for m in net.modules() if hasattr(m, "activate_first")]
    assert flags == [True] + [False] * 11


def test_every_layer_takes_part():
    net = Wrn(filters=8, blocks=2).build((16, 16, 3), 10)
    net(torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))).logsumexp(1).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in net.parameters() if p.ndim > 1)
