"""Which model serves: live, deep, or both averaged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mma.project.models import (
    AuditAnswers,
    DeepAnswers,
    ModelReport,
    Serving,
    TrainingSet,
    choose_model,
    measured_answers,
    percent_right,
)
from mma.project.quality.accuracy import judge
from mma.project.records import Klass, Labels
from mma.project.worker.live_model import Made, serving_of
from mma.project.worker.picks import ChosenPicks

LABELS = np.arange(60) % 3


def probs(right, confidence=0.6):
    """A model that is right about the first `right` images."""
    said = np.where(np.arange(60) < right, LABELS, (LABELS + 1) % 3)
    found = np.full((60, 3), (1 - confidence) / 2)
    found[np.arange(60), said] = confidence
    return found


def test_the_more_accurate_model_serves_and_the_sentence_has_the_numbers():
    found = choose_model(AuditAnswers(LABELS, probs(40), probs(50, 0.9)), 7, 5, "a head")
    assert (found.use, found.number) == ("deep", 5)
    assert found.why == "the deep model, the best on 60 audit labels (live 66.7 %, deep 83.3 %, both 83.3 %)."


def test_of_equally_good_models_the_live_one_serves():
    assert choose_model(AuditAnswers(LABELS, probs(50), probs(50)), 7, 5, "a head").use == "live"


def test_both_averaged_serve_where_they_mend_each_other_and_the_better_one_is_handed_out():
    live, deep = probs(40, 0.9), probs(0, 0.5)
    live[40:] = 1 / 3  # of the last ones it knows that it does not know them
    deep[10:] = probs(60, 0.5)[10:]
    found = choose_model(AuditAnswers(LABELS, live, deep), 7, 5, "a head")
    assert found.use == "both"
    assert found.number == 5


def test_without_fifty_audit_labels_the_live_model_serves():
    few = AuditAnswers(LABELS[:49], probs(0)[:49], probs(60)[:49])
    assert choose_model(few, 7, 5, "a head").use == "live"


def test_without_a_deep_model_it_says_what_the_live_one_uses():
    assert (
        choose_model(AuditAnswers(LABELS, probs(40)), 7, None, "a head on hog").why == "the live model: a head on hog."
    )


def test_the_accuracy_of_the_chosen_model_is_not_flattered_by_the_choice():
    draw = np.random.default_rng(0)
    naive, measured = [], []
    for _ in range(200):  # models that guess: whichever is chosen, half of its answers are right
        labels, live, deep = draw.integers(2, size=60), draw.dirichlet([1, 1], 60), draw.dirichlet([1, 1], 60)
        answers = AuditAnswers(labels, live, deep)
        naive.append(max(percent_right(each, labels) for each in (live, deep, (live + deep) / 2)))
        measured.append(percent_right(measured_answers(answers, [str(row) for row in range(60)]), labels))
    assert np.mean(naive) > 53
    assert abs(np.mean(measured) - 50) < 1.5  # four standard errors of the mean


def test_near_duplicates_do_not_measure_the_model_that_they_chose():
    draw = np.random.default_rng(1)
    groups = [str(row // 6) for row in range(60)]  # bursts of six photos: one guess about each burst
    measured = []
    for _ in range(200):
        labels = draw.integers(2, size=10).repeat(6)
        live, deep = (draw.dirichlet([1, 1], 10).repeat(6, axis=0) for _ in range(2))
        measured.append(percent_right(measured_answers(AuditAnswers(labels, live, deep), groups), labels))
    assert abs(np.mean(measured) - 50) < 4  # four standard errors of the mean; 60 where bursts are torn apart


def test_without_a_deep_model_the_live_one_is_measured():
    assert (measured_answers(AuditAnswers(LABELS, probs(40)), list(map(str, range(60)))) == probs(40)).all()


def labels_of_three_classes() -> TrainingSet:
    classes = tuple(Klass(number, name) for number, name in enumerate(("cat", "dog", "bird")))
    return TrainingSet(Labels(9, (), (), (), (), (), classes, (), ()), lambda image: False)


def test_both_averaged_are_handed_out_with_the_accuracy_of_both():
    training = labels_of_three_classes()
    audited = np.tile([0.8, 0.1, 0.1], (60, 1))
    report = ModelReport(
        number=7,
        kind="live",
        seq=9,
        labels=0,
        audit=60,
        classes=training.names,
        class_ids=(0, 1, 2),
        per_class={},
        provenance={},
        curve=(),
        curve_source="audit",
        serving=Serving("both", 4, "both models averaged"),
        quality=judge(audited, np.zeros(60, np.int64), training.names),
    )
    deep = DeepAnswers(4, (1, 0, 9), np.zeros((0, 3)), {})  # of an older project: bird is unknown, class 9 is gone
    made = Made(report, ChosenPicks([], ""), None, np.zeros((0, 3), np.float32), deep)
    found = serving_of(made, training)
    assert [(member.number, member.columns) for member in found.members] == [(7, (0, 1, 2)), (4, (1, 0, -1))]
    assert found.accuracy is not None
    assert (found.accuracy.percent, found.accuracy.images, found.accuracy.crossed) == (100.0, 60, False)
    assert found.per_class["cat"].percent == 100.0
    alone = serving_of(replace(made, report=replace(report, serving=Serving("deep", 4, "the deep model"))), training)
    assert (alone.number, alone.members) == (4, ())
