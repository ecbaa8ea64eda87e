"""The table that says where asking by `auto` is worse than a random draw."""

import importlib.util
from pathlib import Path

import pytest

from mma.experiments.report.statistics import Difference

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def harm():
    spec = importlib.util.spec_from_file_location("do_no_harm", ROOT / "tools" / "do_no_harm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cell(mean, low, high):
    return Difference("auto", "random", 10, 0, 10, mean, low, high, mean, 0.5)


@pytest.mark.parametrize(
    ("mean", "low", "high", "bad"),
    [(2.0, 1.0, 3.0, False), (-0.4, -1.0, 0.2, False), (-0.2, -0.3, -0.1, True), (-0.6, -2.0, 0.8, True)],
)
def test_a_cell_fails_below_zero_or_below_half_a_point(harm, mean, low, high, bad):
    assert harm.fails(cell(mean, low, high)) is bad
    text = harm.as_markdown([("some-data", cell(mean, low, high))])
    assert ("**fails**" in text) is bad
    assert ("some-data, 10 labels" in harm.summary([("some-data", cell(mean, low, high))])) is bad


def test_the_published_table_is_that_of_the_published_runs(harm):
    found = harm.cells(ROOT / "results")
    assert harm.as_markdown(found) in (ROOT / "results" / "do-no-harm" / "README.md").read_text("utf-8")
