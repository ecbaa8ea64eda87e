"""The report: every number is the runs', every gap says why, and committed results give the same files again."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from mma.cli import commands
from mma.cost import open_table
from mma.experiments import grids
from mma.experiments.catalogue import EXPERIMENTS
from mma.experiments.engines import open_or_create
from mma.experiments.options import GridOptions, grid_from_options
from mma.experiments.plan import plan
from mma.experiments.report import figures as plots
from mma.experiments.report import figures as style
from mma.experiments.report import statistics as savings
from mma.experiments.report import (
    summary,
    tables,
)
from mma.experiments.report import write as page
from mma.experiments.report import write as report
from mma.experiments.report.results import Result, Results, RoundEnd, collect, describe, from_grid
from mma.experiments.report.statistics import Difference
from mma.run import Run

ROOT = Path(__file__).parents[2]


def test_the_table_holds_mean_and_deviation_of_the_runs(finished):
    found = from_grid(finished)
    results = [Run.open(finished / f"runs/random/budget20-seed{seed}").median_accuracy()[0] for seed in (1, 2, 3)]
    assert found.accuracies("random", 20) == dict(zip((1, 2, 3), results, strict=True))
    made = tables.table(found)
    cell = made.cells[made.rows.index("random")][made.columns.index("20 labels")]
    assert cell.n == 3
    assert cell.mean == pytest.approx(sum(results) / 3)


def test_exported_results_give_the_same_files_again(finished, tmp_path):
    report.write_all(from_grid(finished), tmp_path / "one", "mma report")
    report.write_all(collect(tmp_path / "one"), tmp_path / "two", "mma report")
    first = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir() if path.name != "README.md"}
    second = {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    assert {"runs.csv", "table.md", "table.csv", "statistics.md", "report.html", "learning-curves.png"} <= set(first)
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "picture"), [("low-budget-digits", "learning-curves"), ("buyer-digits", "accuracy-over-money")]
)
def test_published_results_give_their_tables_plots_and_page_again(name, picture, tmp_path):
    """Only rows, settings and the pictures that a page shows are published."""
    published = ROOT / "results" / name
    shutil.copytree(published, tmp_path / "copy")
    report.write_all(collect(tmp_path / "copy"), tmp_path / "made", "")
    made = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    kept = {path.name: path.read_bytes() for path in published.iterdir() if path.name != "README.md"}
    assert {key: made[key] for key in kept} == kept
    pictures = {f"{picture}.{kind}" for kind in ("png", "svg", "pdf")}
    assert pictures | {"table.csv", "table.tex", "statistics.md", "report.html"} <= set(made)
    assert made["table.md"].decode().strip() in (published / "README.md").read_text("utf-8")


def test_reporting_on_exported_results_keeps_how_they_were_made(finished, tmp_path):
    report.write_all(from_grid(finished), tmp_path, "mma report GRID --out HERE")
    before = (tmp_path / "about.json").read_bytes()
    report.write_all(collect(tmp_path), tmp_path, "something else")
    assert (tmp_path / "about.json").read_bytes() == before
    about = json.loads(before)
    assert about["commands"][-1] == "mma report GRID --out HERE"
    assert about["trained with"][0]["threads"] == 1


def test_runs_csv_has_a_line_per_run(finished, tmp_path):
    report.write_all(from_grid(finished), tmp_path, "")
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert len(rows) == 18
    assert {row["status"] for row in rows} == {"done"}
    assert {row["labels"] for row in rows} == {"15", "20"}


def test_missing_cells_say_why(finished, tmp_path, small):
    shutil.copytree(finished, tmp_path / "g")
    grid = grids.create_or_extend(
        tmp_path / "g", small("random,max-direct,max-infoD", "growth.budget=15,20", "seed=1..3")
    )
    left = {(e.cell.method, e.cell.budget, e.cell.seed): e for e in plan(grid, tmp_path / "g").todo}
    open_or_create(left["max-direct", 20, 1].task)
    grids.write_failures(tmp_path / "g", {str(left["max-infoD", 15, 2].cell.place): "the disk is full"})
    made = tables.table(from_grid(tmp_path / "g"))
    words = {(row, column): e.missing for row, line in zip(made.rows, made.cells, strict=True)
             for column, e in zip(made.columns, line, strict=True)}  # fmt: skip
    assert words["random", "15 labels"] == ""
    assert words["max-direct", "15 labels"] == "not run"
    assert words["max-direct", "20 labels"] == "1 interrupted, 2 not run"
    assert words["max-infoD", "15 labels"] == "2 not run, 1 failed"
    assert "the disk is full" in made.as_markdown()


def results(grid, accuracy=lambda run: 90.0):
    runs = [Result(c.method, c.budget, grid.total_of(c), c.seed, "done", None, 20, 9, c.budget) for c in grid.cells()]
    return Results(tuple(replace(run, accuracy=accuracy(run)) for run in runs), description=describe(grid, {}))


def test_the_papers_number_stands_beside_ours():
    text = results(grid_from_options(GridOptions("cifar10", scale="lab"))).table().as_markdown()
    assert "[paper: 91.69 ± 0.52]" in text
    assert "far larger than ours" in text


def test_labeled_vs_unlabeled_tables_are_laid_out_by_totals():
    grid = grid_from_options(GridOptions("labeled-vs-unlabeled-cifar100", scale="paper", seeds="2"))
    made = tables.table(results(grid, lambda run: run.budget / 1000 + run.total / 10_000 + run.seed))
    assert made.rows == ("5,000", "10,000", "20,000", "50,000")
    assert made.columns == ("4,000 labels", "5,000 labels", "8,000 labels", "10,000 labels")
    assert made.cells[0][2] is None  # 8,000 labels of 5,000 images
    assert made.cells[0][1].published == (55.42, 0.30)  # Supervised, where everything is labeled


def test_mma_cost_reads_what_a_grid_offers(tmp_path):
    grid = grid_from_options(GridOptions("labeled-vs-unlabeled-cifar10", scale="lab", seeds="2"))
    found = results(grid, lambda run: 50 + run.budget / 100 + run.total / 10_000 + run.seed)
    report.write_all(found, tmp_path, "")
    table = open_table(str(tmp_path))
    assert list(table.labels) == [500, 1000]
    assert list(table.totals) == [5000, 20_000, 50_000]


def both_vary():
    """Two methods with two totals, and Supervised: accuracy tells the method by its tens and the total by its ones."""
    worth = {"random": 70, "diff2-direct": 80, "Supervised": 50}
    rows = [
        Result(method, budget, total, seed, "done", worth[method] + total / 1_000, 1, 9, budget)
        for method in worth
        for budget in (20, 40)
        for total in ([budget] if method == "Supervised" else [1_000, 2_000])
        for seed in (1, 2)
    ]
    rounds = [RoundEnd(r.method, r.budget, r.total, r.seed, r.budget, 9, r.accuracy, missed=1) for r in rows]
    return Results(tuple(rows), tuple(rounds))


def test_methods_are_kept_apart_where_totals_vary_too():
    made = tables.table(both_vary())
    cells = {name: line[0] for name, line in zip(made.rows, made.cells, strict=True)}
    assert (cells["random, 1,000 images"].mean, cells["random, 1,000 images"].n) == (71, 2)
    assert (cells["diff2-direct, 2,000 images"].mean, cells["diff2-direct, 2,000 images"].n) == (82, 2)
    assert made.corner == "method and images"
    ends, rounds = (plots.accuracy_by_labels(both_vary(), growing=growing) for growing in (False, True))
    assert set(ends) == set(rounds) == set(made.rows)
    assert set(savings.mean_by_labels(both_vary(), lambda row: row.missed)) == set(made.rows)


def test_differences_name_the_images_where_they_vary():
    lines = summary.against(both_vary(), "random").rows
    assert [line[0] for line in lines[:2]] == ["diff2-direct, 1,000 images", "diff2-direct, 2,000 images"]


def test_what_mixes_methods_is_not_offered_to_mma_cost(tmp_path):
    report.write_all(both_vary(), tmp_path, "")
    assert not (tmp_path / report.LABELED_VS_UNLABELED).exists()
    (tmp_path / "grid.json").touch()
    found = CliRunner().invoke(commands(), ["cost", str(tmp_path)])
    assert found.exit_code == 1
    assert "several methods learn from its images: random, diff2-direct" in found.stderr


def test_only_what_the_test_shows_is_bold():
    def accuracy(run):
        return (
            90.0
            + run.seed / 10
            + {"diff2.aug-direct": 2 + run.seed / 50, "diff2-direct": (-1) ** run.seed}.get(run.method, 0)
        )

    grid = grid_from_options(
        GridOptions("svhn", scale="paper", seeds=12, methods="random,diff2.aug-direct,diff2-direct", budgets=500)
    )
    made = tables.table(results(grid, accuracy))
    assert {name for name, (cell,) in zip(made.rows, made.cells, strict=True) if cell.better} == {"diff2.aug-direct"}
    text = made.as_markdown()
    assert text.count("**") == 2
    assert "Bold: better than random by the corrected signed-rank test." in text


def test_nothing_is_bold_where_nothing_is_shown(finished):
    made = tables.table(from_grid(finished))
    assert "**" not in made.as_markdown()
    assert "No method is shown to be better than random, so nothing is bold." in made.notes[0]


def test_markup_is_rendered_in_the_page():
    assert page.marked("`a` and **b** <c>") == "<code>a</code> and <b>b</b> &lt;c&gt;"


def test_every_plot_is_there_as_png_svg_and_pdf_without_dates(finished, tmp_path):
    report.write_all(from_grid(finished), tmp_path, "")
    names = {"accuracy-over-labels", "learning-curves", "accuracy-by-seed", "paired-differences"}
    assert {path.name for path in tmp_path.glob("*.???") if path.stem in names} == {
        f"{name}.{kind}" for name in names for kind in ("png", "svg", "pdf")
    }
    for name in names:
        assert "dc:date" not in (tmp_path / f"{name}.svg").read_text()
        assert b"CreationDate" not in (tmp_path / f"{name}.pdf").read_bytes()


def test_whiskers_are_the_95_percent_interval_of_the_mean(finished):
    values = [90.0, 91.0, 93.0]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    half = pytest.approx((high - low) / 2)
    assert plots.whiskers([values, [90.0]]).tolist() == [[half, 0.0], [half, 0.0]]


def test_no_interval_reaches_above_a_hundred_percent():
    reach = plots.whiskers([[98.0, 99.0], [1.0, 3.0]])
    assert reach[1, 0] == pytest.approx(1.5)
    assert reach[0, 1] == pytest.approx(2.0)
    assert plots.view([60.0, 99.9])[1] <= 100.5


def test_learning_curves_show_the_end_of_every_round_and_not_the_first_evaluations():
    means = [5.0, *[60.0] * 20, 90.0]
    assert 5.0 < plots.limits(means, [], 90.0)[0] < 60.0
    assert plots.limits(means, [30.0, 90.0], 90.0)[0] < 30.0


def test_the_interval_of_two_seeds_does_not_stretch_the_plot_of_differences():
    rows = [Difference("a", "random", 10, 10, n, mean, mean - half, mean + half, 1.0, 1.0)
            for n, mean, half in ((10, 2.0, 1.0), (10, 3.0, 1.5), (2, 4.0, 130.0))]  # fmt: skip
    low, high = plots.view_of_differences(rows)
    assert -5 < low < 0
    assert 4 < high < 10


def test_methods_of_ones_own_are_compared_with_each_other(refusal):
    runs = [(m, seed, 70.0 + seed + 5 * (m == "b")) for m in ("a", "b", "c") for seed in range(1, 8)]
    found = Results(tuple(Result(m, 20, 100, seed, "done", value, 1, 10, 20) for m, seed, value in runs))
    first, *_ = summary.sections(found)
    assert first.title == "Difference to a, paired by seed"
    assert [row[0] for row in first.rows] == ["b", "c"]
    first, *_ = summary.sections(found.against("b"))
    assert first.title == "Difference to b, paired by seed"
    assert [row[3] for row in first.rows] == ["-5.00", "-5.00"]
    with refusal():
        found.against("bb")
    with refusal():
        found.differences("d")


def test_numbers_on_an_axis_do_not_overlap():
    _, (axes,) = style.new_figure("", 4)
    plots.log_ticks(axes, [500, 510, 520, 1000, 1020, 16_000])
    assert axes.get_xticks().tolist() == [500, 1000, 16_000]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_methods_of_one_experiment_look_different_and_always_the_same(name):
    for definition in EXPERIMENTS[name].values():
        names = {method.family or title for title, method in definition.methods.items()}
        looks = {name: style.style(name) for name in names}
        assert len({(look.colour, look.marker, look.hollow) for look in looks.values()}) == len(names)


def test_latex_and_json_are_well_formed(finished):
    made = tables.table(from_grid(finished))
    assert len(json.loads(made.as_json())["cells"]) == 6
    latex = replace(made, rows=("a_b & 50%", *made.rows[1:])).as_latex()
    assert "a\\_b \\& 50\\%" in latex
    assert latex.count("\\\\") == 4


class PageParser(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.open, self.sources = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_loads_nothing_and_escapes_names(finished):
    found = from_grid(finished)
    evil = "<script>alert(1)</script>"
    found = replace(
        found, runs=tuple(replace(run, method=evil if run.method == "random" else run.method) for run in found.runs)
    )
    text = report.page_of(found, report.picture_files(report.draw(found)))
    parser = PageParser()
    parser.feed(text)
    assert parser.open == []
    assert "script" not in parser.tags
    assert evil not in text
    assert parser.sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in parser.sources)
    assert not re.search(r"https?://", text)


def test_statistics_say_when_nothing_is_shown(finished):
    text = summary.as_markdown(summary.sections(from_grid(finished)))
    assert "No difference to random is shown for any method." in text
    assert "cannot show a difference" in text
    assert "Rounds worse than random" in text


def test_a_folder_that_is_neither_is_refused(tmp_path, refusal):
    with refusal():
        collect(tmp_path)
    with refusal():
        collect(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["method,seed\n", ""])
def test_damaged_results_are_refused(tmp_path, text, refusal):
    (tmp_path / "runs.csv").write_text(text)
    with refusal():
        collect(tmp_path)


def test_results_older_than_a_column_with_a_default_are_read(finished, tmp_path):
    report.write_all(from_grid(finished), tmp_path, "")
    path = tmp_path / "runs.csv"
    path.write_text("".join(line.rpartition(",")[0] + "\n" for line in path.read_text().splitlines()))
    assert path.read_text().splitlines()[0].endswith(",labels"), "note, the last column, is gone"
    assert len(collect(tmp_path).runs) == len(from_grid(finished).runs)


def test_a_damaged_line_is_named(finished, tmp_path, refusal):
    report.write_all(from_grid(finished), tmp_path, "")
    path = tmp_path / "runs.csv"
    path.write_text(path.read_text().replace("random,15", "random,fifteen", 1))
    with refusal():
        collect(tmp_path)
