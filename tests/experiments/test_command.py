"""The commands as a person uses them: killed, stopped, started twice, given nonsense."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mma.cli.experiments import grid, report, show_results
from mma.experiments import grids
from mma.experiments.options import GridOptions, read_axes
from mma.experiments.plan import plan
from mma.experiments.progress import GridProgress
from mma.experiments.run import find_or_open, write_report
from mma.run import Run
from mma.text import duration

CODE = "import typer; from mma.cli.experiments import grid; typer.run(grid)"
AXES = [
    "--axis",
    "growth.policy=passive,count",
    "--axis",
    "query=diff2.aug-kmeans",
    "--axis",
    "growth.budget=15,20",
    "--axis",
    "seed=1",
]
LONGER = ["--set", "growth.first=60", "--set", "growth.final=60"]


def call(function, *words):
    app = typer.Typer()
    app.command()(function)
    return CliRunner().invoke(app, [str(word) for word in words])


def start(settings: list[str], folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-c",
        CODE,
        "digits",
        *settings,
        *AXES,
        *LONGER,
        "--out",
        str(folder),
        "--workers",
        "1",
        *more,
    ]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows(folder: Path) -> int:
    return sum(len(path.read_bytes().split(b"\n")) - 1 for path in folder.glob("runs/*/*/metrics.jsonl"))


def wait_for_rows(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    while rows(folder) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A finished grid of one's own."""
    return Path(shutil.copytree(finished, tmp_path / "copied"))


def files(folder: Path) -> dict[str, bytes]:
    skipped = {"about.json", "README.md"}
    return {path.name: path.read_bytes() for path in (folder / "report").iterdir() if path.name not in skipped}


def test_a_grid_killed_twice_ends_with_the_same_report_byte_for_byte(tmp_path, settings, train_here, bytes_of, capsys):
    killed = tmp_path / "killed"
    for count in (8, 40):
        process = start(settings, killed)
        wait_for_rows(process, killed, count)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    process = start(settings, killed)
    out, error = process.communicate()
    assert process.returncode == 0, error
    assert "4 runs" in error
    made = [*settings, *LONGER][1::2]
    new, calm = find_or_open(GridOptions("digits", read_axes(AXES[1::2]), made), tmp_path / "calm")
    train_here(new, calm)
    show_results(write_report(calm), calm, as_json=False)
    assert bytes_of(killed) == bytes_of(calm)
    assert files(killed) == files(calm)
    assert out == capsys.readouterr().out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_grid_stores_its_runs_and_says_how_to_go_on(tmp_path, settings, number, code):
    process = start(settings, tmp_path / "g", "--set", "growth.final=100000", "--set", "log.checkpoint=99999")
    wait_for_rows(process, tmp_path / "g", 3)
    process.send_signal(number)
    out, error = process.communicate()
    assert process.returncode == code
    assert out == ""
    assert "stopped; the state of every run is stored" in error
    assert "Go on with  mma" in error
    assert "Traceback" not in error
    assert list((tmp_path / "g").glob("runs/*/*/checkpoints/*.safetensors"))


