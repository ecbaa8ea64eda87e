"""kill -9 at any moment, again and again: the finished folder is byte-equal to that of an uninterrupted run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mma.training.host import Host
from mma.training.loop import train
from mma.training.oracle import DatasetLabels

LONGER = ("growth.first=60", "growth.every=40", "growth.final=240", "log.every=10", "log.checkpoint=6")
KILL = Path(__file__).with_name("kill.py")


@pytest.mark.parametrize("mode", ["random", "points"])
@pytest.mark.parametrize(
    "settings",
    [
        ("algorithm=mixmatch", "query=diff2.aug-kmeans"),
        ("algorithm=mean-teacher", "query=entropy-infoD"),
        (
            "growth.policy=buyer",
            "growth.policy.money=50",
            "growth.policy.held_out_labels=5",
            "growth.policy.initial_pool=100",
            "growth.budget=60",
        ),
    ],
)
def test_a_run_killed_again_and_again_ends_byte_equal(new_run, digits, contents, settings, mode):
    whole, run = new_run("whole", *LONGER, *settings), new_run("killed", *LONGER, *settings)
    train(whole, DatasetLabels(digits.train), on=Host(threads=1), data=digits)
    command = [sys.executable, str(KILL), str(run.folder), mode, "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10, "too few kills: make the run longer"
    print(f"{done.stdout.strip()} kills")
    assert run.status() == "done"
    assert contents(run) == contents(whole)
