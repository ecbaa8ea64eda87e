"""Trunk and tail: a forked run ends byte-equal to one that was trained by itself."""

from __future__ import annotations

import pytest

import mma
from mma.run import Run
from mma.training.ask import DatasetLabels
from mma.training.checkpoint import fork
from mma.training.host import Host
from mma.training.loop import train

BUDGETS = "growth.budgets=[15,20,30]"


def go(run, data):
    train(run, DatasetLabels(data.train), on=Host(threads=1), data=data)


def same(found, expected):
    """Everything but the stored states that only one of them passed by."""
    last = max(name for name in expected if name.startswith("checkpoints/"))
    for name in ("config.json", "host.json", "queries.jsonl", "labels.jsonl", "metrics.jsonl", last):
        assert found[name] == expected[name], name


@pytest.mark.parametrize(("budget", "step"), [(15, 20), (20, 28)])
def test_a_smaller_budget_starts_from_the_trunks_state(new_run, digits, contents, tmp_path, budget, step):
    alone, trunk = new_run("alone", BUDGETS, f"growth.budget={budget}"), new_run("trunk", BUDGETS, "growth.budget=30")
    go(alone, digits)
    go(trunk, digits)
    assert fork(trunk, tmp_path / "tail", budget) == step
    tail = Run.open(tmp_path / "tail")
    go(tail, digits)
    same(contents(tail), contents(alone))


def test_a_larger_budget_continues_a_finished_run(new_run, digits, contents, tmp_path):
    alone, small = new_run("alone", BUDGETS, "growth.budget=30"), new_run("small", BUDGETS)
    go(alone, digits)
    go(small, digits)
    assert fork(small, tmp_path / "more", 30) == 28  # 20 labels for one labeling interval
    more = Run.open(tmp_path / "more")
    go(more, digits)
    same(contents(more), contents(alone))


def test_a_state_that_only_a_last_evaluation_left_is_not_gone_on_from(new_run, digits, contents, tmp_path):
    """The small run is evaluated at its last step, 17, where the large one is not."""
    settings = ["growth.every=10", "growth.first=5", "growth.final=2", "growth.budgets=[15,20]"]
    alone, small = new_run("alone", *settings, "growth.budget=20"), new_run("small", *settings, "growth.budget=15")
    go(alone, digits)
    go(small, digits)
    assert fork(small, tmp_path / "more", 20) < 7
    more = Run.open(tmp_path / "more")
    go(more, digits)
    same(contents(more), contents(alone))


HEAD = (
    *("views=features", "net=head", "views.backbone=hog@32", "views.crops=0", "data.total=300", "optim.batch=8"),
    *("growth.start=120", "growth.add=10", "growth.budgets=[120,130,140]", "growth.first=8", "growth.every=8"),
    *("growth.final=40", "growth.refresh_every=1", "log.every=8", "log.checkpoint=8"),
)


@pytest.fixture
def head_run(tmp_path, monkeypatch):
    """Make a run on features whose head finds a temperature before every round."""
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "cache"))
    start = mma.preset("digits")
    return lambda name, budget: mma.new_run(mma.change(start, [*HEAD, f"growth.budget={budget}"]), tmp_path / name)


def test_a_temperature_for_a_longer_round_is_not_taken_from_a_shorter_one(head_run, digits, contents, tmp_path):
    """It is found before a round, for as many steps as that round has."""
    alone, trunk = head_run("alone", 130), head_run("trunk", 140)
    go(alone, digits)
    go(trunk, digits)
    assert fork(trunk, tmp_path / "tail", 130) == 8  # where the round of 130 labels begins
    tail = Run.open(tmp_path / "tail")
    go(tail, digits)
    same(contents(tail), contents(alone))
    assert tail.read("starts") == alone.read("starts")


def test_a_head_whose_first_round_is_longer_shares_nothing(head_run, digits, tmp_path, refusal):
    trunk = head_run("trunk", 140)
    go(trunk, digits)
    with refusal():
        fork(trunk, tmp_path / "tail", 120)


def test_what_depends_on_the_whole_length_is_said_when_nothing_is_shared(new_run, digits, tmp_path, refusal):
    run = new_run("d", "optim.decay=linear")
    go(run, digits)
    with refusal():
        fork(run, tmp_path / "more", 30)


def test_a_passive_run_cannot_be_forked(new_run, digits, tmp_path, refusal):
    run = new_run("p", "growth.policy=passive")
    go(run, digits)
    with refusal():
        fork(run, tmp_path / "q", 15)
