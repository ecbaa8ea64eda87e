"""Strategies inside of a run: they know the labeled images, say why, and continue exactly."""

from __future__ import annotations

import numpy as np
import pytest

import mma
from mma.query import STRATEGIES, Candidates, Query
from mma.rng import rng
from mma.training.ask import score_candidates
from mma.training.host import Host
from mma.training.job import load_read_only

ONE = Host(threads=1)
FEATURES = ("views=features", "net=head", "views.backbone=hog@32", "views.crops=0", "data.total=200")


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "cache"))


@pytest.fixture
def on_features(tiny_settings, tmp_path, own_cache):
    """Make a run on features of a few digits."""
    growth = [setting for setting in tiny_settings if not setting.startswith("net.")]
    return lambda name, *settings: mma.new_run(
        mma.change(mma.preset("digits"), [*FEATURES, *growth, *settings]), tmp_path / name
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_grows_a_run_says_why_and_continues_exactly(new_run, digits, contents, strategy):
    whole, parts = (new_run(name, f"query={strategy}", "data.total=300") for name in ("whole", "parts"))
    mma.train(whole, data=digits, on=ONE)
    for until in (11, 12, 13, 20, 29):
        mma.train(parts, data=digits, on=ONE, until=until)
    mma.train(parts, data=digits, on=ONE)
    assert contents(parts) == contents(whole)
    asked = whole.read("queries")
    assert [row["strategy"] for row in asked] == ["start-uniform", strategy, strategy]
    assert "why" not in asked[0]
    assert all(len(row["why"]) > 10 for row in asked[1:])


def test_the_query_is_given_the_labeled_images_as_the_same_network_sees_them(new_run, digits):
    run = new_run("run", "query=herding", "data.total=300")
    mma.train(run, data=digits, on=ONE, until=20)
    job = load_read_only(run, digits)
    found, labeled = score_candidates(job, np.arange(5), Query.parse("herding"), 1)
    answers = run.answers()
    assert labeled.labels.tolist() == list(answers.values())
    everything, _ = score_candidates(job, np.array(list(answers)), Query.parse("herding"), 1)
    np.testing.assert_allclose(labeled.features, everything.features, atol=1e-5)
    assert found.features.shape[1] == labeled.features.shape[1]


def test_a_coverage_start_on_features_is_herding_on_them(on_features):
    run = on_features("run", "growth.start_set=coverage")
    mma.train(run, on=ONE, until=1)
    row, job = run.read("queries")[0], load_read_only(run)
    seen = Candidates(job.pool, features=job.views.plain(job.pool).numpy())
    draw = rng(job.config.seed, "coverage")
    assert row["strategy"] == "start-coverage"
    assert "similarity to the nearest labeled image" in row["why"]
    assert row["indices"] == Query.parse("herding").select(seen, 10, draw).tolist()
