"""Is asking helping here? Queried against random labels, on the project's own data."""

from __future__ import annotations

import json
from uuid import uuid4

import numpy as np
import pytest
from typer.testing import CliRunner

from mma.cli import commands
from mma.project import Answer
from mma.project.quality.query_benefit import LabeledRows, QueryBenefit, compare, split_by_group
from mma.project.worker.picks import COVERAGE, Question, choose_picks
from mma.project.worker.worker import LiveWorker
from tests.project import shapes

CLASSES, WIDTH = 4, 60
EVERY = 25  # labels between two models
SEED = 5  # of a project whose audit slice is large


def project(good, seed=0, queried=160, random=60, audit=120):
    """Rows of noisy points around class centres. Good queries are clean images, bad ones are of one class alone."""
    draw = np.random.default_rng(seed)
    count = queried + random + audit
    labels = draw.integers(0, CLASSES, count)
    x = 2.0 * np.eye(CLASSES, WIDTH)[labels] + draw.standard_normal((count, WIDTH))
    rows = np.arange(count)
    if good == "good":
        x[:queried] = 2.0 * np.eye(CLASSES, WIDTH)[labels[:queried]] + 0.01 * draw.standard_normal((queried, WIDTH))
    if good == "bad":
        labels[:queried] = np.where(rows[:queried] % 40 == 0, labels[:queried], 0)
        x[:queried] = 2.0 * np.eye(CLASSES, WIDTH)[labels[:queried]] + draw.standard_normal((queried, WIDTH))
    parts = np.split(rows, [queried, queried + random])
    return LabeledRows(*parts, labels, rows.astype(str)), nearest_centre(x, labels)


def nearest_centre(x, labels):
    def fit(train, test):
        known = np.unique(labels[train])
        centres = np.stack([x[train][labels[train] == k].mean(0) for k in known])
        return known[((x[test][:, None] - centres) ** 2).sum(2).argmin(1)]

    return fit


def test_labels_that_teach_more_are_said_to_save_some():
    found = compare(*project("good"))
    assert found.answer == "saved"
    assert found.saved > 0
    assert f"saved about {found.saved} labels" in found.sentence
    assert found.low > 0


def test_labels_that_teach_less_switch_to_coverage():
    found = compare(*project("bad"))
    assert found.answer == "worse"
    assert found.fallback
    assert "photos that stand for many others are asked about instead" in found.sentence


def test_labels_drawn_alike_show_no_difference_in_nearly_every_project():
    answers = [compare(*project("alike", seed=seed)).answer for seed in range(30)]
    assert answers.count("no difference shown yet") >= 28


@pytest.mark.parametrize("few", [{"queried": 30}, {"random": 0, "audit": 60}, {"audit": 49}])
def test_too_few_labels_are_not_compared(few):
    found = compare(*project("good", **few))
    assert found.answer == "no difference shown yet"
    assert "Not compared yet" in found.sentence
    assert not found.speaks
    assert found.difference is None


