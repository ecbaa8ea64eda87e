"""A backbone that sees less than raw pixels is reported."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mma.data import load_data
from mma.features import image_source, parse_backbone, probe
from mma.features.probe import nearest_mean_accuracy
from tests.features.conftest import Tiny


class Ruined(Tiny):
    """A backbone whose numbers have little to do with the image."""

    def load(self):
        module = torch.nn.Identity()
        module.forward = lambda images: torch.sin(images.float().sum((1, 2, 3))[:, None] * torch.arange(1, 9))
        return module


@pytest.fixture
def some_digits():
    images = load_data("digits").train.take(np.arange(200))
    return image_source(images)[0], images.labels


def test_a_ruined_backbone_is_reported(some_digits):
    found = probe(Ruined(), *some_digits)
    assert found.accuracy < found.raw_pixels
    assert "worse than raw pixels" in found.warning
    assert "tiny" in found.warning


def test_hog_sees_digits(some_digits):
    found = probe(parse_backbone("hog@32"), *some_digits)
    assert found.accuracy > 0.8
    assert found.warning == "" or found.accuracy < found.raw_pixels


def test_images_without_a_label_are_left_out(some_digits):
    source, labels = some_digits
    assert probe(parse_backbone("hog@32"), source, np.where(np.arange(200) < 150, labels, -1)).images == 150


def test_too_few_labels_are_a_sentence(some_digits, refusal):
    with refusal():
        probe(Tiny(), some_digits[0], np.full(200, -1))


def test_clusters_are_told_apart_and_noise_is_not():
    labels = np.arange(100) % 4
    noise = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    assert nearest_mean_accuracy(noise + 10 * np.eye(8, dtype=np.float32)[labels], labels) == 1.0
    assert nearest_mean_accuracy(noise, labels) < 0.5
