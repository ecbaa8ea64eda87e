"""How good the live models are, from the labels they were trained on."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from mma.project.worker import verdict as measure
from mma.project.worker.verdict import cross_validated, nearest_images, thin

CLASSES = 2


class FakePool:
    """Images on a line: 40 at 0, 10 near 1; every one of them is its own group."""

    def __init__(self) -> None:
        self.points = np.zeros((50, 2), np.float32)
        self.points[:, 0] = np.concatenate([np.linspace(0, 0.1, 40), np.linspace(0.9, 1, 10)])
        self.points[:, 1] = 1.0
        self.row = {str(number): number for number in range(50)}

    def __len__(self) -> int:
        return len(self.points)

    def vectors(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self.points[rows].copy())

    def group(self, image: str) -> str:
        return image


def test_a_point_stands_for_the_images_nearest_to_it():
    pool = FakePool()
    counts = nearest_images(pool, pool.points[[0, 49]], np.ones(2, np.float32))
    assert counts.tolist() == [41.0, 11.0]


def test_of_a_large_pool_a_part_is_looked_at(monkeypatch):
    monkeypatch.setattr(measure, "TARGETS", 10)
    pool = FakePool()
    assert nearest_images(pool, pool.points[[0, 49]], np.ones(2, np.float32)).sum() == 12.0


def test_a_cross_validated_label_counts_by_the_images_nearest_to_it():
    """Hard labels stand for few images: half of the labels are wrong, and most of the pool is right."""
    pool = FakePool()
    train = {str(row): 0 for row in (0, 8, 16, 24, 32, 39)} | {str(row): row % 2 for row in range(42, 48)}
    head = SimpleNamespace(gate=torch.ones(2))
    fitted = SimpleNamespace(net=head, penalty=1e-4, scale=1.0, temperature=1.0)
    training = SimpleNamespace(train=train, classes=range(CLASSES), names=["a", "b"])
    quality, _ = cross_validated(fitted, pool, training)
    plain = quality.accuracy.right / quality.accuracy.of
    assert plain < 0.85
    assert quality.accuracy.value > plain + 0.05
    assert quality.source == "cross-validation"


def test_a_label_is_judged_by_a_model_that_was_not_fitted_on_it():
    """Labels drawn by lot, in so many dimensions that whoever has seen them knows them all by heart."""
    draw = np.random.default_rng(0)
    pool = FakePool()
    pool.points = draw.normal(size=(50, 80)).astype(np.float32)
    train = {str(row): int(draw.integers(2)) for row in range(50)}
    fitted = SimpleNamespace(net=SimpleNamespace(gate=torch.ones(80)), penalty=1e-4, scale=1.0, temperature=1.0)
    training = SimpleNamespace(train=train, classes=range(CLASSES), names=["a", "b"])
    quality, judged = cross_validated(fitted, pool, training)
    assert 0.2 < quality.accuracy.right / quality.accuracy.of < 0.8
    assert any(one.label != one.said for one in judged)


def test_near_duplicates_are_judged_by_a_model_that_saw_none_of_them():
    """Pairs of equal images with labels drawn by lot: a model that saw the other one of a pair is always right."""
    draw = np.random.default_rng(1)
    pool = FakePool()
    pool.points = draw.normal(size=(25, 80)).astype(np.float32).repeat(2, axis=0)
    pool.group = lambda image: str(int(image) // 2)
    labels = draw.integers(2, size=25).repeat(2)
    fitted = SimpleNamespace(net=SimpleNamespace(gate=torch.ones(80)), penalty=1e-4, scale=1.0, temperature=1.0)
    training = SimpleNamespace(
        train={str(row): int(label) for row, label in enumerate(labels)}, classes=range(CLASSES), names=["a", "b"]
    )
    quality, _ = cross_validated(fitted, pool, training)
    assert quality.accuracy.right / quality.accuracy.of < 0.8


def test_of_too_many_models_every_other_old_one_is_left_out_and_no_new_one():
    models = list(range(61))
    assert thin(models[:60]) == models[:60]
    kept = thin(models)
    assert kept[-31:] == models[30:]  # the newer half is whole
    assert kept[:-31] == models[:30:2]  # of the older half the first one and every other one stay