def test_the_halves_of_the_audit_share_no_near_duplicates():
    audit = np.arange(100)
    groups = (audit // 5).astype(str)
    one, other = split_by_group(audit, groups, seed=3)
    assert not set(groups[one]) & set(groups[other])
    assert len(one) + len(other) == 100
    assert len(one) == 50


def test_no_model_is_tested_on_what_it_trained_on():
    rows, fit = project("alike")
    overlaps = []

    def watched(train, test):
        overlaps.append(len(np.intersect1d(train, test)))
        return fit(train, test)

    compare(rows, watched)
    assert overlaps
    assert not any(overlaps)


def test_a_project_that_does_not_switch_says_how_to():
    found = compare(*project("bad"), switch=False)
    assert found.answer == "worse"
    assert "fallback = true in mma.toml asks about photos that stand for many others" in found.sentence


# a whole project, in which what the query asks for is answered wrongly


def label_badly(project, worker, kinds, count):
    """Answer what is asked; queried images get the class after theirs."""
    ids = {each.name: each.id for each in project.classes()}
    for number in range(1, count + 1):
        item = project.next("ann", 1)[0]
        kind = shapes.KINDS.index(kinds[item.image])
        wrong = item.provenance == "query"
        name = shapes.KINDS[(kind + wrong) % len(shapes.KINDS)]
        project.answer(Answer(id=uuid4(), images=[item.image], kind="label", class_id=ids[name], by="ann"))
        if number % EVERY == 0:
            shapes.settle(worker)


def worse_project(folder, monkeypatch, said, **settings):
    """Return a project whose comparison has found asking to be worse than chance, and its worker."""
    monkeypatch.setenv("MMA_DATA", str(folder / "data"))
    settings |= {"audit_asked": 0.45, "random_share": 0.4, "again_share": 0.0}
    project, kinds = shapes.shape_project(folder, 240, seed=SEED, **settings)
    worker = LiveWorker(project, said.append, deep=False, every=EVERY)
    shapes.settle(worker)
    label_badly(project, worker, kinds, 125)
    assert worker.memory.helping.answer == "no difference shown yet"
    while worker.memory.helping.answer != "worse":
        label_badly(project, worker, kinds, EVERY)
    return project, kinds, worker


def coverage_picks(project, worker, number):
    settings = project.settings
    probs = np.full((len(worker.pool), len(shapes.KINDS)), 0.25, np.float32)
    question = Question(
        worker.pool, worker.training_set(), COVERAGE, settings.seed, number, probs, settings.random_share
    )
    return [pick.image for pick in choose_picks(question).picks]


def next_images(project):
    """Return what is asked next, without the audit images in between."""
    items = project.next("bob", 12)
    project.release("bob")
    return [item.image for item in items if item.provenance != "audit"]


def test_a_project_that_is_asked_badly_switches_to_coverage_and_says_so(tmp_path, monkeypatch):
    said: list[str] = []
    project, kinds, worker = worse_project(tmp_path, monkeypatch, said)
    sentence = worker.memory.helping.sentence
    assert "worse here than chance: photos that stand for many others are asked about instead" in sentence
    assert sentence in said  # the log
    shown = CliRunner().invoke(commands(), ["status", str(project.folder)]).output
    assert f"asking:   {sentence}" in shown
    told = json.loads(CliRunner().invoke(commands(), ["status", str(project.folder), "--json"]).stdout)
    assert told["report"]["helping"]["answer"] == "worse"
    worker = LiveWorker(project, said.append, deep=False, every=EVERY)  # a restart forgets nothing
    assert worker.memory.helping.fallback
    shapes.settle(worker)
    label_badly(project, worker, kinds, EVERY)
    report = project.models.latest_report("live")
    assert report.query.startswith("coverage instead of auto, which was worse here than chance; ")
    assert report.query in said[-1]
    asked = next_images(project)
    assert asked
    assert asked == coverage_picks(project, worker, report.number)[: len(asked)]
    project.close()


def test_a_project_may_go_on_with_its_query_though_it_is_worse(tmp_path, monkeypatch):
    said: list[str] = []
    project, kinds, worker = worse_project(tmp_path, monkeypatch, said, fallback=False)
    assert not any("switching" in line for line in said)
    label_badly(project, worker, kinds, EVERY)
    report = project.models.latest_report("live")
    assert "coverage instead" not in report.query
    assert next_images(project) != coverage_picks(project, worker, report.number)[:12]
    project.close()


def test_an_answer_that_says_nothing_is_not_spoken():
    about = ("no difference shown yet", "Asking makes no difference that can be seen.", 60, 60, 1.5)
    assert not QueryBenefit(*about, -36.7, 39.6).speaks
    assert QueryBenefit(*about, -3.0, 6.0).speaks
    assert QueryBenefit("worse", "Asking is worse here than chance.", 60, 60, -20.0, -36.0, -4.0).speaks
