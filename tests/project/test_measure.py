"""How good the live models are, from audit labels that they learn, too."""

from __future__ import annotations

import pytest

from mma.project.worker.round import audit_curve, audit_groups, thin
from mma.project.worker.worker import LiveWorker
from tests.project import shapes


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    project, kinds = shapes.shape_project(tmp_path, count=200)
    yield project, kinds
    project.close()


def settled(project):
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    return worker


def test_no_number_is_said_below_ten_audit_labels_and_one_from_then_on(made):
    project, kinds = made
    worker = settled(project)
    shapes.answer_next(project, kinds, 20)
    shapes.settle(worker)
    report = project.models.latest_report()
    assert (report.labels, report.audit) == (20, 8)
    assert report.quality is None
    assert report.curve == ()
    shapes.answer_next(project, kinds, 10)
    shapes.settle(worker)
    report = project.models.latest_report()
    assert report.quality.accuracy.of == report.audit == 12
    last = report.curve[-1]  # the curve ends with the number that is shown
    assert (last.labels, last.accuracy, last.low) == pytest.approx(
        (30, 100 * report.quality.accuracy.value, 100 * report.quality.accuracy.low)
    )


def test_audit_labels_are_learned_and_each_is_judged_by_a_head_without_it(made, monkeypatch):
    from mma.project.worker import round as rounds

    project, kinds = made
    calls, blind = [], []

    def note(fitted, views, answers, left_out, **rest):
        (blind if rest.get("about") is not None else calls).append((set(answers), left_out.tolist()))
        return real(fitted, views, answers, left_out, **rest)

    real = rounds.answers_without
    monkeypatch.setattr(rounds, "answers_without", note)
    worker = settled(project)
    shapes.answer_next(project, kinds, 30)
    shapes.settle(worker)
    report, training = project.models.latest_report(), worker.training_set()
    assert report.labels == 30 == sum(report.per_class.values())
    assert set(report.left_out) == set(training.audit)
    rows = [row for _, left_out in calls for row in left_out]
    assert sorted(rows) == sorted(worker.pool.row[image] for image in training.audit)
    assert all(answers == {worker.pool.row[image] for image in training.learned} for answers, _ in calls)
    assert [sorted(left_out) for _, left_out in blind] == [
        sorted(rows)
    ]  # what chooses picks knows none of these labels


def test_an_old_model_is_judged_on_new_audit_photos_and_on_those_it_learned_as_it_was_judged_then(made):
    project, kinds = made
    worker = settled(project)
    for _ in range(2):
        shapes.answer_next(project, kinds, 30)
        shapes.settle(worker)
    old = worker.memory.past[0]
    training, pool = worker.training_set(), worker.pool
    assert set(old.left_out) < set(training.audit)
    wrong = dict.fromkeys(old.left_out, -1)
    object.__setattr__(old, "left_out", wrong)  # as if it had been wrong about every one of them
    point = audit_curve([old], pool, training)[0]
    assert point.accuracy <= 100 * (1 - len(wrong) / len(training.audit))
    assert len(audit_groups(pool, training)) == len(training.audit)


def test_of_too_many_models_every_other_old_one_is_left_out_and_no_new_one():
    models = list(range(61))
    assert thin(models[:60]) == models[:60]
    kept = thin(models)
    assert kept[-31:] == models[30:]  # the newer half is whole
    assert kept[:-31] == models[:30:2]  # of the older half the first one and every other one stay
