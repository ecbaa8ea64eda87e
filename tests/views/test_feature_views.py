"""Training on stored features: the same loop, growth, queries and exact resume as on pixels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

import mma
from mma.data import FolderOptions, get_folder
from mma.features import BACKBONES
from mma.rng import rng
from mma.run import Run
from mma.training.checkpoint import fork
from mma.training.host import Host
from mma.views import FeatureViews
from mma.views.features import draw_kept

ONE = Host(threads=1)
CLASSES = ("disk", "square")
SHORT = [
    *("views.backbone=hog@32", "growth.start=8", "growth.add=4", "growth.budget=16", "optim.batch=8"),
    *("growth.first=12", "growth.every=8", "growth.final=12", "log.every=4", "log.checkpoint=5"),
]


def draw_photo(path: Path, kind: str, seed: int) -> None:
    """A dark shape on a light ground, of its own size and place."""
    draw = np.random.default_rng(seed)
    image = Image.new("RGB", (40, 36), tuple(int(v) for v in draw.integers(150, 255, 3)))
    x, y, side = draw.integers(4, 12), draw.integers(4, 12), draw.integers(14, 20)
    shape = ImageDraw.Draw(image)
    (shape.ellipse if kind == "disk" else shape.rectangle)((x, y, x + side, y + side), fill=(30, 30, 30))
    image.save(path)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of 60 photos in two classes, and a cache of its own."""
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "cache"))
    for number, kind in enumerate(CLASSES):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for seed in range(30):
            draw_photo(tmp_path / "photos" / kind / f"{seed}.png", kind, 100 * number + seed)
    get_folder(tmp_path / "photos", FolderOptions(name="shapes", holdout=0.3))
    return tmp_path / "photos"


def start(tmp_path: Path, name: str, *settings: str) -> Run:
    config = mma.change(mma.preset("photos"), ["data.name=folder:shapes", *SHORT, *settings])
    return mma.new_run(config, tmp_path / name)


def test_photos_train_on_features_in_a_second(photos, tmp_path):
    run = start(tmp_path, "run")
    mma.train(run, on=ONE)
    assert run.status() == "done"
    assert run.accuracy() > 80
    assert [row["labels"] for row in run.read("metrics")][-1] == 16
    assert mma.evaluate(run)["accuracy"] == run.accuracy()


def test_a_run_on_features_stopped_and_continued_ends_byte_equal(photos, tmp_path, contents):
    whole, parts = start(tmp_path, "whole"), start(tmp_path, "parts")
    mma.train(whole, on=ONE)
    for until in (1, 5, 12, 13, 19, 20, 31):
        mma.train(parts, on=ONE, until=until)
    mma.train(parts, on=ONE)
    assert contents(parts) == contents(whole)


def test_joined_features_write_down_which_parts_were_used(photos, tmp_path, contents):
    settings = ("views.backbone=hog@32+hog@24", "growth.start=12")
    whole, parts = start(tmp_path, "whole", *settings), start(tmp_path, "parts", *settings)
    mma.train(whole, on=ONE)
    mma.train(parts, on=ONE, until=12)
    mma.train(parts, on=ONE)
    assert contents(parts) == contents(whole)
    rows = whole.read("starts")
    assert [row["round"] for row in rows] == [0, 1]
    assert all(row["why"] for row in rows)


def test_a_budget_that_goes_on_from_a_trunk_on_features_ends_byte_equal(photos, tmp_path, contents):
    settings = ("growth.budgets=[12,16]",)
    alone, trunk = start(tmp_path, "alone", *settings, "growth.budget=12"), start(tmp_path, "trunk", *settings)
    mma.train(alone, on=ONE)
    mma.train(trunk, on=ONE)
    fork(trunk, tmp_path / "tail", 12)
    tail = Run.open(tmp_path / "tail")
    mma.train(tail, on=ONE)
    for log in ("starts", "queries", "labels", "metrics"):
        assert contents(tail)[f"{log}.jsonl"] == contents(alone)[f"{log}.jsonl"], log


