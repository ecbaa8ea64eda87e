"""Grids on features: the paper's tables, and low budgets where every round of a run fills a cell."""

from __future__ import annotations

import pytest

from mma.data import load_data
from mma.data.hard import HARD
from mma.experiments import engines, grids
from mma.experiments.catalogue import EXPERIMENTS, low_budget
from mma.experiments.engines import TrainingOptions, finish, vectors_once
from mma.experiments.options import GridOptions, config_of, experiment_grid, grid_from_options
from mma.experiments.plan import plan
from mma.experiments.report import statistics as savings
from mma.experiments.report import summary, tables
from mma.experiments.report.results import collect, from_grid, write_csv
from mma.experiments.report.write import write_all
from mma.experiments.run import check
from mma.run import Run
from mma.training.host import Host

SHORT = ("views.crops=0", "growth.first=4", "growth.every=4", "growth.final=4", "log.every=4")
METHODS = "random,typiclust,herding,auto"


@pytest.fixture(scope="module")
def low(tmp_path_factory):
    """A low-budget table of digits with two seeds, trained here."""
    folder = tmp_path_factory.mktemp("low")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMA_DATA", str(folder / "data"))
        found = low_budget("digits", "hog@32", 2, 200, SHORT)
        grid = experiment_grid("lab", found, GridOptions("low", seeds=2, methods=METHODS))
        grids.create_or_extend(folder / "grid", grid)
        for run in plan(grid, folder / "grid").todo:
            finish(run.task, TrainingOptions())
        vectors_once.cache_clear()
    return folder / "grid"


def test_every_round_of_a_low_budget_run_is_a_column(low):
    found = from_grid(low)
    assert found.budgets == [2, 4, 10, 20, 50]
    assert found.methods == METHODS.split(",")
    assert list(tables.table(found).columns) == [f"{size} labels" for size in found.budgets]
    shown = list(dict.fromkeys(row.budget for row in found.differences("random")))
    assert shown == found.budgets, "from few labels to many"
    run = Run.open(low / "runs/auto/budget50-seed2")
    ends = {row["labels"]: row["accuracy"] for row in run.read("metrics")}
    assert {size: found.accuracies("auto", size)[2] for size in found.budgets} == ends


def test_classes_without_a_label_are_counted(low):
    found = from_grid(low)
    first = next(row for row in found.rounds if (row.method, row.seed, row.labels) == ("random", 1, 2))
    labels = Run.open(low / "runs/random/budget50-seed1").answers(0)
    assert first.missed == 10 - len(set(labels.values()))
    assert savings.mean_by_labels(found, lambda row: row.missed)["random"][2] >= 8


def test_exported_rounds_keep_the_classes_missed(low, tmp_path):
    found = from_grid(low)
    write_csv(tmp_path, found)
    assert collect(tmp_path).rounds == found.rounds
    assert summary.sections(collect(tmp_path)) == summary.sections(found)


def test_a_start_chosen_by_the_query_is_its_own(low):
    starts = {
        method: Run.open(low / f"runs/{method}/budget50-seed1").read("queries")[0]
        for method in ("typiclust", "herding")
    }
    assert starts["typiclust"]["strategy"] == "start-query"
    assert "clusters" in starts["typiclust"]["why"]
    assert starts["herding"]["strategy"] == "start-coverage"


def test_vectors_are_made_ready_once_for_all_runs_of_a_worker(monkeypatch, tmp_path):
    monkeypatch.setenv("MMA_DATA", str(tmp_path))
    grid = experiment_grid(
        "lab", low_budget("digits", "hog@32", 2, 200, SHORT), GridOptions("low", seeds=1, methods="random")
    )
    views = config_of(grid, grid.cells()[0]).views
    engines.vectors_once.cache_clear()
    assert engines.vectors_once(views, "digits") is engines.vectors_once(views.model_copy(), "digits")
    engines.vectors_once.cache_clear()


def test_a_run_begun_on_a_gpu_gets_no_vectors_in_main_memory(monkeypatch, tmp_path):
    monkeypatch.setenv("MMA_DATA", str(tmp_path))
    monkeypatch.setattr("mma.training.host.choose_device", lambda asked: (asked or "cpu", "as if there were a GPU"))
    grid = experiment_grid(
        "lab", low_budget("digits", "hog@32", 2, 200, SHORT), GridOptions("low", seeds=1, methods="random")
    )
    config = config_of(grid, grid.cells()[0])
    begun, new = (Run.create(tmp_path / name, config.model_dump(mode="json")) for name in ("begun", "new"))
    begun.write_host({"device": "cuda", "threads": 1})
    assert engines.shared_vectors(begun, Host(), "digits") is None
    assert engines.shared_vectors(new, Host("cuda"), "digits") is None
    engines.vectors_once.cache_clear()
    shared = engines.shared_vectors(new, Host(), "digits")
    assert (
        shared is engines.shared_vectors(begun, Host("cpu"), "digits") is engines.vectors_once(config.views, "digits")
    )
    engines.vectors_once.cache_clear()


