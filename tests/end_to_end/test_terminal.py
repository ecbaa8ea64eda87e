"""What reaches pipes, files and terminals: whole plain lines there, a bar here, and nothing that a name could smuggle in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mma.cli.terminal import Progress, align, print_table

NARROW = {"COLUMNS": "40", "LINES": "24"}
FORCED = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}  # rich would take any pipe for a terminal
EVIL = "\x1b[31mred\x1b]0;title\x07"
MAIN = "from mma.cli import main; main()"


def environment(**changes: str) -> dict[str, str]:
    unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM")
    return {**{key: value for key, value in os.environ.items() if key not in unwanted}, **changes}


def pipe(*words: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose output goes through pipes."""
    command = [sys.executable, "-m", "mma", *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, env=environment(**env), capture_output=True, text=True, encoding="utf-8", check=False
    )


def terminal(code: str, *words: object, cwd: Path, columns: int = 300, **env: str) -> str:
    """Run Python code on a pseudo-terminal and return everything it showed there."""
    pty = pytest.importorskip("pty", reason="no pseudo-terminals here")
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=cwd,
        env=environment(TERM="xterm-256color", **env),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    process.wait(timeout=180)
    return shown.decode()


@pytest.fixture(scope="module")
def settings(tiny_settings) -> list[str]:
    return ["--threads", "1", *(part for setting in tiny_settings for part in ("--set", setting))]


@pytest.fixture(scope="module")
def deep(tmp_path_factory) -> Path:
    """A folder whose path is longer than any line of a terminal."""
    folder = tmp_path_factory.mktemp("deep") / ("d" * 80) / ("e" * 80)
    folder.mkdir(parents=True)
    return folder


def test_lines_through_a_pipe_are_whole_and_plain(deep, settings):
    done = pipe("train", "digits", "--out", deep / "run", *settings, cwd=deep, **NARROW, **FORCED)
    assert done.returncode == 0, done.stderr
    device, first, *_ = done.stderr.splitlines()
    assert device.startswith("device ")
    assert first == f"{deep / 'run'}: step 0 of 36, 10 -> 20 labels, 3 rounds"
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith(f"{deep / 'run'}: done. ")
    listed = pipe("runs", deep, cwd=deep, **NARROW, **FORCED)
    heading, line = listed.stdout.splitlines()
    assert heading.split()[:2] == ["run", "algorithm"]
    assert line.split()[:2] == [str(deep / "run"), "mixmatch"]
    assert "\x1b" not in done.stdout + done.stderr + listed.stdout + listed.stderr


def test_help_through_a_pipe_has_one_line_per_option(tmp_path):
    lines = pipe("train", "--help", cwd=tmp_path, **NARROW, **FORCED).stdout.splitlines()
    (found,) = [line for line in lines if "--tensorboard" in line]
    assert found.endswith("Also write RUN/tensorboard (needs the extra tensorboard).")


def test_a_terminal_gets_a_bar_and_lines_above_it(tmp_path, settings):
    shown = terminal(MAIN, "train", "digits", "--out", "run", *settings, cwd=tmp_path)
    assert re.search(r"[━╸]+.*step \d+/36, .* left, \d+ labels", shown), shown
    assert "run: step 0 of 36" in shown
    assert "run: done." in shown


def test_brackets_survive_on_a_terminal(tmp_path):
    without = f"import sys; sys.modules['tensorboard'] = None; {MAIN}"
    shown = terminal(without, "train", "digits", "--tensorboard", cwd=tmp_path)
    assert "pip install 'tensorboard>=" in shown
    assert list(tmp_path.iterdir()) == [], "a command that fails leaves nothing behind"
    talk = "from mma.cli.terminal import talk, warn; talk('a[bold]b[/]'); warn('c [red]d')"
    shown = terminal(talk, cwd=tmp_path)
    assert "a[bold]b[/]" in shown
    assert "c [red]d" in shown


