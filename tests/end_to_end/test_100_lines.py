"""The method in one plain file gives the losses and the picks of `mma train digits`."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from mma import change, new_run, preset, train

FILE = Path(__file__).parents[2] / "docs" / "examples" / "mma_in_100_lines.py"


@pytest.fixture(scope="module")
def plain():
    spec = importlib.util.spec_from_file_location("mma_in_100_lines", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_about_100_lines():
    lines = [line.strip() for line in FILE.read_text("utf-8").splitlines()]
    assert len([line for line in lines if line and not line.startswith(('"""', "#"))]) <= 115


def test_its_numbers_are_those_of_the_preset(plain):
    config = preset("digits")
    growth, optim, mixmatch = config.growth, config.optim, config.algorithm
    assert (growth.start, growth.add, growth.budget) == (plain.START, plain.ADD, plain.BUDGET)
    assert (growth.first, growth.every, growth.final) == (plain.FIRST, plain.EVERY, plain.FINAL)
    assert (
        optim.batch, optim.lr, optim.weight_decay, optim.ema_decay,
    ) == (plain.BATCH, plain.LR, plain.DECAY, plain.EMA)  # fmt: skip
    assert (
        mixmatch.temperature, mixmatch.alpha, mixmatch.weight, mixmatch.ramp,
    ) == (plain.TEMPERATURE, plain.ALPHA, plain.WEIGHT, plain.RAMP)  # fmt: skip
    assert config.query == "diff2.aug-direct"


@pytest.mark.slow
def test_it_has_the_losses_and_the_picks_of_a_run(plain, tmp_path):
    """Up to rounding, which grows with the steps, so the run is short.

    Images that are equally unsure up to rounding may change places: at most one pick in ten, and losses are compared until then.
    """
    short = ["growth.first=20", "growth.every=4", "growth.final=2", "log.every=4"]
    run = new_run(change(preset("digits"), short), tmp_path / "run")
    train(run)
    events = list(plain.train(first=20, every=4, final=2))
    losses = np.array([value for kind, value in events if kind == "losses"])  # (steps, 2)
    comparable = len(losses)
    for row, (_, value) in zip(run.read("queries"), [event for event in events if event[0] == "picks"], strict=True):
        picks = [int(index) for index in value]
        if picks != row["indices"]:  # another order is another order of the labels in the batches to come
            assert len(set(picks) & set(row["indices"])) >= 0.9 * len(picks)
            comparable = row["step"]
            break
    assert comparable >= 20
    for row in run.read("metrics"):
        mean = losses[max(row["step"] - 4, 0) : row["step"]].mean(0) if row["step"] % 4 == 0 else losses[-2:].mean(0)
        if row["step"] <= comparable:
            assert mean == pytest.approx([row["loss"]["labeled"], row["loss"]["unlabeled"]], rel=5e-3)
    kind, accuracy = events[-1]
    assert kind == "accuracy"
    near = 0.5 if comparable == len(losses) else 5.0
    assert accuracy == pytest.approx(run.read("metrics")[-1]["accuracy"], abs=near)
