"""Networks that start from pretrained weights: what is trained, how fast, and what stays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mma.features.pretrained import Lite0, MobileNetV2
from mma.nets import NETS
from mma.nets.tuned import PARTS, Tuned, resize
from mma.rng import rng

TUNED = [name for name, kind in NETS.items() if issubclass(kind, Tuned)]
every_tuned = pytest.mark.parametrize("name", TUNED)


def images(count: int = 4, side: int = 32) -> torch.Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1


def build(name: str = "lite0", **settings):
    return NETS[name](**{"side": 32, **settings}).build((32, 32, 3), 5)


@pytest.mark.parametrize(
    ("name", "backbone", "mean", "std"),
    [
        ("lite0", Lite0, 127.0, 128.0),
        ("mobilenetv2", MobileNetV2, (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    ],
)
@pytest.mark.parametrize("statistics", ["batch", "pretrained"])
@pytest.mark.parametrize("frozen", [0, 5])
def test_before_training_it_is_the_pretrained_network(name, backbone, mean, std, statistics, frozen):
    net, reference = build(name, side=64, statistics=statistics, frozen=frozen).eval(), backbone().network().eval()
    bytes_ = (images(side=64) + 1) * 127.5
    wanted = reference((bytes_ - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1))
    torch.testing.assert_close(net.features(images(side=64)), wanted, atol=1e-3, rtol=1e-3)


@every_tuned
@pytest.mark.parametrize("frozen", [0, 4, PARTS])
def test_frozen_parts_and_no_others_have_no_gradient(name, frozen):
    net = build(name, frozen=frozen)
    net(images()).square().sum().backward()
    for number, part in enumerate(net.parts):
        assert all((parameter.grad is None) == (number < frozen) for parameter in part.parameters())
    assert net.head.weight.grad is not None


def test_lower_parts_learn_more_slowly():
    settings = NETS["lite0"](side=32, frozen=2, rate=0.5, fall=0.5)
    net = settings.build((32, 32, 3), 5)
    rates = settings.rates(net)
    assert rates["parts.8.0.conv.weight"] == 0.5
    assert rates["parts.7.0.expand.conv.bias"] == 0.25
    assert rates["parts.2.0.project.conv.weight"] == pytest.approx(0.5**7)
    trained = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    assert trained - set(rates) == {"head.weight", "head.bias"}


def test_without_the_first_stride_the_last_maps_are_twice_as_large():
    shapes = []
    for stride in (32, 16):
        net = build(side=64, stride=stride)
        net.parts[-1].register_forward_hook(lambda _, __, out: shapes.append(out.shape[2]))
        net(images(side=64))
    assert shapes == [2, 4]


def test_a_grey_image_is_the_same_as_its_three_equal_channels():
    grey = images()[:, :1]
    one, three = NETS["lite0"](side=32).build((32, 32, 1), 5).eval(), build().eval()
    torch.testing.assert_close(one.features(grey), three.features(grey.expand(-1, 3, -1, -1)))


def test_images_that_are_neither_grey_nor_rgb_are_refused(refusal):
    with refusal():
        NETS["lite0"]().build((32, 32, 4), 5)


def test_images_are_scaled_to_the_side_of_the_network():
    flat = torch.full((1, 3, 20, 30), 0.25)
    for side in (8, 40):
        assert torch.allclose(resize(flat, side), torch.full((1, 3, side, side), 0.25))


def test_a_mirror_image_has_the_same_features_where_both_are_looked_at():
    net, x = build(mirrored=True).eval(), images()
    torch.testing.assert_close(net.features(x), net.features(x.flip(3)))
    assert not torch.allclose(net.train().features(x), net.features(x.flip(3)))


def test_the_head_starts_from_a_logistic_regression_on_the_labels():
    settings = NETS["lite0"](side=32)
    net = settings.build((32, 32, 3), 3)
    settings.reset(net, rng(0, "init"))
    draw = np.random.default_rng(0)
    y = torch.arange(30) % 3
    colour = torch.eye(3)[y].view(30, 3, 1, 1) - 0.5
    x = (colour + torch.from_numpy(draw.normal(0, 0.2, (30, 3, 32, 32)).astype(np.float32))).clamp(-1, 1)
    net.parts[0].eval()
    modes = [module.training for module in net.modules()]
    with torch.no_grad():
        assert settings.start_from(net, x, y) is None
    assert modes == [module.training for module in net.modules()]
    assert torch.equal(net.eval()(x).argmax(1), y)


def test_a_random_head_is_left_alone():
    settings = NETS["lite0"](side=32, start="random")
    net = settings.build((32, 32, 3), 3)
    before = net.head.weight.clone()
    with torch.no_grad():
        settings.start_from(net, images(), torch.tensor([0, 1, 2, 0]))
    assert torch.equal(net.head.weight, before)
