"""Several batches as one tensor give the numbers of as many forwards one after another."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from mma.algorithms import ops
from mma.nets import NETS, GroupedNetwork, initialise
from mma.nets.network import GroupedBatchNorm2d
from mma.rng import rng


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return values.contiguous(memory_format=torch.channels_last)


def twins(name: str, side: int) -> tuple[nn.Module, nn.Module]:
    net = NETS[name](filters=16).build((side, side, 3), 5)
    initialise(net, rng(0, "init"))
    return net.train(), copy.deepcopy(net).train()


def one_after_another(net: nn.Module, batches: list[Tensor]) -> list[Tensor]:
    first, *others = batches
    logits = [net(first)]
    with ops.frozen_statistics(net):
        return logits + [net(other) for other in others]


@pytest.mark.parametrize("name", ["wrn", "small", "fast"])
@pytest.mark.parametrize(("side", "groups"), [(8, 3), (8, 2), (16, 3)])
def test_joined_batches_give_the_logits_gradients_and_statistics_of_separate_forwards(name, side, groups):
    together, apart = twins(name, side)
    batches = [draw(6, 3, side, side, seed=g) + g for g in range(groups)]  # shifted, so that statistics differ
    joined = together.joined(torch.cat(batches), groups)
    separate = torch.cat(one_after_another(apart, batches))
    torch.testing.assert_close(joined, separate, atol=2e-5, rtol=1e-4)
    weight = draw(*joined.shape, 1, 1, seed=9)[..., 0, 0]
    for logits in (joined, separate):
        (logits * weight).sum().backward()
    named = dict(apart.named_parameters())
    for key, parameter in together.named_parameters():
        if parameter.grad is not None:
            error = (parameter.grad - named[key].grad).norm() / named[key].grad.norm().clamp_min(1e-3)
            assert error < 1e-3, key
    for (key, mine), other in zip(together.named_buffers(), apart.buffers(), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-5, msg=key)


def test_a_joined_pass_is_not_the_pass_over_one_large_batch():
    net, other = twins("small", 8)
    batches = torch.cat([draw(6, 3, 8, 8), draw(6, 3, 8, 8, seed=1) + 2])
    assert not torch.allclose(net.joined(batches, 2), other(batches), atol=1e-2)


def test_frozen_statistics_stay_frozen_in_a_joined_pass():
    net, _ = twins("small", 8)
    before = {key: value.clone() for key, value in net.named_buffers()}
    with ops.frozen_statistics(net):
        net.joined(draw(6, 3, 8, 8), 2)
    assert all(torch.equal(value, before[key]) for key, value in net.named_buffers())


def test_in_evaluation_groups_make_no_difference():
    net, _ = twins("small", 8)
    net.eval()
    assert torch.equal(net.joined(draw(6, 3, 8, 8), 3), net(draw(6, 3, 8, 8)))


def test_groups_end_with_the_pass_even_after_an_error():
    class Normalises(GroupedNetwork):
        def __init__(self):
            super().__init__()
            self.norm, self.head = GroupedBatchNorm2d(3), nn.Identity()

        def embed(self, x):
            return self.norm(x)

    net = Normalises()
    with pytest.raises(RuntimeError, match="running_mean"):
        net.joined(torch.zeros(8, 2, 1, 1), 4)
    assert net.norm.groups == 1


def test_the_gradient_of_grouped_normalisation_is_exact():
    norm = GroupedBatchNorm2d(3).double()
    norm.groups = 2
    x = draw(4, 3, 2, 2, dtype=torch.float64).requires_grad_()
    with ops.frozen_statistics(norm):
        assert torch.autograd.gradcheck(norm, (x,))


class Own(nn.Module):
    """A user's network, with batch normalisation that knows nothing of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def test_forwards_of_a_users_network_are_separate():
    net = Own()
    batches = [draw(5, 1, 4, 4, seed=g) + g for g in range(3)]
    expected = torch.cat(one_after_another(copy.deepcopy(net), batches))
    assert torch.equal(torch.cat(ops.forwards(net, batches)), expected)
    assert net.body[1].num_batches_tracked == 1


@pytest.mark.parametrize("sizes", [[6, 6, 6], [6, 4, 4], [7]])
def test_forwards_of_our_network_agree_whatever_the_sizes(sizes):
    net, other = twins("small", 8)
    assert isinstance(net, GroupedNetwork)
    batches = [draw(size, 3, 8, 8, seed=size) for size in sizes]
    found, expected = ops.forwards(net, batches), one_after_another(other, batches)
    assert [len(part) for part in found] == sizes
    torch.testing.assert_close(torch.cat(found), torch.cat(expected), atol=2e-5, rtol=1e-4)
