"""Behind the page: indexing in a thread, a worker that is started again when it dies and ends with the page."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mma import children
from mma.project import create_project
from mma.project import scan as scan_module
from mma.project.worker import supervise as background
from mma.project.worker.supervise import indexing, worker


@pytest.fixture
def made(photos):
    project = create_project(photos, classes=["cat"])
    yield project
    project.close()


def wait_for(condition) -> None:
    """Wait until something is so; a test that waits in vain is ended by its own assertion."""
    for _ in range(18_000):
        if condition():
            return
        time.sleep(0.01)


def test_labeling_begins_with_the_first_images_and_indexing_goes_on(made, monkeypatch, label):
    monkeypatch.setattr(scan_module, "FIRST", 4)
    monkeypatch.setattr(scan_module, "PART", 4)
    monkeypatch.setattr(scan_module, "STORED", 4)
    reports, counts = [], []
    with indexing(made, reports.append, pytest.fail, lambda done, total: counts.append((done, total))):
        label(made, made.next("ann", 1)[0].image)
        wait_for(lambda: reports)
    assert counts == [(0, 20), (4, 20), (8, 20), (12, 20), (16, 20), (20, 20)]
    assert reports[0].images == 20
    assert made.progress() == [("index", 20, 20, None)]
    assert made.counts().labeled == 1


def test_an_index_that_is_interrupted_goes_on_at_the_next_start(made, monkeypatch):
    monkeypatch.setattr(scan_module, "FIRST", 4)
    monkeypatch.setattr(scan_module, "PART", 4)
    monkeypatch.setattr(scan_module, "STORED", 4)
    reached, closed, join = threading.Event(), threading.Event(), threading.Thread.join

    def advance(done, total):
        if done == 8:
            reached.set()
            closed.wait(180)

    def join_index(thread, *arguments):
        if thread.name.startswith("index"):
            closed.set()  # the page is closed, and waits for the index to end
        join(thread, *arguments)

    monkeypatch.setattr(threading.Thread, "join", join_index)
    reports = []
    with indexing(made, reports.append, pytest.fail, advance):
        reached.wait(180)
    assert reports == []
    assert made.counts().images == 12  # the batch under way is stored
    assert made.index().images == 20


def test_a_folder_that_cannot_be_indexed_is_said_before_the_page_opens(made, photos, tmp_path, refusal):
    photos.rename(tmp_path / "away")
    with refusal(), indexing(made, pytest.fail, pytest.fail, lambda *_: None):
        pytest.fail("the page opened")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module with a `main()` that a child process can run, and return its name."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "modules"), *filter(None, sys.path)]))

    def write(name, code):
        (tmp_path / "modules").mkdir(exist_ok=True)
        (tmp_path / "modules" / f"{name}.py").write_text(code)
        return name

    return write


def is_alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


def test_a_worker_that_dies_is_started_again_and_ends_with_the_page(made, monkeypatch, tmp_path, module):
    """It dies at its first start; at the second one it stays until it is stopped."""
    monkeypatch.setattr(background, "PAUSES", (0.01,))
    note, said = tmp_path / "pids", []
    code = (
        f"import os, sys, time\nfrom pathlib import Path\nnote = Path({str(note)!r})\ndef main():\n"
        "    with note.open('a') as file: file.write(f'{os.getpid()}\\n')\n"
        "    if len(note.read_text().split()) == 1: sys.exit(7)\n    time.sleep(600)\n"
    )
    with worker(made, said.append, module("dies_once", code)):
        wait_for(lambda: note.exists() and len(note.read_text().split()) == 2)
    pids = [int(pid) for pid in note.read_text().split()]
    assert len(pids) == 2
    assert len(said) == 1
    assert "ended (code 7). Labeling goes on" in said[0]
    assert not is_alive(pids[1])


@pytest.mark.parametrize("when", ["while it imports", "while it works", "while it ignores signals"])
def test_a_child_ends_when_its_parent_is_killed(when, tmp_path, module):
    """Whatever the child does at that moment, it is gone soon."""
    note = tmp_path / "pid"
    begin = f"import os, signal, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\n"
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if when == "while it ignores signals" else ""
    wait = "time.sleep(600)\n"
    body = f"{begin}{deaf}{wait}" if when == "while it imports" else f"def main():\n    pass\n{begin}{deaf}{wait}"
    name = module("waits", body)
    parent = subprocess.Popen(
        [sys.executable, "-c", f"from mma import children; import time; children.start({name!r}); time.sleep(600)"]
    )
    wait_for(lambda: note.exists() and note.read_text())
    pid = int(note.read_text())
    assert is_alive(pid)
    parent.kill()
    parent.wait()
    begun = time.monotonic()
    wait_for(lambda: not is_alive(pid) or time.monotonic() > begun + 30)
    assert not is_alive(pid)


def test_a_child_that_is_told_to_end_gets_a_moment_to_do_it_in_order(tmp_path, module):
    note = tmp_path / "ended"
    code = (
        "import signal, sys, time\ndef main():\n    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        f"    try:\n        open({str(note)!r}, 'a').write('on ')\n        time.sleep(600)\n"
        f"    finally: open({str(note)!r}, 'a').write('off')\n"
    )
    process = children.start(module("tidies_up", code))
    wait_for(lambda: note.exists() and note.read_text())
    children.end(process)
    assert process.wait(30) == 3
    assert note.read_text() == "on off"


def test_a_command_that_runs_ends_early_when_the_server_does(module):
    begun = time.monotonic()
    done = children.run(module("sleeps", "import time\ntime.sleep(600)\n"), timeout=60, stop=lambda: True)
    assert done.returncode
    assert time.monotonic() - begun < 30


def test_what_a_command_prints_is_returned(module):
    name = module("speaks", "import sys\ndef main(): print(sys.argv[1]); print('oh', file=sys.stderr); sys.exit(2)\n")
    done = children.run(name, "hello", timeout=60, stop=lambda: False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "hello\n", "oh\n")
