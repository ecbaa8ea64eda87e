"""Deep training behind the page: on pixels, from labels of one moment, resumable; the better model serves."""

from __future__ import annotations

import csv
import importlib
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mma
from mma.algorithms import AnchoredMixMatch, MixMatch
from mma.config import Log, Optim
from mma.model.loader import find_model
from mma.nets import Small
from mma.presets import preset
from mma.project.models import PREDICTIONS, answers_file, report_file
from mma.project.project import change_settings
from mma.project.quality.status import BROUGHT, status
from mma.project.worker.deep import resume_task, suitable_config, time_steps, train_deep
from mma.project.worker.supervise import DeepProcess, ask_for_deep
from mma.project.worker.worker import LiveWorker
from mma.run import Run
from tests.project import shapes

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_data(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path_factory.mktemp("data")))


@pytest.fixture
def made(tmp_path):
    project, kinds = shapes.shape_project(tmp_path)
    shapes.answer_next(project, kinds, 40)
    yield project, kinds
    project.close()


def short():
    """A small network for a few steps."""
    config = preset("photos-scratch")
    growth = config.growth.model_copy(update={"first": 20, "final": 20})
    return config.model_copy(
        update={
            "net": Small(filters=4, bn_decay=0.9),
            "growth": growth,
            "algorithm": MixMatch(weight=1.0, ramp=10),
            "optim": Optim(batch=8, ema_decay=0.9),
            "log": Log(every=20, checkpoint=10),
        }
    )


def test_a_deep_model_is_a_run_folder_and_a_model_that_predicts(made):
    project, _ = made
    report = train_deep(project, config=short())
    folder = project.models.folder(report.number)
    assert Run.open(folder / "run").status() == "done"
    assert report.kind == "deep"
    assert report.labels == 40 > report.audit
    model = mma.load(folder)
    assert model.classes == shapes.KINDS
    images = [image.id for image in project.images()][:6]
    found = model.predict([project.path_of(image) for image in images])
    kept = project.models.answers(PREDICTIONS)
    known = [image for image in images if image in kept.row]
    assert known
    for place, image in enumerate(images):
        if image in kept.row:
            assert np.abs(found.probs[place] - kept.probs[kept.row[image]]).max() < 0.01
    assert project.models.rows()[-1].state == "ready"
    assert not list((project.folder / "cache").glob("deep-*.npy"))


def test_it_begins_with_what_a_quick_model_without_the_audit_labels_says_about_the_pool(made, monkeypatch):
    from mma.project.worker import deep

    project, _ = made
    shapes.settle(LiveWorker(project, deep=False))
    fit, learned = deep.fit_answers, set()

    def note(pool, training, labels, config):
        learned.update(pool.images[row].audit for row in labels)
        return fit(pool, training, labels, config)

    monkeypatch.setattr(deep, "fit_answers", note)
    guided = AnchoredMixMatch(weight=1.0, ramp=10, guided=40)
    report = train_deep(project, config=short().model_copy(update={"algorithm": guided}))
    folder = project.models.folder(report.number)
    rows = Run.open(folder / "run").read("guesses")
    ids = (folder / "images.txt").read_text().split()
    assert [row["key"] for row in rows] == ids[: len(ids) - json.loads((folder / "deep.json").read_text())["audit"]]
    assert [row["index"] for row in rows] == list(range(len(rows)))
    assert all(set(row["probs"]) <= set(shapes.KINDS) for row in rows)
    assert learned == {False}


def test_a_network_is_fine_tuned_only_where_pretrained_features_are_the_best(made):
    project, _ = made
    assert suitable_config(project).preset == "photos-deep"  # before anything is known
    shapes.settle(LiveWorker(project, deep=False))
    report = project.models.latest_report()
    for best, expected in (("hog@32", "photos-scratch"), ("lite0", "photos-deep")):
        compared = {"lite0": 50.0, "hog@32": 50.0, "all": 99.0, best: 80.0}
        project.models.add(report.number, report_file(replace(report, backbones=compared)))
        assert suitable_config(project).preset == expected


def test_it_trains_on_labels_of_one_moment_and_never_on_audit_images(made):
    project, kinds = made
    calls = []

    def stop():
        calls.append(1)
        return len(calls) >= 12

    assert train_deep(project, config=short(), stop=stop) is None
    before = resume_task(project)
    shapes.answer_next(project, kinds, 10)
    after = resume_task(project)
    assert after.training.train == before.training.train
    audit = {image.id for image in project.images() if image.audit}
    assert not audit & {image.id for image in after.pool}
    assert {image.id for image in after.audited} <= audit
    report = train_deep(project)
    assert report.labels == 40 > report.audit


def test_stopped_and_started_again_it_ends_as_if_it_had_not_stopped(made, tmp_path):
    project, _ = made
    whole = train_deep(project, config=short())
    files = ("model.safetensors", "predictions.safetensors", "labels.csv")
    expected = {name: (project.models.folder(whole.number) / name).read_bytes() for name in files}
    calls = []

    def stop():
        calls.append(1)
        return len(calls) == 15

    assert train_deep(project, config=short(), stop=stop) is None
    again = train_deep(project)
    assert again.number == whole.number + 1
    assert {name: (project.models.folder(again.number) / name).read_bytes() for name in files} == expected


