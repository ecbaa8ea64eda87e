"""The buyer: learns what labels and images are worth, spends no more than it has, and says why."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mma.cost import Prices
from mma.cost.buyer import (
    KNEE,
    TRAINING,
    Bought,
    Limits,
    Measurement,
    Purchase,
    Situation,
    Terms,
    as_row,
    believe,
    compare,
    decide,
    from_row,
    measure,
    published_exponents,
    regression_rows,
)

RNG = np.random.default_rng
TERMS = Terms(Prices(5.0, 1.0), 500.0, purchases=8, start=20, budget=10_020, pool=100_200, classes=10)


def situation(world, labels, images, step, spread=0.002, number=1, held_out=50):
    """A precise measurement in a world whose error follows (labels, images) power laws."""
    error = 0.5 * (labels / 20) ** world[0] * (images / 200) ** world[1] * (step / 300) ** -0.2
    return Situation(number, step, labels, images, Measurement(held_out, 100 * (1 - error), error, spread))


def bought(before, labels=0, images=0):
    return Bought(before, Purchase(labels, images, False, ""))


def nothing_measured(number=1, labels=20, images=200):
    return Situation(number, 300, labels, images)


def spend(world, prices, money, rounds=8):
    """Let the buyer spend its money in a made-up world; returns labels and images at the end."""
    terms = replace(TERMS, prices=prices, money=money, purchases=rounds)
    have, earlier = [20, 200], []
    for number in range(1, rounds + 1):
        now = situation(world, *have, 200 + 100 * number, number=number)
        got = decide(terms, earlier, now, RNG(rounds + 1 - number))
        earlier.append(Bought(now, got))
        have = [have[0] + got.labels, have[1] + got.images]
    left = as_row(terms, earlier[:-1], earlier[-1])["left"]
    assert 0 <= left < max(prices.label, prices.image) * 2
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
    belief = believe([situation((-0.6, -0.1), *place) for place in places], RNG(0))
    assert belief.mean[[1, 3]] == pytest.approx([-0.6, -0.1], abs=0.05)
    assert (belief.deviation[[1, 3]] < 0.08).all()


def test_half_of_a_measurements_spread_is_shared_by_all_measurements():
    world, places = (-0.6, -0.1), [(20, 200, 300), (60, 900, 400)]
    x, y, sure = regression_rows([situation(world, *place, 0.1) for place in places], 250.0)
    assert sure == pytest.approx(1 / ((0.5 * 0.1 / np.exp(y)) ** 2 + 0.05**2))
    assert x[0].tolist() == [1, 0, 0, 0, 0]


def test_more_labels_never_hurt_but_more_images_may():
    draws = believe([situation((0.3, 0.9), 20 * k, 200 * k, 300, 0.2) for k in (1, 2)], RNG(0)).draws
    assert draws[:, :2].max() <= 0
    assert draws[:, 2].max() > 0


def test_all_money_on_labels_buys_no_image_with_the_rest():
    terms = replace(TERMS, prices=Prices(100.0, 1.0), money=350.0, purchases=1)
    mixes = compare(terms, Limits(350.0, 1, 100, 1_000))
    assert (mixes.labels[-1], mixes.images[-1], mixes.cost[-1]) == (3, 0, 300)
    assert (mixes.labels[0], mixes.images[0]) == (0, 350)


def test_few_and_many_labels_per_class_are_learned_apart():
    def world(labels):
        return 0.5 * (min(labels, 250) / 20) ** -0.9 * max(labels / 250, 1) ** -0.1

    measured = {labels: Measurement(50, 0.0, world(labels), 0.001) for labels in (20, 60, 250, 600, 2_000)}
    belief = believe(
        [Situation(1, 300, labels, 1_000, found) for labels, found in measured.items()], RNG(0), classes=10
    )
    assert KNEE * 10 == 250
    assert belief.mean[1:3] == pytest.approx([-0.9, -0.1], abs=0.05)
    factor = belief.factors(125, 1_000, np.array([375.0]), np.array([0.0])).mean()
    assert factor == pytest.approx(2**-0.9 * 2**-0.1, rel=0.05)


def test_measurements_that_say_little_change_little():
    history = [situation((-2.0, 1.0), 20 * k, 200 * k, 300 * k, spread=0.4) for k in (1, 2)]
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

    worst = max(error(world, spend(world, prices, money)) / best(world, error) for world in worlds)
    fixed = [
        max(error(world, (20 + money * s / 5, 200 + money * (1 - s))) / best(world, error) for world in worlds)
        for s in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    assert worst < min(fixed)  # the worst case over worlds, against the best mix for each


def best(world, error):
    return min(error(world, (20 + 500 * s / 5, 200 + 500 * (1 - s))) for s in np.linspace(0, 1, 101))


@given(
    money=st.floats(0, 1e4),
    label=st.floats(0, 200),
    image=st.floats(0, 200),
    rounds=st.integers(1, 9),
    most=st.tuples(st.integers(0, 180), st.integers(0, 5_000)),
    value=st.sampled_from([0.0, 3.0]),
)
def test_it_never_spends_more_than_it_has_nor_buys_more_than_there_is(money, label, image, rounds, most, value):
    if label == image == 0:
        label = 1.0
    terms = Terms(Prices(label, image), money, rounds, 20, 20 + most[0], 200 + most[1], 10, value_per_point=value)
    got = decide(terms, [], situation((-0.4, -0.4), 20, 200, 300), RNG(1))
    assert 0 <= got.labels <= most[0]
    assert 0 <= got.images <= most[1]
    assert got.labels * label + got.images * image <= money * (1 + 1e-6) + 1e-6
    assert got.why


def test_it_stops_when_nothing_can_be_bought_and_stays_stopped():
    terms = replace(TERMS, prices=Prices(10.0, 5.0), money=4.0)
    got = decide(terms, [], nothing_measured(), RNG(0))
    assert (got.labels, got.images, got.stop) == (0, 0, True)
    assert "buys neither a label nor an image" in got.why
    rich = replace(terms, money=4_000.0)
    assert decide(rich, [Bought(nothing_measured(), got)], nothing_measured(2), RNG(0)).why == "stopped before"


def test_it_stops_when_a_point_of_accuracy_is_not_worth_its_price():
    now = situation((-0.4, -0.4), 20, 200, 300)
    dear, cheap = (replace(TERMS, money=200.0, purchases=4, value_per_point=value) for value in (0.01, 100.0))
    stop, go = decide(dear, [], now, RNG(0)), decide(cheap, [], now, RNG(0))
    assert stop.stop
    assert "0.01 per point" in stop.why
    assert go.labels + go.images > 0


def test_it_saves_for_a_label_that_one_round_cannot_pay():
    before = [bought(situation((-3.0, 0.0), n, 200, step), 1) for n, step in ((20, 300), (40, 400))]
    terms = replace(TERMS, prices=Prices(100.0, 1.0), money=600.0, purchases=10, pool=200)
    now = situation((-3.0, 0.0), 80, 200, 500, number=3, held_out=5)
    got = decide(terms, before, now, RNG(0))
    assert (got.labels, got.images, got.stop) == (0, 0, False)
    assert decide(terms, before, replace(now, number=10), RNG(0)).labels == 4


def test_the_reasons_are_plain_words():
    terms = replace(TERMS, money=100.0, purchases=4)
    why = decide(terms, [], situation((-0.4, -0.4), 20, 200, 300, 0.05), RNG(0)).why
    for part in (
        "50.0 +- 5.0 % missed on held-out labels",
        "20 labels and 200 images",
        "all on labels",
        "all on images",
    ):
        assert part in why
    nothing = decide(terms, [], nothing_measured(), RNG(0)).why
    assert nothing.startswith("nothing measured yet: judged by published tables")


def test_classes_without_a_label_come_first_in_the_first_half():
    world, prices = (0.0, -0.8), Prices(100.0, 1.0)
    terms = Terms(prices, 800.0, purchases=4, start=20, budget=120, pool=1_900, classes=10)
    before = [bought(situation(world, 20, 200, 300, held_out=5), images=400)]
    now = replace(situation(world, 20, 900, 400, number=2, held_out=5), missing_classes=3)
    first = decide(terms, before, now, RNG(0))
    assert (first.labels, first.images) == (1, 0)
    assert first.why.startswith("labels first: 3 classes have none")
    assert decide(terms, before, replace(now, missing_classes=0), RNG(0)).images > 0
    assert decide(terms, before, replace(now, number=3), RNG(0)).images > 0  # later a missing class may not exist
    assert decide(replace(terms, prices=Prices(900.0, 1.0)), before, now, RNG(0)).images > 0  # no label can be paid


def test_it_explores_only_early_and_with_enough_held_out_labels():
    def choices(**changes):
        now = replace(situation((-0.4, -0.4), 60, 600, 300, 0.1, held_out=10), **changes)
        return {decide(TERMS, [], now, RNG(seed)).labels * now.number for seed in range(12)}

    assert len(choices()) > 2
    assert len(choices(number=4)) > 2
    few = replace(situation((-0.4, -0.4), 60, 600, 300, 0.1).measured, labels=9)
    assert len(choices(measured=few)) <= 2
    assert len(choices(number=5)) <= 2


def test_held_out_labels_are_paid_and_count_towards_the_budget():
    terms = replace(TERMS, prices=Prices(1.0, 1.0), purchases=1, budget=40, pool=200, held_out_labels=5)
    assert decide(terms, [], nothing_measured(), RNG(0)).labels == 40 - 20 - 5
    poor = replace(terms, money=8.0)
    assert decide(poor, [], nothing_measured(), RNG(0)).labels == 8 - 5


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_a_fixed_share_loses_nothing_in_rounding(share):
    terms = replace(TERMS, prices=Prices(100.0, 3.0), money=1_000.0, share=share)
    labels, images, earlier = 0, 0, []
    for number in range(1, 9):
        now = nothing_measured(number, 20 + labels, 200 + images)
        got = decide(terms, earlier, now, RNG(0))
        earlier.append(Bought(now, got))
        labels, images = labels + got.labels, images + got.images
        assert labels * 100 + images * 3 <= 1_000 * number / 8 + 1e-6
    assert labels == int(1_000 * share / 100 + 1e-9)
    assert images == int(1_000 * (1 - share) / 3 + 1e-9)


def test_a_fixed_share_stops_at_what_there_is():
    terms = replace(TERMS, prices=Prices(1.0, 1.0), money=1_000.0, share=0.5, budget=50, pool=240)
    got = decide(terms, [], nothing_measured(8), RNG(0))
    assert (got.labels, got.images) == (30, 40)
    before = [bought(nothing_measured(7), 20, 25)]  # bought earlier: the rest is what is left
    rest = decide(terms, before, nothing_measured(8, labels=40, images=225), RNG(0))
    assert (rest.labels, rest.images) == (10, 15)


def test_the_error_is_the_mean_missing_probability_with_half_a_miss_more():
    probs = np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]], dtype=np.float32)
    found = measure(probs, np.array([0, 1, 1]))
    error = (0.1 + 0.3 + 0.6 + 0.5) / 4
    assert (found.labels, found.accuracy) == (3, pytest.approx(200 / 3))
    assert found.error == pytest.approx(error, abs=1e-7)
    assert found.spread == pytest.approx(np.sqrt(error * (1 - error) / 4), abs=1e-7)


def test_a_purchase_is_written_and_read_back():
    terms = replace(TERMS, prices=Prices(0.1, 0.2), money=10.0, held_out_labels=5)
    first = Bought(situation((-0.4, -0.4), 20, 200, 300), Purchase(3, 4, False, "because"))
    second = Bought(nothing_measured(2), Purchase(0, 0, True, "no more"))
    rows = [as_row(terms, [], first), as_row(terms, [first], second)]
    assert [from_row(row) for row in rows] == [first, second]
    assert [(row["paid"], row["left"]) for row in rows] == [(1.1, 8.4), (0.0, 8.4)]
    assert list(rows[0]) == ["round", "step", "labels", "images", "paid", "left", "stop", "had", "measured", "why"]


def test_the_room_imports_no_torch():
    code = "import sys, mma.cost.buyer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
