"""Trunks and tails: what is shared, what is left, and that sharing changes no number."""

from __future__ import annotations

import json
import shutil

import pytest

from mma.experiments import grids
from mma.experiments.engines import TrainingOptions, finish, open_or_create
from mma.experiments.estimate import Speed, cost, costs, kind
from mma.experiments.options import GridOptions, config_of, data_set, grid_from_options
from mma.experiments.plan import plan
from mma.run import Run

BUDGETS = "growth.budget=15,20,30"


def planned(grid, folder):
    return {(run.cell.method, run.cell.budget): run for run in plan(grid, folder).runs}


def test_the_largest_budget_is_the_trunk_and_the_others_wait_for_it(small, tmp_path):
    found = planned(small("MixMatch,random", BUDGETS, "seed=1"), tmp_path)
    roles = {key: run.role for key, run in found.items()}
    assert [roles["random", budget] for budget in (15, 20, 30)] == ["tail", "tail", "trunk"]
    assert {roles["MixMatch", budget] for budget in (15, 20, 30)} == {"alone"}
    assert found["random", 15].task.trunk == found["random", 30].task.folder
    assert (found["random", 15].begin, found["random", 20].begin) == (20, 28)


def test_the_papers_plan_counts_what_sharing_saves(tmp_path):
    grid = grid_from_options(GridOptions("cifar10", scale="paper", methods="random", seeds="1"))
    found = plan(grid, tmp_path)
    ends = [262_144 + rounds * 32_768 + 262_144 for rounds in (4, 14, 34, 74)]
    assert found.steps_alone == sum(ends)
    # A tail starts where the trunk has trained one labeling interval with its budget.
    assert found.steps_shared == ends[-1] + 3 * (262_144 - 32_768)
    assert found.steps_left == found.steps_shared


def test_shared_runs_end_byte_equal_to_separate_ones(small, tmp_path, train_here, bytes_of):
    grid = small("diff2.aug-direct", BUDGETS, "seed=1")
    train_here(grid, tmp_path / "shared")
    grids.create_or_extend(tmp_path / "apart", grid)
    for cell in grid.cells():
        Run.create(tmp_path / "apart" / cell.place, config_of(grid, cell).model_dump(mode="json"))
    train_here(grid, tmp_path / "apart")
    assert bytes_of(tmp_path / "shared") == bytes_of(tmp_path / "apart")


def test_a_larger_budget_asked_for_later_continues_the_trunk(small, tmp_path, train_here, bytes_of):
    train_here(small("random", "growth.budget=15,20", "seed=1"), tmp_path / "grown")
    larger = small("random", BUDGETS, "seed=1")
    found = planned(grids.merge(grids.read(tmp_path / "grown"), larger, tmp_path), tmp_path / "grown")
    assert found["random", 30].begin == 28
    assert {found["random", budget].status for budget in (15, 20)} == {"done"}
    train_here(larger, tmp_path / "grown")
    train_here(larger, tmp_path / "at once")
    one, other = bytes_of(tmp_path / "grown"), bytes_of(tmp_path / "at once")
    numbers = {name for name in one if name.endswith("jsonl")}
    assert len(numbers) == 9
    assert {name: one[name] for name in numbers} == {name: other[name] for name in numbers}


def test_tails_wait_for_an_interrupted_trunk_rather_than_start_over(small, tmp_path):
    grid = grids.create_or_extend(tmp_path, small("random", BUDGETS, "seed=1"))
    trunk = planned(grid, tmp_path)["random", 30]
    open_or_create(trunk.task)
    found = planned(grid, tmp_path)
    assert found["random", 20].task.trunk == trunk.task.folder
    assert found["random", 20].begin == 28


def test_refreshed_tails_share_only_what_came_before(small, tmp_path):
    grid = small("random", BUDGETS, "seed=1", settings=["growth.refresh_final=true"])
    found = planned(grid, tmp_path)
    assert (found["random", 15].begin, found["random", 20].begin) == (12, 20)


def test_a_finished_grid_has_nothing_left(finished):
    grid = grids.read(finished)
    assert plan(grid, finished).todo == []


def test_what_is_asked_for_later_is_all_that_is_left(finished, tmp_path, small):
    shutil.copytree(finished, tmp_path / "more")
    more = grids.create_or_extend(tmp_path / "more", small("MixMatch,random", "growth.budget=15,20", "seed=1..4"))
    left = plan(more, tmp_path / "more", more.cells(more.requests[-1])).todo
    assert {run.cell.seed for run in left} == {4}
    assert len(left) == 4


def test_a_run_with_other_settings_in_a_cells_place_is_refused(small, tmp_path, tiny, refusal):
    grid = grids.create_or_extend(tmp_path, small("random", "seed=1"))
    Run.create(tmp_path / grid.cells()[0].place, tiny("query=random", "optim.lr=0.5").model_dump(mode="json"))
    with refusal():
        plan(grid, tmp_path)


def test_a_run_folder_of_a_newer_format_is_refused(small, tmp_path, refusal):
    grid = grids.create_or_extend(tmp_path, small("random", "seed=1"))
    run = open_or_create(plan(grid, tmp_path).todo[0].task)
    config = {**run.config(), "format": 9}
    (run.folder / "config.json").write_text(json.dumps(config))
    with refusal():
        plan(grid, tmp_path)


def test_a_kill_while_a_folder_is_made_leaves_nothing_in_the_way(small, tmp_path):
    grid = grids.create_or_extend(tmp_path, small("random", "seed=1"))
    job = plan(grid, tmp_path).todo[0].task
    beside = job.folder.with_name(f".{job.folder.name}.new")
    (beside / "checkpoints").mkdir(parents=True)
    (job.folder / "checkpoints").mkdir(parents=True)
    finish(job, TrainingOptions())
    assert Run.open(job.folder).status() == "done"
    assert not beside.exists()


def test_time_and_disk_are_estimated_without_the_data(monkeypatch, tmp_path):
    monkeypatch.setenv("MMA_DATA", str(tmp_path))
    settings = ["net.filters=8", "net.blocks=1", "optim.batch=8"]
    grid = grid_from_options(
        GridOptions("svhn", scale="lab", seeds="1", methods="MixMatch,diff2.aug-infoD", settings=settings)
    )
    made = plan(grid, tmp_path)
    found, speeds = costs(made, TrainingOptions())
    assert len(speeds) == 1
    passive, asking = (found[cell] for cell in grid.cells())
    assert 0 < passive.seconds < asking.seconds
    assert passive.bytes > 0


def test_images_held_out_are_evaluated_instead_of_the_test_set(small, tmp_path):
    speed, data = Speed(step=0.0, image=1.0, state=0, full_batch=True), data_set("digits")
    seconds = {}
    for held in (0, 30):
        grid = small("MixMatch", "seed=1", settings=[f"data.validation={held}"])
        (run,) = plan(grid, tmp_path).runs
        seconds[held] = cost(run, speed, data).seconds
        assert seconds[held] == run.config.log.evaluations(run.end) * (held or data.test)
    assert 0 < seconds[30] < seconds[0]


@pytest.mark.parametrize("setting", ["views.strong_labels=0.5", "optim.rule=muon", "optim.batch=4", "net.filters=8"])
def test_runs_that_differ_in_speed_are_measured_apart(tiny, setting):
    assert kind(tiny(setting)) != kind(tiny())


def test_runs_that_differ_in_luck_alone_are_measured_once(tiny):
    assert kind(tiny("seed=2", "optim.lr=0.5")) == kind(tiny())
