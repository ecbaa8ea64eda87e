"""The worker behind the page: models, picks and reports from a project's labels."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import time
from uuid import uuid4

import numpy as np
import pytest
from safetensors.numpy import load

import mma
from mma import children
from mma.project import Answer, open_project
from mma.project.quality.status import status
from mma.project.worker.live_model import read_head, unlabeled_rows
from mma.project.worker.worker import LiveWorker
from tests.project import shapes


@pytest.fixture(autouse=True)
def own_data(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path_factory.mktemp("data")))


@pytest.fixture
def made(tmp_path):
    project, kinds = shapes.shape_project(tmp_path)
    yield project, kinds
    project.close()


def picks_of(project, number):
    with (project.models.folder(number) / "picks.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_first_picks_are_for_coverage_and_need_no_label(made):
    project, _ = made
    shapes.settle(LiveWorker(project, deep=False))
    items = project.next("ann", 8)
    assert {item.provenance for item in items} <= {"start", "audit"}
    assert sum(item.provenance == "start" for item in items) == 4
    assert all(item.suggestion is None for item in items)
    assert not project.models.rows() or project.models.rows()[-1].state == "training"


def test_every_tenth_label_makes_a_model_with_picks_and_reasons(made):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    for ready in (1, 2, 3):
        shapes.answer_next(project, kinds, 9)
        shapes.settle(worker)
        assert sum(row.state == "ready" for row in project.models.rows()) == ready - 1
        shapes.answer_next(project, kinds, 1)
        shapes.settle(worker)
        assert sum(row.state == "ready" for row in project.models.rows()) == ready
    item = next(item for item in project.next("bob", 8) if item.provenance == "query")
    assert item.why
    assert item.model == 3
    assert abs(sum(prob for _, prob in item.suggestion)) <= 1.0001
    assert {row["provenance"] for row in picks_of(project, 3)} <= {"query", "random"}


def test_r10_a_backup_of_the_events_precedes_every_round(made):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    for labels in (10, 20):
        shapes.answer_next(project, kinds, 10)
        shapes.settle(worker)
        backup = sorted(project.layout.backups.glob("round-*.jsonl"))[-1]
        assert backup.read_bytes().count(b'"kind":"label"') == labels


def test_a_model_s_folder_holds_labels_picks_report_and_a_model_that_predicts(made):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    answered = shapes.answer_next(project, kinds, 40)
    shapes.settle(worker)
    report = project.models.latest_report()
    folder = project.models.folder(report.number)
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == answered
    assert [row["answer"] for row in rows] == [kinds[image] for image in answered]
    model = mma.load(project.folder)
    assert model.classes == shapes.KINDS
    names = [image for image in kinds if image not in answered][:20]
    found = model.predict([project.path_of(image) for image in names])
    right = [shapes.KINDS[k] == kinds[image] for k, image in zip(found.probs.argmax(1), names, strict=True)]
    assert np.mean(right) > 0.8
    assert (project.folder / "report.html").is_file()


def test_the_newest_model_s_answers_about_every_image_are_kept_for_the_grid(made):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    for _ in range(3):
        shapes.answer_next(project, kinds, 20)
        shapes.settle(worker)
    kept = list((project.folder / "models").glob("*/answers.safetensors"))
    assert [path.parent.name for path in kept] == [f"{project.models.latest_report().number:03d}"]
    found = load(kept[0].read_bytes())
    assert found["probs"].shape == (sum(not image.audit for image in worker.pool.images), 4)
    names = {each.id: each.name for each in project.classes()}
    said = [names[int(found["classes"][k])] for k in found["probs"].argmax(1)]
    right = [kinds[bytes(key).hex()] == kind for key, kind in zip(found["keys"], said, strict=True)]
    assert np.mean(right) > 0.8


def test_audit_images_are_learned_with_their_label_and_never_without_and_excluded_ones_never(made):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    shapes.answer_next(project, kinds, 20)
    excluded = project.next("ann", 1)[0].image
    project.answer(Answer(id=uuid4(), images=[excluded], kind="exclude", by="ann"))
    unsure = project.next("ann", 1)[0].image
    project.answer(Answer(id=uuid4(), images=[unsure], kind="cannot_tell", by="ann"))
    worker.rest()
    shapes.settle(worker)
    audit = {image.id for image in project.images() if image.audit}
    training = worker.training_set()
    assert audit
    learned_without_label = {worker.pool.images[row].id for row in unlabeled_rows(worker.pool, training)}
    assert not learned_without_label & (audit | {excluded})
    assert len(learned_without_label) == len(worker.pool) - len(audit) - (excluded not in audit)
    assert set(training.learned) == set(training.train) | set(training.audit)
    assert not audit & set(training.train)
    assert set(training.audit) <= audit
    picked = {row["image"] for row in picks_of(project, project.models.latest_report().number)}
    assert not picked & (audit | {excluded, unsure} | set(training.train))


def test_near_duplicates_never_fill_a_batch(tmp_path):
    from PIL import Image

    kinds = shapes.write_shapes(tmp_path / "photos", 40)
    base = shapes.draw_shape("rings", 999)
    for shift in range(12):  # nearly the same photo, twelve times
        copy = base.copy()
        copy[shift, 0] = 255
        Image.fromarray(copy).save(tmp_path / "photos" / f"burst{shift}.png")
    from mma.project import create_project
    from mma.project.project import change_settings

    project = create_project(tmp_path / "photos", tmp_path / "project", classes=shapes.KINDS, seed=0)
    project.index()
    project = change_settings(project, backbone="hog@32", deep_when_idle=False)
    groups = project.groups()
    assert len(set(groups.values())) < len(groups)
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    with project.store.reading() as connection:
        from sqlalchemy import select

        from mma.project.labels import database as schema

        picks = list(connection.execute(select(schema.picks.c.image)).scalars())
    assert len({groups[image] for image in picks}) == len(picks)
    assert len(picks) > 20
    assert kinds
    project.close()


def test_a_worker_that_starts_again_goes_on_where_it_was(made):
    project, kinds = made
    first = LiveWorker(project, deep=False)
    shapes.settle(first)
    shapes.answer_next(project, kinds, 20)
    shapes.settle(first)
    before = project.models.rows()
    again = LiveWorker(project, deep=False)
    shapes.settle(again)
    assert [row.number for row in project.models.rows()] == [row.number for row in before]
    assert [past.number for past in again.memory.past] == [past.number for past in first.memory.past]
    shapes.answer_next(project, kinds, 10)
    shapes.settle(again)
    assert project.models.rows()[-1].number == before[-1].number + 1


def test_a_round_that_was_cut_off_before_the_project_knew_is_done_again(made):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    shapes.answer_next(project, kinds, 10)
    shapes.settle(worker)
    number = project.models.rows()[-1].number
    project.models.put(number, state="training", message="")  # as if it was killed before it could tell
    shapes.settle(LiveWorker(project, deep=False))
    assert [(row.number, row.state) for row in project.models.rows()] == [(number, "ready")]


def test_the_same_labels_make_the_same_model_and_picks(made):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    shapes.answer_next(project, kinds, 10)
    shapes.settle(worker)
    folder = project.models.folder(1)
    before = {name: (folder / name).read_bytes() for name in ("model.safetensors", "labels.csv", "picks.csv")}
    project.models.put(1, state="training", message="")
    shapes.settle(LiveWorker(project, deep=False))
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_place_where_it_failed_twice_is_reported_and_labeling_goes_on(made, monkeypatch):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    shapes.answer_next(project, kinds, 10)

    def break_down(*_, **__):
        raise MemoryError("no room")

    monkeypatch.setattr("mma.project.worker.worker.live_round", break_down)
    shapes.settle(worker)
    assert project.models.rows()[-1].state == "failed"
    assert "no room" in project.models.rows()[-1].message
    monkeypatch.undo()
    monkeypatch.setenv("MMA_DATA", str(project.folder / "elsewhere"))
    shapes.answer_next(project, kinds, 10)
    shapes.settle(worker)
    assert project.models.rows()[-1].state == "ready"


def test_a_place_that_killed_the_process_twice_is_not_tried_again(made):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    shapes.answer_next(project, kinds, 10)
    place = f"labels up to event {project.seq()}"
    assert worker.attempts.begin(place)
    assert worker.attempts.begin(place)  # two processes began it, and none ended it
    shapes.settle(LiveWorker(project, deep=False))
    assert project.models.rows()[-1].state == "failed"
    assert "died there twice" in project.models.rows()[-1].message


def test_new_photos_join_and_keep_labels_and_audit(made, tmp_path):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    shapes.answer_next(project, kinds, 20)
    shapes.settle(worker)
    audit = {image.id for image in project.images() if image.audit}
    rows = len(worker.pool)
    kinds |= shapes.write_shapes(project.root, 20, first=500)
    project.index()
    shapes.settle(worker)
    assert len(worker.pool) > rows
    assert audit <= {image.id for image in project.images() if image.audit}
    assert len(worker.training_set().labels) == 20


def test_a_photo_that_changed_is_left_out_and_the_others_learn(made):
    project, _ = made
    victim = next(image for image in project.images() if not image.audit)
    path = project.path_of(victim.id)
    path.write_bytes(path.read_bytes()[:-30])
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    assert victim.id in worker.gathering.broken
    assert victim.id not in worker.pool.row
    assert len(worker.pool) > 50


def test_where_it_takes_long_a_model_sees_every_photo_before_the_other_views_are_there(made, monkeypatch):
    from mma.project.worker import features

    project, kinds = made
    usual = LiveWorker(project, deep=False)
    shapes.settle(usual)
    for name, value in {"BLOCK": 16, "LARGE": 1, "LONG": -1.0}.items():
        monkeypatch.setattr(features, name, value)
    worker = LiveWorker(project, deep=False)
    shapes.answer_next(project, kinds, 20)
    while not project.models.rows():
        assert worker.step()
    assert len(worker.pool) == len(usual.pool)
    assert {part.views for part in worker.pool.views.parts} == {1}, "the plain view of all photos"
    assert worker.gathering.behind
    shapes.settle(worker)
    rows = np.arange(len(usual.pool))
    for ours, theirs in zip(worker.pool.views.parts, usual.pool.views.parts, strict=True):
        assert ours.views == theirs.views > 1
        assert np.array_equal(ours.take(rows), theirs.take(rows))
    assert not worker.gathering.behind


def test_one_class_alone_makes_no_model_and_no_error(made):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    shapes.answer_next(project, dict.fromkeys(kinds, "bars"), 30)
    worker.rest()
    shapes.settle(worker)
    assert all(row.state == "training" for row in project.models.rows())
    assert status(project).report is None


def test_the_model_that_is_kept_says_what_the_trained_one_says(made):
    project, kinds = made
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    shapes.answer_next(project, kinds, 30)
    shapes.settle(worker)
    report = project.models.latest_report()
    head = read_head(project.models.folder(report.number))
    rows = np.arange(len(worker.pool))
    parts = [part.take(rows) for part in worker.pool.views.parts]
    found = head.probabilities(parts)
    from mma.project.worker.live_model import fit_answers

    pool, training = worker.pool, worker.training_set()
    answers = {pool.row[image]: label for image, label in training.learned.items()}
    fitted = fit_answers(pool, training, answers, worker.config)
    assert np.abs(found - fitted.probabilities(worker.pool.views, rows)).max() < 0.01


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_and_no_model_is_half_there(made, tmp_path):
    project, kinds = made
    draw = np.random.default_rng(0)
    for _ in range(2):
        process = children.start("mma.project.worker.worker", str(project.folder), stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        before = len(project.models.rows())
        shapes.answer_next(project, kinds, 10)
        while len(project.models.rows()) <= before and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        time.sleep(float(draw.uniform(0, 1.0)))
        os.kill(process.pid, signal.SIGKILL)
        children.end(process)
        for number in project.models.numbers(""):
            assert project.models.report(number).number == number
            assert read_head(project.models.folder(number))
    shapes.settle(LiveWorker(open_project(project.folder), deep=False))
    assert project.models.rows()[-1].state == "ready"
    assert len(project.labels()) == 20


def test_the_page_shows_one_bar_for_features_however_many_models_come_meanwhile(made):
    from mma.web.views import read_news

    project, _ = made
    worker = LiveWorker(project, deep=False)
    for done in (0, 100, 200, 299):
        worker.note(done, 300, "9 s")
        project.models.put(1 + done // 100, kind="live", state="ready")
    work = {"name": "deep training", "done": 1, "total": 8}
    project.models.put(9, kind="deep", state="training", about={"work": work})
    shown = [(each["name"], each["done"]) for each in read_news(project)["work"]]
    assert shown == [("Preparing photos", 299), ("Training deeper", 1)]
    worker.gathering.told = True
    worker.gathering.tell()
    assert [each["name"] for each in read_news(project)["work"]] == ["Training deeper"]
