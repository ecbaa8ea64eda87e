"""Data sets that are made hard on purpose."""

from __future__ import annotations

import numpy as np
import pytest

import mma
from mma.data import load_data
from mma.data.hard import HARD
from mma.training.host import Host
from tests.each import each


@pytest.fixture(scope="module")
def plain():
    return load_data("digits")


@pytest.mark.parametrize("kind", HARD)
def test_a_hard_data_set_is_the_same_every_time_and_keeps_its_test_set(kind, plain):
    first, again = load_data(f"hard:{kind}:digits"), load_data(f"hard:{kind}:digits")
    assert first.name == f"hard:{kind}:digits"
    assert first.train.digest() == again.train.digest() != plain.train.digest()
    assert first.test.digest() == plain.test.digest()


def test_a_long_tail_falls_from_fifty_to_one(plain):
    counts = list(load_data("hard:long-tail:digits").train.class_counts().values())
    assert counts == sorted(counts, reverse=True)
    assert counts[0] / counts[-1] == pytest.approx(50, rel=0.2)


def test_a_third_of_the_pool_looks_like_another_image(plain):
    images = load_data("hard:near-duplicates:digits").train
    added = len(images) - len(plain.train)
    assert added == 10 * round(0.05 * len(plain.train))
    copy = images.pixels[-1].astype(int)
    apart = np.abs(images.pixels[: len(plain.train)].astype(int) - copy).max(axis=(1, 2, 3))
    assert 0 < apart.min() <= 4
    assert images.labels[np.argmin(apart)] == images.labels[-1]


@pytest.mark.parametrize(("kind", "share"), [("wrong-5", 0.05), ("wrong-20", 0.2)])
def test_a_share_of_the_answers_is_wrong(kind, share, plain):
    images = load_data(f"hard:{kind}:digits").train
    assert (images.labels != plain.train.labels).mean() == pytest.approx(share, abs=0.001)
    assert np.array_equal(images.keys, plain.train.keys), "the images are the same, and so are their features"


def test_nobody_can_tell_what_an_image_of_no_class_is(tmp_path, tiny):
    data = load_data("hard:no-class:digits")
    strangers = np.flatnonzero(data.train.labels < 0)
    assert len(strangers) == round(0.25 * np.count_nonzero(data.train.labels >= 0))
    config = tiny("data.name=hard:no-class:digits", "query=random")
    run = mma.new_run(config, tmp_path / "run")
    mma.train(run, on=Host(threads=1))
    answers = run.answers()
    assert sum(label >= 0 for label in answers.values()) == 20, "strangers do not count as labels"
    assert any(index in answers for index in strangers.tolist())


@each(name=["hard:long-tial:digits", "hard:digits", "hard:wrong-5:digitz", "hard:wrong-5:hard:wrong-5:digits"])
def test_a_wrong_name_is_explained(name, refusal):
    with refusal():
        load_data(name)
