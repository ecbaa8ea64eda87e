"""Everything the commands do, from Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mma.experiments import grid
from mma.experiments.report import report

SCRIPT = """
import sys
import mma
from mma.experiments import grid
settings = [{settings}]
found = grid("digits", methods={{"A": {{"query": "random"}}, "B": {{"growth.policy": "passive"}}}}, settings=settings,
             seeds=2, out=sys.argv[1], workers=2, progress=False)
print(len(found.runs), {{run.status for run in found.runs}})
"""


@pytest.fixture
def settings(tiny_settings):
    return dict(setting.split("=") for setting in tiny_settings)


def test_a_grid_from_python_trains_and_returns_what_the_runs_reached(tmp_path, tiny_settings, capsys):
    axes = {"query": ["random", "max-direct"]}
    found = grid("digits", axes=axes, settings=tiny_settings, seeds=2, out=tmp_path / "g", workers=2)
    assert [(run.method, run.seed, run.status) for run in found.runs] == [
        ("random", 1, "done"), ("random", 2, "done"), ("max-direct", 1, "done"), ("max-direct", 2, "done"),
    ]  # fmt: skip
    assert all(0 < row["accuracy"] <= 100 for row in found.rows())
    assert "max-direct" in str(found.table())
    assert "Difference to random" in found.statistics()
    assert found.differences()[0].n == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "[4/4]" in captured.err
    again = grid("digits", axes=axes, settings=tiny_settings, seeds=2, out=tmp_path / "g", progress=False)
    assert again.runs == found.runs == report(tmp_path / "g").runs


def test_a_script_needs_no_guard(tmp_path, tiny_settings):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(settings=", ".join(map(repr, tiny_settings))))
    done = subprocess.run([sys.executable, script, tmp_path / "g"], capture_output=True, text=True, check=False)
    assert done.stdout == "4 {'done'}\n", done.stderr


def test_results_draw_what_a_notebook_asks_for(finished, tmp_path, refusal):
    found = report(finished)
    assert found.plot(tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    assert found.plot(tmp_path / "b.pdf", "learning-curves").read_bytes().startswith(b"%PDF")
    with refusal():
        found.plot(tmp_path / "c.gif")
    with refusal():
        found.plot(tmp_path / "c.png", "pie")
    assert found._repr_html_().startswith('<div class="wide"><table>')


def test_a_report_from_python_writes_all_files(finished, tmp_path):
    report(finished, out=tmp_path / "out")
    assert {"report.html", "runs.csv", "about.json"} <= {p.name for p in (tmp_path / "out").iterdir()}


def test_named_methods_and_experiments_do_not_mix(refusal):
    with refusal():
        grid("digits", methods={"A": {"query": "random"}}, scale="lab")
