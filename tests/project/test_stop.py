"""When to stop: each rule has a name."""

from __future__ import annotations

import pytest

from mma.project.quality.forecast import Gain
from mma.project.quality.goal import Goals
from mma.project.quality.status import LabelMoney, stop_card

ON = {"labels": 200, "left": 500}


def card(*, point_price=None, gain=None, low=None, agreement=(), labels, left, **goals):
    money = None if point_price is None else LabelMoney(0.05, 2.5, point_price)
    return stop_card(Goals(**goals), labels, left, low=low, gain=gain, agreement=agreement, money=money)


@pytest.mark.parametrize(
    ("rule", "situation"),
    [
        ("nothing left", {"labels": 200, "left": 0}),
        ("budget", {**ON, "budget": 200}),
        ("target", {**ON, "target": 90.0, "low": 90.4}),
        ("flat curve", {**ON, "low": 80.0, "gain": Gain(50, 0.1, 0.0, 0.4, -2.0, 2.0)}),
        ("price", {**ON, "point_value": 5.0, "point_price": 7.5}),
        ("stable answers", {**ON, "low": 80.0, "agreement": (0.9, 0.995, 0.992, 0.999)}),
    ],
)
def test_a_rule_that_fires_is_named(rule, situation):
    found = card(**situation)
    assert found.rule == rule
    assert found.why.endswith(".")


@pytest.mark.parametrize(
    "situation",
    [
        ON,
        {"labels": 0, "left": 0},
        {**ON, "budget": 201},
        {**ON, "target": 90.0, "low": 89.9},
        {**ON, "target": 90.0},  # no verdict yet
        {**ON, "low": 80.0, "gain": Gain(50, 0.1, 0.0, 0.6, -2.0, 2.0)},
        {**ON, "gain": Gain(50, 0.1, 0.0, 0.4, -2.0, 2.0)},
        {**ON, "point_value": 5.0, "point_price": 4.0},
        {**ON, "low": 80.0, "agreement": (0.995, 0.995)},
        {**ON, "low": 80.0, "agreement": (0.999, 0.98, 0.999)},
    ],
)
def test_without_a_reason_it_goes_on(situation):
    assert card(**situation) is None
