import numpy as np
import pytest

from mma.query import Candidates, Labeled, Query, coverage
from mma.query.coverage import RADIUS, left_out_accuracy, radius_of, tempered
from mma.query.strategies import in_turns, spread_gradients, typicality, typiclust
from mma.rng import rng


def blobs(sizes, dim=8, seed=0, spread=1.0):
    """Well separated groups of rows; which group each row is in."""
    draw = rng(seed, "blobs")
    groups = draw.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return draw.normal(size=(len(sizes), dim))[groups] * 50 + draw.normal(size=(len(groups), dim)) * spread, groups


def even(n, classes=4):
    return np.full((n, classes), 1 / classes)


# typiclust


def test_typiclust_takes_the_largest_groups_without_a_label_first():
    features, groups = blobs([200, 150, 100, 50, 20])
    labeled = Labeled(features[groups == 0][:1])
    chosen = Query.parse("typiclust").select(Candidates(np.arange(len(groups)), features=features), 4, 0, labeled)
    assert groups[chosen].tolist() == [1, 2, 3, 4]


def test_typiclust_counts_the_clusters_it_picks_from():
    features, groups = blobs([60] * 8)
    labeled = Labeled(np.concatenate([features[groups == group][:3] for group in range(4)]))
    candidates = Candidates(np.arange(len(groups)), features=features)
    picks = typiclust(candidates, labeled, 3, rng(0, "typiclust"))
    assert picks.why == "typical images of 3 clusters, of which 3 had no label"


def test_a_typical_point_lies_in_the_middle_of_its_group():
    draw = rng(2)
    points = draw.normal(size=(200, 6)) * np.linspace(0.1, 1, 200)[:, None] + np.eye(6)[0] * 5
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    order = np.argsort(-typicality(points.astype(np.float32)))
    assert np.mean(order[:50]) < np.mean(order[-50:])


# bald


def test_bald_asks_where_heads_disagree_not_where_they_are_all_unsure():
    axes = np.eye(4)
    draw = rng(3)
    sides = np.repeat([0, 1], 30)
    known = axes[sides] + 0.05 * draw.normal(size=(60, 4))
    known[::6] = axes[2] + 0.02 * draw.normal(
        size=(10, 4)
    )  # where both classes are seen: many heads agree that it is even
    sure, even, far = (
        known[1:13],
        axes[2] + 0.02 * draw.normal(size=(12, 4)),
        axes[3] + 0.02 * draw.normal(size=(12, 4)),
    )
    candidates = Candidates(np.arange(36), features=np.concatenate([sure, even, far]))
    labeled = Labeled(np.repeat(known, 10, axis=0), np.repeat(sides, 10))
    picks = Query.parse("bald").selection(candidates, 12, 0, labeled)
    assert set(picks.index.tolist()) == set(range(24, 36)), "no label lies there"
    alone = Query.parse("bald").selection(candidates, 12, 0, Labeled(known, np.zeros(60, np.int64)))
    assert alone.scores.tolist() == [0.0] * 12


# coreset


def test_coreset_takes_the_farthest_image_each_time():
    features, groups = blobs([40] * 6, spread=0.1)
    candidates = Candidates(np.arange(len(groups)), features=features)
    labeled = Labeled(features[groups < 2])
    picks = Query.parse("coreset").selection(candidates, 5, 0, labeled)
    assert sorted(groups[picks.index[:4]]) == [2, 3, 4, 5], "one of each group without a label first"
    assert picks.scores[3] > 10 * picks.scores[4], "then there is nothing far away left"


# cluster-margin


def test_cluster_margin_takes_one_of_each_cluster_of_uncertain_images():
    features, groups = blobs([30] * 5, spread=0.01)
    sure = np.where(groups == 4, 0.9, 0.5 + 1e-4 * np.arange(len(groups)))  # group 4 is certain
    candidates = Candidates(np.arange(len(groups)), np.stack([sure, 1 - sure], axis=1), features)
    chosen = Query.parse("cluster-margin").select(candidates, 4, 0)
    assert sorted(groups[chosen]) == [0, 1, 2, 3]
    first = [np.flatnonzero(groups == group)[0] for group in range(4)]
    assert set(chosen.tolist()) == set(first), "the most uncertain of each"