@pytest.fixture(scope="module")
def evil_photos(tmp_path_factory) -> Path:
    """Photos whose class names hold escape codes, a newline, markup and what ASCII lacks; made ready in data/."""
    folder = tmp_path_factory.mktemp("evil")
    rng = np.random.default_rng(0)
    names = (EVIL, "two\nlines", "[bold]kept[/]", "鳥")
    rows = []
    for number in range(48):
        image = Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8))
        (folder / "photos").mkdir(exist_ok=True)
        image.save(folder / "photos" / f"{number}.png")
        rows.append(f'{number}.png,"{names[number % 4]}"\n')
    (folder / "labels.csv").write_text("file_name,label\n" + "".join(rows), "utf-8")
    words = ("data", "get", "folder", "--from", "photos", "--labels", "labels.csv", "--name", "evil", "--side", 8)
    done = pipe(*words, cwd=folder, MMA_DATA=str(folder / "data"))
    assert done.returncode == 0, done.stderr
    return folder


def test_class_names_reach_nobody_raw(evil_photos, settings):
    env = {"MMA_DATA": str(evil_photos / "data")}
    changed = [*settings, "--set", "data.name=folder:evil", "--set", "growth.start=2", "--set", "growth.first=4"]
    shown = terminal(
        MAIN, "train", "photos-scratch", "--set", "net=small", "--out", "run", *changed, cwd=evil_photos, **env
    )
    assert "no label yet for" in shown
    for raw in ("\x1b]0;title", "\x1b[31mred", "two\nlines", "two\r\nlines"):
        assert raw not in shown
    tested = pipe("eval", "run", cwd=evil_photos, PYTHONIOENCODING="ascii", **env)
    assert tested.returncode == 0, tested.stderr
    assert "\x1b" not in tested.stdout
    assert "\\u9ce5" in tested.stdout, "a name that the encoding lacks is shown as an escape"
    assert len(tested.stdout.splitlines()) == 5


def test_a_warning_is_one_line_without_escape_codes(tmp_path, capfd):
    from mma.cli.terminal import warn

    warn(f"no label yet for 2 of 3 classes: {EVIL}, two\nlines")
    _, error = capfd.readouterr()
    assert error == "warning: no label yet for 2 of 3 classes: \\x1b[31mred\\x1b]0;title\\x07, two\\nlines\n"


def test_errors_show_no_escape_codes(tmp_path):
    done = pipe("train", EVIL, cwd=tmp_path)
    assert done.returncode == 1
    assert "\x1b" not in done.stderr
    assert "\\x1b[31mred" in done.stderr


def test_progress_without_a_terminal_is_a_line_after_5_seconds_and_every_30(capfd):
    seconds = iter(range(101))  # the clock is read once at the start and once per update
    with Progress(clock=lambda: float(next(seconds))) as progress:
        for second in range(1, 101):
            progress.update(second, 100, f"{second} of 100".__str__)
    assert capfd.readouterr().err.splitlines() == ["5 of 100", "35 of 100", "65 of 100", "95 of 100"]


def test_a_long_training_says_where_it_is_through_a_pipe(tmp_path):
    command = [sys.executable, "-m", "mma", "train", "digits", "--out", "run", "--threads", "1"]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=said, stderr=said)
    line = re.compile(r"^step [\d,]+/1,200, .* left, \d+ labels.*$", re.M)
    deadline = time.monotonic() + 240
    while not line.search((tmp_path / "said").read_text()) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    process.terminate()
    process.wait(timeout=180)
    assert line.search((tmp_path / "said").read_text())


def test_a_table_without_a_terminal_is_as_wide_as_its_cells(capfd):
    print_table(("name", "n"), [("x" * 300, "1"), ("鳥\x1b", "22")], right={"n"})
    lines = capfd.readouterr().out.splitlines()
    assert lines == ["name" + " " * 296 + "   n", "x" * 300 + "   1", "鳥\\x1b" + " " * 294 + "  22"]
    assert align([["a", "b"], ["ccc", "d"]], [False, False]) == ["a    b", "ccc  d"]
