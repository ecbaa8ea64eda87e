"""Guesses become a start as far as labels show that they are right."""

from __future__ import annotations

import numpy as np
import pytest

from mma.soft_targets import Guesses, fit_soft, reliability

CLASSES = 4


@pytest.fixture
def pool():
    """Four clouds in 16 dimensions, and what each image is."""
    draw = np.random.default_rng(0)
    y = np.arange(400) % CLASSES
    x = draw.normal(size=(400, 16)) + 2.0 * np.eye(CLASSES, 16)[y]
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


def right(x, y, linear):
    return float(((x @ linear[0].T + linear[1]).argmax(1) == y).mean())


def test_one_hot_targets_give_a_logistic_regression(pool):
    x, y = pool
    from sklearn.linear_model import LogisticRegression

    theirs = LogisticRegression(C=1 / (1e-2 * len(y)), max_iter=500).fit(x, y)
    weight, bias = fit_soft(x, np.eye(CLASSES)[y], 1e-2)
    assert np.abs((weight - weight.mean(0)) - (theirs.coef_ - theirs.coef_.mean(0))).max() < 0.05
    assert ((x @ weight.T + bias).argmax(1) == theirs.predict(x)).mean() > 0.99


def test_a_source_that_mixes_up_two_classes_comes_to_mean_the_right_one(pool):
    _, y = pool
    said = np.where(y == 0, 1, np.where(y == 1, 0, y))
    source = np.eye(CLASSES)[said]
    few = reliability(source[:0], np.zeros((0, CLASSES)), np.ones(0))
    many = reliability(source[:80], np.eye(CLASSES)[y[:80]], np.ones(80))
    assert few.argmax(1).tolist() == [0, 1, 2, 3]  # trusted until labels say something else
    assert many.argmax(1).tolist() == [1, 0, 2, 3]


def test_guesses_that_are_right_help_and_those_at_random_get_no_weight(pool):
    x, y = pool
    draw, rows = np.random.default_rng(1), np.arange(2 * CLASSES)
    good = np.where(draw.random(400) < 0.8, y, draw.integers(0, CLASSES, 400))
    alone = fit_soft(x[rows], np.eye(CLASSES)[y[rows]], 1e-3)
    helped, trust = Guesses([np.eye(CLASSES)[good]]).start(x, rows, y[rows], np.arange(400))
    assert trust > 0
    assert right(x, y, helped) > right(x, y, alone) + 0.05
    noise = np.eye(CLASSES)[draw.integers(0, CLASSES, 400)]
    same, trust = Guesses([noise]).start(x, rows, y[rows], np.arange(400))
    assert trust == 0.0
    assert right(x, y, same) == right(x, y, alone)


def test_photos_taken_out_of_a_group_lower_the_trust_in_its_source(pool):
    _, y = pool
    source, rows = np.eye(CLASSES)[y], np.arange(4)
    before = Guesses([source]).meaning(rows, y[rows])[0]
    after = Guesses([source], doubts=[(row, int(y[row])) for row in range(40, 70)]).meaning(rows, y[rows])[0]
    assert np.trace(after) < 0.6 * np.trace(before)


def test_labels_of_a_group_that_a_source_had_chosen_count_less(pool):
    _, y = pool
    wrong, rows = np.eye(CLASSES)[(y + 1) % CLASSES], np.arange(40)
    full = Guesses([wrong]).meaning(rows, y[rows])[0]
    less = Guesses([wrong], np.full(400, 0.25)).meaning(rows, y[rows])[0]
    assert np.trace(full) < np.trace(less)


def test_a_source_that_says_nothing_about_a_photo_gives_it_no_target(pool):
    _, y = pool
    source = np.eye(CLASSES)[y]
    source[10:] = 0.0
    guesses = Guesses([source])
    targets = guesses.targets(guesses.meaning(np.arange(8), y[:8]))
    assert targets[:10].sum(1) == pytest.approx(1.0)
    assert not targets[10:].any()
