import numpy as np
import pytest

from mma.data import START_SETS, Images, load_data, nested_order, start_set
from mma.shares import shares


@pytest.fixture(scope="module")
def digits():
    return load_data("digits").train


def everything(images):
    return np.arange(len(images))


def test_an_order_has_every_row_once_and_depends_on_the_seed():
    assert sorted(nested_order(50, seed=1)) == list(range(50))
    assert not np.array_equal(nested_order(50, seed=3), nested_order(50, seed=4))


@pytest.mark.parametrize("how", START_SETS)
@pytest.mark.parametrize("n", [0, 1, 20, 137])
def test_every_start_set_has_exactly_n_distinct_rows_of_the_pool_and_repeats(digits, how, n):
    pool = nested_order(len(digits), 0)[:400]
    chosen = start_set(digits, pool, n, 5, how)
    assert chosen.dtype == np.int64
    assert len(set(chosen.tolist())) == len(chosen) == n
    assert set(chosen.tolist()) <= set(pool.tolist())
    assert np.array_equal(chosen, start_set(digits, pool, n, 5, how))


@pytest.mark.parametrize("how", START_SETS)
def test_every_start_set_can_take_the_whole_pool(digits, how):
    pool = nested_order(len(digits), 0)[:60]
    assert sorted(start_set(digits, pool, 60, 0, how)) == sorted(pool)


@pytest.mark.parametrize("how", START_SETS)
def test_no_start_set_depends_on_the_order_of_the_pool(digits, how):
    pool = nested_order(len(digits), 0)[:300]
    assert np.array_equal(start_set(digits, pool, 30, 1, how), start_set(digits, np.sort(pool), 30, 1, how))


@pytest.mark.parametrize("how", START_SETS)
def test_start_sets_differ_between_seeds(digits, how):
    pool = everything(digits)
    assert set(start_set(digits, pool, 50, 1, how).tolist()) != set(start_set(digits, pool, 50, 2, how).tolist())


@pytest.mark.parametrize("how", START_SETS)
def test_more_than_the_pool_is_refused(digits, how, refusal):
    with refusal():
        start_set(digits, np.arange(10), 11, 0, how)


def test_an_unknown_start_set_is_refused_with_the_known_ones(digits, refusal):
    with refusal():
        start_set(digits, everything(digits), 10, 0, "best")


def test_uniform_start_sets_are_nested(digits):
    pool = everything(digits)
    assert np.array_equal(start_set(digits, pool, 20, 7, "uniform"), start_set(digits, pool, 250, 7, "uniform")[:20])


def test_proportional_start_sets_have_the_class_distribution_of_the_pool():
    labels = np.repeat(np.arange(3), [700, 200, 100])
    images = Images(np.zeros((1_000, 1, 1, 1), np.uint8), labels, ("a", "b", "c"))
    chosen = start_set(images, everything(images), 50, 0, "proportional")
    assert np.bincount(labels[chosen]).tolist() == [35, 10, 5]


def test_shares_are_the_largest_remainders_and_never_more_than_there_is():
    assert shares(np.array([5, 3, 2]), 4).tolist() == [2, 1, 1]
    assert shares(np.array([1, 1, 1]), 2).tolist() == [1, 1, 0]
    assert shares(np.array([0, 0]), 0).tolist() == [0, 0]
    for n in range(12):
        given = shares(np.array([7, 1, 3, 0]), n)
        assert given.sum() == min(n, 11)
        assert (given <= [7, 1, 3, 0]).all()


def test_a_proportional_start_set_needs_every_label(refusal):
    images = Images(np.zeros((4, 1, 1, 1), np.uint8), np.array([0, 0, -1, 0]), ("a",))
    with refusal():
        start_set(images, everything(images), 2, 0, "proportional")


def test_coverage_finds_every_digit_with_twenty_images(digits):
    for seed in range(3):
        chosen = start_set(digits, everything(digits), 20, seed, "coverage")
        assert set(digits.labels[chosen].tolist()) == set(range(10))


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (32, 32, 3), (5, 11, 3), (1, 1, 1)])
def test_coverage_works_on_images_of_any_size(shape):
    pixels = np.random.default_rng(0).integers(0, 256, (40, *shape), dtype=np.uint8)
    images = Images(pixels, np.full(40, -1), ())
    assert len(set(start_set(images, everything(images), 7, 0, "coverage").tolist())) == 7


def test_coverage_takes_one_of_each_before_it_takes_duplicates():
    different = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 1), dtype=np.uint8)
    images = Images(np.repeat(different, 10, axis=0), np.full(30, -1), ())
    chosen = start_set(images, everything(images), 5, 0, "coverage")
    assert len(set(chosen.tolist())) == 5
    assert {row // 10 for row in chosen.tolist()} == {0, 1, 2}


def test_coverage_of_equal_images_still_gives_n_rows():
    images = Images(np.zeros((9, 4, 4, 1), np.uint8), np.full(9, -1), ())
    assert len(set(start_set(images, everything(images), 4, 0, "coverage").tolist())) == 4


def test_coverage_on_many_rows_gives_exactly_n(monkeypatch):
    monkeypatch.setattr("mma.data.subsets.CLUSTERED", 200)
    monkeypatch.setattr("mma.data.subsets.EXACT", 1_000)
    pixels = np.random.default_rng(1).integers(0, 256, (600, 8, 8, 1), dtype=np.uint8)
    images = Images(pixels, np.full(600, -1), ())
    for n in (50, 250):  # with mini-batches; and more groups than rows they are found on
        assert len(set(start_set(images, everything(images), n, 0, "coverage").tolist())) == n
