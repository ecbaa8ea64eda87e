"""A run on pixels that begins with what a model on features says about the pool."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mma.config import Config, change
from mma.presets import preset
from mma.run import Run
from mma.training.checkpoint import fork
from mma.training.host import Host
from mma.training.job import load_read_only, read_guesses
from mma.training.job import new_run as begin
from mma.training.loop import train
from mma.training.step import Stream

ONE = Host(threads=1)
SHORT = ["optim.batch=8", "growth.first=3", "growth.every=3", "growth.final=3", "log.every=3", "log.checkpoint=2"]


@pytest.fixture
def source(tmp_path, digits, monkeypatch) -> Run:
    """A head on features of digits, with 20 labels."""
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "cache"))
    settings = ["data.name=digits", "data.total=200", "views.backbone=hog@32", "views.crops=0", *SHORT]
    config = change(preset("photos"), [*settings, "growth.start=20", "growth.budget=20"])
    run = begin(config, tmp_path / "source", digits)
    train(run, data=digits, on=ONE)
    return run


def deep(*settings: str) -> Config:
    short = ["data.name=digits", "net.filters=8", "views.shift=1", "algorithm.guided=4", *SHORT]
    return change(preset("photos-scratch"), [*short, *settings])


def test_it_is_given_what_the_other_model_says_about_each_image_of_its_pool(source, digits, tmp_path):
    run = begin(deep(), tmp_path / "new", digits, labels_from=source)
    job, rows = load_read_only(source), run.read("guesses")
    assert [row["index"] for row in rows] == job.pool.tolist()
    assert [row["key"] for row in rows] == [digits.train.key(index) for index in job.pool.tolist()]
    with torch.inference_mode():
        probs = job.state.teacher(job.views.plain(job.pool)).softmax(1)
    found = read_guesses(run, digits.train.classes, len(digits.train))
    torch.testing.assert_close(found[job.pool], probs, atol=0.01, rtol=0)
    others = np.setdiff1d(np.arange(len(digits.train)), job.pool)
    assert bool((found[others] == 0.1).all())  # nothing is known about them


def test_a_batch_carries_the_guesses_of_its_unlabeled_images(digits):
    config = deep()
    guesses = torch.arange(len(digits.train), dtype=torch.float32)[:, None].expand(-1, 10)
    views = config.views.open(digits, torch.device("cpu"), 1)
    stream = Stream(config, views, np.arange(100), {0: 1, 1: 2}, config.growth.rounds()[0], guesses=guesses)
    rows = stream[1].guesses[:, 0].numpy().astype(int)
    assert rows.tolist() == stream.unlabeled.slice(8, 8).tolist()
    stream.part = stream.unlabeled_part = slice(4, 8)  # the second of two processes
    assert stream[1].guesses[:, 0].numpy().astype(int).tolist() == rows[4:].tolist()


def test_it_resumes_byte_equal(source, digits, tmp_path, contents):
    whole, parts = (begin(deep(), tmp_path / name, digits, labels_from=source) for name in ("whole", "parts"))
    train(whole, data=digits, on=ONE)
    train(parts, data=digits, on=ONE, until=3)
    train(parts, data=digits, on=ONE)
    assert contents(parts) == contents(whole)


def test_guidance_changes_what_is_learned(source, digits, tmp_path):
    runs = [begin(deep(f"algorithm.guided={n}"), tmp_path / str(n), digits, labels_from=source) for n in (4, 0)]
    assert [run.path("guesses").exists() for run in runs] == [True, False]
    for run in runs:
        train(run, data=digits, on=ONE)
    losses = [run.read("metrics")[0]["loss"]["unlabeled"] for run in runs]
    assert losses[0] != losses[1]


def test_other_guesses_than_it_began_with_are_refused_by_their_hash(source, digits, tmp_path, refusal):
    run = begin(deep(), tmp_path / "new", digits, labels_from=source)
    train(run, data=digits, on=ONE, until=3)
    path = run.path("guesses")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    for use in (lambda: train(run, data=digits, on=ONE), lambda: load_read_only(run)):
        with refusal():
            use()


def test_a_fork_begins_with_the_same_guesses_and_ends_as_if_trained_alone(source, digits, tmp_path, contents):
    growing = ("optim.decay=constant", "growth.start=1", "growth.add=2", "growth.budgets=[22, 24]")
    trunk = begin(deep(*growing, "growth.budget=24"), tmp_path / "trunk", digits, labels_from=source)
    train(trunk, data=digits, on=ONE)
    assert fork(trunk, tmp_path / "tail", 22)
    alone = begin(deep(*growing, "growth.budget=22"), tmp_path / "alone", digits, labels_from=source)
    for run in (Run(tmp_path / "tail"), alone):
        train(run, data=digits, on=ONE)
    last = f"checkpoints/{alone.checkpoint_steps()[-1]:09d}.safetensors"
    tail, whole = contents(Run(tmp_path / "tail")), contents(alone)
    assert all(tail[name] == whole[name] for name in ("guesses.jsonl", "metrics.jsonl", last))


def test_a_run_on_pixels_has_no_guesses_to_give(new_run, digits, tmp_path):
    pixels = new_run("pixels")
    train(pixels, data=digits, on=ONE)
    assert not begin(deep(), tmp_path / "new", digits, labels_from=pixels).path("guesses").exists()