def test_a_deep_training_that_begins_during_a_live_round_has_a_number_of_its_own(made, monkeypatch):
    project, _ = made
    worker = LiveWorker(project, deep=False)
    rounds = importlib.import_module("mma.project.worker.worker").live_round

    def round_and_deep(*arguments, **named):
        assert train_deep(project, config=short(), stop=lambda: True) is None  # begins, and is stopped
        return rounds(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr("mma.project.worker.worker.live_round", round_and_deep)
        shapes.settle(worker)
    kinds = {row.number: (row.kind, row.state) for row in project.models.rows()}
    assert kinds == {1: ("live", "ready"), 2: ("deep", "training")}
    assert train_deep(project).number == 2
    assert project.models.latest_report("live").number == 1


def test_the_live_worker_compares_the_deep_model_and_says_which_serves(made):
    project, _ = made
    train_deep(project, config=short())
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    report = project.models.latest_report("live")
    assert report.serving.why.startswith("the quick model. Of ")
    assert "the deep one is not shown to be better" in report.serving.why
    assert report.serving.use == "live"
    assert mma.load(project.folder).about.source == project.folder.name


def test_the_better_model_on_audit_labels_serves_and_is_handed_out(tmp_path):
    project, kinds = shapes.shape_project(tmp_path, count=200, seed=1, audit_asked=0.6)
    audit = {image.id for image in project.images() if image.audit}
    misled = {image: kind if image in audit else shapes.KINDS[int(image, 16) % 4] for image, kind in kinds.items()}
    shapes.answer_next(project, misled, 110)
    deep = train_deep(project, config=short())
    seen = {image: kind for image, kind in kinds.items() if image != min(audit)}  # all but a photo that came later
    sure = np.eye(4)[[shapes.KINDS.index(kind) for kind in seen.values()]]  # a deep model that is always right
    project.models.add(deep.number, answers_file(PREDICTIONS, list(seen), sure, deep.class_ids))
    worker = LiveWorker(project, deep=False)
    worker.rest()
    shapes.settle(worker)
    report = project.models.latest_report("live")
    assert report.audit >= 50
    assert report.serving.use == "deep"
    assert report.serving.why.startswith("the deep model. Of ")
    assert report.quality.accuracy.value > 0.9
    assert find_model(project.folder).place == project.models.folder(deep.number)
    project.close()


def test_asking_for_it_takes_labels_of_two_classes(tmp_path, refusal):
    project, _ = shapes.shape_project(tmp_path, count=24)
    with refusal():
        ask_for_deep(project, "ann")
    project.close()


def test_it_begins_when_asked_and_when_nobody_labels_but_not_otherwise(made):
    project, kinds = made
    process = DeepProcess(project)
    assert not process.is_due(idle=10_000)  # switched off for these tests
    ask_for_deep(project, "ann")
    assert process.is_due(idle=0)
    process.note.unlink()
    project = change_settings(project, deep_when_idle=True)
    process = DeepProcess(project)
    assert not process.is_due(idle=10_000)  # 40 labels are too few
    shapes.answer_next(project, kinds, 15)
    assert process.is_due(idle=10_000)
    assert not process.is_due(idle=10)
    project.models.put(None, kind="deep", seq=1, state="ready", about={"labels": 50})
    assert not process.is_due(idle=10_000)  # hardly more labels than the last one had
    project.close()


def test_a_deep_training_that_dies_twice_is_reported(made):
    project, _ = made
    process = DeepProcess(project)
    project.models.put(7, kind="deep", seq=1, state="training", message="step 3 of 40")
    process.place = "deep model 7"
    for _ in range(2):
        assert process.attempts.begin(process.place)
        process.finish(-9)
    row = project.models.rows()[-1]
    assert (row.state, row.kind) == ("failed", "deep")
    assert "step 3 of 40" in row.message
    assert not process.is_due(idle=0)
    assert not (project.models.folder(7) / "report.json").exists()


@pytest.mark.slow
def test_the_worker_s_own_process_ends_what_was_begun_and_its_answers_are_taken(made):
    project, _ = made
    assert train_deep(project, config=short(), stop=lambda: True) is None
    worker = LiveWorker(project)
    deadline = time.monotonic() + 300
    while worker.answers is None and time.monotonic() < deadline:
        worker.step()
        time.sleep(0.05)
    shapes.settle(worker)
    assert worker.answers is not None
    rows = {row.number: row for row in project.models.rows()}
    assert rows[worker.answers.number].state == "ready"
    assert "the deep one" in project.models.latest_report("live").serving.why


def test_a_few_steps_are_timed_and_the_page_can_say_how_long_a_training_takes(made):
    project, _ = made
    assert status(project).deep is None
    time_steps(project)
    cost = status(project).deep
    assert cost.seconds > 0
    assert cost.words.startswith("Training deeper takes about ")
    assert train_deep(project, config=short()) is not None
    assert 0 < status(project).deep.seconds < cost.seconds  # that of the short training which was just measured


def test_what_a_deep_training_brought_elsewhere_is_what_the_results_say():
    with (ROOT / "results" / "photos-deep-signs" / "rounds.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def gain(labels):
        means = [
            np.mean([float(row["accuracy"]) for row in rows if (row["method"], row["labels"]) == (method, labels)])
            for method in ("photos-deep", "photos")
        ]
        return means[0] - means[1]

    for net, labels in (("fast", ("48", "96", "300")), ("lite0", ("12",))):
        for each in labels:
            assert f"{gain(each):.1f}" in BROUGHT[net]
    assert set(BROUGHT) == {preset(name).net.name for name in ("photos-deep", "photos-scratch")}


def test_a_deep_model_answers_for_audit_photos_that_get_their_labels_later(made):
    project, _ = made
    train_deep(project, config=short())
    audit = {image.id for image in project.images() if image.audit}
    assert audit <= set(project.models.answers(PREDICTIONS).row)
