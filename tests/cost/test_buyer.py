"""The buyer: learns what labels and images are worth, spends no more than it has, and says why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mma.cost import Moment, Prices, Purse, believe, buy, split
from mma.cost.buyer import KNEE, TRAINING, published_exponents

RNG = np.random.default_rng


def measured(world, labels, images, step, spread=0.002):
    """A precise measurement in a world whose error follows (labels, images) power laws."""
    error = 0.5 * (labels / 20) ** world[0] * (images / 200) ** world[1] * (step / 300) ** -0.2
    return Moment(step, labels, images, error, spread)


def spend(world, prices, money, rounds=8):
    """Let the buyer spend its money in a made-up world; returns labels and images at the end."""
    have, history = [20, 200], []
    for left in range(rounds, 0, -1):
        history.append(measured(world, *have, 300 + 100 * (rounds - left)))
        purse = Purse(prices, money, left, 10_000, 100_000, explore=left > rounds / 2)
        got = buy(tuple(have), history, purse, RNG(left))
        have = [have[0] + got.labels, have[1] + got.images]
        money -= got.labels * prices.label + got.images * prices.image
    assert 0 <= money < max(prices.label, prices.image) * 2
    return have


def test_what_it_expects_at_first_was_published():
    mean, deviation = published_exponents()
    assert mean == pytest.approx([-0.792, -0.198, -0.413], abs=0.001)
    assert deviation == pytest.approx([0.503, 0.129, 0.261], abs=0.001)
    belief = believe([], RNG(0))
    assert belief.mean[1:] == pytest.approx([*mean, TRAINING[0]])
    assert belief.deviation[1:4] == pytest.approx(2 * deviation)


def test_it_learns_the_exponents_of_a_world_it_can_measure_well():
    places = [(20, 200, 300), (60, 200, 400), (60, 900, 500), (200, 900, 600), (200, 5_000, 700)]
    history = [measured((-0.6, -0.1), *place) for place in places]
    belief = believe(history, RNG(0))
    assert belief.mean[[1, 3]] == pytest.approx([-0.6, -0.1], abs=0.05)
    assert (belief.deviation[[1, 3]] < 0.08).all()


def test_few_and_many_labels_per_class_are_learned_apart():
    def world(labels):
        return 0.5 * (min(labels, 250) / 20) ** -0.9 * max(labels / 250, 1) ** -0.1

    history = [Moment(300, labels, 1_000, world(labels), 0.001) for labels in (20, 60, 250, 600, 2_000)]
    belief = believe(history, RNG(0), classes=10)
    assert KNEE * 10 == 250
    assert belief.mean[1:3] == pytest.approx([-0.9, -0.1], abs=0.05)
    factor = belief.factors((125, 1_000), np.array([375.0]), np.array([0.0])).mean()
    assert factor == pytest.approx(2**-0.9 * 2**-0.1, rel=0.05)


def test_measurements_that_say_little_change_little():
    history = [measured((-2.0, 1.0), 20 * k, 200 * k, 300 * k, spread=0.4) for k in (1, 2)]
    belief, before = believe(history, RNG(0)), believe([], RNG(0))
    assert np.abs(belief.mean[1:4] - before.mean[1:4]).max() < before.deviation[1:4].max()


def test_it_buys_labels_where_only_labels_help_and_images_where_only_images_do():
    labels, images = spend((-0.8, 0.0), Prices(5.0, 1.0), 500.0), spend((0.0, -0.8), Prices(5.0, 1.0), 500.0)
    assert (labels[0] - 20) * 5 > 0.6 * 500
    assert images[1] - 200 > 0.6 * 500


def test_prices_move_what_it_buys():
    cheap, dear = spend((-0.4, -0.4), Prices(1.0, 1.0), 300.0), spend((-0.4, -0.4), Prices(100.0, 1.0), 3_000.0)
    assert cheap[0] - 20 > cheap[1] - 200
    assert (dear[0] - 20) * 100 < dear[1] - 200


def test_it_does_better_than_any_fixed_share_that_does_not_know_the_world():
    worlds = [(-0.8, 0.0), (-0.5, -0.2), (-0.2, -0.5), (0.0, -0.8)]
    prices, money = Prices(5.0, 1.0), 500.0

    def error(world, have):
        return (have[0] / 20) ** world[0] * (have[1] / 200) ** world[1]

    bought = max(error(world, spend(world, prices, money)) / best(world, error) for world in worlds)
    fixed = [
        max(error(world, (20 + money * s / 5, 200 + money * (1 - s))) / best(world, error) for world in worlds)
        for s in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    assert bought < min(fixed)  # the worst case over worlds, against the best mix for each


def best(world, error):
    return min(error(world, (20 + 500 * s / 5, 200 + 500 * (1 - s))) for s in np.linspace(0, 1, 101))


@given(
    money=st.floats(0, 1e4),
    label=st.floats(0, 200),
    image=st.floats(0, 200),
    rounds=st.integers(1, 9),
    most=st.tuples(st.integers(0, 500), st.integers(0, 5_000)),
    point=st.sampled_from([0.0, 3.0]),
)
def test_it_never_spends_more_than_it_has_nor_buys_more_than_there_is(money, label, image, rounds, most, point):
    if label == image == 0:
        label = 1.0
    purse = Purse(Prices(label, image), money, rounds, *most, point=point)
    got = buy((20, 200), [measured((-0.4, -0.4), 20, 200, 300)], purse, RNG(1))
    assert 0 <= got.labels <= most[0]
    assert 0 <= got.images <= most[1]
    assert got.labels * label + got.images * image <= money * (1 + 1e-6) + 1e-6
    assert got.why


def test_it_stops_when_nothing_can_be_bought():
    purse = Purse(Prices(10.0, 5.0), 4.0, 3, 100, 100)
    got = buy((20, 200), [], purse, RNG(0))
    assert (got.labels, got.images, got.stop) == (0, 0, True)
    assert "buys neither a label nor an image" in got.why


def test_it_stops_when_a_point_of_accuracy_is_not_worth_its_price():
    history = [measured((-0.4, -0.4), 20, 200, 300)]
    dear, cheap = (Purse(Prices(5.0, 1.0), 200.0, 4, 100, 1_000, point=point) for point in (0.01, 100.0))
    stopped, bought = buy((20, 200), history, dear, RNG(0)), buy((20, 200), history, cheap, RNG(0))
    assert stopped.stop
    assert "0.01 per point" in stopped.why
    assert bought.labels + bought.images > 0


def test_it_saves_for_a_label_that_one_round_cannot_pay():
    history = [measured((-3.0, 0.0), labels, 200, step) for labels, step in ((20, 300), (40, 400), (80, 500))]
    purse = Purse(Prices(100.0, 1.0), 400.0, 8, 50, 0, explore=False)
    got = buy((80, 200), history, purse, RNG(0))
    assert (got.labels, got.images, got.stop) == (0, 0, False)
    assert buy((80, 200), history, Purse(Prices(100.0, 1.0), 400.0, 1, 50, 0), RNG(0)).labels == 4


def test_the_reasons_are_plain_words():
    history = [measured((-0.4, -0.4), 20, 200, 300, 0.05)]
    why = buy((20, 200), history, Purse(Prices(5.0, 1.0), 100.0, 4, 100, 1_000), RNG(0)).why
    for part in (
        "50.0 +- 5.0 % missed on held-out labels",
        "20 labels and 200 images",
        "all on labels",
        "all on images",
    ):
        assert part in why
    nothing = buy((20, 200), [], Purse(Prices(5.0, 1.0), 100.0, 4, 100, 1_000), RNG(0)).why
    assert nothing.startswith("nothing measured yet: judged by published tables")


def test_classes_without_a_label_come_first():
    purse = Purse(Prices(100.0, 1.0), 400.0, 2, 100, 1_000, explore=False)
    history = [measured((0.0, -0.8), 20, 200, 300), measured((0.0, -0.8), 20, 900, 400)]
    missing, none = (buy((20, 900), history, purse, RNG(0), missing=n) for n in (3, 0))
    assert (missing.labels, missing.images) == (2, 0)
    assert missing.why.startswith("labels first: 3 classes have none")
    assert none.images > 0
    assert buy((20, 900), history, Purse(Prices(500.0, 1.0), 400.0, 2, 100, 1_000), RNG(0), missing=3).images > 0


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_a_fixed_share_loses_nothing_in_rounding(share):
    prices, labels, images = Prices(100.0, 3.0), 0, 0
    for number in range(1, 9):
        purse = Purse(prices, 0.0, 9 - number, 10_000 - labels, 10_000 - images)
        got = split(1_000.0, share, purse, (number, 8), (labels, images))
        labels, images = labels + got.labels, images + got.images
        assert labels * 100 + images * 3 <= 1_000 * number / 8 + 1e-6
    assert labels == int(1_000 * share / 100 + 1e-9)
    assert images == int(1_000 * (1 - share) / 3 + 1e-9)


def test_a_fixed_share_stops_at_what_there_is():
    got = split(1_000.0, 0.5, Purse(Prices(1.0, 1.0), 1_000.0, 1, 30, 40), (8, 8), (0, 0))
    assert (got.labels, got.images) == (30, 40)