@pytest.mark.parametrize("name", [name for name, scales in EXPERIMENTS.items() if "paper" in scales])
def test_every_table_of_the_paper_can_be_run_on_features(name):
    grid = grid_from_options(GridOptions(name, features="lite0"))
    paper = grid_from_options(GridOptions(name))
    assert grid.scale == "features"
    own = set() if name.startswith("labeled-vs-unlabeled") else {"auto"}
    assert grid.methods.keys() == paper.methods.keys() | own
    asked = [[(request.totals, request.budgets, request.seeds) for request in made.requests] for made in (grid, paper)]
    assert asked[0] == asked[1]
    for cell in grid.cells():
        config = config_of(grid, cell)
        assert (config.views.kind, config.net.name, config.net.folds) == ("features", "head", 0)
        assert len(config.growth.rounds()) <= 16
        if config.growth.policy.grows:
            assert cell.budget in [round.labels for round in config.growth.rounds()]


@pytest.mark.parametrize(("backbone", "compared"), [("hog", False), ("lite0+hog", True)])
def test_a_table_on_one_backbone_spends_no_time_comparing_it(backbone, compared):
    grid = grid_from_options(GridOptions("svhn", features=backbone))
    assert config_of(grid, grid.cells()[0]).net.choose is compared


def test_rows_whose_names_have_commas_can_be_chosen(refusal):
    grid = grid_from_options(GridOptions("low-budget-digits", methods="random, coverage, then diff2.aug-kmeans,auto"))
    assert grid.requests[0].methods == ("random", "coverage, then diff2.aug-kmeans", "auto")
    with refusal():
        grid_from_options(GridOptions("low-budget-digits", methods="coverage"))


def test_features_are_for_the_papers_tables(refusal):
    with refusal():
        grid_from_options(GridOptions("digits", features="hog"))
    with refusal():
        grid_from_options(GridOptions("cifar10", scale="lab", features="hog"))


def test_a_table_on_photos_that_are_not_here_says_how_to_get_them(monkeypatch, tmp_path, refusal):
    monkeypatch.setenv("MMA_DATA", str(tmp_path))
    with refusal():
        grid_from_options(GridOptions("low-budget-signs"))


@pytest.mark.parametrize("kind", HARD)
def test_seeds_of_a_hard_table_draw_different_pools(kind):
    grid = grid_from_options(GridOptions(f"hard-digits-{kind}", methods="random"))
    assert config_of(grid, grid.cells()[0]).data.total < 0.85 * len(load_data(f"hard:{kind}:digits").train)


def test_a_comma_too_many_is_named(refusal):
    with refusal():
        grid_from_options(GridOptions("low-budget-digits", methods="random,"))


def test_strategies_of_scikit_activeml_are_rows_of_a_low_budget_table():
    pytest.importorskip("skactiveml")
    rows = "random,skactiveml:DropQuery"
    grid = grid_from_options(GridOptions("low-budget-digits", methods=rows))
    assert grid.requests[0].methods == ("random", "skactiveml:DropQuery")
    config = config_of(grid, next(cell for cell in grid.cells() if cell.method != "random"))
    assert (config.query, config.growth.start_set) == ("skactiveml:DropQuery", "coverage")
    assert "skactiveml:CoreSet" in grid_from_options(GridOptions("duel-digits")).methods


def test_a_run_of_a_table_can_be_trained_again_and_compared(low, tmp_path, monkeypatch, refusal):
    monkeypatch.setenv("MMA_DATA", str(low.parent / "data"))
    write_all(from_grid(low), tmp_path / "table", "mma report")
    same = check(tmp_path / "table", 2, "herding")
    assert same.equal
    assert str(same).endswith("1 thread)")
    assert "equal to the digit (" in str(same)
    about = tmp_path / "table" / "about.json"
    about.write_text(about.read_text("utf-8").replace('"format": 2', '"format": 1', 1), "utf-8")
    with refusal():
        check(tmp_path / "table", 2, "herding")
    monkeypatch.setitem(EXPERIMENTS, "low", {"lab": low_budget("digits", "hog@32", 2, 200, SHORT)})
    today = check(tmp_path / "table", 2, "herding")
    assert today.equal
    assert "with today's settings: those of the table are in an older format: " in str(today)
    about.write_text(about.read_text("utf-8").replace('"format": 1', '"format": 2', 1), "utf-8")
    runs = (tmp_path / "table" / "runs.csv").read_text("utf-8")
    stored = next(line for line in runs.splitlines() if line.startswith("random,50,200,1,"))
    (tmp_path / "table" / "runs.csv").write_text(runs.replace(stored, stored.replace("done,", "done,1"), 1), "utf-8")
    other = check(tmp_path / "table", 1)
    assert not other.equal
    assert "the same processor kind and versions: the code has changed its numbers since" in str(other)
    with refusal():
        check(tmp_path / "table", 9)