def test_small_clusters_have_their_turn_first():
    groups = np.array([0, 0, 0, 1, 1, 2])
    assert in_turns(groups, 6).tolist() == [5, 3, 0, 4, 1, 2]


# badge


def plain_badge(gradients, n, draw):
    """k-means++ on whole gradients."""
    nearest = np.square(gradients).sum(axis=1)
    picked = [int(np.argmax(nearest))]
    while len(picked) < n:
        nearest = np.minimum(nearest, np.square(gradients - gradients[picked[-1]]).sum(axis=1))
        nearest[picked] = 0
        total = np.cumsum(nearest)
        picked.append(int(np.searchsorted(total, draw.random() * total[-1], side="right")))
    return picked


def test_factored_badge_is_badge_on_whole_gradients():
    draw = rng(4)
    errors, points = draw.normal(size=(300, 5)), draw.normal(size=(300, 7))
    gradients = np.einsum("nc,nd->ncd", errors, points).reshape(300, -1)
    sizes = np.square(gradients).sum(axis=1)
    assert spread_gradients(errors, points, sizes, 40, rng(1)).tolist() == plain_badge(gradients, 40, rng(1))


# power


def test_power_draws_in_proportion_to_the_scores():
    sure = np.array([0.6, 0.8, 1.0, 1.0])
    candidates = Candidates(np.arange(4), np.stack([sure, 1 - sure], axis=1))
    query = Query.parse("max-power")
    counts = np.bincount([int(query.select(candidates, 1, seed)[0]) for seed in range(600)], minlength=4)
    assert counts[2] == counts[3] == 0, "certain images are drawn last"
    assert counts[0] / 600 == pytest.approx(2 / 3, abs=0.07)


# trust


def test_left_out_accuracy_is_that_of_fitting_again_without_each_label():
    draw = rng(5)
    labels = np.arange(30) % 3
    points = draw.normal(size=(3, 6))[labels] + draw.normal(size=(30, 6))
    right = np.zeros(30)
    for i in range(30):
        rest = np.delete(np.arange(30), i)
        x, y = points[rest], np.eye(3)[labels[rest]]
        weights = np.linalg.solve(x @ x.T + 1 + 0.1 * np.eye(29), y)
        right[i] = ((points[i] @ x.T + 1) @ weights).argmax() == labels[i]
    assert 0 < right.mean() < 1
    assert left_out_accuracy(points, labels, points, rng(0)) == pytest.approx(right.mean())
    some = np.repeat(points, np.arange(30), axis=0)  # label i stands for i images
    assert left_out_accuracy(points, labels, some, rng(0)) == pytest.approx(right @ np.arange(30) / np.arange(30).sum())


def test_a_label_counts_by_the_images_it_stands_for():
    features, groups = blobs([50, 50, 100, 100], spread=0.1)
    known = np.concatenate([labels_of(groups, (0, 1), 10), labels_of(groups, (2, 3), 1)])
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert left_out_accuracy(unit[known], groups[known], unit[known], rng(0)) == pytest.approx(20 / 22)
    assert left_out_accuracy(unit[known], groups[known], unit, rng(0)) == pytest.approx(100 / 300)


@pytest.mark.parametrize("labels", [[], [0], [-1, -1, -1], [2, 2, 2, -1]])
def test_without_labels_of_two_classes_there_is_no_trust(labels):
    points = np.ones((len(labels), 3))
    assert left_out_accuracy(points, np.array(labels, np.int64), np.ones((5, 3)), rng(0)) == 0


