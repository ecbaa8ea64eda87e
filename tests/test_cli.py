"""The commands as a person uses them, in a process of their own or through their entry point."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mma.cli import commands

TINY = (
    "net.filters=4 optim.batch=8 growth.start=10 growth.add=5 growth.budget=20 growth.first=12 growth.every=8 growth.final=16 "
    "growth.refresh_every=0 growth.refresh_final=false log.every=4 log.checkpoint=5"
)
SETTINGS = [part for setting in TINY.split() for part in ("--set", setting)]


def mma(*words: object, cwd: Path, ok: bool = True) -> Any:
    """Run a command in this process: importing torch anew for each would take most of the time."""
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(commands(), [str(word) for word in words], prog_name="mma")
    assert (done.exit_code == 0) == ok, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    mma("train", "digits", "--out", "run", "--threads", 1, *SETTINGS, cwd=folder)
    return folder


def test_train_ends_with_a_sentence_and_continuing_a_done_run_says_it_again(trained):
    done = mma("train", "run", cwd=trained)
    assert "run: done." in done.stdout
    assert "% accuracy with 20 labels" in done.stdout


def test_train_json_and_runs_agree(trained):
    one = json.loads(mma("train", "run", "--json", cwd=trained).stdout)
    (listed,) = json.loads(mma("runs", ".", "--json", cwd=trained).stdout)
    assert one == listed
    assert (one["status"], one["labels"], one["step"]) == ("done", 20, 36)


@pytest.fixture
def beside_a_run(trained, tmp_path) -> Path:
    """A run in a folder of its own, with room beside it."""
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path


def put_config(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(text)


def test_runs_passes_by_what_other_programs_call_config(beside_a_run):
    for name, text in (("keyed", '{"model": "x"}'), ("list", "[1]"), ("worded", '{"format": "yaml"}')):
        put_config(beside_a_run / name, text)
    (beside_a_run / "folder" / "config.json").mkdir(parents=True)
    done = mma("runs", ".", "--json", cwd=beside_a_run)
    assert [row["run"] for row in json.loads(done.stdout)] == ["run"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"format": 1,', "is damaged"),
        ('{"format": 99}', "has run format 99"),
        ('{"format": 1}', "KeyError"),
        ("\x00", "is damaged"),
    ],
)
def test_runs_lists_the_others_beside_one_it_cannot_read(beside_a_run, text, why):
    put_config(beside_a_run / "broken", text)
    done = mma("runs", ".", "--json", cwd=beside_a_run)
    broken, whole = json.loads(done.stdout)
    assert (broken["run"], broken["status"]) == ("broken", "unreadable")
    assert (whole["run"], whole["status"]) == ("run", "done")
    assert list(broken) == list(whole)
    (said,) = done.stderr.splitlines()
    assert said.startswith("unreadable: broken: ")
    assert why in said
    first, second, third = mma("runs", ".", cwd=beside_a_run).stdout.splitlines()
    assert first.split()[0] == "run"
    assert second.split() == ["broken", *["-"] * 5, "unreadable", "-"]
    assert third.split()[0] == "run"


def test_a_damaged_log_makes_a_run_unreadable_and_no_other(beside_a_run):
    shutil.copytree(beside_a_run / "run", beside_a_run / "torn")
    with (beside_a_run / "torn" / "metrics.jsonl").open("a") as file:
        file.write("not a row\n")
    done = mma("runs", ".", "--json", cwd=beside_a_run)
    assert [row["status"] for row in json.loads(done.stdout)] == ["done", "unreadable"]
    assert "is damaged" in done.stderr


def test_eval_and_query_print_results_on_stdout(trained):
    found = json.loads(mma("eval", "run", "--json", cwd=trained).stdout)
    assert found["images"] == 500
    assert len(found["per_class"]) == 10
    picks = json.loads(mma("query", "run", "--n", 7, "--strategy", "max-kmeans", "--json", cwd=trained).stdout)["picks"]
    assert len({pick["index"] for pick in picks}) == 7
    labeled = {json.loads(line)["index"] for line in (trained / "run" / "labels.jsonl").read_text().splitlines()}
    assert not labeled & {pick["index"] for pick in picks}
    assert mma("query", "run", "--n", 3, cwd=trained).stdout.startswith("index\tscore\n")


def test_fork_makes_a_run_that_trains(trained):
    mma("fork", "run", "--budget", 15, "--out", "tail", cwd=trained)
    assert "15 labels" in mma("train", "tail", cwd=trained).stdout


def test_tensorboard_gets_the_same_metrics(trained):
    mma("train", "digits", "--out", "board", "--threads", 1, "--tensorboard", *SETTINGS, cwd=trained)
    assert list((trained / "board" / "tensorboard").glob("events*"))


def test_show_prints_json_that_set_changes(trained):
    shown = json.loads(mma("show", "cifar10", "--set", "growth.add=25", cwd=trained).stdout)
    assert (shown["growth"]["add"], shown["net"]["filters"]) == (25, 32)
    assert json.loads(mma("show", "run", cwd=trained).stdout)["growth"]["budget"] == 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "digitz"), "mma train: no preset or run 'digitz'. Did you mean 'digits'?"),
        (
            ("train", "digits", "--set", "grwoth.add=1"),
            "mma train: no setting 'grwoth.add'. Did you mean 'growth.add'?",
        ),
        (("train", "run", "--set", "seed=2"), "a run keeps its settings"),
        (("train", "."), "is not a run"),
        (("train", "digits", "--out", "run"), "holds a run with other settings"),
        (("eval", "nowhere"), "is not a run"),
        (("query", "run", "--strategy", "margin"), "mma query: No query 'margin'"),
        (("runs", "nowhere"), "no runs below nowhere"),
        (("show", "cifar"), "Did you mean"),
        (("train", "digits", "--device", "cuda"), "torch sees no GPU"),
        (("train", "digits", "--device", "gpu"), "Use cpu, cuda or cuda:N"),
        (("data", "info", "cifar-10"), "mma data info:"),
    ],
)
def test_mistakes_get_one_line_that_helps(trained, words, message):
    done = mma(*words, cwd=trained, ok=False)
    assert message in done.stderr
    assert done.stdout == ""


def test_a_read_only_folder_is_said(trained, tmp_path):
    if os.geteuid() == 0:
        # root may write anywhere, so the folder's place is taken by a file instead
        (tmp_path / "blocked").write_text("")
        assert (
            "cannot write" in mma("train", "digits", "--out", "blocked/run", *SETTINGS, cwd=tmp_path, ok=False).stderr
        )
        return
    tmp_path.chmod(0o500)
    assert "cannot write" in mma("train", "digits", "--out", "run", *SETTINGS, cwd=tmp_path, ok=False).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_cleanly_and_prints_the_command_to_go_on(tmp_path, number):
    command = [sys.executable, "-m", "mma", "train", "digits", "--out", "run", "--threads", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Go on with  mma train run" in out
    assert "s per step" in err
    steps = sorted(int(path.stem) for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert f"stopped at step {steps[-1]:,}" in out
    again = mma("train", "run", "--until", steps[-1] + 1, cwd=tmp_path)
    assert f"stopped at step {steps[-1] + 1:,}" in again.stdout


def test_flop_counts_a_preset_as_text_and_as_json(capsys):
    from mma.cli.inspect import flop
    from mma.experiments.flops import flop as count
    from mma.presets import preset

    flop("digits", ["optim.batch=4"], as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["training"] == found["step"] * 1_200
    assert found["total"] == found["training"] + found["evaluating"] + found["asking"]
    assert count(preset("digits")).step == found["step"] * 8  # 32 labeled images instead of 4
    flop("digits")
    assert "FLOP  the whole run" in capsys.readouterr().out
