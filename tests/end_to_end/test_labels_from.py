"""From features to pixels: the labels of one run are the start of the next, and nobody is asked twice."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner

from mma.cli import commands
from mma.config import config_of
from mma.data import load_data
from mma.run import Run

QUICK = "growth.start=20 growth.add=4 growth.budget=24 growth.first=4 growth.every=4 growth.final=4 optim.batch=8"
DEEP = "optim.batch=4 log.every=1000 growth.first=1 growth.final=2"


def mma(*words: object, cwd: Path, code: int = 0) -> str:
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(commands(), [str(word) for word in words], prog_name="mma")
    assert done.exit_code == code, done.output
    return done.output


def settings(text: str) -> list[str]:
    return [part for setting in text.split() for part in ("--set", setting)]


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run on the features of 40 photos of disks and squares; returns the folder it lies in."""
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    for number in range(40):
        kind = ("disk", "square")[number % 2]
        image = Image.new("RGB", (40, 36), tuple(int(v) for v in draw.integers(150, 255, 3)))
        x, y, side = draw.integers(4, 12), draw.integers(4, 12), draw.integers(14, 20)
        shape = ImageDraw.Draw(image)
        (shape.ellipse if kind == "disk" else shape.rectangle)((x, y, x + side, y + side), fill=(30, 30, 30))
        (tmp_path / "photos" / kind).mkdir(parents=True, exist_ok=True)
        image.save(tmp_path / "photos" / kind / f"{number}.png")
    features = ["--set", "views.backbone=lite0@32+hog@32", "--set", "views.crops=0"]
    mma("train", "photos", "--data", "photos", "--out", "quick", *features, *settings(QUICK), cwd=tmp_path)
    return tmp_path


def test_a_run_on_pixels_starts_where_one_on_features_ended(quick):
    words = ("train", "photos-deep", "--data", "photos", "--labels-from", "quick", "--out", "deep", *settings(DEEP))
    said = mma(*words, cwd=quick)
    run, source = Run.open(quick / "deep"), Run.open(quick / "quick")
    chosen = config_of(run).preset
    assert f"{chosen}: on the labels, cross-validated, lite0@32 reaches" in said
    assert chosen in ("photos-deep", "photos-scratch")
    assert run.status() == "done"
    assert [row["key"] for row in run.read("labels")] == [key for row in source.read("queries") for key in row["keys"]]
    assert {row["key"]: row["class"] for row in run.read("labels")} == {
        row["key"]: row["class"] for row in source.read("labels")
    }
    assert mma(*words, cwd=quick)  # the same command again finds the finished run


def test_a_network_that_is_named_is_taken_and_photos_are_stored_at_its_side(quick):
    more = ["--set", "net=lite0", "--set", "net.side=48", "--set", "net.frozen=8", "--set", "growth.budget=26"]
    words = (
        "train",
        "photos-deep",
        "--data",
        "photos",
        "--labels-from",
        "quick",
        "--out",
        "deep",
        *settings(DEEP),
        *more,
    )
    mma(*words, cwd=quick)
    run = Run.open(quick / "deep")
    config = config_of(run)
    assert (config.preset, config.net.name) == ("photos-deep", "lite0")
    assert config.data.name.endswith("-48px")
    assert load_data(config.data.name).train.shape == (48, 48, 3)
    assert load_data(config_of(Run.open(quick / "quick")).data.name).train.shape == (32, 32, 3)
    assert [len(row["indices"]) for row in run.read("queries")] == [24, 2]


def test_a_run_keeps_its_labels(quick):
    said = mma("train", "quick", "--labels-from", "quick", cwd=quick, code=1)
    assert "a run keeps its settings" in said