@pytest.mark.parametrize("accuracy", [0.4, 0.6, 0.9])
def test_tempered_probabilities_are_as_confident_as_the_accuracy(accuracy):
    logits = rng(6).normal(size=(500, 4)) * 5
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert tempered(probs, accuracy).max(axis=1).mean() == pytest.approx(accuracy, abs=1e-3)


def test_without_trust_all_classes_are_equal():
    np.testing.assert_allclose(tempered(np.array([[0.9, 0.1], [0.2, 0.8]]), 0.0), 0.5, atol=0.02)


def test_the_radius_is_the_usual_distance_between_labeled_images():
    circle = np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, 2 * np.pi, 12, endpoint=False)])
    assert radius_of(circle) == pytest.approx(2 * np.sin(np.pi / 12))
    assert radius_of(circle[:1]) == radius_of(circle[[0, 6]]) == RADIUS


# uherding and auto


@pytest.mark.parametrize("name", ["uherding", "auto"])
def test_before_there_is_a_model_it_is_herding(name):
    features, groups = blobs([100, 80, 60, 40])
    pool = Candidates(np.arange(len(groups)), features=features)
    chosen = Query.parse(name).select(pool, 4, 0)
    assert chosen.tolist() == Query.parse("herding").select(pool, 4, 0).tolist()


def labels_of(groups, of, count):
    return np.concatenate([np.flatnonzero(groups == group)[:count] for group in of])


@pytest.mark.parametrize("name", ["uherding", "auto"])
def test_a_trusted_model_is_asked_where_it_is_unsure(name):
    features, groups = blobs([60] * 6, spread=4.0)
    probs = np.eye(6)[groups]
    probs[groups == 5] = 1 / 6
    known = labels_of(groups, range(6), 3)
    free = np.setdiff1d(np.arange(len(groups)), known)
    picked = Query.parse(name).selection(
        Candidates(free, probs[free], features[free]), 5, 0, Labeled(features[known], groups[known])
    )
    assert (groups[picked.index] == 5).all()
    assert "unsure" in picked.why


@pytest.mark.parametrize(("accuracy", "trusted"), [(0.0, False), (0.3, False), (0.34, True), (1.0, True)])
def test_auto_trusts_the_model_from_a_third_of_left_out_labels_on(monkeypatch, accuracy, trusted):
    monkeypatch.setattr("mma.query.coverage.left_out_accuracy", lambda *args: accuracy)
    draw = rng(3, "auto")
    probs = draw.dirichlet(np.ones(3), 60)
    candidates = Candidates(np.arange(60), probs, draw.normal(size=(60, 5)))
    labeled = Labeled(draw.normal(size=(6, 5)), np.arange(6) % 3)
    why = Query.parse("auto").selection(candidates, 4, 0, labeled).why
    assert ("it can be trusted" in why) == trusted
    assert ("cannot be trusted yet" in why) != trusted


def test_auto_covers_while_left_out_labels_are_predicted_wrong():
    features, groups = blobs([60] * 6, spread=4.0)
    probs = np.eye(6)[groups]
    probs[groups == 5] = 1 / 6
    known = labels_of(groups, range(3), 1)  # one of each: nothing can be left out
    free = np.setdiff1d(np.arange(len(groups)), known)
    picked = Query.parse("auto").selection(
        Candidates(free, probs[free], features[free]), 3, 0, Labeled(features[known], groups[known])
    )
    assert sorted(groups[picked.index]) == [3, 4, 5]
    assert "cannot be trusted yet" in picked.why
    assert "stand for 0% of the pool" in picked.why


@pytest.mark.parametrize(
    ("accuracy", "trusted"), [(0.0, False), (0.2, False), (0.33, False), (0.34, True), (0.9, True)]
)
def test_auto_trusts_a_model_from_a_third_of_left_out_labels_on(accuracy, trusted, monkeypatch):
    monkeypatch.setattr(coverage, "left_out_accuracy", lambda *_: accuracy)
    features, groups = blobs([60] * 3, spread=4.0)
    pool = Candidates(np.arange(len(groups)), np.eye(3)[groups], features)
    picked = Query.parse("auto").selection(pool, 3, 0, Labeled(features[:2], groups[:2]))
    assert ("it can be trusted" in picked.why) is trusted
    assert ("cannot be trusted yet" in picked.why) is not trusted


