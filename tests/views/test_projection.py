"""Principal directions of stored vectors: frozen, the same with any number of threads, and enough."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mma.features import Features
from mma.views import features as feature_views
from mma.views.features import FeatureViews, VectorViews, find_projection, principal_directions, project


def stored(count=300, views=2, width=40, rank=6, seed=0) -> Features:
    """Vectors that fill a few directions, and a little noise."""
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((count, views, rank)) @ draw.standard_normal((rank, width))
    values += 3.0 + 0.01 * draw.standard_normal(values.shape)
    keys = draw.integers(0, 256, (count, 32), dtype=np.uint8)
    return Features(values.astype(np.float16), np.arange(count), keys, "digest")


def test_directions_are_orthonormal_and_carry_what_there_is():
    found = stored()
    projection = find_projection(found, 6)
    assert projection.basis is not None
    torch.testing.assert_close(projection.basis.T @ projection.basis, torch.eye(6), atol=1e-5, rtol=0.0)
    norms = projection(found.take(np.arange(300))).float().norm(dim=1)
    assert norms.min() > 0.99


def test_each_direction_carries_about_as_much():
    """Without the turn the first of them would carry far more than the last."""
    found = stored(width=64, rank=32)
    projected = find_projection(found, 16)(found.take(np.arange(300))).float()
    assert projected.std(0).max() / projected.std(0).min() < 2.5


def test_no_more_directions_than_images():
    assert find_projection(stored(count=5, width=40), 16).width <= 5
    assert principal_directions(torch.ones(4, 10).double(), 3).shape == (10, 1)


def test_images_that_are_all_the_same_have_a_direction_too():
    same = stored(count=1)
    many = Features(np.repeat(same.stored, 20, 0), np.arange(20), np.zeros((20, 32), np.uint8), "digest")
    for found in (same, many):
        projection = find_projection(found, 16)
        assert projection.width == 1
        assert not projection(found.stored[:, 0]).any()


@pytest.mark.parametrize("width", [0, 40, 100])
def test_all_numbers_stay_where_there_are_no_more_than_asked_for(width):
    projection = find_projection(stored(), width)
    assert projection.basis is None
    assert projection.width == 40


@pytest.mark.parametrize("threads", [1, 2])
def test_the_cores_do_not_change_a_bit(threads, monkeypatch):
    found = stored(count=2_500)
    expected = [projection(found.stored) for projection in [find_projection(found, 6)]]
    monkeypatch.setattr("mma.views.features.cores", lambda: threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ready = project((found,), (find_projection(found, 6),))
    finally:
        torch.set_num_threads(before)
    assert ready.shape == (2_500, 2, 6)
    torch.testing.assert_close(ready, expected[0], atol=1e-3, rtol=0.0)
    again = project((found,), (find_projection(found, 6),))
    assert torch.equal(ready, again)


def test_vectors_that_do_not_fit_into_memory_are_made_ready_when_needed(monkeypatch):
    found = stored()
    views = VectorViews((found,), (find_projection(found, 6),), torch.device("cpu"), FeatureViews(width=6))
    expected = views.plain(np.arange(50))
    monkeypatch.setattr(feature_views, "READY", 10)
    mapped = VectorViews(views.parts, views.projections, views.device, views.settings)
    assert mapped.ready is None
    torch.testing.assert_close(mapped.plain(np.arange(50)), expected, atol=1e-3, rtol=0.0)
