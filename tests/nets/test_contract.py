"""What holds for every network in the table; a new entry is tested the moment it is listed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mma.nets import NETS, Net, Network, Tuned, TunedNet
from mma.rng import rng

IMAGE_NETS = [name for name, kind in NETS.items() if kind.takes == "images"]
every_net = pytest.mark.parametrize("name", IMAGE_NETS)
from_scratch = pytest.mark.parametrize("name", [name for name in IMAGE_NETS if not issubclass(NETS[name], Tuned)])


def settings(name: str) -> Net:
    """Return a network that is small and cheap."""
    small = {"filters": 8, "side": 32}
    return NETS[name](**{key: value for key, value in small.items() if key in NETS[name].model_fields})


def make(name: str, channels: int = 3, classes: int = 5, side: int = 8, seed: int = 0) -> nn.Module:
    net = settings(name).build((side, side, channels), classes)
    settings(name).reset(net, rng(seed, "init"))
    return net


def images(count: int, channels: int, side: int) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    pixels = torch.rand(count, channels, side, side, generator=draw) * 2 - 1
    return pixels.contiguous(memory_format=torch.channels_last)


@every_net
def test_the_contract_is_met(name: str):
    assert isinstance(make(name), Network)


@pytest.mark.parametrize(
    ("name", "side"),
    # A pretrained network scales every image to the same side.
    [
        (name, side)
        for name in IMAGE_NETS
        for side in (range(8, 34, 25) if issubclass(NETS[name], Tuned) else range(8, 34))
    ],
)
def test_any_side(name: str, side: int):
    logits = make(name, side=side)(images(2, 3, side))
    assert logits.shape == (2, 5)
    assert torch.isfinite(logits).all()


@from_scratch
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_any_channels_and_classes(name: str, channels: int, classes: int):
    assert make(name, channels, classes)(images(4, channels, 8)).shape == (4, classes)


@every_net
@pytest.mark.parametrize("side", [8, 28])
def test_logits_are_the_head_of_the_features(name: str, side: int):
    net, x = make(name, side=side).eval(), images(3, 3, side)
    features = net.features(x)
    assert features.shape == (3, net.head.in_features)
    assert torch.equal(net(x), net.head(features))


@every_net
def test_initial_values_follow_from_the_generator_alone(name: str):
    torch.manual_seed(1)
    first = make(name, seed=3).state_dict()
    torch.manual_seed(2)
    second = make(name, seed=3).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


@every_net
def test_other_seeds_give_other_heads(name: str):
    assert not torch.equal(make(name, seed=3).head.weight, make(name, seed=4).head.weight)


@from_scratch
def test_other_seeds_give_other_kernels(name: str):
    first, second = make(name, seed=3), make(name, seed=4)
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert not any(torch.equal(a, b) for a, b in pairs if a.ndim > 1)


@every_net
def test_a_reset_undoes_training(name: str):
    net = make(name)
    start = {key: value.clone() for key, value in net.state_dict().items()}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(images(4, 3, 8)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(net.head.weight, start["head.weight"])
    settings(name).reset(net, rng(0, "init"))
    assert all(torch.equal(value, start[key]) for key, value in net.state_dict().items())


@every_net
@pytest.mark.parametrize("side", [8, 15])
def test_in_evaluation_an_image_is_answered_alone_as_in_company(name: str, side: int):
    net, x = make(name, side=side), images(6, 3, side)
    net(x)  # so that the running statistics are not the initial ones
    net.eval()
    with torch.no_grad():
        together = net(x)
        alone = torch.cat([net(image[None]) for image in x])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


@every_net
def test_memory_format_does_not_change_the_answer(name: str):
    net, x = make(name).eval(), images(4, 3, 8)
    expected = net(x.contiguous())
    net = net.to(memory_format=torch.channels_last)
    torch.testing.assert_close(net(x), expected, atol=1e-5, rtol=1e-4)


@every_net
def test_logits_have_a_sensible_size_at_the_start(name: str):
    net = make(name, classes=10, side=16)
    if isinstance(net, TunedNet):
        net.side = NETS[name]().side  # at 32 pixels of noise, pretrained statistics leave nothing to see
    assert 0.01 < net(images(32, 3, 16)).std() < 10


@every_net
def test_reset_is_a_function_of_its_generator(name: str):
    chosen = settings(name)
    first, second = (chosen.build((16, 16, 3), 4) for _ in range(2))
    chosen.reset(first, rng(1, "init"))
    chosen.reset(second, rng(1, "init"))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    chosen.reset(second, rng(2, "init"))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
