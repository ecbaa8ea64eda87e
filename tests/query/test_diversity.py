import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from mma.query import Candidates, Query, diversity, mean_cosine_similarity
from mma.query.diversity import clusters
from mma.rng import rng
from mma.shares import shares


def blobs(sizes, dim=5):
    """Well separated groups of rows; which group each row is in."""
    draw = rng(0, "blobs")
    groups = draw.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return draw.normal(size=(len(sizes), dim))[groups] * 50 + draw.normal(size=(len(groups), dim)) * 0.01, groups


def test_kmeans_takes_from_each_cluster_in_proportion_and_the_most_uncertain_of_each():
    features, groups = blobs([100, 100, 200, 600] + [50] * 16)
    sure = rng(1).uniform(0.5, 1, size=len(groups))
    candidates = Candidates(np.arange(len(groups)), np.stack([sure, 1 - sure], axis=1), features)
    chosen = Query.parse("max-kmeans").select(candidates, 36, rng(2))
    assert np.bincount(groups[chosen]).tolist() == [2, 2, 4, 12] + [1] * 16
    for group in range(20):
        mine, best = chosen[groups[chosen] == group], np.flatnonzero(groups == group)
        assert set(mine) == set(best[np.argsort(sure[best])][: len(mine)])


@settings(max_examples=200, deadline=None)
@given(sizes=st.lists(st.integers(0, 1000), min_size=1, max_size=25), part=st.floats(0, 1))
def test_shares_add_up_never_exceed_a_group_and_are_off_by_less_than_one(sizes, part):
    sizes = np.array([*sizes, 1])
    n = int(part * sizes.sum())
    split = shares(sizes, n)
    assert split.sum() == n
    assert (split >= 0).all()
    assert (split <= sizes).all()
    assert (np.abs(split - n * sizes / sizes.sum()) < 1).all()


def test_shares_by_largest_remainder():
    assert shares(np.array([10, 20, 70]), 10).tolist() == [1, 2, 7]
    assert shares(np.array([47, 16, 37]), 10).tolist() == [5, 1, 4]


def test_clusters_are_the_same_for_any_number_of_threads():
    features = rng(0).normal(size=(3000, 16)).astype(np.float32)
    with threadpool_limits(1):
        one = clusters(features, 20, rng(7))
    with threadpool_limits(2):
        np.testing.assert_array_equal(clusters(features, 20, rng(7)), one)
    assert len(np.unique(one)) == 20


@pytest.mark.parametrize("distinct", [1, 3, 19])
def test_few_distinct_points_make_few_clusters(distinct):
    features = np.eye(19)[np.arange(200) % distinct]
    assert len(np.unique(clusters(features, 20, rng(0)))) == distinct


def test_clusters_do_not_depend_on_the_scale_of_the_features():
    features, _ = blobs([30] * 20)
    np.testing.assert_array_equal(clusters(features, 20, rng(0)), clusters(features * 1e30, 20, rng(0)))


def test_mean_similarity_is_that_of_all_pairs():
    features = rng(0).normal(size=(9000, 3)) + 0.5
    features[5] = 0
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-300)
    np.testing.assert_allclose(mean_cosine_similarity(features)[:100], (unit[:100] @ unit.T).mean(axis=1), atol=1e-12)


def test_equal_images_have_equal_similarity_wherever_they_lie():
    features = rng(0).normal(size=(10_001, 7)).astype(np.float32)
    features[[17, 8_191, 8_192, 10_000]] = features[3]
    assert len(set(mean_cosine_similarity(features)[[3, 17, 8_191, 8_192, 10_000]])) == 1


def test_information_density_prefers_the_typical_among_equally_uncertain():
    features = np.array([[1.0, 0], [1, 0.1], [1, -0.1], [0, 1], [-1, 0]])
    candidates = Candidates(np.arange(5), np.full((5, 2), 0.5), features)
    chosen = Query.parse("max-infoD").selection(candidates, 5, rng(0))
    assert set(chosen.index[:3].tolist()) == {0, 1, 2}
    assert Query.parse("max-infoD").scores(candidates)[4] == 0, "it points away from the rest: clipped, not negative"


def test_a_large_pool_is_clustered_by_a_sample_and_every_row_is_assigned(monkeypatch):
    features, groups = blobs([300] * 20)
    monkeypatch.setattr(diversity, "CLUSTER_SAMPLE", 2_000)
    monkeypatch.setattr(diversity, "BLOCK", 700)
    labels = clusters(features, 20, rng(3))
    assert len(labels) == len(groups)
    pairs = {(int(group), int(label)) for group, label in zip(groups, labels, strict=True)}
    assert len(pairs) == 20  # every group is one cluster, and every cluster one group


def test_sampled_clusters_do_not_depend_on_the_block(monkeypatch):
    features = rng(0).normal(size=(3000, 16)).astype(np.float32)
    monkeypatch.setattr(diversity, "CLUSTER_SAMPLE", 1_000)
    whole = clusters(features, 20, rng(7))
    monkeypatch.setattr(diversity, "BLOCK", 512)
    np.testing.assert_array_equal(clusters(features, 20, rng(7)), whole)
