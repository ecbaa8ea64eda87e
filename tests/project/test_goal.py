"""Is it good enough? A verdict against a goal, the one next thing to do, and goals that cannot be."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mma.project import open_project
from mma.project.models import ModelReport
from mma.project.quality.accuracy import judge
from mma.project.quality.goal import Goals, GoalSituation, check_goal, how_common, judge_goal
from mma.project.quality.status import goals_of, set_goal, status
from tests.project import shapes

NAMES = ("cat", "dog", "owl")


def report(right: dict[str, tuple[int, int]]) -> ModelReport:
    """A model that gets so many of so many audit photos of each class right."""
    labels = np.concatenate([[place] * right.get(name, (0, 0))[1] for place, name in enumerate(NAMES)]).astype(np.int64)
    said = labels.copy()
    for place, name in enumerate(NAMES):
        rows = np.flatnonzero(labels == place)
        said[rows[right.get(name, (0, 0))[0] :]] = (place + 1) % 3
    quality = judge(np.eye(3)[said], labels, NAMES)
    about = {"seq": 1, "labels": 100, "audit": len(labels), "classes": NAMES, "class_ids": (0, 1, 2)}
    return ModelReport(1, "live", **about, per_class={}, provenance={}, curve=(), quality=quality)


def verdict(right: dict[str, tuple[int, int]] | None, **goals):
    found = None if right is None else report(right)
    per_class = dict.fromkeys(NAMES, 30)
    return judge_goal(Goals(**goals), GoalSituation(90, per_class, dict(zip(NAMES, range(3), strict=True)), found, 500))


@pytest.mark.parametrize(
    ("right", "target", "answer"),
    [(60, 90.0, "yes"), (57, 90.0, "probably"), (53, 90.0, "no"), (53, 75.0, "yes"), (0, 1.0, "no")],
)
def test_the_whole_interval_says_yes_its_middle_probably(right, target, answer):
    found = verdict({"cat": (right, 60)}, target=target)
    assert found.answer == answer
    assert found.why.startswith(f"{100 * right / 60:.0f} % of all photos are right. With 95 % certainty it is between ")
    assert not found.assumed


def test_without_a_goal_ninety_percent_is_assumed():
    found = verdict({"cat": (60, 60)})
    assert found.assumed
    assert found.goal == "90 % of all photos right"


def test_the_class_most_photos_of_which_are_missed_is_what_to_ask_for():
    found = verdict({"cat": (29, 30), "dog": (4, 11), "owl": (8, 10)})
    assert found.next.words == "36 % of the photos of dog are found: 20 more labels of it would help most."
    assert (found.next.button, found.next.class_id) == ("likely", 1)


def test_a_goal_about_a_class_compares_its_recall():
    right = {"cat": (29, 30), "dog": (4, 11), "owl": (10, 10)}
    found = verdict(right, target=95.0, of_class="dog")
    assert found.answer == "no"
    assert found.why.startswith("36 % of the photos of dog are found. With 95 % certainty it is between ")
    assert found.next.class_id == 1
    assert verdict(right, target=60.0, of_class="owl").answer == "yes"


def test_a_class_that_no_audit_photo_shows_is_not_judged():
    found = verdict({"cat": (30, 30)}, of_class="owl")
    assert found.answer == "too early"
    assert found.why == "None of the 30 photos that were drawn at random is owl, so nothing is measured."


def test_before_anything_is_measured_the_next_thing_is_to_measure():
    found = judge_goal(Goals(), GoalSituation(40, {}, {}, replace(report({"cat": (4, 4)}), quality=None), 100))
    assert found.answer == "too early"
    assert (found.next.words, found.next.button) == (
        "Answer 6 photos drawn at random, to measure the model.",
        "measure",
    )


def test_one_class_alone_is_said():
    found = judge_goal(Goals(), GoalSituation(12, {"cat": 12, "dog": 0}, {}, None, 100))
    assert found.why == "All 12 labels are cat: a model needs a second class."


def test_how_common_a_class_is_comes_from_photos_drawn_at_random_with_its_interval():
    found = how_common(report({"cat": (30, 30), "dog": (1, 10)}).quality)
    assert found["cat"].value == 0.75
    assert found["cat"].low < 0.75 < found["cat"].high
    assert found["owl"].right == 0
    assert how_common(None) == {}


@pytest.mark.parametrize("target", [120.0, 0.0, -3.0, math.nan, math.inf])
def test_a_goal_that_no_share_can_reach_is_refused(target, refusal):
    with refusal():
        check_goal(target)


def test_a_goal_about_a_class_that_there_is_not_is_refused(refusal):
    with refusal():
        check_goal(90.0, "craks", ("cracks", "fine"))


def test_a_goal_is_stored_and_follows_its_class(tmp_path):
    project, _ = shapes.shape_project(tmp_path, count=24)
    rings = next(each.id for each in project.classes() if each.name == "rings")
    set_goal(project, 95.0, rings)
    other = open_project(project.folder)
    assert goals_of(other) == Goals(target=95.0, of_class="rings")
    project.rename_class(rings, "circles", "ann")
    assert status(other).verdict.goal == "95 % of the photos of circles found"
    set_goal(project, None)
    assert other.heed_wishes()
    assert goals_of(other) == Goals()
    assert not other.heed_wishes()
    for each in (project, other):
        each.close()
