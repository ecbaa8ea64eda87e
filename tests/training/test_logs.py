"""A resume goes on only from logs that hold everything that led to the stored state."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from mma.errors import UserError
from mma.run import Run
from mma.training.host import Host
from mma.training.loop import train

ONE = Host(threads=1)


def go(run, data, **options):
    train(run, data=data, on=ONE, **options)
    return run


def drop_last(run: Run, log: str, count: int = 1) -> None:
    lines = run.path(log).read_bytes().splitlines(keepends=True)
    run.path(log).write_bytes(b"".join(lines[:-count]))


@pytest.mark.parametrize(
    ("log", "count", "missing"),
    [("queries", 1, "round 1"), ("labels", 1, "image "), ("labels", 5, "image "), ("metrics", 1, "step 16")],
)
def test_a_log_that_is_older_than_the_state_is_refused(new_run, digits, log, count, missing, refusal):
    """Such as that of a folder which was copied while it was trained: it would ask again, and pay twice."""
    run = go(new_run("a"), digits, until=17)
    drop_last(run, log, count)
    before = {path.name: path.read_bytes() for path in run.folder.glob("*.jsonl")}
    with refusal():
        go(run, digits)
    assert before == {path.name: path.read_bytes() for path in run.folder.glob("*.jsonl")}


def test_the_evaluation_of_the_very_step_of_the_state_must_be_there(new_run, digits, refusal):
    run = go(new_run("a"), digits, until=16)
    drop_last(run, "metrics")
    with refusal():
        go(run, digits)


def test_going_back_as_the_message_says_ends_byte_equal(new_run, digits, contents):
    whole, run = go(new_run("whole"), digits), go(new_run("a"), digits, until=17)
    drop_last(run, "metrics")
    run.checkpoint_path(17).unlink()
    go(run, digits)
    assert contents(run) == contents(whole)


@pytest.mark.parametrize(
    "change", [{"label": 3, "class": "7"}, {"label": -1, "class": "7"}, {"label": 3, "class": None}, {"label": 10}]
)
def test_a_label_that_contradicts_its_class_is_refused(new_run, digits, change, refusal):
    run = go(new_run("a"), digits, until=17)
    lines = run.path("labels").read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), **change})
    run.path("labels").write_text("".join(f"{line}\n" for line in lines))
    with refusal():
        go(run, digits)


@pytest.mark.parametrize("name", ["config.json", "labels.jsonl"])
def test_brackets_nested_too_deeply_are_a_sentence(new_run, digits, name):
    run = go(new_run("a"), digits, until=5)
    (run.folder / name).write_text("[" * 200_000 + "\n")
    with pytest.raises(UserError):  # how deep Python can read differs between its versions
        go(run, digits)


def test_a_purchase_that_is_missing_is_refused(new_run, digits, refusal):
    policy = (
        "growth.policy=split",
        "growth.policy.money=50",
        "growth.policy.label_price=5",
        "growth.policy.purchases=3",
    )
    run = go(new_run("a", *policy), digits, until=17)
    drop_last(run, "purchases")
    with refusal():
        go(run, digits)


def test_labels_beyond_the_state_are_kept(new_run, digits, contents):
    """A kill between an answer and the next stored state: what was asked and answered once stands."""
    whole, run = go(new_run("whole"), digits), go(new_run("a"), digits, until=14)
    run.checkpoint_path(14).unlink()  # back to step 12, before round 1
    go(run, digits)
    assert contents(run) == contents(whole)


def test_a_renamed_checkpoint_is_refused(new_run, digits, refusal):
    run = go(new_run("a"), digits, until=5)
    run.checkpoint_path(5).rename(run.checkpoint_path(7))
    with refusal():
        go(run, digits)


def test_a_checkpoint_of_half_precision_is_a_sentence(new_run, digits, refusal):
    run = go(new_run("a"), digits, until=5)
    path = run.checkpoint_path(5)
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        header = file.metadata()
        tensors = {name: file.get_tensor(name).to(torch.bfloat16) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata=header)
    with refusal():
        go(run, digits)


def test_narrow_images_train(tmp_path, tiny):
    """1 x 8 pixels: the network halves no side that is one pixel long."""
    from mma.data import DataSet, Images
    from mma.training.job import new_run

    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    pixels = (rng.integers(0, 60, (80, 1, 8, 1)) + 150 * labels[:, None, None, None]).astype(np.uint8)
    images = Images(pixels, labels, ("dark", "bright"))
    data = DataSet("narrow", images, images)
    run = new_run(tiny("views.shift=0"), tmp_path / "run", data)
    go(run, data)
    assert run.status() == "done"


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "mps:0"])
def test_an_unknown_device_is_a_sentence(new_run, digits, device, refusal):
    with refusal():
        train(new_run("a"), data=digits, on=Host(device=device))


def test_a_copy_of_a_finished_run_opens_elsewhere(new_run, digits, tmp_path):
    run = go(new_run("a"), digits)
    copy = Run.open(shutil.copytree(run.folder, tmp_path / "elsewhere"))
    go(copy, digits)
    assert copy.status() == "done"
