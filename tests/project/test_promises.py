"""Promises: errors of what the model answers alone, how much of a class is found, what is unlike anything labeled."""

from __future__ import annotations

import numpy as np
import pytest

from mma.project.quality.promises import (
    BATCH,
    GOAL,
    Recall,
    alone,
    alone_words,
    draws_at_random,
    fewest_labels,
    independent,
    promise_of,
    promises_of,
    record_of,
    strange_above,
)
from mma.shares import AuditRecord
from tests.each import each

POOL = np.linspace(1.0, 0.3, 1_000)


def record(confidence, right, pool=POOL) -> AuditRecord:
    return AuditRecord(*(tuple(values.tolist()) for values in (confidence, right, pool)))


def judged(many: int, wrong: tuple[int, ...] = (), pool=POOL) -> AuditRecord:
    """Audit photos from the surest to the least sure; those at these places are wrong."""
    right = np.ones(many, bool)
    right[list(wrong)] = False
    return record(np.linspace(1.0, 0.3, many), right, pool)


def test_two_percent_take_149_labels_without_an_error():
    assert fewest_labels(0.02) == 149
    assert alone(0.02, judged(148)).needed == 149
    assert alone(0.02, judged(149)).share == 1.0


def test_the_model_answers_only_as_many_photos_as_were_tested():
    found = alone(0.05, judged(300, wrong=tuple(range(200, 300, 2))))
    assert found.threshold is not None
    assert 0.5 < found.share <= 0.75
    sure = np.linspace(1.0, 0.9, 1_000)  # a model with more labels is surer of the same photos
    assert alone(0.05, judged(300, wrong=tuple(range(200, 300, 2)), pool=sure)).share == pytest.approx(
        found.share, abs=0.01
    )


def test_a_promise_is_broken_in_one_project_of_twenty_at_most():
    rng, broken = np.random.default_rng(0), 0
    for _ in range(150):
        sure = rng.random(200)
        found = alone(0.1, record(sure, rng.random(200) > 0.3 * (1 - sure), rng.random(5_000)))
        t = found.threshold
        broken += t is not None and 0.15 * (1 - t) > 0.1  # the share of errors above t
    assert broken <= 0.05 * 150 + 5


def test_near_duplicates_count_once():
    rows = independent([number // 3 for number in range(300)])
    assert rows.tolist() == list(range(0, 300, 3))
    assert len(independent([])) == 0


def test_five_labels_promise_nothing_and_say_what_it_takes(refusal):
    found = alone(0.02, judged(5))
    assert found.threshold is None
    assert alone_words(found, 100) == (
        "I cannot promise yet that at most 2 % of my answers are wrong (95 % sure): that takes about 149 labels of photos "
        "drawn at random, and there are 5."
    )
    with refusal():
        promise_of(judged(5), 0.02)
    with refusal():
        promise_of(None, 0.02)


@each(share=(0, 1, -0.1, 2, float("nan")))
def test_a_share_of_errors_lies_between_none_and_all(share, refusal):
    with refusal():
        alone(share, judged(200))


def test_many_errors_among_the_surest_cannot_be_mended_by_labels():
    words = alone_words(alone(0.02, judged(300, wrong=tuple(range(0, 300, 3)))), 100)
    assert "even where I am surest" in words


def test_what_is_said_names_both_heaps():
    words = alone_words(alone(0.02, judged(200)), 1_000)
    assert words == "I answer 100 % of the photos alone, at most 2 % of those are wrong (95 % sure); 0 are yours."


def test_a_model_carries_what_promises_follow_from():
    carried = record_of(np.linspace(1.0, 0.3, 300), np.ones(300, bool), POOL)
    assert [one.max_error for one in promises_of(carried)] == [0.01, 0.02, 0.05, 0.1]
    assert promise_of(carried, 0.02).share == pytest.approx(1.0, abs=0.01)


def search(rng: np.random.Generator, photos: int, of_class: int, found: int) -> tuple[int, bool]:
    """Draw photos at random behind `found` that were chosen, until the promise; return how many, and whether it is broken."""
    bound, rest, left = Recall(photos), photos - found, of_class - found
    order = rng.permutation(rest) < left
    for place, hit in enumerate(order.tolist()):
        bound.draw(rest - place, found, hit=hit)
        found += hit
        if place % BATCH == 0 and bound.promise(found, rest - place - 1) >= GOAL:
            return place, found < GOAL * of_class
    return rest, False


@each(photos=(400, 200), of_class=(40, 8))
def test_a_search_is_stopped_too_early_in_one_of_ten_at_most(photos, of_class):
    rng = np.random.default_rng(photos + of_class)
    tried = [search(rng, photos, of_class, round(0.85 * of_class)) for _ in range(40)]
    assert sum(broken for _, broken in tried) <= 0.1 * 40 + 4


def test_a_search_that_found_everything_ends_long_before_all_photos():
    looked, broken = search(np.random.default_rng(0), 2_000, 100, 100)
    assert (looked < 0.4 * 2_000, broken) == (True, False)


def test_numbers_of_a_large_pool_are_bounded_in_cells_that_miss_none():
    bound = Recall(50_000)
    assert (bound.low[1:] == bound.high[:-1] + 1).all()
    assert (bound.low[0], bound.high[-1]) == (0, 50_000)
    assert bound.promise(0, 50_000) == 0.0
    assert Recall(10).promise(0, 0) == 1.0


def test_photos_are_drawn_at_random_when_likely_ones_bring_nothing():
    dry = [(False, BATCH, 0)] * 2
    assert not draws_at_random([(False, BATCH, 3)], 100)
    assert draws_at_random([(False, BATCH, 3), *dry], 100)
    assert draws_at_random([*dry, (True, BATCH, 0)], 100)
    assert not draws_at_random([*dry, (True, BATCH, 1)], 100)
    assert not draws_at_random(dry, 10_000)


def test_at_most_one_ordinary_photo_of_twenty_is_called_strange():
    rng = np.random.default_rng(0)
    assert strange_above(np.zeros(18)) is None
    shares = [1 - strange_above(rng.random(60)) for _ in range(300)]
    assert np.mean(shares) <= 0.05
