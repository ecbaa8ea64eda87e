"""One run, two processes: what they share, what they agree on, and that one lost process costs only time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mma.run import Run
from mma.training import checkpoint
from mma.training.ask import DatasetLabels
from mma.training.host import Host
from mma.training.loop import train
from mma.training.processes import Group, _group, check_share, group
from mma.training.step import Stream
from mma.views import PixelViews, pixel_views

HERE = Path(__file__).parent
ONE = Host(threads=1)
PLAIN = {
    "plain-supervised": ("net=test-dense", "algorithm=supervised", "query=diff2-direct"),
    "plain-mixmatch": ("net=test-dense", "algorithm=mixmatch", "algorithm.alpha=0", "query=diff2.aug-kmeans"),
}


def torchrun(*words: object, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *map(str, words)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.fixture(scope="module")
def two(tmp_path_factory, tiny_settings, digits, own_nets):
    """Everything that two.py does, in one launch: the folder of its runs, and what each of the two processes found."""
    from mma.config import change
    from mma.presets import preset

    folder = tmp_path_factory.mktemp("two")

    def make(name, *settings):
        return Run.create(folder / name, change(preset("digits"), [*tiny_settings, *settings]).model_dump(mode="json"))

    for name in ("mixmatch", "stopped", "late", "held"):
        make(name)
    for name, settings in PLAIN.items():
        make(name, *settings)
        make(f"{name}-alone", *settings)
    make("odd", "optim.batch=9")
    make("uneven", "net=test-uneven")
    train(make("one"), DatasetLabels(digits.train), on=ONE, data=digits, until=3)
    with Run(folder / "held").lock():
        done = torchrun(HERE / "two.py", folder)
        _, said = done.communicate(timeout=600)
    assert done.returncode == 0, said
    return folder, [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def test_two_processes_finish_a_run_and_its_folder_is_complete(two, digits):
    run = Run(two[0] / "mixmatch")
    assert run.status() == "done"
    assert [row["labels"] for row in run.read("metrics")] == [10] * 3 + [15] * 2 + [20] * 4
    assert [len(row["indices"]) for row in run.read("queries")] == [10, 5, 5]
    assert all(row["label"] == digits.train.labels[row["index"]] for row in run.read("labels"))
    assert json.loads((run.folder / "host.json").read_text())["processes"] == 2


@pytest.mark.parametrize("name", PLAIN)
def test_without_batch_normalisation_and_mixup_two_processes_do_what_one_does(two, name):
    together, alone = Run(two[0] / name), Run(two[0] / f"{name}-alone")
    assert [row["indices"] for row in together.read("queries")] == [row["indices"] for row in alone.read("queries")]
    for ours, theirs in zip(together.read("metrics"), alone.read("metrics"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert ours["accuracy"] == theirs["accuracy"]
    states = [checkpoint.read(run.checkpoint_path(36))[1] for run in (together, alone)]
    for tensor in states[0]:
        np.testing.assert_allclose(states[0][tensor], states[1][tensor], rtol=1e-4, atol=1e-6, err_msg=tensor)


def test_batch_normalisation_and_mixup_within_each_process_change_little(two, new_run, digits):
    alone, together = new_run("alone"), Run(two[0] / "mixmatch")
    train(alone, DatasetLabels(digits.train), on=ONE, data=digits)
    traces = [[row["loss"]["labeled"] for row in run.read("metrics")] for run in (together, alone)]
    assert traces[0] != traces[1]
    assert traces[0] == pytest.approx(traces[1], rel=0.1)


def test_sharing_the_scoring_and_the_test_set_changes_no_bit(two):
    assert all(all(found["scored alike"]) for found in two[1])


def test_a_stop_asked_of_one_process_stops_both_and_going_on_is_exact(two, contents):
    assert [max(found["stopped"]) for found in two[1]] == [9, 9]
    assert contents(Run(two[0] / "stopped")) == contents(Run(two[0] / "mixmatch"))


def test_late_answers_given_to_the_first_process_give_the_same_run(two, contents):
    assert two[1][0]["calls"] == two[1][1]["calls"] > 5
    assert contents(Run(two[0] / "late")) == contents(Run(two[0] / "mixmatch"))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("odd batch", "optim.batch is 9, which 2 processes cannot share equally"),
        ("held", "being trained by another process"),
        ("one process", "processes was 1 and is 2. Continue it where it began, with  mma train "),
    ],
)
def test_what_cannot_be_trained_is_said_by_the_first_process_and_ends_both(two, what, message):
    first, second = (found[what] for found in two[1])
    assert first[0] == "said"
    assert message in first[1]
    assert second[0] == "elsewhere"


def test_processes_that_would_drift_apart_are_refused(two):
    first, second = (found["uneven"] for found in two[1])
    assert first[0] == "elsewhere"
    assert second[0] == "said"
    assert "must be alike: the state" in second[1]


def test_another_number_of_processes_is_refused_unless_asked_for(two, tmp_path, digits, refusal):
    import shutil

    run = Run(Path(shutil.copytree(two[0] / "mixmatch", tmp_path / "copy")))
    for step in (35, 36):
        run.checkpoint_path(step).unlink()
    with refusal():
        train(run, DatasetLabels(digits.train), on=ONE, data=digits)
    train(run, DatasetLabels(digits.train), on=ONE, data=digits, inexact=True)
    assert run.status() == "done"


@pytest.mark.parametrize("strong", [0.0, 0.5])
@pytest.mark.parametrize("ratio", [1, 3])
@pytest.mark.parametrize("algorithm", ["mixmatch", "vat", "supervised", "anchored-mixmatch"])
def test_the_shares_of_a_batch_are_together_the_batch_of_one_process(tiny, digits, algorithm, ratio, strong):
    settings = [
        "optim.batch=12",
        f"optim.unlabeled_ratio={ratio}",
        "views.mirror=true",
        f"views.strong_labels={strong}",
    ]
    config = tiny(f"algorithm={algorithm}", *settings)
    pixels = pixel_views(digits.train, torch.device("cpu"), PixelViews(shift=2, mirror=True), 100)
    answers = {i: int(digits.train.labels[i]) for i in range(10)}

    def batch(processes):
        token = _group.set(processes)
        try:
            return Stream(config, pixels, np.arange(len(digits.train)), answers, config.growth.rounds()[0])[5]
        finally:
            _group.reset(token)

    whole, parts = batch(group()), [batch(Group(rank, 3)) for rank in range(3)]
    assert torch.equal(torch.cat([part.x for part in parts]), whole.x)
    assert torch.equal(torch.cat([part.y for part in parts]), whole.y)
    assert torch.equal(torch.cat([part.u for part in parts], 1), whole.u)
    if whole.strong is not None:
        assert torch.equal(torch.cat([part.strong for part in parts], 1), whole.strong)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 11])
def test_portions_are_everything_once_in_order(count):
    portions = [Group(rank, 3).portion(range(count)) for rank in range(3)]
    assert [item for portion in portions for item in portion] == list(range(count))
    assert max(map(len, portions)) - min(map(len, portions)) <= 1


def test_a_batch_that_cannot_be_shared_names_a_number_of_processes_that_can(refusal):
    check_share(64, 4)
    with refusal():
        check_share(64, 6)
    with refusal():
        check_share(4, 4)
