"""How good a model is, from labels it never trained on."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mma.project.quality.accuracy import (
    PER_CELL,
    calibrate,
    effective_size,
    explain_source,
    fold_numbers,
    judge,
    judged_images,
    share,
)
from mma.shares import exact_interval


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


def test_a_verdict_takes_fifty_audit_labels():
    few, enough = (judge(one_hot(np.zeros(n, int)), np.zeros(n, int), ["a", "b", "c"]) for n in (49, 50))
    assert (few.final, enough.final) == (False, True)
    assert "a verdict needs 50" in few.where
    assert "a verdict needs" not in enough.where
    crossed = judge(one_hot(np.zeros(90, int)), np.zeros(90, int), ["a", "b", "c"], "cross-validation")
    assert not crossed.final
    assert crossed.where.startswith("cross-validation on 90 labels")


def test_no_labels_at_all_are_no_accuracy_and_no_crash():
    found = judge(np.zeros((0, 2)), np.zeros(0, np.int64), ["a", "b"])
    assert (found.accuracy.low, found.accuracy.high) == (0.0, 1.0)
    assert np.isnan(found.accuracy.value)
    assert all(one.recall is None and one.precision is None for one in found.classes)


def test_one_audit_label_is_written_in_the_singular():
    assert explain_source("audit", 1).startswith("1 audit label,")


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
        assert np.bincount(fold[labels == k], minlength=5).tolist() == [8] * 5


def test_the_statistics_do_not_load_torch():
    rooms = "mma.project.quality.accuracy, mma.project.quality.forecast, mma.project.quality.status, mma.project.quality.query_benefit"
    code = f"import sys, {rooms}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_weighed_answers_count_by_their_weight_and_widen_the_interval():
    right = np.array([True] * 10 + [False] * 10)
    weights = np.array([3.0] * 10 + [1.0] * 10)
    plain, weighed = share(right), share(right, None, weights)
    assert (plain.value, weighed.value) == (0.5, pytest.approx(0.75))
    assert (weighed.right, weighed.of) == (10, 20)  # counts of images are not weighed
    assert weighed.low < exact_interval(15, 20)[0]  # as many as 16 images, not 20
    assert share(right, None, np.full(20, 7.0)) == plain


def test_recall_and_precision_are_weighed_too():
    said, labels = np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1])
    quality = judge(one_hot(said), labels, ["a", "b", "c"], weights=np.array([3.0, 1.0, 1.0, 1.0]))
    assert quality.accuracy.value == pytest.approx(5 / 6)
    assert quality.classes[0].recall.value == pytest.approx(3 / 4)
    assert quality.classes[1].precision.value == pytest.approx(2 / 3)
    assert quality.confusion[0] == (1, 1, 0)
