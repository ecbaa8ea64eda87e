"""What the measurements compare: the plain step computes what ours computes, and the bench's own arithmetic holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench import heads, neighbour, pool, queries, steps
from bench.reference import PlainMixMatch
from bench.worker import CASES, Case, batch_of, network, plain_network, state_of
from mma.algorithms import MixMatch
from mma.config import Optim
from mma.nets import initialise
from mma.rng import rng
from mma.training.step import training_step

SMALL_WRN = Case("a small member of the paper's family", 8, 1, 32, 3, 4)
SMALL_NET = Case("the network for digits", 8, 0, 8, 1, 4)


def alike(case: Case) -> torch.nn.Module:
    """Return the plain network with the weights ours begins with."""
    mine, plain = network(case), plain_network(case)
    initialise(mine, rng(1, "init"))
    for to, weights in zip(plain.parameters(), mine.parameters(), strict=True):
        assert to.shape == weights.shape
        to.data.copy_(weights.data)
    return plain


@pytest.mark.parametrize("case", [SMALL_WRN, SMALL_NET], ids=["wrn", "small"])
def test_the_plain_step_has_our_losses(case):
    state, batch = state_of(case), batch_of(case)
    plain = PlainMixMatch(alike(case))
    for step in range(3):
        mine = training_step(
            state, MixMatch(ramp=0), Optim(batch=case.batch), batch, age=step, ramp=step, rng=rng(1, "loss", step)
        )
        labeled, unlabeled = plain.step(batch.x, batch.y, list(batch.u), rng(1, "loss", step))
        assert float(mine.terms["labeled"].detach()) == pytest.approx(float(labeled), rel=2e-3)
        assert float(mine.terms["unlabeled"].detach()) == pytest.approx(75 * float(unlabeled), rel=2e-2)


@pytest.mark.parametrize("name", CASES)
def test_both_networks_have_as_many_weights(name):
    counts = [sum(p.numel() for p in net(CASES[name]).parameters()) for net in (network, plain_network)]
    assert counts[0] == counts[1]


def test_cost_that_grows_with_the_square_is_not_called_linear():
    sizes = np.array(queries.SIZES, dtype=float)
    said = queries.growth({"linear": 1e-6 * sizes, "square": 1e-12 * sizes**2})
    assert "to the power 1.00 to 2.00" in said


@pytest.mark.slow
def test_a_pool_on_disk_is_measured_in_a_process_of_its_own():
    said = pool.section(1, count=5_000)
    assert "5,000 images of 16x16" in said
    assert "GB" in said


def test_the_clusters_that_heads_are_timed_on_can_be_told_apart():
    stored, truth = heads.clusters(400)
    head = heads.fit_head(heads.open_views(stored), {row: int(truth[row]) for row in range(60)}, heads.CLASSES)
    guesses = head.probabilities(heads.open_views(stored), heads.np.arange(60, 400)).argmax(1)
    assert (guesses == truth[60:]).mean() > 0.8


@pytest.mark.parametrize("has", ["float32", "bfloat16"])
def test_rows_say_where_bfloat16_is_emulated(monkeypatch, has):
    monkeypatch.setattr("mma.training.step.native_precision", lambda: has)
    monkeypatch.setattr(steps, "TURNS", {"small-digits": (1, 1)})
    said = steps.against_reference(1)
    assert (steps.EMULATED in said) == ("| bfloat16, emulated |" in said) == (has == "float32")
    assert said.count("| float32 |") == 1


def test_scoring_in_bfloat16_is_compared_by_speed_and_picks():
    line = queries.halves(SMALL_NET, 300)
    *_, same, _ = (cell.strip() for cell in line.split("|"))
    assert queries.HALF_PICKS * 0.7 <= int(same) <= queries.HALF_PICKS


@pytest.mark.parametrize("name", neighbour.WORK)
def test_work_beside_a_neighbour_can_be_repeated(name):
    work = neighbour.WORK[name]()
    work(0)
    work(1)