def test_a_pool_of_one_image_many_times_over_trains(tmp_path, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "cache"))
    for kind in CLASSES:
        (tmp_path / "photos" / kind).mkdir(parents=True)
        draw_photo(tmp_path / "one.png", "disk", 0)
        for number in range(20):
            (tmp_path / "photos" / kind / f"{number}.png").write_bytes((tmp_path / "one.png").read_bytes())
    get_folder(tmp_path / "photos", FolderOptions(name="shapes", holdout=0.3))
    run = start(tmp_path, "run")
    mma.train(run, on=ONE)
    assert run.status() == "done"


@pytest.mark.parametrize("algorithm", ["mean-teacher", "pi-model", "vat", "pseudo-label", "supervised", "fixmatch"])
def test_every_algorithm_trains_on_features(photos, tmp_path, algorithm):
    run = start(tmp_path, "run", f"algorithm={algorithm}")
    mma.train(run, on=ONE)
    assert run.status() == "done"


def test_another_backbone_is_refused_by_its_hash(photos, tmp_path, monkeypatch, refusal):
    run = start(tmp_path, "run")
    mma.train(run, on=ONE, until=5)
    monkeypatch.setattr(BACKBONES["hog"], "version", BACKBONES["hog"].version + 1)
    for use in (
        lambda: mma.train(run, on=ONE),
        lambda: mma.train(run, on=ONE, inexact=True),
        lambda: mma.evaluate(run),
    ):
        with refusal():
            use()


def test_a_changed_photo_is_refused_by_its_hash(photos, tmp_path, monkeypatch, refusal):
    draw_photo(photos / "disk" / "3.png", "square", 5)
    with refusal():
        start(tmp_path, "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_photo_that_is_gone_comes_with_the_command_that_makes_its_data_set(photos, tmp_path, split, refusal):
    (photos / getattr(mma.load_data("folder:shapes"), split).names[0]).unlink()
    with refusal():
        mma.train(start(tmp_path, "run"), on=ONE)


def test_a_run_whose_folder_was_read_anew_says_how_to_get_its_data_back(photos, tmp_path, refusal):
    run = start(tmp_path, "run")
    mma.train(run, on=ONE, until=5)
    get_folder(photos, FolderOptions(name="shapes", holdout=0.5))
    for use in (lambda: mma.train(run, on=ONE), lambda: mma.evaluate(run)):
        with refusal():
            use()


def test_a_network_for_images_is_refused_and_the_fitting_one_named(refusal):
    with refusal():
        mma.change(mma.preset("photos"), ["net=small"])


@pytest.fixture
def views(photos):
    data = mma.load_data("folder:shapes")
    return FeatureViews(backbone="hog@32+hog@24", crops=2, dropout=0.25).open(data, torch.device("cpu"), 10)


def test_each_part_of_a_vector_has_length_one(views):
    x = views.plain(np.arange(5))
    assert x.shape == (5, sum(views.shape))
    for piece in x.split(list(views.shape), 1):
        torch.testing.assert_close(piece.norm(dim=1), torch.ones(5), atol=5e-4, rtol=0.0)  # kept as float16


def test_a_weak_view_is_a_function_of_its_generator_and_leaves_numbers_out(views):
    index = np.arange(20)
    first, again, other = (views.weak(index, rng(1, "x", k)) for k in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    left_out = (first == 0).float().mean() - (views.plain(index) == 0).float().mean()
    assert 0.1 < left_out < 0.35


def test_weak_views_show_every_stored_view(views):
    index = np.arange(30)
    whole = replace(views, settings=views.settings.model_copy(update={"dropout": 0.0}))
    shown = torch.stack([whole.weak(index, rng(1, "x", k)) for k in range(12)])  # (draws, B, D)
    assert len(torch.unique(shown[:, 3], dim=0)) == views.parts[0].views == 3
    assert (shown == whole.plain(index)).all(2).float().mean() == pytest.approx(1 / 3, abs=0.15)


def test_a_strong_view_leaves_more_out(views):
    weak, strong = views.weak(np.arange(20), rng(1, "x")), views.strong(np.arange(20), rng(1, "x"))
    assert (strong == 0).sum() > (weak == 0).sum()


@pytest.mark.parametrize("dropout", [0.0, 0.2, 0.5])
def test_dropout_keeps_the_mean(dropout):
    kept = draw_kept((400, 500), dropout, np.random.default_rng(0))
    assert kept.mean() == pytest.approx(1.0, abs=0.01)
    assert (kept == 0).mean() == pytest.approx(dropout, abs=0.01)
