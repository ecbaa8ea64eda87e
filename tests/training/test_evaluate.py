"""What a query is told about an image: probabilities averaged over augmented views, embeddings of the plain image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mma.query import Candidates, Query
from mma.rng import rng
from mma.training.predict import candidates
from mma.training.step import Stream
from mma.views import Pixels, PixelViews, pixel_views

INDEX = np.arange(40)
SEED, ROUND = 3, 2


class Positions(nn.Module):
    """A network whose answers depend on where in the image a pixel is, so that every view gets its own."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 5)
        nn.init.normal_(self.head.weight, std=0.5, generator=torch.Generator().manual_seed(0))

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


@pytest.fixture
def net() -> Positions:
    return Positions().eval()


@pytest.fixture
def pixels(digits) -> Pixels:
    return pixel_views(digits.train, torch.device("cpu"), PixelViews(shift=1, mirror=False), 100)


def look(net: nn.Module, pixels: Pixels, query: str, round: int = ROUND) -> Candidates:
    return candidates(net, pixels, INDEX, Query.parse(query), SEED, round)


def view_logits(net: nn.Module, pixels: Pixels, k: int) -> Tensor:
    with torch.inference_mode():
        return net(pixels.weak(INDEX, rng(SEED, "query", ROUND, 0, k)))


def test_aug_averages_the_probabilities_of_its_views_and_not_their_logits(net, pixels):
    first, second = (view_logits(net, pixels, k) for k in (0, 1))
    found = torch.from_numpy(look(net, pixels, "max.aug-direct").probs)
    torch.testing.assert_close(found, (first.softmax(1) + second.softmax(1)) / 2)
    assert not torch.allclose(found, ((first + second) / 2).softmax(1), atol=1e-2)


def test_aug_looks_at_two_different_views_and_not_at_the_plain_image(net, pixels):
    found, plain = (torch.from_numpy(look(net, pixels, f"max{aug}-direct").probs) for aug in (".aug", ""))
    others = [plain, *(view_logits(net, pixels, k).softmax(1) for k in (0, 1))]
    for other in others:
        differing = ((found - other).abs().amax(1) > 1e-3).float().mean()
        assert differing > 0.8  # a few images draw the same shift twice


def test_aug_draws_other_views_in_every_round(net, pixels):
    first, second = (look(net, pixels, "max.aug-direct", round).probs for round in (1, 2))
    assert not np.allclose(first, second, atol=1e-3)


@pytest.mark.parametrize("query", ["max-kmeans", "max.aug-kmeans"])
def test_embeddings_are_those_of_the_plain_image(net, pixels, query):
    with torch.inference_mode():
        np.testing.assert_array_equal(look(net, pixels, query).features, net.features(pixels.plain(INDEX)).numpy())


def unlabeled_views(config, digits, pixels: Pixels) -> Tensor:
    """The unlabeled part of ten batches. (views, images, C, H, W)"""
    answers = {i: int(digits.train.labels[i]) for i in range(10)}
    stream = Stream(config, pixels, np.arange(len(digits.train)), answers, config.growth.rounds()[0])
    return torch.cat([stream[step].u for step in range(10)], dim=1)


def test_both_unlabeled_views_show_the_same_images_differently(tiny, digits, pixels):
    first, second = unlabeled_views(tiny(), digits, pixels)
    assert (first != second).flatten(1).any(1).float().mean() > 0.8  # nine shifts: one pair in nine is alike by chance
    first, second = unlabeled_views(tiny(), digits, replace(pixels, shift=0))
    assert torch.equal(first, second)
