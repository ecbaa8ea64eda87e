"""What is asked next: no two near-duplicates at once, nothing twice, and a share of random images."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import torch

from mma.project.records import Labels, Pick, ProjectImage
from mma.project.worker.features import TrainingSet
from mma.project.worker.picks import (
    Question,
    candidate_rows,
    choose_picks,
    explain,
    labeled_set,
    make_pick,
    mix_likely,
    mix_random,
)

KLASSES = (SimpleNamespace(id=0), SimpleNamespace(id=1))


class FakePool:
    """Images in bursts of three; no two of them look alike to a query."""

    def __init__(self, count: int = 30) -> None:
        keys = [f"{row:02d}" for row in range(count)]
        self.images = [ProjectImage(key, key, 9, 9, keys[row // 3 * 3], False) for row, key in enumerate(keys)]
        self.everything = {image.id: image for image in self.images}
        self.row = {key: row for row, key in enumerate(keys)}
        self.points = np.random.default_rng(0).normal(size=(count, 40)).astype(np.float32)

    def group(self, image: str) -> str:
        return self.everything[image].group

    def vectors(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self.points[rows])


def question(pool, answered=(), query="herding", **options) -> Question:
    labels = Labels(1, tuple(answered), (0,) * len(answered), ("query",) * len(answered), (), (), (), (), ())
    training = SimpleNamespace(labels=labels, train={}, names=("a", "b"), classes=KLASSES)
    assert TrainingSet(labels, lambda image: False).labels is labels
    return Question(pool, training, query, 0, 1, **options)


def bursts(pool, images) -> list[str]:
    return [pool.group(image) for image in images]


def test_one_image_of_each_burst_may_be_asked_about():
    pool = FakePool()
    assert candidate_rows(question(pool)).tolist() == list(range(0, 30, 3))


def test_a_burst_with_an_answer_waits_until_no_other_is_left():
    pool = FakePool()
    assert candidate_rows(question(pool, ["00", "04"])).tolist() == list(range(6, 30, 3))
    rest = candidate_rows(question(pool, [f"{row:02d}" for row in range(0, 30, 3)])).tolist()
    assert rest == list(range(1, 30, 3))  # of each burst the next one


def test_no_two_images_of_a_burst_are_in_one_batch():
    pool = FakePool()
    found = choose_picks(question(pool), many=10).picks
    assert len(found) == 10
    assert len(set(bursts(pool, [pick.image for pick in found]))) == 10


def test_random_images_between_the_picks_are_of_other_bursts():
    pool = FakePool()
    asked = question(pool, random_share=0.5)
    picks = [
        Pick(image, "", 1.0, "query", None) for image in ("01", "05", "08", "10")
    ]  # of bursts whose first one is free
    mixed = mix_random(asked, candidate_rows(asked), picks)
    drawn = [pick.image for pick in mixed if pick.provenance == "random"]
    assert len(drawn) == 2
    assert len(set(bursts(pool, [pick.image for pick in mixed]))) == len(mixed)
    assert [pick for pick in mixed if pick.provenance == "query"] == picks


def test_every_second_pick_is_a_likely_one_of_the_class_that_is_to_be_found():
    pool = FakePool()
    likely = np.linspace(0.0, 1.0, 30, dtype=np.float32)
    probs = np.stack([1 - likely, likely], 1)
    asked = question(pool, probs=probs, goal=1)
    rows = np.arange(0, 30, 3)
    own = [Pick(pool.images[row].id, "", 0.0, "query", None) for row in range(0, 12, 3)]
    found = [pick.image for pick in mix_likely(asked, rows, own)]
    assert found == ["24", "00", "21", "03"]  # 27 is 93 % sure: it would teach little
    assert [pick.image for pick in mix_likely(question(pool, probs=probs), rows, own)] == [pick.image for pick in own]


def test_the_reason_for_likely_picks_is_said():
    pool = FakePool()
    probs = np.full((30, 2), 0.5, np.float32)
    found = choose_picks(question(pool, probs=probs, goal=1), many=6)
    assert found.why.endswith(". Every second photo is a likely one of b, which is the goal.")
    assert len({pick.image for pick in found.picks}) == len(found.picks)


def test_what_people_could_not_tell_is_known_to_the_query_as_such():
    asked = question(FakePool())
    asked.training.labels = dataclasses.replace(asked.training.labels, cannot_tell=("07",))
    asked.training.train = {"03": 1}
    known = labeled_set(asked)
    assert dict(zip(known.labels.tolist(), known.features.tolist(), strict=True)) == {
        -1: asked.pool.points[7].tolist(),
        1: asked.pool.points[3].tolist(),
    }


def test_the_reason_names_what_a_model_is_torn_between_or_unsure_of():
    asked = question(FakePool())
    said = {p: explain(asked, np.array([1 - p, p]), unlike=False) for p in (0.55, 0.7, 0.97)}
    assert said[0.55] == "torn between b and a"
    assert said[0.7] == "not sure that it is b"
    assert said[0.97].startswith("taken for b")
    assert explain(asked, np.array([0.3, 0.7]), unlike=True).endswith("nothing like it is labeled yet")


def test_a_suggestion_begins_with_the_likeliest_class():
    probs = np.tile(np.array([[0.2, 0.8]], np.float32), (30, 1))
    pick = make_pick(question(FakePool(), probs=probs), 4, 0.5, "why", "query")
    assert pick.suggestion == [(1, 0.8), (0, 0.2)]


def test_random_picks_are_as_often_the_first_as_later_ones():
    pool = FakePool(300)
    rows, first = np.arange(0, 300, 3), 0
    picks = [Pick(pool.images[row].id, "", 1.0, "query", None) for row in range(0, 150, 3)]
    for number in range(200):
        asked = dataclasses.replace(question(pool, random_share=0.2), round=number)
        first += mix_random(asked, rows, picks[:3])[0].provenance == "random"
    assert 20 < first < 60  # 40 of 200 are expected