def test_lines_to_a_pipe_are_never_wrapped_coloured_or_cut(tmp_path, settings, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    folder = tmp_path / ("long" * 30)
    process = start(settings, folder, "--json")
    out, error = process.communicate()
    assert process.returncode == 0, error
    assert f"{folder}: 4 runs, 0 done, 4 to do" in error
    assert "[4/4] " in error
    assert "\x1b" not in error + out
    assert len(json.loads(out)["cells"]) == 4


def test_progress_in_a_pipe_says_every_half_minute_how_far_runs_are(finished, capsys):
    shown = GridProgress()
    shown.begin(plan(grids.read(finished), finished))
    running = {run.task.folder for run in shown.plan.runs[:1]}
    shown.update(running)
    assert "step" not in capsys.readouterr().err.splitlines()[-1].partition("go on")[2]
    shown.bar.due -= 31
    shown.update(running)
    assert "MixMatch, 15 labels, seed 1: step 28 of 28" in capsys.readouterr().err


def test_progress_counts_steps_that_are_stored_and_not_evaluated_yet(copied):
    shown = GridProgress()
    shown.begin(plan(grids.read(copied), copied))
    folder = shown.plan.runs[0].task.folder
    Run(folder).path("metrics").unlink()
    steps = Run(folder).checkpoint_steps()
    shown.look({folder})
    assert shown.run_text(folder).endswith(f"step {steps[-1]} of 28")
    assert steps[-1] > 0


def test_the_time_left_is_counted_from_when_steps_were_stored_last(finished, tmp_path):
    shown = GridProgress()
    shown.begin(plan(grids.read(finished), tmp_path))  # all is to do
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    folder = shown.plan.runs[0].task.folder
    shown.begun -= 2_800
    shown.look({folder})  # 28 steps took 2,800 s
    shown.begun -= 600
    shown.counted_at -= 600  # and were stored ten minutes ago
    shown.look({folder})
    left = (shown.plan.steps_left - 28) * 100 - 600
    assert shown.remaining() == f"about {duration(left)} left at 0.0 steps/s"


def test_a_second_grid_on_one_folder_is_refused(tmp_path, settings):
    with grids.locked(tmp_path / "g"):
        found = call(grid, "digits", *settings, *AXES, "--out", tmp_path / "g")
    assert "in use by another mma grid" in str(found.exception)
    assert not (tmp_path / "g" / "grid.json").exists()


def test_a_grid_folder_goes_on_by_its_name_and_reports(copied):
    again = call(grid, copied)
    assert again.exit_code == 0
    assert "diff2.aug-direct" in again.stdout
    shown = call(report, copied)
    assert "Difference to random" in shown.stdout
    assert call(report, copied, "--format", "csv").stdout.startswith("method,labels,mean")


def test_a_failed_run_is_listed_with_the_way_to_try_again(tmp_path, small, train_here):
    folder = tmp_path / "g"
    made = train_here(small("random", "seed=1..2"), folder)
    state = max((folder / made.cells()[0].place / "checkpoints").iterdir())
    state.unlink()
    state.with_name("000000001.safetensors").write_bytes(b"broken")
    for other in state.parent.glob("0000000[1-9]*.safetensors"):
        other.write_bytes(b"broken")
    found = call(grid, folder, "--workers", 1)
    assert found.exit_code == 1
    assert f"mma train {folder}" in found.stderr
    assert "is damaged" in found.stderr
    assert "1 failed" in call(report, folder).stdout


def test_the_plan_lists_every_run_and_writes_nothing(tmp_path, settings):
    words = ["digits", *settings, *AXES, "--out", tmp_path / "g", "--dry-run"]
    found = call(grid, *words)
    assert found.exit_code == 0
    assert "4 runs (0 done)" in found.stdout
    assert "a factor of" in found.stdout
    assert "from step 20" in found.stdout
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cifar11"], "Did you mean 'cifar10'"),
        (["digits", "--axis", "quary=random"], "Did you mean 'query'"),
        (["digits", "--axis", "query=random", "--scale", "lab"], "every axis is yours"),
        (["digits", "--engine", "slurm"], "no engine 'slurm'"),
        (["."], "is not a grid"),
        (["svhn", "--scale", "lab"], "mma data get svhn"),
    ],
)
def test_nonsense_is_answered_with_the_way_out(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    found = call(grid, *words)
    assert isinstance(found.exception, ValueError)
    assert message in str(found.exception)


def test_plots_and_page_are_written_beside_a_grid(copied):
    call(report, copied, "--html")
    written = {path.name for path in (copied / "report").iterdir()}
    assert {"report.html", "accuracy-over-labels.png", "learning-curves.svg", "paired-differences.pdf"} <= written
