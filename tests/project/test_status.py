"""How a project stands: status, its sentences, report.html, and the command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from uuid import uuid4

import numpy as np
import pytest
from typer.testing import CliRunner

from mma.cli import commands
from mma.project import Answer, open_project
from mma.project.models import report_file
from mma.project.quality.accuracy import judge
from mma.project.quality.goal import Goals
from mma.project.quality.status import page, seconds_per_label, status, status_lines, write_page
from mma.project.worker.worker import LiveWorker
from tests.project import shapes


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """The folder of a project with sixty labels and a model after every ten."""
    folder = tmp_path_factory.mktemp("labeled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMA_DATA", str(tmp_path_factory.mktemp("data")))
        project, kinds = shapes.shape_project(folder)
        worker = LiveWorker(project, deep=False)
        shapes.settle(worker)
        for _ in range(6):
            shapes.answer_next(project, kinds, 10)
            shapes.settle(worker)
        project.close()
    return folder


@pytest.fixture
def labeled(made_once, tmp_path, monkeypatch):
    """A copy of it, for one test to change."""
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    shutil.copytree(made_once, tmp_path / "copy")
    project = open_project(tmp_path / "copy" / "project")
    yield project
    project.close()


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]


def test_a_project_without_labels_says_what_is_missing(tmp_path):
    project, _ = shapes.shape_project(tmp_path, count=24)
    now = status(project)
    assert now.report is None
    assert now.gain is None
    assert now.stop is None
    assert status_lines(now)[0].startswith("Too early to say. The first model comes after ten labels")
    assert "Too early to say" in page(now)
    project.close()


@pytest.fixture
def any_band(monkeypatch):
    """Forecasts are shown however wide their bands are."""
    monkeypatch.setattr("mma.project.quality.forecast.DECIDES", 100.0)


def test_balanced_accuracy_stands_beside_the_accuracy_where_one_class_is_much_larger(labeled):
    report = labeled.models.latest_report()
    assert not any("each class counted the same" in line for line in status_lines(status(labeled)))
    labels = np.repeat(np.arange(len(report.classes)), [20, 2, 1, 1])
    quality = judge(np.tile(np.eye(len(report.classes))[0], (24, 1)), labels, report.classes)  # all are the large class
    labeled.models.add(report.number, report_file(replace(report, quality=quality)))
    now, words = status(labeled), "25 % with each class counted the same, between "
    (line,) = [line for line in status_lines(now) if line.startswith("balanced: ")]
    assert status_lines(now)[0].startswith("Not good enough yet. 83 % of all photos are right.")
    assert line.startswith(f"balanced: {words}")
    assert words in page(now)
    told = CliRunner().invoke(commands(), ["status", str(labeled.folder), "--json"])
    assert json.loads(told.stdout)["report"]["quality"]["balanced"]["value"] == 0.25


def test_status_reads_the_report_and_forecasts_from_its_curve(labeled, any_band):
    now = status(labeled)
    assert now.labels == 60
    assert now.report.number == labeled.models.latest_report().number
    assert now.report.quality.accuracy.of == now.report.audit == 24
    assert len(now.report.curve) == 6
    assert now.gain.more == 50
    assert now.gain.low <= now.gain.points <= now.gain.high
    assert now.gain.minutes == pytest.approx(50 * 2.0 / 60)
    assert len(now.band) == 5
    assert "at your speed" in now.forecast


def test_a_forecast_whose_band_is_wide_is_not_shown_and_neither_is_what_rests_on_it(labeled, monkeypatch):
    monkeypatch.setattr("mma.project.quality.forecast.DECIDES", 0.0)
    now = status(labeled, Goals(target=99.9, label_price=0.2))
    assert now.gain is now.target is now.money is None
    assert now.band == ()
    assert now.forecast.startswith("No forecast yet: the next 50 labels could bring")


def test_status_is_plain_json_and_loads_no_torch(labeled):
    again = json.loads(json.dumps(status(labeled).as_json()))
    assert again["report"]["quality"]["accuracy"]["of"] > 0
    code = (
        "import sys; from mma.project import open_project; from mma.project.quality.status import status; "
        f"status(open_project({str(labeled.folder)!r})); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_goals_bring_labels_to_a_target_and_money(labeled, any_band):
    now = status(labeled, Goals(target=99.9, label_price=0.2, point_value=0.01))
    assert now.target.target == 99.9
    assert now.money.cost == pytest.approx(10.0)
    if now.money.price_of_a_point is not None:
        assert now.stop.rule in ("price", "flat curve")


def test_the_budget_stops(labeled):
    assert status(labeled, Goals(budget=60)).stop.rule == "budget"
    assert status(labeled, Goals(budget=61)).stop is None or status(labeled, Goals(budget=61)).stop.rule != "budget"


def test_forecasts_are_kept_and_checked_later(labeled):
    report = labeled.models.latest_report()
    assert [one.labels for one in report.forecasts] == [point.labels for point in report.curve[3:]]


def test_the_speed_of_a_person_leaves_pauses_out(labeled):
    assert seconds_per_label(labeled) == 2.0


def label_grid(project, images, seconds: float) -> None:
    given = {"kind": "label", "class_id": 0, "by": "ann", "source": "grid"}
    project.answer(Answer(id=uuid4(), images=images, seconds=seconds, **given))


def test_the_labels_of_a_grid_share_its_time(tmp_path):
    project, kinds = shapes.shape_project(tmp_path, count=48)
    images = list(kinds)
    label_grid(project, images[:24], 20.0)
    label_grid(project, images[24:], 20.0)
    assert seconds_per_label(project) == pytest.approx(20 / 24)
    assert "72 labels per minute" in page(status(project))
    project.close()


def test_a_grid_of_more_labels_than_are_looked_at_shares_its_time_among_all(tmp_path):
    project, kinds = shapes.shape_project(tmp_path, count=150)
    label_grid(project, list(kinds), 300.0)
    assert seconds_per_label(project) == pytest.approx(2.0)
    project.close()


def test_the_page_is_one_file_that_loads_nothing(labeled):
    text = write_page(labeled).read_text("utf-8")
    tags = Tags()
    tags.feed(text)
    assert "svg" in tags.found
    assert "script" not in tags.found
    assert tags.links == []
    assert "viewport" in text
    for word in (
        "Next:",
        "What more labels would bring",
        "Which model",
        "What is taken for what",
    ):
        assert word in text


def test_hostile_names_stay_names_on_the_page(tmp_path, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    project, kinds = shapes.shape_project(tmp_path, count=40)
    names = {each.name: each.id for each in project.classes()}
    project.rename_class(names["bars"], "<script>alert(1)</script>", "ann")
    kinds = {image: "<script>alert(1)</script>" if kind == "bars" else kind for image, kind in kinds.items()}
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    shapes.answer_next(project, kinds, 20)
    shapes.settle(worker)
    text = write_page(project).read_text("utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    project.close()


def test_a_damaged_report_falls_back_to_the_one_before(labeled):
    last = labeled.models.latest_report()
    (labeled.models.folder(last.number) / "report.json").write_text("{")
    assert labeled.models.latest_report().number == last.number - 1
    assert status(labeled).report.number == last.number - 1


def test_the_command_prints_sentences_a_table_and_json(labeled):
    done = subprocess.run(
        [sys.executable, "-m", "mma", "status", str(labeled.folder)], capture_output=True, text=True, check=True
    )
    assert "The goal is 90 %." in done.stdout
    assert "next:     " in done.stdout
    assert "forecast: N" in done.stdout
    assert "rings" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "mma", "status", str(labeled.root), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1  # its project does not lie beside the photos
    done = subprocess.run(
        [sys.executable, "-m", "mma", "status", str(labeled.folder), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["labels"] == 60


def test_a_run_has_a_status_with_the_accuracy_that_eval_says(tmp_path, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    small = [f"--set={each}" for each in ("growth.start=20", "growth.add=10", "growth.budget=60", "growth.first=6")]
    small += ["--set=growth.every=6", "--set=growth.final=20", "--set=log.every=6"]
    run = str(tmp_path / "run")
    said = CliRunner().invoke(commands(), ["train", "digits", "--out", run, *small])
    assert said.exit_code == 0, said.output
    tested = json.loads(CliRunner().invoke(commands(), ["eval", run, "--json"]).stdout)
    shown = CliRunner().invoke(commands(), ["status", run]).stdout
    words = f"{tested['accuracy']:.2f} % accuracy (95 % interval {tested['low']:.1f} to {tested['high']:.1f})"
    assert words in said.output
    assert f"accuracy: {words.replace(' accuracy', '')}, from 500 test images" in shown
    assert "forecast: none: the last round trains longer" in shown
    found = json.loads(CliRunner().invoke(commands(), ["status", run, "--json"]).stdout)
    assert [point["labels"] for point in found["curve"]] == [20, 30, 40, 50]
    assert found["tested"] == tested
