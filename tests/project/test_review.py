"""Where the mistakes may be: planted ones are found, clean labels are left alone."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from mma.project.review import FolderDoubt, doubts_by_folder, find_conflicts, find_wrong_labels, label_margins


def planted(count: int = 300, classes: int = 6, wrong: int = 15, seed: int = 0):
    """Labels with some wrong ones, and probabilities of a model that mostly knows better; class 0 is often mixed up with 1."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, classes, count)
    logits = draw.normal(0, 1, (count, classes))
    logits[np.arange(count), truth] += 4
    logits[truth == 0, 1] += 3
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels, bad = truth.copy(), draw.choice(count, wrong, replace=False)
    labels[bad] = (truth[bad] + draw.integers(1, classes, wrong)) % classes
    return labels, truth, probs, set(bad.tolist())


def test_planted_wrong_labels_are_found_with_the_right_class():
    labels, truth, probs, bad = planted()
    found = find_wrong_labels(labels, probs)
    rows = {suspect.row for suspect in found}
    assert len(rows & bad) / len(bad) > 0.7
    assert len(rows & bad) / len(rows) > 0.6
    right = [suspect.likely == truth[suspect.row] for suspect in found if suspect.row in bad]
    assert np.mean(right) > 0.8
    assert all(suspect.given == labels[suspect.row] != suspect.likely for suspect in found)
    confidence = [suspect.self_confidence for suspect in found]
    assert confidence == sorted(confidence)


def test_labels_that_the_model_agrees_with_are_not_suspect():
    labels, _, probs, _ = planted(wrong=0, classes=4)
    sure = np.full_like(probs, 0.01)
    sure[np.arange(len(labels)), labels] = 0.97
    assert find_wrong_labels(labels, sure) == []


def test_classes_without_labels_and_a_single_class_are_no_trouble():
    labels, _, probs, bad = planted(classes=4)
    wide = np.insert(probs * 0.9, 2, 0.1, axis=1)  # a class that nobody labeled yet, at place 2
    shifted = labels + (labels >= 2)
    found = find_wrong_labels(shifted, wide)
    assert {suspect.row for suspect in found} & bad
    assert all(suspect.likely != 2 for suspect in found)
    assert find_wrong_labels(np.zeros(20, np.int64), np.full((20, 3), 1 / 3)) == []
    assert find_wrong_labels(np.zeros(0, np.int64), np.zeros((0, 3))) == []


def test_without_cleanlab_a_sentence_says_how_to_get_it(monkeypatch, refusal):
    monkeypatch.setitem(sys.modules, "cleanlab.filter", None)
    labels, _, probs, _ = planted()
    with refusal():
        find_wrong_labels(labels, probs)


def test_margins_are_below_zero_where_another_class_is_likelier():
    probs = np.array([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]])
    assert label_margins(np.array([0, 1]), probs) == pytest.approx([0.5, -0.5])


def test_alike_images_with_two_labels_are_listed_largest_group_first():
    labels = {"a": 0, "b": 1, "c": 1, "d": 2, "e": 2, "f": 0, "g": 3}
    groups = {"a": "x", "b": "x", "c": "x", "d": "y", "e": "y", "f": "z", "g": "z"}
    found = find_conflicts(labels, groups)
    assert found == [{1: ("b", "c"), 0: ("a",)}, {0: ("f",), 3: ("g",)}]
    assert list(found[0]) == [1, 0]
    assert find_conflicts(labels, {}) == []


def test_doubts_are_counted_by_folder():
    asked = ["cats/1.jpg", "cats/2.jpg", "cats/old/3.jpg", "dogs/4.jpg", "5.jpg", "dogs/6.jpg"]
    found = doubts_by_folder(asked, ["dogs/4.jpg", "dogs/6.jpg", "5.jpg", "cats/old/3.jpg"])
    assert found == [FolderDoubt("dogs", 2, 2), FolderDoubt("", 1, 1), FolderDoubt("cats/old", 1, 1)]
