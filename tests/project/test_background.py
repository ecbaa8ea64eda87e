"""Behind the page: indexing in a thread, a worker that is started again when it dies and ends with the page."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from mma.project import create_project
from mma.project import photos as scan_module
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
    assert made.index_progress() == (20, 20)
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
        if thread.name == "index":
            closed.set()  # the page is closed, and waits for the index to end
        join(thread, *arguments)

    monkeypatch.setattr(threading.Thread, "join", join_index)
    reports = []
    with indexing(made, reports.append, pytest.fail, advance):
        reached.wait(180)
    assert reports == []
    assert made.counts().images == 12  # the batch under way is stored
    assert made.index().images == 20


def test_a_folder_that_cannot_be_indexed_is_said_before_the_page_opens(made, photos, tmp_path):
    photos.rename(tmp_path / "away")
    with pytest.raises(ValueError, match="no longer in"), indexing(made, pytest.fail, pytest.fail, lambda *_: None):
        pytest.fail("the page opened")


def test_a_worker_that_dies_is_started_again_and_ends_with_the_page(made, monkeypatch, tmp_path):
    """It dies at its first start; at the second one it stays until it is stopped."""
    monkeypatch.setattr(background, "PAUSES", (0.01,))
    code = (
        "import os, sys, time\nfrom pathlib import Path\nnote = Path(sys.argv[1])\n"
        "with note.open('a') as file: file.write(f'{os.getpid()}\\n')\n"
        "if len(note.read_text().split()) == 1: sys.exit(7)\ntime.sleep(600)\n"
    )
    note, said = tmp_path / "pids", []
    with worker(made, said.append, (sys.executable, "-c", code, str(note))):
        wait_for(lambda: note.exists() and len(note.read_text().split()) == 2)
    pids = [int(pid) for pid in note.read_text().split()]
    assert len(pids) == 2
    assert len(said) == 1
    assert "ended (code 7). Labeling goes on" in said[0]
    with pytest.raises(ProcessLookupError):
        os.kill(pids[1], 0)
