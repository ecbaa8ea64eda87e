from __future__ import annotations

import pytest
from pydantic import ValidationError

from mma.growth import Growth, Passive
from mma.presets import preset


def growth(**changes) -> Growth:
    return Growth(**{"start": 250, "add": 50, "budget": 500, "first": 100, "every": 10, "final": 40, **changes})


def test_rounds_of_the_paper():
    rounds = preset("cifar10").growth.rounds()
    assert [r.labels for r in rounds] == [250, 300, 350, 400, 450, 500]
    assert [r.end - r.begin for r in rounds] == [262_144, *[32_768] * 4, 262_144]
    assert {(r.refresh, r.origin, r.ramp_from) for r in rounds} == {(False, 0, 0)}


def test_the_last_growth_is_smaller_when_the_budget_is_no_multiple():
    assert [r.labels for r in growth(budget=320).rounds()] == [250, 300, 320]


def test_a_passive_run_is_one_round_of_as_many_steps():
    (only,) = growth(policy=Passive()).rounds()
    assert (only.labels, only.end) == (500, growth().rounds()[-1].end)


def test_a_start_set_as_large_as_the_budget_is_one_round():
    (only,) = growth(start=500).rounds()
    assert (only.labels, only.end) == (500, 140)


def test_refresh_moves_the_origin_and_ramp_again_the_ramp():
    rounds = growth(refresh_every=2, ramp_again=True).rounds()
    assert [r.refresh for r in rounds] == [False, False, True, False, True, False]
    assert [r.origin for r in rounds] == [0, 0, 110, 110, 130, 130]
    assert [r.ramp_from for r in rounds] == [r.begin for r in rounds]
    assert [r.refresh for r in growth(refresh_final=True).rounds()] == [False] * 5 + [True]


def test_states_next_to_each_budget_are_kept():
    assert growth(budgets=(350, 500)).kept_steps() == {110, 120, 140, 150}


def test_a_start_beyond_the_budget_is_refused():
    with pytest.raises(ValidationError, match=r"growth.start \(600\) is larger"):
        growth(start=600)


def test_rounds_can_have_the_sizes_listed():
    growth = Growth(
        start=10, add=1, budget=100, first=5, every=7, final=9, policy={"name": "sizes", "labels": [5, 50, 20, 20, 400]}
    )
    assert [round.labels for round in growth.rounds()] == [10, 20, 50, 100]
    assert [round.end for round in growth.rounds()] == [5, 12, 19, 28]
    assert [round.labels for round in growth.model_copy(update={"budget": 10}).rounds()] == [10]
