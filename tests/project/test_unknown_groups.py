"""Images that match no class: a planted class is found, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from mma.project.review import find_split_classes, find_unknown_groups
from mma.project.worker import picks
from mma.project.worker.picks import nearest_similarity


def blobs(counts: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Clusters on a sphere, and which one each image is of."""
    draw = np.random.default_rng(seed)
    centres = np.linalg.qr(draw.normal(size=(32, len(counts))))[0].T
    which = np.repeat(np.arange(len(counts)), counts)
    features = centres[which] + 0.08 * draw.normal(size=(len(which), 32))
    return (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32), which


def test_most_of_a_class_that_nobody_named_is_found_and_nothing_else():
    features, which = blobs([60, 60, 60, 40])
    labels = np.where(which < 3, which, -1)
    labels[np.arange(len(labels)) % 2 == 1] = -1  # half of the others are free too
    (group,) = find_unknown_groups(features, labels)
    assert set(group) <= set(np.flatnonzero(which == 3))
    assert len(group) >= 32
    middle = features[list(group)].mean(0)
    assert group[0] == max(group, key=lambda row: features[row] @ middle)


def test_two_unnamed_classes_are_two_groups_the_larger_first():
    features, which = blobs([80, 80, 20, 30])
    labels = np.where((which < 2) & (np.arange(len(which)) % 2 == 0), which, -1)
    first, second = find_unknown_groups(features, labels)
    assert set(which[list(first)]) == {3}
    assert set(which[list(second)]) == {2}


def test_where_every_class_is_named_no_group_is_found():
    features, which = blobs([80, 80, 80])
    labels = np.where(np.arange(len(which)) % 2 == 0, which, -1)
    assert find_unknown_groups(features, labels) == []


def test_single_images_that_match_no_class_are_not_a_group():
    features, which = blobs([80, 80, 2, 2])
    assert find_unknown_groups(features, np.where(which < 2, which, -1)) == []


def test_too_few_labels_or_nothing_free_is_no_trouble():
    features, which = blobs([20, 20])
    assert find_unknown_groups(features, np.full(40, -1)) == []
    assert find_unknown_groups(features, which) == []


def test_a_digit_that_nobody_named_is_found_among_real_ones():
    images, truth = load_digits(return_X_y=True)
    features = images - images.mean(0)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = np.where((truth != 6) & (np.arange(len(truth)) % 3 == 0), truth, -1)
    group = find_unknown_groups(features, labels)[0]
    assert np.mean(truth[list(group)] == 6) > 0.8


def test_similarities_are_the_same_in_blocks(monkeypatch):
    features, _ = blobs([30, 30])
    whole = nearest_similarity(features, features, skip_self=True)
    monkeypatch.setattr(picks, "BLOCK", 7)
    assert nearest_similarity(features, features, skip_self=True) == pytest.approx(whole)
    assert whole.max() < 1


def test_a_class_of_two_kinds_looks_like_two_and_a_class_of_one_does_not():
    features, which = blobs([40, 40, 40, 25, 8])
    labels = np.array([0, 1, 2, 2, -1])[which]  # the third class holds two kinds
    ((part, others),) = find_split_classes(features, labels)
    assert set(part) == set(np.flatnonzero(which == 3))
    assert others == 40
    assert find_split_classes(features, np.array([0, 1, 2, 3, -1])[which]) == []


def test_classes_with_few_labels_are_not_cut():
    features, which = blobs([40, 40, 5, 4])
    assert find_split_classes(features, np.array([0, 1, 2, 2])[which]) == []
    assert find_split_classes(features, np.full(len(which), -1)) == []
