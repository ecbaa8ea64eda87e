"""The commands as a person uses them, in a process of their own or through their entry point."""

from __future__ import annotations

import contextlib
import json
import os
import re
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
from mma.run import Run

TINY = (
    "net.filters=4 optim.batch=8 growth.start=10 growth.add=5 growth.budget=20 growth.first=12 growth.every=8 growth.final=16 "
    "growth.refresh_every=0 growth.refresh_final=false log.every=4 log.checkpoint=5"
)
SETTINGS = [part for setting in TINY.split() for part in ("--set", setting)]


def mma(*words: object, cwd: Path, code: int = 0) -> Any:
    """Run a command in this process: importing torch anew for each would take most of the time."""
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(commands(), [str(word) for word in words], prog_name="mma")
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A finished run. Tests get a copy of it: `trained`."""
    folder = tmp_path_factory.mktemp("cli")
    mma("train", "digits", "--out", "run", "--threads", 1, *SETTINGS, cwd=folder)
    return folder / "run"


@pytest.fixture
def trained(original, tmp_path) -> Path:
    """A folder of this test alone, with a finished run in it."""
    shutil.copytree(original, tmp_path / "run")
    return tmp_path


def test_train_ends_with_a_sentence_and_continuing_a_done_run_says_it_again(trained):
    done = mma("train", "run", cwd=trained)
    assert "run: done." in done.stdout
    assert "% accuracy (95 % interval " in done.stdout
    assert ") with 20 labels (last model: step 36, 500 test images). Median of the last 4 evaluations: " in done.stdout


def test_train_json_and_runs_agree(trained):
    one = json.loads(mma("train", "run", "--json", cwd=trained).stdout)
    (listed,) = json.loads(mma("runs", ".", "--json", cwd=trained).stdout)
    assert one == listed
    assert (one["status"], one["labels"], one["step"]) == ("done", 20, 36)


def test_train_runs_and_eval_name_the_same_accuracy(trained):
    """That of the model handed out, not the median of the last evaluations."""
    rows = [json.loads(line) for line in (trained / "run" / "metrics.jsonl").read_text().splitlines()]
    last, final = rows[-1]["accuracy"], sorted(row["accuracy"] for row in rows if row["labels"] == 20)
    one = json.loads(mma("train", "run", "--json", cwd=trained).stdout)
    assert one["accuracy"] == last
    assert one["median_accuracy"] == pytest.approx((final[1] + final[2]) / 2)  # of 4 evaluations
    assert json.loads(mma("eval", "run", "--json", cwd=trained).stdout)["accuracy"] == pytest.approx(last)
    said = f"{last:.2f} % accuracy"
    assert said in mma("train", "run", cwd=trained).stdout
    assert said in mma("eval", "run", cwd=trained).stdout
    heading, listed = mma("runs", ".", cwd=trained).stdout.splitlines()
    assert "last model" in heading
    assert f" {last:.2f} " in listed


@pytest.mark.parametrize("error", [ValueError("too many values"), KeyError("no such key"), RuntimeError("inside")])
def test_our_own_mistakes_show_where_they_are_and_how_to_report_them(tmp_path, monkeypatch, error):
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("mma.cli.use.config_of", broken)
    *lines, last = mma("show", "digits", cwd=tmp_path, code=1).stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert any("in broken" in line for line in lines)
    assert lines[-1] == f"{type(error).__name__}: {error}"
    assert last.startswith(
        "mma show: this is a fault in mma, not in what you typed. To report it, give the lines above"
    )
    assert "Python 3" in last


def test_an_extra_is_installed_from_the_checkout_or_by_its_packages_and_from_no_index_of_ours(tmp_path, monkeypatch):
    from mma.text import CHECKOUT, install_hint

    monkeypatch.chdir(CHECKOUT)
    assert install_hint("onnx") == "pip install '.[onnx]'"
    monkeypatch.chdir(tmp_path)
    assert install_hint("onnx") == "pip install 'onnx>=1.16' 'onnxruntime>=1.18'"


def test_a_refusal_is_one_line_without_a_traceback(tmp_path, monkeypatch):
    from mma.errors import UserError

    def refuse(*_: object) -> None:
        raise UserError("not like this.")

    monkeypatch.setattr("mma.cli.use.config_of", refuse)
    assert mma("show", "digits", cwd=tmp_path, code=1).stderr == "mma show: not like this.\n"
    assert "Missing argument" in mma("show", cwd=tmp_path, code=2).stderr


def put_config(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(text)


def test_runs_passes_by_what_other_programs_call_config(trained):
    for name, text in (("keyed", '{"model": "x"}'), ("list", "[1]"), ("worded", '{"format": "yaml"}')):
        put_config(trained / name, text)
    (trained / "folder" / "config.json").mkdir(parents=True)
    done = mma("runs", ".", "--json", cwd=trained)
    assert [row["run"] for row in json.loads(done.stdout)] == ["run"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"format": 1,', "is damaged"),
        ('{"format": 99}', "has run format 99"),
        ('{"format": 1}', "has run format 1, and this mma reads format 2. Start a new run"),
        ('{"format": 2}', "growth"),
        ("\x00", "is damaged"),
    ],
)
def test_runs_lists_the_others_beside_one_it_cannot_read(trained, text, why):
    put_config(trained / "broken", text)
    done = mma("runs", ".", "--json", cwd=trained)
    broken, whole = json.loads(done.stdout)
    assert (broken["run"], broken["status"]) == ("broken", "unreadable")
    assert (whole["run"], whole["status"]) == ("run", "done")
    assert list(broken) == list(whole)
    (said,) = done.stderr.splitlines()
    assert said.startswith("unreadable: broken: ")
    assert why in said
    first, second, third = mma("runs", ".", cwd=trained).stdout.splitlines()
    assert first.split()[0] == "run"
    assert second.split() == ["broken", *["-"] * 5, "unreadable", "-", "-"]
    assert third.split()[0] == "run"


def test_a_damaged_log_makes_a_run_unreadable_and_no_other(trained):
    shutil.copytree(trained / "run", trained / "torn")
    with (trained / "torn" / "metrics.jsonl").open("a") as file:
        file.write("not a row\n")
    done = mma("runs", ".", "--json", cwd=trained)
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


def test_a_stopped_run_is_interrupted_in_the_list_of_runs_as_in_a_report(tmp_path):
    mma("train", "digits", "--out", "run", "--threads", 1, "--until", 8, *SETTINGS, cwd=tmp_path)
    (row,) = json.loads(mma("runs", ".", "--json", cwd=tmp_path).stdout)
    assert (row["status"], row["busy"]) == ("interrupted", False)
    assert mma("runs", ".", cwd=tmp_path).stdout.splitlines()[1].split()[6] == "interrupted"
    with Run.open(tmp_path / "run").lock():
        (row,) = json.loads(mma("runs", ".", "--json", cwd=tmp_path).stdout)
    assert (row["status"], row["busy"]) == ("running", True)


def test_runs_names_both_accuracies(trained):
    summary = Run.open(trained / "run").summary()
    heading, line = mma("runs", ".", cwd=trained).stdout.splitlines()
    assert re.split(r"  +", heading)[-2:] == ["last model, %", "median, %"]
    shown = f"{summary['accuracy']:.2f}", f"{summary['median_accuracy']:.2f} (of 4)"
    assert tuple(re.split(r"  +", line)[-2:]) == shown


@pytest.mark.parametrize(("named", "told"), [((), True), (("--set", "growth.budgets=[15,20]"), False)])
def test_training_says_at_its_begin_which_smaller_budgets_fork_would_need(named, told, tmp_path):
    words = [part for part in SETTINGS if part != "--set"]
    words = [
        part for word in [*(w for w in words if "budget" not in w), "growth.budget=30"] for part in ("--set", word)
    ]
    done = mma("train", "digits", "--out", "run", "--threads", 1, *words, *named, cwd=tmp_path)
    assert ("keeps their states:  --set growth.budgets=[15,20]" in done.stderr) == told
    forked = CliRunner().invoke(
        commands(), ["fork", str(tmp_path / "run"), "--budget", "15", "--out", str(tmp_path / "t")]
    )
    assert (forked.exit_code == 1) == told
    if told:
        assert "--set growth.budgets=[15]" in forked.stderr


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
        (("train", "run", "--data", "photos"), "run is a run, and a run keeps its settings. Go on with  mma train run"),
        (("train", "."), "is not a run"),
        (("train", "digits", "--out", "run"), "holds a run with other settings"),
        (("eval", "nowhere"), "is not a run"),
        (("query", "run", "--strategy", "margin"), "mma query: No query 'margin'"),
        (("runs", "nowhere"), "no runs below nowhere"),
        (("show", "cifar"), "Did you mean"),
        (("train", "digits", "--device", "cuda"), "torch sees no GPU"),
        (("train", "digits", "--device", "gpu"), "Use auto, cpu, cuda, cuda:N or mps"),
        (("data", "info", "cifar-10"), "mma data info:"),
    ],
)
def test_mistakes_get_one_line_that_helps(trained, words, message):
    done = mma(*words, cwd=trained, code=1)
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (["data.name=folder:mien"], ["data.name=digits"]),
        (["growth.budget=2000"], ["growth.budget=20"]),
        (["data.validation=1290"], ["data.validation=300"]),
    ],
)
def test_a_train_command_that_fails_leaves_nothing_and_the_corrected_one_works(tmp_path, wrong, right):
    def train(setting, code):
        changed = [*SETTINGS, *(part for one in setting for part in ("--set", one))]
        return mma("train", "digits", "--out", "run", "--threads", 1, "--until", 2, *changed, cwd=tmp_path, code=code)

    train(wrong, 1)
    assert list(tmp_path.iterdir()) == []
    assert "stopped at step 2" in train(right, 0).stdout


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "blocked").write_text("")  # a file where a folder is needed: nobody may write there, not even root
    said = mma("train", "digits", "--out", "blocked/run", *SETTINGS, cwd=tmp_path, code=1).stderr
    assert "cannot write" in said


def started(folder: Path) -> subprocess.Popen[str]:
    """Return a process that trains and has stored something."""
    command = [sys.executable, "-m", "mma", "train", "digits", "--out", "run", "--threads", "1"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (folder / "run" / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stores_the_state_prints_the_command_to_go_on_and_has_its_code(tmp_path, number, code):
    process = started(tmp_path)
    process.send_signal(number)
    out, err = process.communicate(timeout=180)
    assert process.returncode == code, err
    assert "Go on with  mma train run" in out
    assert "s per step" in err
    steps = sorted(int(path.stem) for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert f"stopped at step {steps[-1]:,}" in out
    again = mma("train", "run", "--until", steps[-1] + 1, cwd=tmp_path)
    assert f"stopped at step {steps[-1] + 1:,}" in again.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_ctrl_c_while_nothing_is_trained_ends_with_130_and_one_line(tmp_path):
    pipe = tmp_path / "run" / "config.json"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "mma", "runs", "."]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    writer = None
    while writer is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # until the command reads
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines() == ["mma runs: stopped at once. The same command goes on from what is stored."]
    assert writer is not None
    os.close(writer)


def test_a_run_that_waits_for_labels_ends_with_3(new_run, tmp_path):
    from mma.cli.train import exit_code

    run = new_run("waiting")
    run.append(
        "queries", [{"round": 0, "step": 0, "strategy": "random", "indices": [4, 2], "keys": [], "scores": [0.0, 0.0]}]
    )
    assert run.status() == "waiting"
    assert exit_code(run, None) == 3
    assert exit_code(run, signal.SIGTERM) == 143
    run.append("labels", [{"round": 0, "index": i, "key": "", "label": 1} for i in (4, 2)])
    assert exit_code(run, None) == 0  # stopped by --until


def test_a_done_run_ends_with_0_even_if_a_signal_came_last(trained):
    from mma.cli.train import exit_code
    from mma.run import Run

    assert exit_code(Run.open(trained / "run"), signal.SIGINT) == 0


def test_training_photos_without_labels_waits_with_code_3(tmp_path):
    import numpy as np
    from PIL import Image

    (tmp_path / "photos").mkdir()
    for number in range(20):
        pixels = np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")

    def separate(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mma", *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "MMA_DATA": str(tmp_path / "data")},
            capture_output=True,
            text=True,
            check=False,
        )

    made = separate("data", "get", "folder", "--from", "photos", "--name", "mine", "--side", 8, "--classes", "cat,dog")
    assert made.returncode == 0, made.stderr
    done = separate(
        "train", "photos-scratch", "--set", "net=small", "--out", "run", *SETTINGS, "--set", "data.name=folder:mine"
    )
    assert done.returncode == 3, done.stderr
    assert "waiting for 10 labels. Fill in the column label of run/questions.csv" in done.stdout


def test_train_shows_what_it_leaves_out_of_a_folder_of_photos(tmp_path, monkeypatch, capsys):
    from PIL import Image

    from mma.cli.train import with_photos

    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    for number, name in enumerate(("cat", "dog") * 3):
        (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (40 * number, 0, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photos" / "cat" / "bad.png").write_bytes(b"x")
    assert with_photos("photos", tmp_path / "photos", None, ["seed=1"])[1:] == ["seed=1"]
    said = capsys.readouterr()
    assert "left out 1 files:\n  cat/bad.png: it is not a readable JPEG" in said.err
    assert "note: " in said.err
    assert said.out == ""
    monkeypatch.setenv("RANK", "1")  # of several processes the first one speaks
    with_photos("photos", tmp_path / "photos", None, [])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_commands_and_exit_codes(tmp_path, flag):
    said = mma(flag, cwd=tmp_path).stdout
    titles = re.findall(r"^([A-Z].*):$", said, re.M)
    assert titles == ["Options", "Your photos", "Train and use", "Experiments", "Data"]
    listed = [line.split()[0] for line in said.split("Your photos:\n")[1].splitlines()[:5]]
    assert listed == ["start", "status", "review", "predict", "export"]
    for words in ("train ", "--use MODULE", "--version", "--show-completion"):
        assert words in said
    assert re.search(r"^ +3 +mma train waits for labels$", said, re.M)
    assert "--strategy" in mma("query", flag, cwd=tmp_path).stdout


def test_version(tmp_path):
    from importlib.metadata import version

    assert mma("--version", cwd=tmp_path).stdout == f"mma {version('mma-learn')}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("mma tr", {"train"}),
        ("mma data ", {"list", "get", "info", "features"}),
        ("mma train --tens", {"--tensorboard"}),
    ],
)
def test_the_shell_completes_words_without_loading_torch(tmp_path, words, expected):
    code = "import sys, mma.cli\ntry: mma.cli.main()\nfinally: assert 'torch' not in sys.modules"
    asked = {"_MMA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == expected, done.stderr


def test_the_completion_script_is_shown(tmp_path):
    shown = subprocess.run(
        [sys.executable, "-m", "mma", "--show-completion", "bash"],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "complete -o default -F _mma_completion mma" in shown.stdout, shown.stderr


def test_use_imports_a_file_before_the_command(tmp_path):
    (tmp_path / "mine.py").write_text("print('imported')\n")
    command = [sys.executable, "-m", "mma", "--use", "mine.py", "show", "digits"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("imported\n{"), done.stderr


def test_flop_counts_a_preset_as_text_and_as_json(capsys):
    from mma.cli.use import flop
    from mma.experiments.estimate import flop as count
    from mma.presets import preset

    flop("digits", ["optim.batch=4"], as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["training"] == found["step"] * 1_200
    assert found["total"] == found["training"] + found["evaluating"] + found["asking"]
    assert count(preset("digits")).step == found["step"] * 8  # 32 labeled images instead of 4
    flop("digits")
    assert "FLOP  the whole run" in capsys.readouterr().out


def test_every_way_of_the_demo_is_a_run_that_needs_no_network():
    from mma.experiments.options import GridOptions, config_of, grid_from_options
    from mma.presets import preset

    grid = grid_from_options(GridOptions("demo", seeds=1))
    configs = {cell.method: config_of(grid, cell) for cell in grid.cells()}
    assert {config.data.name for config in configs.values()} == {"digits"}
    assert configs["on features"].views.backbone == "lite0+hog"
    chosen = ("weight", "ramp", "align")
    photos = preset("photos")
    assert all(getattr(configs["on features"].algorithm, name) == getattr(photos.algorithm, name) for name in chosen)
    assert configs["on features"].optim.lr == photos.optim.lr
