"""Would asking have helped? Scripted projects on labeled photos."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mma.project import create_project, open_project
from mma.project.simulate import (
    Cleaned,
    LabeledPhotos,
    Plan,
    ScriptedPerson,
    SimulatedProject,
    TruePoint,
    check_plan,
    link_photos,
    read_labeled,
    result_page,
    simulate,
    split,
    summarise,
    verdict,
)
from mma.shares import Share
from tests.project import shapes


def labeled_folder(folder: Path, count: int = 100) -> Path:
    for number in range(count):
        kind = shapes.KINDS[number % 4]
        (folder / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(shapes.draw_shape(kind, number)).save(folder / kind / f"{number}.png")
    return folder


def result(seed, asks, *accuracies, audit=None):
    points = tuple(TruePoint(50 * (place + 1), value) for place, value in enumerate(accuracies))
    return SimulatedProject(seed, asks, points, audit, 0, "", None)


def test_the_projects_see_no_class_and_no_hidden_photo(tmp_path):
    photos = read_labeled(labeled_folder(tmp_path / "photos"))
    shown, hidden = split(photos, seed=1)
    link_photos(photos, shown, tmp_path / "flat")
    names = [path.name for path in (tmp_path / "flat").iterdir()]
    assert len(names) == len(shown) == 70
    assert not set(shown) & set(hidden)
    assert not any(kind in name for kind in shapes.KINDS for name in names)


def test_a_folder_without_class_folders_is_refused(tmp_path, refusal):
    shapes.write_shapes(tmp_path / "flat", 8)
    with refusal():
        read_labeled(tmp_path / "flat")


def test_more_answers_than_photos_are_refused(tmp_path, refusal):
    photos = read_labeled(labeled_folder(tmp_path / "photos"))
    with refusal():
        check_plan(LabeledPhotos(photos.root, dict(list(photos.paths.items())[:28]), photos.classes), Plan(budget=20))
    with refusal():
        check_plan(photos, Plan(budget=71))
    check_plan(photos, Plan(budget=70))


def test_pairs_are_compared_seed_by_seed():
    found = [
        result(1, True, 70.0, 90.0),
        result(1, False, 70.0, 80.0),
        result(2, True, 60.0, 88.0),
        result(2, False, 65.0, 79.0),
    ]
    first, last = summarise(found)["rows"]
    assert (first["difference"], last["difference"]) == (-2.5, 9.5)
    assert last["low"] == pytest.approx(9.5 - 12.706 * np.std([10, 9], ddof=1) / np.sqrt(2), abs=0.01)
    assert verdict([first, last]).startswith("Asking would have helped: +9.5 points") is (last["low"] > 0)


def test_it_is_counted_how_often_the_audit_was_right():
    right = Share(0.8, 0.7, 0.9, 48, 60)
    found = [result(1, True, 85.0, audit=right), result(2, True, 95.0, audit=right), result(3, True, 85.0)]
    summary = summarise(found)
    assert (summary["inside"], summary["audited"]) == (1, 2)


@pytest.mark.slow
def test_the_command_simulates_both_ways_and_keeps_the_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    labeled_folder(tmp_path / "photos")
    (tmp_path / "photos" / "bars" / "torn.png").write_bytes(b"\x89PNG torn")
    # A relative path, as people type it.
    command = [sys.executable, "-m", "mma", "simulate", "photos", "--budget", "40", "--seeds", "1", "--every", "20"]
    done = subprocess.run([*command, "--out", "out"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "| 40 |" in done.stdout
    found = json.loads((tmp_path / "out" / "projects.json").read_text())
    assert [one["asks"] for one in found["projects"]] == [True, False]
    assert found["projects"][0]["points"][-1]["answers"] == 40
    assert "would asking have helped?" in (tmp_path / "out" / "README.md").read_text()


def test_the_scripted_person_errs_as_often_as_told_and_always_alike(tmp_path):
    folder = labeled_folder(tmp_path / "photos")
    photos = read_labeled(folder)
    project = create_project(folder, tmp_path / "project", classes=photos.names)
    ids = {each.name: each.id for each in project.classes()}
    person, twin = (ScriptedPerson(project, photos, 0.3, seed=5) for _ in range(2))
    said = {image: person.answer_to(image) for image in photos.classes}
    assert {image: twin.answer_to(image) for image in photos.classes} == said
    wrong = sum(said[image] != ids[kind] for image, kind in photos.classes.items())
    assert person.wrong == wrong
    assert 15 <= wrong <= 45
    project.close()


def test_what_the_review_found_is_added_up_over_projects():
    one = replace(result(1, True, 90.0), cleaned=Cleaned(100, 5, 6, 4, 3, 90.0, 91.0, 91.5))
    other = replace(result(1, False, 88.0), cleaned=Cleaned(100, 5, 4, 4, 4, 88.0, 91.0, 90.5))
    found = summarise([one, other])["cleaning"]
    assert (found["found"], found["suspects"], found["wrong"], found["gain"]) == (8, 10, 10, 2.0)
    text = result_page(Path("photos"), Plan(noise=0.05), [one, other])
    assert "precision 80%, recall 80%. As many by the lowest margin: 70% and 70%." in text
    assert "89.0 % before, 91.0 % after these were looked at, +2.0 points" in text
    assert summarise([result(1, True, 90.0)])["cleaning"] is None


def test_a_round_that_fails_ends_a_simulation(tmp_path, monkeypatch):
    """Nobody is labeling: numbers of a project without some of its models would mislead."""
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("mma.project.worker.worker.live_round", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(simulate(labeled_folder(tmp_path / "photos"), tmp_path / "out", plan=Plan(budget=20), control=False))


@pytest.mark.slow
def test_wrong_answers_are_found_and_corrected_in_a_simulation(tmp_path, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    photos = labeled_folder(tmp_path / "photos", 160)
    plan = Plan(budget=90, noise=0.1, every=45)
    (one,) = simulate(photos, tmp_path / "out", plan=plan, control=False)
    assert one.cleaned is not None
    assert one.cleaned.found >= one.cleaned.wrong // 2 > 0
    assert one.cleaned.found <= one.cleaned.suspects < one.cleaned.labels // 2
    project = open_project(tmp_path / "out" / "photos-1-asking.mma")
    truth = read_labeled(photos).classes
    labels, names = project.labels(), {each.id: each.name for each in project.classes()}
    trained = [image for image in labels.ids if not project.is_audit(image)]
    said = {image: names[klass] for image, klass in zip(labels.ids, labels.class_ids, strict=True)}
    assert all(said[image] == truth[image] for image in trained)  # in the end every wrong one is corrected
    project.close()
