"""Accuracy over compute: rows of different lengths become a line per family, compared at as much arithmetic."""

from __future__ import annotations

import pytest

from mma.experiments import grids
from mma.experiments.engines import TrainingOptions, finish
from mma.experiments.estimate import flop
from mma.experiments.grids import Request
from mma.experiments.methods import Method, phases
from mma.experiments.options import GridOptions, build_grid, config_of, grid_from_options
from mma.experiments.plan import plan
from mma.experiments.report import figures, summary
from mma.experiments.report import write as report
from mma.experiments.report.figures import render
from mma.experiments.report.results import Compute, Description, Result, Results, collect


def results(budget: int = 9, total: int = 99, **reached: list[float]) -> Results:
    """Rows named like fast_1e3 with accuracies of seeds 1, 2, ..."""
    runs, counted, families = [], [], {}
    for name, values in reached.items():
        family, text = name.split("_")
        method = f"{family}, {text} steps"
        families[method] = family
        runs += [
            Result(method, budget, total, seed, "done", value, 1, 1, budget) for seed, value in enumerate(values, 1)
        ]
        counted.append(Compute(method, budget, total, float(text)))
    return Results(tuple(runs), compute=tuple(counted), description=Description(families=families))


def together(*parts: Results) -> Results:
    """The rows of all parts, as one grid has them."""
    runs = tuple(run for part in parts for run in part.runs)
    families = {method: family for part in parts for method, family in part.description.families.items()}
    counted = tuple(row for part in parts for row in part.compute)
    return Results(runs, compute=counted, description=Description(families=families))


def test_families_are_compared_where_they_compute_as_much():
    found = results(fast_1e3=[50.0, 52.0], fast_1e5=[70.0], slow_1100=[40.0, 43.0], slow_1e7=[80.0])
    ((_, heading, rows, _),) = summary.compute_sections(found)
    assert heading[-2:] == ["minus fast at as much", "minus slow at as much"]
    by_place = {(row[0], row[1]): row[2:] for row in rows}
    assert by_place["fast", "1e+03"][:2] == ["2", "51.00 ± 1.41"]
    assert by_place["fast", "1e+03"][3].startswith("+9.50 (")
    assert by_place["slow", "1.1e+03"][2].startswith("-9.50 (")
    assert by_place["fast", "1e+05"][1:] == ["70.00", "-", "-"]  # one seed, and nothing near


def test_lines_go_from_short_to_long():
    lines = summary.lines_of(results(fast_1e5=[70.0], fast_1e3=[50.0]))
    assert [value for value, _ in lines["fast", 9, 99]] == [1e3, 1e5]


def test_only_runs_with_as_many_labels_and_images_are_compared():
    few = results(budget=300, fast_1e3=[50.0, 51.0], slow_1e3=[40.0, 41.0])
    many = results(budget=500, fast_1e3=[70.0, 71.0], slow_1e3=[65.0, 66.0])
    ((_, heading, rows, _),) = summary.compute_sections(together(few, many))
    assert heading[4:] == ["minus fast at as much", "minus slow at as much"]
    assert [row[0] for row in rows] == [f"{name}, {n} labels" for n in (300, 500) for name in ("fast", "slow")]
    assert [row[5][:6] for row in rows] == ["+10.00", "-", "+5.00 ", "-"]
    assert [row[4][:6] for row in rows] == ["-", "-10.00", "-", "-5.00 "]


def test_a_family_without_a_run_of_as_many_labels_is_compared_with_none():
    found = together(results(budget=300, fast_1e3=[50.0]), results(budget=500, slow_1e3=[65.0]))
    ((_, _, rows, _),) = summary.compute_sections(found)
    assert [row[4:] for row in rows] == [["-", "-"]] * 2


def test_lines_are_named_by_what_differs_between_them():
    parts = [results(total=total, fast_1e3=[50.0]) for total in (1_000, 20_000)]
    assert list(summary.names(summary.lines_of(together(*parts))).values()) == [
        "fast, 1,000 images",
        "fast, 20,000 images",
    ]
    assert list(summary.names(summary.lines_of(parts[0])).values()) == ["fast"]


def test_every_family_is_drawn_however_many_there_are():
    rows = {f"family{k}_{k}e3": [50.0 + k] for k in range(1, 10)}
    (axes,) = figures.accuracy_over_compute(results(**rows)).axes
    assert len([line for line in axes.lines if line.get_label().startswith("family")]) == 9


@pytest.mark.parametrize("steps", [190, 2_000, 18_000, 19])
def test_phases_add_up_to_the_length(steps):
    first, every, final, _ = (int(setting.split("=")[1]) for setting in phases(steps, steps))
    assert first + 4 * every + final == steps


def test_the_papers_network_has_a_length_of_as_much_arithmetic_for_each_of_fast():
    grid = grid_from_options(GridOptions("compute-cifar10", scale="lab"))
    costs = {cell.method: flop(config_of(grid, cell)).total for cell in grid.cells() if cell.seed == 1}
    paper = [value for name, value in costs.items() if name.startswith("WRN")]
    for value in (cost for name, cost in costs.items() if name.startswith("fast @")):
        assert min(abs(value / other - 1) for other in paper) < 0.2  # which a report takes for as much


def test_a_trained_grid_becomes_a_plot_and_exported_results_make_it_again(tmp_path, tiny):
    lengths = {f"small, {n} steps": Method(settings=(f"growth.final={n}",), family="small", steps=n) for n in (10, 20)}
    request = Request(methods=tuple(lengths), totals=(None,), budgets=(20,), seeds=(1,))
    grid = grids.create_or_extend(
        tmp_path / "grid", build_grid("digits", "own", tiny("query=random"), lengths, request)
    )
    for run in plan(grid, tmp_path / "grid").todo:
        finish(run.task, TrainingOptions())
    report.write_all(collect(tmp_path / "grid"), tmp_path / "out", "mma report")
    exported = collect(tmp_path / "out")
    short, long = exported.compute
    assert 0 < short.flop < long.flop
    assert list(summary.lines_of(exported)) == [("small", 20, 1297)]
    (figure,) = report.draw(exported).values()
    assert render(figure, "svg") == (tmp_path / "out" / "accuracy-over-compute.svg").read_bytes()
    assert "Accuracy over compute" in (tmp_path / "out" / "report.html").read_text()