@pytest.mark.parametrize("name", ["uherding", "auto"])
def test_classes_that_labels_hardly_cover_are_asked_about_although_the_model_is_sure_of_them(name):
    # 120 images of four classes: two with ten labels each, two with one each that nothing confirms. The model doubts the
    # former and is sure of the latter; the labels alone, each left out in turn, look good: 20 of 22 right.
    features, groups = blobs([30] * 4, spread=12.0)
    known = np.concatenate([labels_of(groups, (0, 1), 10), labels_of(groups, (2, 3), 1)])
    probs = np.eye(4)[np.maximum(groups, 2)]
    probs[groups < 2] = [0.5, 0.5, 0, 0]
    free = np.setdiff1d(np.arange(120), known)
    labeled = Labeled(features[known], groups[known])
    picked = Query.parse(name).select(Candidates(free, probs[free], features[free]), 14, 0, labeled)
    assert np.bincount(groups[picked], minlength=4)[2:].min() >= 3


@pytest.mark.parametrize("name", ["herding", "uherding", "auto"])
def test_near_duplicates_never_fill_a_batch(name):
    features, groups = blobs([30] * 8, spread=4.0)
    many = features[groups == 7][:1] + rng(8).normal(size=(400, 8)) * 0.01
    pool, truth = np.concatenate([features, many]), np.concatenate([groups, np.full(400, 7)])
    known = labels_of(groups, range(8), 2)
    free = np.setdiff1d(np.arange(len(pool)), known)
    probs = even(len(pool), 8)
    candidates = Candidates(free, probs[free], pool[free])
    chosen = Query.parse(name).select(candidates, 20, 0, Labeled(pool[known], truth[known]))
    assert (chosen >= len(features)).sum() <= 2


@pytest.mark.parametrize("name", ["uherding", "auto"])
def test_where_the_model_is_sure_of_everything_copies_do_not_fill_a_batch(name):
    features, groups = blobs([10] * 6)
    pool, truth = np.repeat(features, 10, axis=0), np.repeat(groups, 10)  # ten copies of each image
    known = labels_of(truth, range(6), 25)[::10]  # of three images of each group
    free = np.setdiff1d(np.arange(600), known)
    labeled = Labeled(pool[known], truth[known])
    probs = np.eye(6, dtype=np.float32)[truth]
    picked = Query.parse(name).selection(Candidates(free, probs[free], pool[free]), 20, 0, labeled)
    assert "stand for 100% of the pool" in picked.why
    assert "sure of all others, so that 20 picks cover the pool" in picked.why
    assert not set(picked.index // 10) & set(known // 10), "no copy of a labeled image"
    assert len(set(picked.index // 10)) == 20


@pytest.mark.parametrize("name", ["uherding", "auto"])
def test_one_doubt_with_many_copies_is_asked_about_once(name):
    features, groups = blobs([40] * 6)
    pool, truth = np.concatenate([features, np.repeat(features[:1], 60, axis=0)]), np.append(groups, [groups[0]] * 60)
    known = labels_of(groups, range(6), 5)
    known = known[known > 0]
    free = np.setdiff1d(np.arange(300), known)
    probs = np.eye(6, dtype=np.float32)[truth]
    doubt = np.r_[0, 240:300]
    probs[doubt] = 1 / 6
    picked = Query.parse(name).selection(
        Candidates(free, probs[free], pool[free]), 20, 0, Labeled(pool[known], truth[known])
    )
    assert picked.index[0] in doubt
    assert np.isin(picked.index, doubt).sum() == 1
