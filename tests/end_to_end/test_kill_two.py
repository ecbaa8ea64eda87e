"""One of two processes is killed: the other one ends, the same command goes on, and no byte of the folder differs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mma.config import change
from mma.presets import preset
from mma.run import Run

LONGER = ["growth.first=30", "growth.every=20", "growth.final=70", "log.every=10", "log.checkpoint=6"]
KILL = Path(__file__).with_name("kill_two.py")


@pytest.fixture(scope="module")
def settings(tiny_settings) -> dict[str, object]:
    return change(preset("digits"), [*tiny_settings, *LONGER, "query=diff2.aug-kmeans"]).model_dump(mode="json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, settings) -> Run:
    """A run that two processes trained without interruption."""
    run = Run.create(tmp_path_factory.mktemp("kill") / "whole", settings)
    assert killed(run, 0) == [0, 0]
    return run


def killed(run: Run, kills: int) -> list[int]:
    command = [sys.executable, str(KILL), str(run.folder), "7", str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


def test_r7_a_run_whose_processes_are_killed_in_turn_ends_byte_equal(whole, settings, tmp_path, contents):
    run = Run.create(tmp_path / "killed", settings)
    assert min(killed(run, 6)) >= 2, "too few kills: make the run longer"
    assert run.status() == "done"
    assert contents(run) == contents(whole)


def test_torchrun_starts_again_after_a_kill_and_the_folder_ends_byte_equal(whole, settings, tmp_path, contents):
    run = Run.create(tmp_path / "run", settings)
    words = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "2", "--monitor-interval", "0.1"]
    command = [sys.executable, "-m", "torch.distributed.run", *words, "-m", "mma", "train", str(run.folder)]
    launcher = subprocess.Popen(
        [*command, "--threads", "1"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(run.path("metrics"), launcher)
    os.kill(children(launcher.pid)[1], signal.SIGKILL)
    out, said = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, said
    assert "lost another process of this run" in said
    assert out.count("done.") == 1, "the first process alone speaks"
    assert contents(run) == contents(whole)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """Return the processes that `pid` started, in the order of their start."""
    return sorted(int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
