import math

import numpy as np
import pytest

from mma.cost import Prices, cheapest, exchange, next_step, open_table, paper_sources, table_from_runs
from tests.each import each

CIFAR10 = "paper:cifar10"


def plain_table():
    """Accuracy rises by 1 per 5 labels and by 1 per 20 images: one label is worth 4 images everywhere."""
    return table_from_runs("plain", [(n, t, n / 5 + t / 20) for n in (10, 20, 40) for t in (100, 200, 300, 400)])


@pytest.mark.parametrize(("price", "labels"), [(3.9, 40), (4.1, 10)])
def test_labels_are_bought_when_they_cost_less_than_the_images_they_save(price, labels):
    best = cheapest(plain_table(), 20, Prices(price, 1))[0]
    assert best.labels == labels
    assert best.cost == pytest.approx(price * best.labels + best.total)


def test_the_cheapest_mix_decides_as_the_ratio_does():
    table = open_table(CIFAR10)
    ratios = exchange(table, 91.0, draws=0).ratios
    for image in (0.01, 0.05, 0.1, 0.3, 1.0):
        worth = [ratio.more for ratio in ratios if ratio.totals > 1 / image]  # ratios fall, so each is worth it in turn
        assert cheapest(table, 91.0, Prices(1, image))[0].labels == max(worth, default=500)


def test_both_ways_to_price_a_labeled_image_decide_alike():
    table, prices = open_table(CIFAR10), Prices(2.0, 0.3)
    ours = [mix.labels for mix in cheapest(table, 91.0, prices)]
    whole, unlabeled = prices.label + prices.image, prices.image  # Paper: c_l, c_u
    needs = exchange(table, 91.0, draws=0).needs
    theirs = sorted(needs, key=lambda need: whole * need.labels + unlabeled * need.unlabeled)
    assert ours == [need.labels for need in theirs]


def test_plans_carry_their_uncertainty():
    mixes = cheapest(open_table(CIFAR10), 91.69, Prices(1, 0.1))
    assert mixes[0].cost <= mixes[1].cost
    assert sum(mix.cheapest for mix in mixes) == pytest.approx(1)
    assert mixes[0].interval.low < mixes[0].cost < mixes[0].interval.high
    last = next(mix for mix in mixes if mix.labels == 500)
    assert math.isinf(last.interval.high), "half of the draws do not reach it"


def test_what_one_has_is_not_paid_again():
    mixes = cheapest(open_table(CIFAR10), 91.69, Prices(1, 0.1), at=(1000, 30_000))
    assert {mix.labels for mix in mixes} == {1000, 2000, 4000}
    assert next(p for p in mixes if p.labels == 1000).cost == pytest.approx(0.1 * 9_114)
    assert next(p for p in mixes if p.labels == 4000).cost == 3000, "30,000 images are enough already"


def test_staying_at_ones_own_label_count_is_an_option():
    mixes = cheapest(plain_table(), 20, Prices(100, 1), at=(15, 200))
    assert [mix.labels for mix in mixes] == [15, 20, 40]
    assert (mixes[0].total, mixes[0].cost) == (340, 140)


def test_beside_a_column_that_does_not_reach_it_ones_own_count_does_not_either():
    mixes = cheapest(open_table(CIFAR10), 93, Prices(100, 1), at=(700, 20_000))
    assert [mix.labels for mix in mixes] == [2000, 4000]


def test_a_target_below_the_table_is_bounded_by_its_smallest_total():
    mix = cheapest(open_table(CIFAR10), 60, Prices(1, 0.1))[0]
    assert (mix.labels, mix.total, mix.at_most) == (500, 5_000, True)


@pytest.mark.parametrize(("prices", "labels"), [(Prices(0, 1), 40), (Prices(1, 0), 10)])
def test_what_is_free_is_taken(prices, labels):
    assert cheapest(plain_table(), 20, prices)[0].labels == labels
    assert next_step(plain_table(), (10, 200), prices).steps[0].cost == 0


@pytest.mark.parametrize(("label", "image"), [(-1, 1), (1, -0.5), (math.inf, 1), (math.nan, 1), (0, 0)])
def test_prices_that_make_no_sense_are_refused(label, image, refusal):
    with refusal():
        Prices(label, image)


def test_the_next_step_compares_labels_and_images_for_the_same_money():
    found = next_step(open_table(CIFAR10), (500, 20_000), Prices(1, 0.1))
    assert found.accuracy == 80.8
    first, second = found.steps
    assert first.cost == second.cost == 500
    assert (first.what, first.amount, first.gain) == ("images", 5_000, pytest.approx(4.49))
    assert (second.what, second.amount, second.gain) == ("labels", 500, pytest.approx(2.36))
    assert second.instead == pytest.approx(5000 * 2.36 / 4.49), "images that bring what the labels bring"
    assert found.agreement > 0.9
    assert not first.beyond


def test_the_next_step_between_the_cells():
    found = next_step(plain_table(), (15, 150), Prices(4.1, 1))
    assert found.accuracy == pytest.approx(15 / 5 + 150 / 20)
    assert found.steps[0].what == "images"
    labels = found.steps[1]
    assert labels.amount == 5
    assert labels.instead == pytest.approx(20)
    assert found.agreement is None, "one run per cell: nothing is known about the noise"


def test_a_step_inside_a_table_too_small_for_a_surface(refusal):
    table = table_from_runs("tiny", [(n, t, n / 5 + t / 20) for n in (10, 20) for t in (100, 200)])
    assert next_step(table, (10, 100), Prices(1, 1)).steps[0].what == "labels"
    with refusal():
        next_step(table, (20, 200), Prices(1, 1))


@pytest.mark.parametrize("source", paper_sources())
def test_past_the_edge_of_the_table_the_surface_answers_and_says_so(source):
    table = open_table(source)
    edge = int(table.labels[-1]), int(table.totals[-1])
    found = next_step(table, edge, Prices(1, 0.1))
    assert all(step.beyond and step.instead is None and np.isfinite(step.gain) for step in found.steps)
    assert found.accuracy == table.accuracy[-1, -1]


@each(at=[(0, 100), (200, 100), (100, 100)])
def test_places_that_make_no_sense_are_refused(at, refusal):
    with refusal():
        next_step(plain_table(), at, Prices(1, 1))


def test_more_labels_than_ever_measured_have_no_plan(refusal):
    with refusal():
        cheapest(open_table(CIFAR10), 91, Prices(1, 1), at=(9000, 20_000))
