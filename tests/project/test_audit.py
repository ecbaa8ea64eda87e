"""How good a model is, from labels it never trained on."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mma.project.quality.accuracy import (
    BINS,
    PER_CELL,
    balanced_share,
    calibrate,
    cross_fit,
    doubtful_rows,
    effective_size,
    fold_numbers,
    foresee,
    judge,
    judged_images,
    share,
)
from mma.shares import Share, exact_interval


def one_hot(said, classes=3, confidence=0.9):
    probs = np.full((len(said), classes), (1 - confidence) / (classes - 1))
    probs[np.arange(len(said)), said] = confidence
    return probs


def test_near_duplicates_that_agree_count_once():
    right = np.repeat([True, False, True, True, False, True, True, True], 4)
    groups = np.repeat(np.arange(8), 4).tolist()
    assert effective_size(right, groups) <= 8.5
    alone, together = share(right), share(right, groups)
    assert together.value == alone.value
    assert together.low < alone.low
    assert together.high > alone.high


def test_the_effective_size_is_that_of_korn_and_graubard():
    """Three groups of two, of which one is split: p = 1/2, its variance by groups 3/2 * (1 + 0 + 1) / 36 = 1/12."""
    right, groups = np.array([True, True, True, False, False, False]), [0, 0, 1, 1, 2, 2]
    assert effective_size(right, groups) == pytest.approx(1 / 4 * 12)


def test_groups_that_contradict_themselves_count_as_many_as_there_are_images_and_not_more():
    right = np.array([True, False] * 10)
    assert effective_size(right, [row // 2 for row in range(20)]) == 20
    mostly = np.array([True, False] * 9 + [True, True])
    assert effective_size(mostly, [row // 2 for row in range(20)]) == 20


def test_images_without_near_duplicates_count_each():
    right = np.array([True, False, True, True])
    assert effective_size(right, list("abcd")) == 4
    assert share(right, list("abcd")) == share(right)


def test_groups_that_are_all_right_count_as_many_as_there_are_groups():
    assert effective_size(np.ones(12, bool), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]) == 3


def test_recall_and_precision_are_read_off_rows_and_columns_of_the_confusion_matrix():
    labels, said = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 0, 1])
    found = judge(one_hot(said), labels, ["a", "b", "c"])
    assert found.confusion == ((2, 1, 0), (1, 1, 0), (0, 1, 0))
    recalls = [(one.recall.right, one.recall.of) for one in found.classes]
    assert recalls == [(2, 3), (1, 2), (0, 1)]
    assert (found.classes[1].precision.right, found.classes[1].precision.of) == (1, 3)
    assert found.classes[2].precision is None  # nothing was called c
    assert found.accuracy.right == 3


def test_judged_images_are_listed_with_the_surest_first():
    probs = np.array([[0.2, 0.8], [0.9, 0.1], [0.4, 0.6]])
    found = judged_images(["x", "y", "z"], probs, np.array([0, 0, 0]), ["a", "b"])
    assert [(one.image, one.label, one.said, one.confidence) for one in found] == [
        ("y", "a", "a", 0.9),
        ("x", "a", "b", 0.8),
        ("z", "a", "b", 0.6),
    ]
    assert judged_images([], np.zeros((0, 2)), np.zeros(0, np.int64), ["a", "b"]) == ()


def test_a_cell_with_many_images_keeps_the_surest():
    probs = np.stack([np.linspace(0.5, 1, 100), np.linspace(0.5, 0, 100)], 1)
    found = judged_images([str(n) for n in range(100)], probs, np.zeros(100, np.int64), ["a", "b"])
    assert [one.image for one in found] == [str(n) for n in range(99, 99 - PER_CELL, -1)]


def test_an_accuracy_says_how_many_photos_it_rests_on():
    one, ten = (judge(one_hot(np.zeros(n, int)), np.zeros(n, int), ["a", "b", "c"]) for n in (1, 10))
    assert one.where.startswith("1 photo drawn at random")
    assert ten.where.startswith("10 photos drawn at random")


def test_recalls_matrix_and_accuracy_come_from_the_same_images():
    draw = np.random.default_rng(0)
    labels, said = draw.integers(3, size=(2, 60))
    found = judge(one_hot(said), labels, ["a", "b", "c"])
    table = np.array(found.confusion)
    assert found.accuracy.right == np.trace(table) == sum(one.recall.right for one in found.classes)
    assert found.accuracy.of == table.sum() == sum(one.recall.of for one in found.classes)
    assert [one.recall.value for one in found.classes] == pytest.approx((np.diag(table) / table.sum(1)).tolist())


def test_balanced_accuracy_is_said_where_one_class_is_more_than_twice_the_mean():
    assert balanced_share(np.diag([10, 10, 10])) is None
    assert balanced_share(np.diag([20, 20, 20, 19])) is None
    found = balanced_share(np.array([[80, 0, 0], [5, 5, 0], [10, 0, 0]]))
    assert found.value == pytest.approx((1 + 0.5 + 0) / 3)
    assert (found.right, found.of) == (85, 100)
    assert found.low < 0.5 < found.high
    assert found.high - found.low > share(np.arange(100) < 85).high - share(np.arange(100) < 85).low


def test_a_class_without_an_audit_image_takes_no_part_in_the_balanced_accuracy():
    with_it, without = (
        np.array([[80, 0, 0, 0], [5, 5, 0, 0], [10, 0, 0, 0], [0] * 4]),
        np.array([[80, 0, 0], [5, 5, 0], [10, 0, 0]]),
    )
    assert balanced_share(with_it) == balanced_share(without)


def test_balanced_intervals_hold_the_mean_recall_in_nineteen_of_twenty_cases():
    draw, recalls, sizes = np.random.default_rng(0), np.array([0.95, 0.7, 0.5, 0.8]), np.array([60, 6, 4, 10])
    inside = []
    for _ in range(1_000):
        right = draw.binomial(sizes, recalls)
        found = balanced_share(np.diag(right) + np.roll(np.diag(sizes - right), 1, axis=1))
        inside.append(found.low <= recalls.mean() <= found.high)
    assert np.mean(inside) >= 0.95


def test_no_labels_at_all_are_no_accuracy_and_no_crash():
    found = judge(np.zeros((0, 2)), np.zeros(0, np.int64), ["a", "b"])
    assert (found.accuracy.low, found.accuracy.high) == (0.0, 1.0)
    assert np.isnan(found.accuracy.value)
    assert all(one.recall is None and one.precision is None for one in found.classes)


def test_bins_of_unequal_size_count_by_their_images():
    confidence = np.array([0.6, 0.6, *[1.0] * (BINS - 1)])  # one image more than bins: the first bin holds two
    found = calibrate(np.column_stack([confidence, 1 - confidence]), np.array([False, False, *[True] * (BINS - 1)]))
    assert found.error == pytest.approx(2 * 0.6 / (BINS + 1))


def test_calibration_tells_by_how_much_confidence_is_too_high():
    right = np.arange(100) % 10 < 6
    found = calibrate(one_hot(np.zeros(100, int)), right)
    assert found.gap == pytest.approx(0.3)
    assert found.error == pytest.approx(0.3, abs=0.02)
    assert sum(one.accuracy.of for one in found.bins) == 100


def test_folds_keep_near_duplicates_together_and_share_out_every_class():
    labels = np.repeat([0, 1, 2], 40)
    groups = [str(i // 2) for i in range(120)]
    fold = fold_numbers(labels, groups)
    assert all(fold[i] == fold[i + 1] for i in range(0, 120, 2))
    for k in range(3):
        assert sorted(np.bincount(fold[labels == k], minlength=3).tolist()) == [12, 14, 14]


def test_the_statistics_do_not_load_torch():
    rooms = "mma.project.quality.accuracy, mma.project.quality.forecast, mma.project.quality.status, mma.project.quality.query_benefit"
    code = f"import sys, {rooms}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_photo_is_judged_by_a_model_that_saw_neither_it_nor_its_near_duplicates():
    """The labels are drawn by lot, and the model knows those it has seen by heart: whatever leaks would be right."""
    labels = np.random.default_rng(0).integers(2, size=40).repeat(2)
    groups = [str(i // 2) for i in range(80)]
    asked = []

    def predict(left_out):
        seen = {group: label for group, label, out in zip(groups, labels, left_out, strict=True) if not out}
        asked.append(int(left_out.sum()))
        return one_hot([seen.get(group, 1 - labels[int(group) * 2]) for group in np.array(groups)[left_out]], 2)

    probs = cross_fit(labels, groups, predict)
    assert not (probs.argmax(1) == labels).any()
    assert sum(asked) == 80
    assert len(asked) == 3
    assert cross_fit(labels[:0], [], predict).shape == (0, 0)


def test_labels_that_a_sure_model_contradicts_are_asked_again_among_as_many_that_it_agrees_with():
    labels = np.zeros(40, np.int64)
    said = np.where(np.arange(40) < 6, 1, 0)
    probs = one_hot(said)
    probs[0] = [0.4, 0.35, 0.25]  # here it is not sure
    probs[0, 1] = 0.45
    asked = np.zeros(40, bool)
    asked[1] = True
    found = doubtful_rows(probs, labels, asked, np.random.default_rng(0))
    assert set(found[found < 6]) == {2, 3, 4, 5}
    assert len(set(found)) == 8
    places = [doubtful_rows(probs, labels, asked, np.random.default_rng(s))[0] < 6 for s in range(40)]
    assert 8 < sum(places) < 32  # the place in the row does not say which
    assert len(doubtful_rows(probs[:0], labels[:0], asked[:0], np.random.default_rng(0))) == 0


def test_what_more_audit_labels_would_bring_is_said_before():
    assert (
        foresee(None, 2, 8, 5)
        == "5 more photos drawn at random are not enough for a number: it takes 10, and there are 2."
    )
    early, later = foresee(None, 0, 0, 30), foresee(Share(0.8, 0.6, 0.9, 24, 30), 30, 90, 30)
    assert "about 20 points to either side, if about four of five" in early
    assert "about 12 points to either side instead of 17." in later
    assert foresee(None, 9, 20, 1).startswith("With 1 more photo drawn")


def test_answers_of_crossed_models_count_for_less_while_there_are_few_labels():
    right = np.arange(20) % 5 > 0
    alone, few, many = share(right), share(right, learned=50), share(right, learned=5_000)
    assert alone.value == few.value == many.value
    assert (few.right, few.of) == (16, 20)
    assert few.low < many.low < alone.low < alone.high < many.high < few.high
    assert few.high - few.low == pytest.approx(np.subtract(*exact_interval(0.8 * 20 * 5 / 7, 20 * 5 / 7)[::-1]))
