"""Agreement of people: the values of the papers and of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from mma.project.quality.agreement import (
    cohen_kappa,
    find_disagreements,
    fleiss_kappa,
    overall_kappa,
    pairwise_kappas,
    self_consistency,
)

# Fleiss 1971 as it is usually shown: ten subjects, fourteen people, five categories.
TABLE = np.array(
    [
        *([0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1]),
        *([7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]),
    ]
)


def test_cohen_is_that_of_scikit_learn():
    draw = np.random.default_rng(0)
    for _ in range(20):
        first = draw.integers(0, 4, 50)
        second = np.where(draw.random(50) < 0.6, first, draw.integers(0, 4, 50))
        assert cohen_kappa(first, second).value == pytest.approx(cohen_kappa_score(first, second))


def test_fleiss_is_that_of_the_known_example():
    found = fleiss_kappa(TABLE)
    assert found.value == pytest.approx(0.210, abs=5e-4)
    assert found.same == pytest.approx(0.378, abs=5e-4)
    assert found.images == 10


def test_two_people_who_each_answered_all_images_agree_alike_in_both():
    same = np.array([[2, 0], [0, 2], [2, 0]])
    assert fleiss_kappa(same).value == pytest.approx(1.0)
    never = np.array([[1, 1], [1, 1]])
    assert fleiss_kappa(never).value == pytest.approx(-1.0)


def test_images_with_one_answer_are_left_out():
    assert fleiss_kappa(np.vstack([TABLE, [[1, 0, 0, 0, 0]] * 7])) == fleiss_kappa(TABLE)


def test_agreement_that_chance_alone_gives_is_undefined_and_nobody_crashes():
    ones = np.ones(5, np.int64)
    assert cohen_kappa(ones, ones).value is None
    assert cohen_kappa(ones, ones).same == 1.0
    assert cohen_kappa(ones[:0], ones[:0]).value is None
    assert fleiss_kappa(np.zeros((0, 3), np.int64)).value is None
    assert fleiss_kappa(np.array([[2, 0], [3, 0]])).value is None
    with pytest.raises(AssertionError):
        cohen_kappa(ones, ones[:4])


def test_people_are_compared_on_what_both_answered():
    answers = {
        "a": {"Ann": 0, "Bob": 0},
        "b": {"Ann": 1, "Bob": 1, "Cid": 0},
        "c": {"Ann": 1, "Bob": 0},
        "d": {"Cid": 1},
    }
    found = pairwise_kappas(answers)
    assert set(found) == {("Ann", "Bob"), ("Ann", "Cid"), ("Bob", "Cid")}
    assert found["Ann", "Bob"].images == 3
    assert found["Ann", "Bob"].same == pytest.approx(2 / 3)
    assert overall_kappa(answers, 2).images == 3
    assert find_disagreements(answers) == ["b", "c"]


def test_self_consistency_is_by_person():
    found = self_consistency([("Ann", 0, 0), ("Ann", 1, 1), ("Bob", 0, 1), ("Bob", 1, 0)])
    assert found["Ann"].value == pytest.approx(1.0)
    assert found["Bob"].value == pytest.approx(-1.0)


def test_cohen_is_one_for_the_same_answers_and_zero_for_chance():
    draw = np.random.default_rng(0)
    one, other = draw.integers(0, 4, 20_000), draw.integers(0, 4, 20_000)
    assert cohen_kappa(one, one).value == 1.0
    assert abs(cohen_kappa(one, other).value) < 0.02
