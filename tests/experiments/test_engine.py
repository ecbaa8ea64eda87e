"""Engines: every run reaches its end whatever happens to the others, and to whoever trains it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mma.experiments import grids
from mma.experiments.engines import (
    ENGINES,
    EngineOptions,
    TrainingOptions,
    check_engine,
    describe_exit,
    finish,
    is_ready,
    open_or_create,
    train_all,
)
from mma.experiments.plan import RunTask, plan
from mma.run import Run

AXES = ("MixMatch,random", "growth.budget=15,20", "seed=1")


def test_workers_give_the_same_bytes_as_one_process(small, tmp_path, train_here, train_with, bytes_of):
    train_here(small(*AXES), tmp_path / "here")
    assert train_with(small(*AXES), tmp_path / "workers") == {}
    assert bytes_of(tmp_path / "workers") == bytes_of(tmp_path / "here")


def test_one_failing_run_stops_no_other_and_says_why(small, tmp_path, train_with):
    grid = grids.create_or_extend(tmp_path, small("random,max-direct", "seed=1..2"))
    broken = open_or_create(plan(grid, tmp_path).todo[0].task)
    (broken.folder / "checkpoints" / "000000004.safetensors").write_bytes(b"not a state")
    failed = train_with(grid, tmp_path)
    assert list(failed) == [broken.folder]
    assert "is damaged or cut short" in failed[broken.folder]
    states = [Run.open(tmp_path / cell.place).status() for cell in grid.cells()]
    assert states.count("done") == 3


def test_a_worker_that_is_killed_takes_only_its_run_with_it(small, tmp_path):
    long = ["growth.final=100000"]
    grid = grids.create_or_extend(tmp_path, small("MixMatch", "seed=1", settings=long))
    short = grids.create_or_extend(tmp_path / "short", small("MixMatch", "seed=1"))
    jobs = [plan(g, f).todo[0].task for g, f in ((grid, tmp_path), (short, tmp_path / "short"))]
    local = ENGINES["local"](EngineOptions(workers=1))
    found: dict[Path, str | None] = {}

    def tick(running):
        if Run(jobs[0].folder).path("metrics").exists() and jobs[0].folder in running:
            os.kill(local.workers[0].process.pid, signal.SIGKILL)

    train_all(jobs, local, tick, lambda folder, why: found.update({folder: why}))
    assert "SIGKILL" in str(found[jobs[0].folder])
    assert found[jobs[1].folder] is None
    assert Run.open(jobs[0].folder).status() == "training"


ORPHAN = """
import os, sys, time
from multiprocessing import get_context, parent_process
def child(note):
    while parent_process().is_alive():  # still importing, say
        time.sleep(0.01)
    from mma.experiments.engines import StopWithParent
    open(note, "w").write(str(StopWithParent().stop))
if __name__ == "__main__":
    get_context("spawn").Process(target=child, args=(sys.argv[1],)).start()
    os._exit(0)
"""


def test_a_worker_whose_parent_died_before_it_was_ready_does_not_train_for_nobody(tmp_path):
    (tmp_path / "orphan.py").write_text(ORPHAN)
    note = tmp_path / "note"
    subprocess.run([sys.executable, str(tmp_path / "orphan.py"), str(note)], check=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert note.read_text() == "True"


def test_stopping_stores_every_run(small, tmp_path):
    grid = grids.create_or_extend(
        tmp_path, small("MixMatch", "seed=1", settings=["growth.final=100000", "log.checkpoint=99999"])
    )
    job = plan(grid, tmp_path).todo[0].task

    def tick(running):
        if Run(job.folder).path("metrics").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_all([job], ENGINES["local"](EngineOptions(workers=1)), tick)
    run = Run.open(job.folder)
    assert run.checkpoint_steps()
    assert not run.busy()


def test_a_tail_waits_until_its_trunk_has_stored_the_state(tmp_path):
    trunk = Run.create(tmp_path / "trunk", {})
    tail = RunTask(tmp_path / "tail", {}, (trunk.folder,), trunk.folder, 8)
    assert not is_ready(tail, {trunk.folder})
    assert is_ready(tail, set())  # the trunk ended, however it ended
    trunk.checkpoint_path(8).write_bytes(b"")
    assert is_ready(tail, {trunk.folder})


def test_an_unknown_engine_is_refused(refusal):
    with refusal():
        check_engine("slurm")


def test_ray_says_how_to_get_it(monkeypatch, refusal):
    monkeypatch.setitem(sys.modules, "ray", None)
    with refusal():
        ENGINES["ray"](EngineOptions())


def test_a_death_is_described():
    assert describe_exit(-9) == "its process was ended by SIGKILL (out of memory?)"
    assert describe_exit(3) == "its process ended with code 3"


def test_a_worker_without_its_parent_stores_the_run_and_ends(small, tmp_path):
    grid = grids.create_or_extend(
        tmp_path, small("MixMatch", "seed=1", settings=["growth.final=100000", "log.checkpoint=99999"])
    )
    folder = tmp_path / grid.cells()[0].place
    code = (
        "from pathlib import Path\nfrom mma.experiments import grids\nfrom mma.experiments.plan import plan\n"
        "from mma.experiments.engines import *\n"
        "if __name__ == '__main__':\n"
        f"    folder = Path({str(tmp_path)!r})\n    grid = grids.read(folder)\n"
        "    train_all([run.task for run in plan(grid, folder).todo], ENGINES['local'](EngineOptions()))\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    parent = subprocess.Popen([sys.executable, str(script)])
    run = Run(folder)
    while not run.path("metrics").exists():
        assert parent.poll() is None
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    while run.busy():  # the orphan ends by itself
        time.sleep(0.02)
    assert Run.open(folder).checkpoint_steps()


def test_a_run_that_has_begun_keeps_its_threads(small, tmp_path):
    grid = grids.create_or_extend(tmp_path, small("MixMatch", "seed=1"))
    job = plan(grid, tmp_path).todo[0].task
    finish(job, TrainingOptions(threads=1))
    state = max((job.folder / "checkpoints").iterdir())
    state.unlink()
    finish(job, TrainingOptions(threads=2))
    assert json.loads((job.folder / "host.json").read_text())["threads"] == 1
    assert state.exists()
