"""kill -9 at any moment, again and again: the finished folder is byte-equal to that of an uninterrupted run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mma.config import Config, change
from mma.data import DataSet
from mma.run import Run
from mma.training.ask import DatasetLabels
from mma.training.host import Host
from mma.training.job import new_run as begin
from mma.training.loop import train

LONGER = ("growth.first=60", "growth.every=40", "growth.final=240", "log.every=10", "log.checkpoint=6")
FEW = ("data.total=60", "data.validation=20")  # images, since each costs a network that is not small
SHORTER = ("growth.first=4", "growth.every=3", "growth.final=5", "log.every=2", "log.checkpoint=3")
KILL = Path(__file__).with_name("kill.py")


@pytest.mark.parametrize("mode", ["random", "points"])
@pytest.mark.parametrize(
    "settings",
    [
        ("algorithm=mixmatch", "query=diff2.aug-kmeans"),
        ("algorithm=mean-teacher", "query=entropy-infoD"),
        ("optim.precision=bfloat16", "query=diff2.aug-kmeans"),
        (
            "growth.policy=buyer",
            "growth.policy.money=50",
            "growth.policy.held_out_labels=5",
            "growth.policy.initial_pool=100",
            "growth.budget=60",
        ),
    ],
)
def test_r7_a_run_killed_again_and_again_ends_byte_equal(new_run, digits, contents, settings, mode):
    kill_and_compare(
        new_run("whole", *LONGER, *settings), new_run("killed", *LONGER, *settings), mode, digits, contents
    )


def test_a_fine_tuned_run_killed_again_and_again_ends_byte_equal(tmp_path, tiny, digits, contents):
    config = change(
        tiny(*SHORTER), ["net=lite0", "net.side=32", "net.frozen=8", "optim.batch=4", "query=diff2-kmeans", *FEW]
    )
    whole, run = (begin(config, tmp_path / name, digits) for name in ("whole", "killed"))
    kill_and_compare(whole, run, "points", digits, contents, least=5)


@pytest.fixture
def head(tmp_path, tiny, digits, monkeypatch) -> Config:
    """A head on features of digits, which asks for labels."""
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "cache"))
    features = ["views=features", "views.backbone=hog@32", "views.crops=1", "net=head", "query=auto"]
    return change(tiny(*SHORTER), [*features, *FEW])


def test_a_run_on_features_killed_again_and_again_ends_byte_equal(tmp_path, head, digits, contents):
    whole, run = (begin(head, tmp_path / name, digits) for name in ("whole", "killed"))
    kill_and_compare(whole, run, "points", digits, contents, least=5)
    assert run.read("starts")


def test_a_run_that_begins_with_the_guesses_of_a_head_killed_again_and_again_ends_byte_equal(
    tmp_path, tiny, head, digits, contents
):
    source = begin(head, tmp_path / "source", digits)
    train(source, data=digits, on=Host(threads=1))
    config = change(tiny(*SHORTER), ["algorithm=anchored-mixmatch", "algorithm.guided=8", "log.checkpoint=1", *FEW])
    whole, run = (begin(config, tmp_path / name, digits, labels_from=source) for name in ("whole", "killed"))
    kill_and_compare(whole, run, "points", digits, contents, least=5)
    assert run.read("guesses")


def kill_and_compare(
    whole: Run, run: Run, mode: str, digits: DataSet, contents: Callable[[Run], dict[str, bytes]], *, least: int = 10
) -> None:
    """Train one run without interruption and the other under kills; both folders must be the same."""
    train(whole, DatasetLabels(digits.train), on=Host(threads=1), data=digits)
    command = [sys.executable, str(KILL), str(run.folder), mode, "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= least, "too few kills: make the run longer"
    print(f"{done.stdout.strip()} kills")
    assert run.status() == "done"
    assert contents(run) == contents(whole)
