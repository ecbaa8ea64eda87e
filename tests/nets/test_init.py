"""Initial values: the paper's for known layers, reproducible ones for everything else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mma.nets import Wrn, initialise
from mma.rng import rng


class Own(nn.Module):
    """A user's network, with layers that the rules do not name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 4, 4)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm, self.act = nn.LayerNorm(16), nn.PReLU()
        self.plain = nn.BatchNorm1d(16, affine=False)
        self.bilinear = nn.Bilinear(16, 16, 16)
        self.head = nn.Linear(16, 4, bias=False)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.norm(self.embed(x).flatten(2).transpose(1, 2))
        pooled = self.plain(self.act(self.attention(tokens, tokens, tokens)[0].mean(1)))
        return self.bilinear(pooled, pooled)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


def test_kernels_have_the_deviation_of_the_original():
    net = Wrn().build((32, 32, 3), 10)
    initialise(net, rng(0, "init"))
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            expected = math.sqrt(2 / (module.kernel_size[0] ** 2 * module.out_channels))
        elif isinstance(module, nn.Linear):
            expected = math.sqrt(2 / (module.in_features + module.out_features))
        else:
            continue
        spread = 4 / math.sqrt(2 * module.weight.numel())  # four deviations of an estimated deviation
        assert module.weight.std().item() == pytest.approx(expected, rel=spread)
        assert not module.bias.any()


def test_batch_normalisation_starts_at_zero_mean_unit_variance():
    net = Wrn(filters=8, blocks=1).build((32, 32, 3), 10)
    for p in net.parameters():
        nn.init.constant_(p, 7.0)
    net(torch.ones(2, 3, 32, 32))
    initialise(net, rng(0, "init"))
    for bn in (m for m in net.modules() if isinstance(m, nn.BatchNorm2d)):
        assert (bn.weight == 1).all()
        assert not bn.bias.any()
        assert not bn.running_mean.any()
        assert (bn.running_var == 1).all()
        assert bn.num_batches_tracked == 0


def test_a_users_own_network_is_drawn_from_the_generator_too():
    torch.manual_seed(1)
    first = Own()
    first(torch.rand(4, 3, 8, 8))
    initialise(first, rng(5, "init"))
    torch.manual_seed(2)
    second = Own()
    initialise(second, rng(5, "init"))
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    initialise(second, rng(6, "init"))
    assert not torch.equal(first.bilinear.weight, second.bilinear.weight)
    assert not torch.equal(first.attention.in_proj_weight, second.attention.in_proj_weight)


def test_torchs_own_generator_is_left_alone():
    net = Own()
    before = torch.get_rng_state()
    initialise(net, rng(5, "init"))
    assert torch.equal(before, torch.get_rng_state())


def test_parameters_that_nobody_can_draw_are_an_error_that_says_what_to_do(refusal):
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

    with refusal():
        initialise(nn.Sequential(nn.Linear(3, 3), Scale()), rng(0, "init"))
