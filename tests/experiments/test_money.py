"""Policies at equal money: the report compares within one deal, and committed results give the same files again."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from mma.cli.experiments import cost
from mma.experiments import grids
from mma.experiments.catalogue import EXPERIMENTS
from mma.experiments.engines import TrainingOptions, finish
from mma.experiments.methods import policy
from mma.experiments.options import GridOptions, config_of, grid_from_options
from mma.experiments.plan import plan
from mma.experiments.report import summary
from mma.experiments.report import write as report
from mma.experiments.report.results import collect, from_grid
from mma.run import Run

app = typer.Typer()
app.command()(cost)
DEAL = {"money": 60, "label_price": 5, "image_price": 1, "initial_pool": 100, "purchases": 3}


@pytest.fixture(scope="module")
def bought(tmp_path_factory, tiny_settings):
    """Two fixed shares and a buyer, two seeds each, trained once."""
    methods = {
        "labels": policy("split", **DEAL, share=1.0),
        "images": policy("split", **DEAL, share=0.0),
        "buyer": policy("buyer", **DEAL, held_out_labels=2),
    }
    grid = grid_from_options(GridOptions("digits", {"growth.budget": 60}, tiny_settings, seeds=2, methods=methods))
    folder = tmp_path_factory.mktemp("money") / "grid"
    grid = grids.create_or_extend(folder, grid)
    for run in plan(grid, folder).todo:
        finish(run.task, TrainingOptions())
    return folder


def test_every_round_says_what_was_spent_and_what_there_was(bought):
    found = from_grid(bought)
    rows = [row for row in found.spending if (row.method, row.seed) == (found.methods[0], 1)]
    assert [(row.round, row.spent, row.labels, row.images) for row in rows] == [
        (0, 0.0, 10, 100),
        (1, 20.0, 14, 100),
        (2, 40.0, 18, 100),
        (3, 60.0, 22, 100),
    ]
    place = next((bought / "runs").glob("labels/*seed1"))
    assert rows[-1].accuracy == Run.open(place).median_accuracy()[0]
    assert rows[1].accuracy == [row["accuracy"] for row in Run.open(place).read("metrics") if row["round"] == 1][-1]
    mine = [row for row in found.spending if row.method == "buyer"]
    assert {row.spent for row in mine if row.round == 0} == {10.0}  # two labels to measure by
    assert all(row.spent <= 60 for row in mine)


def test_the_regret_is_against_the_best_fixed_policy(bought):
    found = from_grid(bought)
    ((title, heading, rows, _),) = summary.money_sections(found)
    assert "a label costs 5, an image 1, 60 to spend" in title
    means = {name: np.mean(list(found.accuracies(name, 60).values())) for name in found.methods}
    best = max((name for name in means if name != "buyer"), key=means.__getitem__)
    assert heading[5] == f"regret against {best}"
    line = {row[0]: row for row in rows}
    assert line[best][5] == "-"
    assert line["buyer"][5].startswith(f"{means[best] - means['buyer']:+.2f} (")
    assert line["buyer"][6] == "-"
    assert line[best][6].startswith(f"{means['buyer'] - means[best]:+.2f} (")


def test_exported_spending_gives_the_same_files_again(bought, tmp_path):
    report.write_all(from_grid(bought), tmp_path / "one", "mma report")
    report.write_all(collect(tmp_path / "one"), tmp_path / "two", "mma report")
    first = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir() if path.name != "README.md"}
    assert {"spending.csv", "accuracy-over-money.png", "statistics.md", "report.html"} <= set(first)
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}


@pytest.mark.parametrize("name", ["buyer-digits", "buyer-fashion-mnist"])
def test_the_experiments_give_every_policy_the_same_money(name):
    grid = grid_from_options(GridOptions(name, scale="lab"))
    growths = {cell.method: config_of(grid, cell).growth for cell in grid.cells() if cell.seed == 1}
    assert len(grid.cells()) == 16 * 5
    for price in (1, 5, 20, 100):
        rows = {method: growth for method, growth in growths.items() if method.startswith(f"{price}:1 ")}
        policies = [growth.policy for growth in rows.values()]
        assert {each.name for each in policies} == {"split", "buyer"}
        assert {each.share for each in policies if each.name == "split"} == {0.0, 0.5, 1.0}
        assert len({(g.policy.money, g.initial_pool, g.start, g.steps) for g in rows.values()}) == 1
        assert {each.label_price / each.image_price for each in policies} == {price}
    assert set(EXPERIMENTS) >= {"buyer-digits", "buyer-fashion-mnist"}


def test_a_grid_over_labels_and_totals_is_a_source_of_costs(small, train_here, tmp_path):
    grid = small("random", "data.total=60,200", "growth.budget=15,20", "seed=1,2")
    train_here(grid, tmp_path / "both")
    done = CliRunner().invoke(app, [str(tmp_path / "both"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["source"] == "both"
    report.write_all(from_grid(tmp_path / "both"), tmp_path / "both", "mma report")
    again = CliRunner().invoke(app, [str(tmp_path / "both"), "--json"])
    assert json.loads(again.stdout)["targets"] == json.loads(done.stdout)["targets"]


def test_a_grid_of_one_total_says_nothing_about_costs(finished):
    done = CliRunner().invoke(app, [str(finished)])
    assert done.exit_code != 0
    assert "all its runs have the same images" in str(done.exception or done.output)
