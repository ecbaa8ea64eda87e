import numpy as np
import pytest

from mma.query import Candidates, Labeled, Query, coverage
from mma.query.coverage import coverage_by, greedy, similarity, space_of
from mma.rng import rng


def blobs(sizes, dim=8):
    """Well separated groups of rows; which group each row is in."""
    draw = rng(0, "blobs")
    groups = draw.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return draw.normal(size=(len(sizes), dim))[groups] * 50 + draw.normal(size=(len(groups), dim)), groups


def plain_greedy(kernel, covered, weights, n):
    """The definition: every gain anew for every pick."""
    covered, picked = covered.copy(), []
    for _ in range(n):
        gains = np.maximum(kernel - covered, 0) @ weights
        gains[picked] = -1
        picked.append(int(np.argmax(gains)))
        covered = np.maximum(covered, kernel[picked[-1]])
    return picked


@pytest.mark.parametrize("weighted", [False, True])
def test_lazy_greedy_picks_what_plain_greedy_picks(weighted):
    draw = rng(1)
    points, targets = (draw.normal(size=(n, 5)).astype(np.float32) for n in (400, 300))
    kernel, covered = similarity(points, targets, 2.0), coverage_by(points[:3], targets, 2.0)
    weights = draw.uniform(size=300).astype(np.float32) if weighted else np.full(300, 1 / 300, np.float32)
    picked, gains = greedy(kernel, covered, weights if weighted else None, 60)
    assert picked.tolist() == plain_greedy(kernel, covered, weights, 60)
    assert (np.diff(gains) <= 0).all()


def test_a_row_that_was_taken_before_is_not_picked_again():
    kernel = np.eye(4, 6, dtype=np.float32) * np.array([[4], [3], [2], [1]], np.float32)
    picked, _ = greedy(kernel, np.zeros(6, np.float32), None, 2, taken=[0, 2])
    assert picked.tolist() == [1, 3]
    picked, gains = greedy(np.zeros((3, 6), np.float32), np.zeros(6, np.float32), None, 2, taken=[0])
    assert sorted(picked.tolist()) == [1, 2]  # also where no row adds anything
    assert gains.tolist() == [0, 0]


def test_the_kernel_is_one_at_distance_zero_and_falls_with_the_square():
    points = np.array([[0.0, 0.0], [3.0, 4.0]], np.float32)
    np.testing.assert_allclose(similarity(points, points, 5.0), [[1, np.exp(-1)], [np.exp(-1), 1]], rtol=1e-6)


def test_herding_takes_one_of_each_group_before_a_second_of_any():
    features, groups = blobs([200, 150, 100, 60, 30, 10])
    chosen = Query.parse("herding").select(Candidates(np.arange(len(groups)), features=features), 6, 0)
    assert sorted(groups[chosen]) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("known", [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
def test_herding_leaves_out_the_groups_that_have_a_label(known):
    features, groups = blobs([100, 100, 100, 100])
    labeled = Labeled(np.stack([features[groups == group][0] for group in known]))
    free = Candidates(np.arange(len(groups)), features=features)
    assert sorted(groups[Query.parse("herding").select(free, 2, 0, labeled)]) == sorted({0, 1, 2, 3} - set(known))


def test_copies_of_one_image_do_not_fill_a_batch():
    features, groups = blobs([40] * 10)
    copies = np.repeat(features[groups == 3][:1], 500, axis=0)
    pool = np.concatenate([features, copies])
    chosen = Query.parse("herding").select(Candidates(np.arange(len(pool)), features=pool), 10, 0)
    assert (chosen >= len(features)).sum() <= 1


def test_a_large_pool_is_seen_through_a_sample(monkeypatch):
    features, groups = blobs([500] * 6)
    monkeypatch.setattr(coverage, "CHOICE", 100)
    monkeypatch.setattr(coverage, "CELLS", 20_000)
    chosen = Query.parse("herding").select(Candidates(np.arange(3_000), features=features), 6, 0)
    assert sorted(groups[chosen]) == [0, 1, 2, 3, 4, 5]


def test_long_embeddings_are_seen_along_their_strongest_directions(monkeypatch):
    monkeypatch.setattr(coverage, "KEPT", 4)
    draw = rng(3)
    strong = draw.normal(size=(300, 4)) @ draw.normal(size=(4, 600)) * 10
    features = (strong + draw.normal(size=(300, 600)) * 0.01).astype(np.float32)
    near = space_of(features, rng(0))(features)
    centred = features - features.mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    assert near.shape == (300, 4)
    np.testing.assert_allclose(near @ near.T, unit @ unit.T, atol=1e-3)


def test_what_was_picked_before_is_not_picked_again():
    """Without its mark the best row would be best once more, where it covers nothing for good."""
    kernel = np.eye(5, dtype=np.float32) * np.array([[0.9], [0.8], [0.7], [0.6], [0.5]], np.float32)
    covered = np.zeros(5, np.float32)
    assert greedy(kernel, covered, None, 2)[0].tolist() == [0, 1]
    assert greedy(kernel, covered, None, 2, taken=[0, 2])[0].tolist() == [1, 3]


def test_picks_that_fill_up_a_batch_are_others():
    """Where all is covered every gain is zero, and ties go to the first row: also then no row comes twice."""
    kernel = np.ones((6, 4), np.float32)
    picked, gains = coverage.greedy(kernel, np.ones(4, np.float32), None, 4, taken=[0, 1])
    assert sorted(picked.tolist()) == [2, 3, 4, 5]
    assert gains.tolist() == [0, 0, 0, 0]
