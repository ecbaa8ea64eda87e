"""Rounds that are paid for: money, images that arrive, labels to measure by, and exact resume."""

from __future__ import annotations

import numpy as np
import pytest

from mma.config import change
from mma.presets import preset
from mma.run import Watch
from mma.training.ask import DatasetLabels
from mma.training.host import Host
from mma.training.job import load_job
from mma.training.loop import train

ONE = Host(threads=1)
DEAL = (
    "growth.budget=60",
    "growth.policy.money=100",
    "growth.policy.label_price=5",
    "growth.policy.image_price=1",
    "growth.policy.initial_pool=100",
    "growth.policy.purchases=4",
)
BUYER = ("growth.policy=buyer", "growth.policy.held_out_labels=4", *DEAL)


def go(run, data, **options):
    train(run, DatasetLabels(data.train), on=ONE, data=data, **options)
    return run


def images_of(run, data, upto=None):
    return load_job(run, ONE.prepare(), Watch(), data).pool_at(upto)


def test_a_buyer_spends_its_money_and_says_why(new_run, digits):
    run = go(new_run("a", *BUYER), digits)
    rows = run.read("purchases")
    assert run.status() == "done"
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert 0 <= rows[-1]["left"] < 5
    assert sum(row["paid"] for row in rows) + 4 * 5 + rows[-1]["left"] == pytest.approx(100)
    assert all("labels" in row["why"] and row["measured"]["labels"] == 4 for row in rows)
    bought = sum(row["labels"] for row in rows)
    assert sum(label >= 0 for label in run.answers().values()) == 10 + 4 + bought
    assert len(images_of(run, digits)) == 100 + sum(row["images"] for row in rows)


@pytest.mark.parametrize(("share", "labels", "images"), [(1.0, 20, 0), (0.0, 0, 100), (0.5, 10, 50)])
def test_a_fixed_share_buys_what_it_says(new_run, digits, share, labels, images):
    run = go(new_run("a", *DEAL, "growth.policy=split", f"growth.policy.share={share}"), digits)
    rows = run.read("purchases")
    assert sum(row["labels"] for row in rows) == labels
    assert sum(row["images"] for row in rows) == images
    assert len(run.answers()) == 10 + labels


def test_images_arrive_in_one_order_whatever_is_bought(new_run, digits):
    some, more = (
        go(new_run(f"s{s}", *DEAL, "growth.policy=split", f"growth.policy.share={s}"), digits) for s in (0.5, 0.0)
    )
    pools = [images_of(some, digits, 0), images_of(some, digits), images_of(more, digits)]
    assert [len(pool) for pool in pools] == [100, 150, 200]
    assert set(pools[0]) < set(pools[1]) < set(pools[2])
    assert images_of(new_run("fresh", *BUYER), digits).tolist() == pools[0].tolist()


def test_nothing_is_asked_about_before_it_was_bought(new_run, digits):
    run = go(new_run("a", *BUYER), digits)
    for row in run.read("queries"):
        assert set(row["indices"]) <= set(images_of(run, digits, row["round"]))


def test_labels_to_measure_by_train_in_the_last_round_only(new_run, digits):
    run = go(new_run("a", *BUYER), digits)
    bought = np.cumsum([0, *(row["labels"] for row in run.read("purchases"))])
    seen = {row["round"]: row["labels"] for row in run.read("metrics")}
    assert len(run.held_out()) == 4
    assert [seen[n] for n in range(5)] == [10 + bought[n] + (4 if n == 4 else 0) for n in range(5)]


def test_policies_of_one_seed_start_alike(new_run, digits):
    runs = [new_run(f"s{s}", *DEAL, "growth.policy=split", f"growth.policy.share={s}") for s in (0.0, 1.0)]
    runs.append(new_run("buyer", *BUYER))
    for run in runs:
        go(run, digits)
    assert len({str(run.read("metrics")[:3]) for run in runs}) == 1


@pytest.mark.parametrize("until", [1, 12, 13, 20, 21, 37])
def test_a_buyer_stopped_and_continued_ends_byte_equal(new_run, digits, contents, until):
    whole, parts = new_run("whole", *BUYER), new_run("parts", *BUYER)
    go(whole, digits)
    go(parts, digits, until=until)
    go(parts, digits)
    assert contents(parts) == contents(whole)
    assert "purchases.jsonl" in contents(whole)


def test_late_answers_change_no_decision(new_run, digits, contents):
    class Slow:
        def ask(self, indices, round):
            return {i: int(digits.train.labels[i]) for i in indices[:2]}

    whole, late = go(new_run("whole", *BUYER), digits), new_run("late", *BUYER)
    for _ in range(40):
        train(late, Slow(), on=ONE, data=digits)
    assert late.status() == "done"
    assert contents(late) == contents(whole)


def test_a_buyer_that_sees_everything_buys_labels(new_run, digits):
    everything = [setting for setting in BUYER if "initial_pool" not in setting]
    run = go(new_run("a", *everything), digits)
    assert sum(row["images"] for row in run.read("purchases")) == 0
    assert sum(row["labels"] for row in run.read("purchases")) == 16


def test_a_point_that_is_worth_little_keeps_the_money(new_run, digits):
    run = go(new_run("a", *BUYER, "growth.policy.value_per_point=0.0001"), digits)
    rows = run.read("purchases")
    assert all(row["stop"] and row["paid"] == 0 for row in rows)
    assert rows[-1]["left"] == 80
    assert run.status() == "done"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["growth.policy=buyer"], "needs money to spend: set growth.policy.money"),
        (["growth.policy.money=10"], "It belongs to growth.policy=split or growth.policy=buyer: set that first"),
        (["growth.policy=buyer", "growth.policy.money=-1"], "greater than or equal to 0"),
        (
            ["growth.policy=buyer", "growth.policy.money=9", "growth.policy.held_out_labels=10"],
            "10 labels cost more than the money (9)",
        ),
        (
            ["growth.policy=split", "growth.policy.money=99", "growth.policy.held_out_labels=3"],
            "It belongs to growth.policy=buyer",
        ),
        (
            [
                "growth.policy=buyer",
                "growth.policy.money=9",
                "growth.policy.label_price=0",
                "growth.policy.image_price=0",
            ],
            "both 0",
        ),
        (
            ["growth.policy=buyer", "growth.policy.money=9", "growth.policy.initial_pool=5"],
            "more than growth.policy.initial_pool (5)",
        ),
        (["growth.policy=gambler", "growth.policy.money=9"], "growth.policy"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, said):
    with pytest.raises(ValueError, match=r".") as error:
        change(preset("digits"), settings)
    assert said in str(error.value)
