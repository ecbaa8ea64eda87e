"""The models of a project: their order, their files, and which one serves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mma.errors import UserError
from mma.project.models import (
    ANSWERS,
    PREDICTIONS,
    ModelReport,
    Serving,
    StoredAnswers,
    answers_file,
    columns_for,
    report_file,
)
from mma.project.quality.accuracy import judge
from mma.project.worker.live_model import serving_of
from mma.project.worker.round import choose_model, measured_answers

REPORTED = ModelReport(
    number=7,
    kind="live",
    seq=9,
    labels=0,
    audit=60,
    classes=("cat", "dog", "bird"),
    class_ids=(0, 1, 2),
    per_class={},
    provenance={},
    curve=(),
    serving=Serving("deep", 4, "the deep model"),
)


def test_models_are_in_the_order_of_their_numbers_also_from_1000_on(project):
    for number in (999, 101, 1000):
        answers = answers_file(ANSWERS, [f"{number:064d}"], np.ones((1, 1)), [number])
        project.models.create(number, {**report_file(replace(REPORTED, number=number)), **answers})
    assert project.models.numbers() == [101, 999, 1000]
    assert project.models.latest_report().number == 1000
    assert project.models.answers(ANSWERS).number == 1000
    assert project.models.put(state="training").number == 1001
    assert project.models.put(9, state="ready").number == 9
    assert [row.number for row in project.models.rows()] == [9, 1001]


def test_answers_of_other_models_are_deleted_and_predictions_stay(project):
    for number in (998, 1000):
        for name in (ANSWERS, PREDICTIONS):
            project.models.add(number, answers_file(name, ["0" * 64], np.ones((1, 1)), [0]))
    project.models.keep_answers_of(1000)
    assert project.models.numbers(ANSWERS) == [1000]
    assert project.models.numbers(PREDICTIONS) == [998, 1000]


def test_answers_that_are_torn_are_passed_over(project):
    project.models.add(3, answers_file(ANSWERS, ["0" * 64], np.array([[0.25, 0.75]]), [4, 5]))
    project.models.add(4, {ANSWERS: b"torn"})
    found = project.models.answers(ANSWERS, PREDICTIONS)
    assert (found.number, found.classes, found.row) == (3, (4, 5), {"0" * 64: 0})
    assert found.of(["0" * 64], [5, 6]).tolist() == [[0.75, 0.0]]
    assert found.of(["1" * 64], [5]) is None
    assert project.models.answers(PREDICTIONS) is None


def test_a_report_that_is_missing_or_damaged_is_said_with_its_place(project):
    with pytest.raises(UserError):
        project.models.report(5)
    project.models.add(5, {"report.json": b"{"})
    with pytest.raises(UserError):
        project.models.report(5)
    assert project.models.latest_report() is None


def test_a_model_that_never_ended_is_begun_again_under_its_number(project):
    assert project.models.begin("live", 3) == 1
    assert project.models.begin("live", 4) == 1
    assert project.models.begin("deep", 4) == 2
    assert project.models.begin("deep", 4) == 2
    project.models.put(2, state="failed")
    assert project.models.begin("deep", 5) == 3
    project.models.put(1, state="ready")
    assert project.models.begin("live", 5) == 4
    project.models.put(4, state="failed")
    assert project.models.begin("live", 6) == 4
    assert [row.number for row in project.models.rows()] == [1, 2, 3, 4]


def test_columns_follow_the_classes_there_are_now():
    assert columns_for(np.array([[0.25, 0.5, 0.125]]), (5, 3, 9), (3, 4, 5)).tolist() == [[0.5, 0.0, 0.25]]
    assert StoredAnswers(1, (0,), np.zeros((0, 1)), {}, np.zeros(0, bool)).of([], [0, 1]).shape == (0, 2)


def test_what_serves_is_handed_out_with_its_accuracy():
    quality = judge(np.tile([0.8, 0.1, 0.1], (60, 1)), np.zeros(60, np.int64), REPORTED.classes)
    found = serving_of(replace(REPORTED, quality=quality))
    assert (found.number, found.use, found.why) == (4, "deep", "the deep model")
    assert found.accuracy is not None
    assert (found.accuracy.percent, found.accuracy.images, found.accuracy.crossed) == (100.0, 60, False)
    assert found.per_class["cat"].percent == 100.0


LABELS = np.arange(60) % 3


def probs(right, confidence=0.6):
    """A model that is right about the first `right` images."""
    said = np.where(np.arange(60) < right, LABELS, (LABELS + 1) % 3)
    found = np.full((60, 3), (1 - confidence) / 2)
    found[np.arange(60), said] = confidence
    return found


def test_the_more_accurate_model_serves_and_the_sentence_has_the_numbers():
    found = choose_model(probs(40), probs(50, 0.9), LABELS, (7, 5))
    assert (found.use, found.number) == ("deep", 5)
    same = "Of 60 photos drawn at random the deep model is right about 50, the quick one about 40."
    assert found.why == f"the deep model. {same}"


def test_of_equally_good_models_the_quick_one_serves_and_says_why():
    found = choose_model(probs(50), probs(50), LABELS, (7, 5))
    assert found.use == "live"
    assert found.why.endswith("So the deep one is not shown to be better.")


def test_ten_photos_drawn_at_random_can_choose_and_nine_cannot():
    few = choose_model(probs(0)[:9], probs(60)[:9], LABELS[:9], (7, 5))
    assert (few.use, few.number) == ("live", 7)
    assert "there are 9" in few.why
    assert choose_model(probs(0)[:10], probs(60)[:10], LABELS[:10], (7, 5)).use == "deep"


def test_without_a_deep_model_the_quick_one_serves():
    assert choose_model(probs(40), None, LABELS, (7, 0), "deep").why == "the quick model."


def test_what_the_person_chose_serves_and_is_measured_as_it_is():
    groups = list(map(str, range(60)))
    for wish, use, right in (("deep", "deep", 40), ("live", "live", 50)):
        found = choose_model(probs(50), probs(40), LABELS, (7, 5), wish)
        assert found.use == use
        assert "You chose it." in found.why
        assert (measured_answers(probs(50), probs(40), LABELS, groups, wish).argmax(1) == LABELS).sum() == right


def percent_right(found, labels):
    return 100 * (found.argmax(1) == labels).mean()


def test_the_accuracy_of_the_chosen_model_is_not_flattered_by_the_choice():
    draw = np.random.default_rng(0)
    naive, measured = [], []
    for _ in range(200):  # models that guess: whichever is chosen, half of its answers are right
        labels, live, deep = draw.integers(2, size=60), draw.dirichlet([1, 1], 60), draw.dirichlet([1, 1], 60)
        naive.append(max(percent_right(each, labels) for each in (live, deep)))
        measured.append(percent_right(measured_answers(live, deep, labels, [str(row) for row in range(60)]), labels))
    assert np.mean(naive) > 52.5
    assert abs(np.mean(measured) - 50) < 1.5  # four standard errors of the mean


def test_near_duplicates_do_not_measure_the_model_that_they_chose():
    draw = np.random.default_rng(1)
    groups = [str(row // 6) for row in range(60)]  # bursts of six photos: one guess about each burst
    measured = []
    for _ in range(200):
        labels = draw.integers(2, size=10).repeat(6)
        live, deep = (draw.dirichlet([1, 1], 10).repeat(6, axis=0) for _ in range(2))
        measured.append(percent_right(measured_answers(live, deep, labels, groups), labels))
    assert abs(np.mean(measured) - 50) < 4  # four standard errors of the mean; 60 where bursts are torn apart


def test_without_a_deep_model_the_live_one_is_measured():
    assert (measured_answers(probs(40), None, LABELS, list(map(str, range(60)))) == probs(40)).all()
