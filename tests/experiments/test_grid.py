"""What a grid is: a folder that only grows, and refuses what would make its runs incomparable."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Literal

import pytest

from mma.algorithms import ALGORITHMS, MixMatch
from mma.experiments import grids
from mma.experiments.catalogue import EXPERIMENTS, experiment
from mma.experiments.grids import slug
from mma.experiments.options import (
    GridOptions,
    config_of,
    grid_from_options,
    read_axes,
    row_name,
    rows_of,
    seeds_of,
    settings_of,
    values_of,
)
from mma.experiments.report.results import Description, Result, Results
from mma.paper import table


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1..3", ("1", "2", "3")),
        ("a,b", ("a", "b")),
        ("1,3..4", ("1", "3", "4")),
        ("[1,2],[3]", ("[1,2]", "[3]")),
        ("a,a", ("a",)),
    ],
)
def test_an_axis_is_a_list_or_a_range(text, values):
    assert values_of(text) == values


@pytest.mark.parametrize("text", ["5..1", "a,,b", "a,"])
def test_a_broken_list_is_refused(text, refusal):
    with refusal():
        values_of(text)


def test_seeds_are_a_count_a_range_or_a_list(refusal):
    assert seeds_of("3") == (1, 2, 3)
    assert seeds_of("3..4") == (3, 4)
    assert seeds_of("7,2") == (2, 7)
    with refusal():
        seeds_of("0")
    with refusal():
        seeds_of("many")


def test_axes_are_read_once_each(refusal):
    assert read_axes(["query=a,b", "seed=1..2"]) == {"query": "a,b", "seed": "1..2"}
    with refusal():
        read_axes(["seed=1", "seed=2"])
    with refusal():
        read_axes(["seed"])


def test_values_settings_and_seeds_may_be_python_values():
    assert values_of([0.1, "a", True, None]) == ("0.1", "a", "true", "null")
    assert settings_of({"optim.lr": 0.1, "query": "random"}) == ["optim.lr=0.1", "query=random"]
    assert seeds_of(3) == seeds_of("3") == seeds_of([3, 1, 2]) == (1, 2, 3)


def test_rows_are_named_by_what_sets_them_apart():
    assert row_name({"growth.policy": "passive"}) == "MixMatch"
    assert row_name({"query": "random", "optim.lr": "0.1"}) == "random, lr=0.1"


def test_a_passive_row_stands_once_beside_all_queries():
    axes = {"growth.policy": "passive,count", "query": ["random", "max-direct"]}
    assert list(rows_of(axes)) == ["MixMatch", "random", "max-direct"]


class HardMixMatch(MixMatch):
    """MixMatch with another default that is its own, and a setting more."""

    name: Literal["hard-mixmatch"] = "hard-mixmatch"  # type: ignore[assignment]
    temperature: float = 0.1
    more: float = 2.0


def test_an_own_algorithm_gets_what_it_inherits_as_the_preset_has_it(monkeypatch, tmp_path):
    monkeypatch.setitem(ALGORITHMS, "hard-mixmatch", HardMixMatch)
    grid = grid_from_options(
        GridOptions("digits", {"algorithm": "mixmatch,hard-mixmatch,vat"}, ["algorithm.alpha=0.6"])
    )
    ours, mine, vat = (config_of(grid, cell).algorithm for cell in grid.cells() if cell.seed == 1)
    assert (ours.weight, ours.ramp, ours.alpha) == (mine.weight, mine.ramp, mine.alpha) == (10.0, 200, 0.6)
    assert (mine.temperature, mine.more) == (0.1, 2.0)
    assert vat.weight == 0.3, "the weight of another family is another number"


def test_the_plan_and_the_report_say_what_differs_between_algorithms(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "hard-mixmatch", HardMixMatch)
    grid = grid_from_options(GridOptions("digits", {"algorithm": "mixmatch,hard-mixmatch"}, seeds=1))
    said = grids.compare_algorithms(config_of(grid, cell).model_dump(mode="json") for cell in grid.cells())
    assert said.endswith("algorithms: mixmatch temperature=0.5; hard-mixmatch temperature=0.1, more=2.0.")
    assert grids.compare_algorithms([{"algorithm": {"name": "a", "x": 1}}] * 2) == ""
    same = [{"algorithm": {"name": name, "x": 1}} for name in "ab"]
    assert grids.compare_algorithms(same) == "All algorithms have equal settings."
    found = Results((Result("a", 1, 9, 1, "done", 50.0, 1, 1, 1),), description=Description(algorithms=said))
    assert said in found.table().as_markdown()
    assert "| method | 1 label |" in found.table().as_markdown()


def test_methods_know_from_their_config_whether_they_grow_and_what_they_see():
    grid = grid_from_options(GridOptions("digits", seeds=1, methods=["Supervised", "MixMatch", "random"]))
    facts = {name: (method.grows, method.supervised) for name, method in grid.methods.items()}
    assert (facts["Supervised"], facts["MixMatch"], facts["random"]) == ((False, True), (False, False), (True, False))
    assert [grid.total_of(cell) for cell in grid.cells()] == [60, 1297, 1297]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_a_valid_grid_at_every_scale(name):
    for scale in EXPERIMENTS[name]:
        try:
            grid = grid_from_options(GridOptions(name, scale=scale, seeds="2"))
        except ValueError as error:  # how many images there are is known for public data sets alone
            if "is not here" not in str(error):
                raise
            pytest.skip(f"an experiment on data that is made from other data: {error}")
        assert len(grid.cells()) % 2 == 0
        assert len({cell.place for cell in grid.cells()}) == len(grid.cells())


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if "paper" in EXPERIMENTS[name]])
def test_the_papers_tables_have_a_run_for_every_number(name):
    found = grid_from_options(GridOptions(name, scale="paper", seeds="1"))
    assert found.paper is not None
    ours = {(cell.method, cell.budget, found.total_of(cell)) for cell in found.cells()}
    assert ours == {(row.method, row.labels, row.total) for row in table(found.paper)}


def test_lab_baselines_ramp_over_a_share_of_their_own_steps():
    grid = grid_from_options(GridOptions("digits", seeds="1", methods="VAT,MeanTeacher"))
    for cell in grid.cells():
        config = config_of(grid, cell)
        assert config.algorithm.ramp == round(0.4 * config.growth.steps)


def test_runs_pair_by_seed(finished):
    first = {}
    for path in sorted(finished.glob("runs/*/budget20-seed2/queries.jsonl")):
        first[path.parts[-3]] = json.loads(path.read_text().splitlines()[0])["indices"]
    assert first["random"] == first["diff2.aug-direct"]
    assert first["MixMatch"][: len(first["random"])] == first["random"]


def test_asking_for_more_adds_and_never_changes_what_is_there(small, tmp_path):
    grids.create_or_extend(tmp_path, small("random", "seed=1..2"))
    both = grids.create_or_extend(tmp_path, small("random,max-direct", "seed=1..3"))
    assert len(both.cells()) == 6
    assert len(both.requests) == 2
    assert grids.create_or_extend(tmp_path, small("random", "seed=1..2")) == both


def test_a_grid_begun_with_other_settings_is_refused(small, tmp_path, refusal):
    grids.create_or_extend(tmp_path, small("random"))
    with refusal():
        grids.create_or_extend(tmp_path, small("random", settings=["optim.lr=0.1"]))
    with refusal():
        grids.create_or_extend(tmp_path, grid_from_options(GridOptions("digits")))


@pytest.mark.parametrize(
    "make",
    [
        lambda: grid_from_options(GridOptions("cifar1O")),
        lambda: grid_from_options(GridOptions("photos")),
        lambda: grid_from_options(GridOptions("digits", scale="paper")),
        lambda: grid_from_options(GridOptions("digits", methods="mixmatch")),
        lambda: grid_from_options(GridOptions("digits", budgets="sixty")),
        lambda: grid_from_options(GridOptions("digits", budgets="5000")),
        lambda: grid_from_options(GridOptions("digits", {"budget": [3]})),
        lambda: grid_from_options(GridOptions("digits", {"query": ["diff3"]})),
        lambda: grid_from_options(GridOptions("digit", {"query": "random"})),
        lambda: grid_from_options(GridOptions("digits", {"seed": 1}, seeds=2)),
        lambda: grid_from_options(GridOptions("digits", {"data.total": 50, "growth.budget": 60})),
    ],
)
def test_what_does_not_exist_is_refused_with_the_way_out(make, refusal):
    with refusal():
        make()


def test_a_folder_that_is_no_grid_is_refused(tmp_path, small, refusal):
    with refusal():
        grids.read(tmp_path)
    (tmp_path / "thesis.txt").write_text("mine")
    with refusal():
        grids.create_or_extend(tmp_path, small("random"))


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 2}', '{"format": 2, "secret": 2}', "\xff"])
def test_a_damaged_grid_is_refused(tmp_path, text, refusal):
    (tmp_path / "grid.json").write_text(text, encoding="latin-1")
    with refusal():
        grids.read(tmp_path)


def test_a_grid_of_another_format_is_refused(tmp_path, refusal):
    (tmp_path / "grid.json").write_text('{"format": 3, "future": true}')
    with refusal():
        grids.read(tmp_path)


def test_only_one_process_works_on_a_grid(tmp_path):
    code = f"from mma.experiments.grids import locked\nfrom pathlib import Path\nwith locked(Path({str(tmp_path)!r})): print('never')"
    with grids.locked(tmp_path):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "in use by another mma grid" in done.stderr
    with grids.locked(tmp_path):
        pass


def test_names_make_folders_of_their_own():
    names = ["diff2.aug-direct", "a b", "a/b", "../x", "random, lr=0.1"]
    slugs = [slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    assert slugs[0] == names[0]
    assert not any("/" in slug or slug.startswith(".") for slug in slugs)


def test_scales_default_to_the_papers():
    assert experiment("cifar10", None)[0] == "paper"
    assert experiment("digits", None)[0] == "lab"
