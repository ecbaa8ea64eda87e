"""Guesses have a source, are measured on labels, and are never labels themselves."""

from __future__ import annotations

import json
from uuid import uuid4

import numpy as np
import pytest

from mma.project import Answer, create_project
from mma.project.exchange.import_labels import import_guesses, take_labels_from
from mma.project.guesses import NAMES, answers_of, measure
from mma.project.models import ANSWERS, answers_file
from tests.each import each


@pytest.fixture
def made(photos):
    """A project of twenty photos and two classes, indexed, with guesses that every second photo is a cat."""
    project = create_project(photos, classes=["cat", "dog"])
    project.index()
    ids = sorted(image.id for image in project.images())
    probs = np.full((20, 2), 0.1)
    probs[np.arange(20), np.arange(20) % 2] = 0.9
    project.guesses.put(NAMES, ids, probs, [0, 1])
    yield project, ids
    project.close()


def label(project, images, class_id, **values):
    project.answer(Answer(id=uuid4(), kind="label", images=images, class_id=class_id, by="ann", **values))


def table(tmp_path, *lines, name="guesses.csv"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_first_group_of_a_class_is_chosen_by_its_name(made):
    project, ids = made
    group = project.grid("ann", 0)
    assert group.guessed == NAMES
    audit = {image.id for image in project.images() if image.audit}
    assert {image.id for image in group.images} == set(ids[::2]) - audit


def test_a_class_that_no_model_has_seen_is_still_chosen_by_its_name(made):
    project, ids = made
    answers = answers_file(ANSWERS, ids, np.tile([1.0, 0.0], (20, 1)), [0, 1])
    project.models.create(1, answers)
    audit = {image.id for image in project.images() if image.audit}
    assert {image.id for image in project.grid("ann", 1).images} == set(ids[1::2]) - audit
    label(project, ids[:1], 1)
    assert project.grid("ann", 1).guessed == ""


def test_what_is_taken_out_of_a_group_is_no_label_and_does_not_come_again_there(made):
    project, _ = made
    shown = [image.id for image in project.grid("ann", 0).images]
    label(project, shown[2:], 0, out=shown[:2], shown="grid: 0", source="grid")
    assert set(project.labels().ids) == set(shown[2:])
    assert sorted(project.guesses.doubts()) == sorted((image, 0) for image in shown[:2])
    assert not {image.id for image in project.grid("ann", 0).images} & set(shown)
    project.undo("ann")
    assert not project.guesses.doubts()


def test_a_group_of_which_nothing_is_right_can_be_refused_as_a_whole(made):
    project, _ = made
    shown = [image.id for image in project.grid("ann", 1).images]
    project.answer(Answer(id=uuid4(), kind="later", out=shown, by="ann", shown="grid: 1", source="grid"))
    assert not project.grid("ann", 1).images
    quality = project.guesses.qualities(project.labels())[0]
    assert "right in 0 %" in quality.words


def test_a_source_is_measured_on_labels_and_its_worst_class_is_named(made):
    project, ids = made
    label(project, ids[:12:2], 0)
    label(project, ids[1:9:2], 1)
    label(project, ids[9:15:2], 0)
    [found] = project.guesses.qualities(project.labels())
    assert found.quality.accuracy.right == 10
    assert found.quality.confusion == ((6, 3), (0, 4))
    assert "names: right in 77 %, between 46 and 95; worst at cat" in found.words


def test_before_any_label_nothing_is_said_about_a_source(made):
    project, _ = made
    found = measure(project.guesses.sources()[0], project.labels())
    assert found.quality is None
    assert "not compared with any label" in found.words


def test_guesses_of_a_merged_class_count_for_the_other(made):
    project, ids = made
    third = project.add_class("kitten", "ann").id
    project.guesses.put("gpt", ids[:1], np.array([[0.2, 0.1, 0.7]]), [0, 1, third])
    project.merge_class(third, 0, "ann")
    source = project.guesses.sources()[-1]
    assert answers_of(source, ids[:2], project.classes()) == pytest.approx(np.array([[0.9, 0.1], [0.0, 0.0]]), abs=1e-3)


def test_a_damaged_file_of_guesses_is_left_out(made):
    project, _ = made
    next(project.guesses.place.glob("*.safetensors")).write_bytes(b"no tensors")
    assert project.guesses.sources() == []


def test_guesses_come_as_classes_or_as_probabilities(made, tmp_path):
    project, _ = made
    as_class = table(tmp_path, "file,label", "0.png,cat", "1.png,", "2.png,dog")
    assert import_guesses(project, as_class, "gpt") == 2
    ranked = table(
        tmp_path, "file,label,confidence,label_2,confidence_2,problem", "0.png,cat,0.7,dog,0.3,", name="b.csv"
    )
    assert import_guesses(project, ranked, "old model") == 1
    wide = table(tmp_path, "file,cat,dog", "0.png,0.25,0.75", "3.png,1,0", name="c.csv")
    assert import_guesses(project, wide, "gpt") == 2  # in place of what it said before
    rows = tmp_path / "d.jsonl"
    rows.write_text(json.dumps({"file": "4.png", "label": "dog", "confidence": 0.8}) + "\n")
    assert import_guesses(project, rows, "junior") == 1
    said = {source.name: source for source in project.guesses.sources()}
    assert set(said) == {NAMES, "gpt", "old model", "junior"}
    assert said["gpt"].probs.tolist() == [[0.25, 0.75], [1.0, 0.0]]
    assert said["junior"].probs == pytest.approx(np.array([[0.2, 0.8]]), abs=1e-3)
    assert not len(project.labels().ids)


@each(
    line={
        "an unknown photo": "nowhere.png,cat,1",
        "an unknown class": "0.png,cow,1",
        "no number": "0.png,cat,often",
        "above one": "0.png,cat,1.5",
    }
)
def test_one_wrong_line_and_nothing_is_taken_in(made, tmp_path, refusal, line):
    project, _ = made
    path = table(tmp_path, "file,label,confidence", "1.png,dog,0.9", line)
    with refusal():
        import_guesses(project, path, "gpt")
    assert [source.name for source in project.guesses.sources()] == [NAMES]


def test_probabilities_that_do_not_sum_to_one_are_refused(made, tmp_path, refusal):
    project, _ = made
    with refusal():
        import_guesses(project, table(tmp_path, "file,cat,dog", "0.png,0.5,0.2", "1.png,0.9,0.9"), "gpt")
    with refusal():
        import_guesses(project, table(tmp_path, "file,label", "0.png,", "1.png,"), "gpt")
    with refusal():
        import_guesses(project, table(tmp_path, "file,label", "0.png,cat", "0.png,dog"), "gpt")


@each(name=["", "names", "a" * 41])
def test_a_source_has_a_name_of_its_own(made, tmp_path, refusal, name):
    project, _ = made
    with refusal():
        import_guesses(project, table(tmp_path, "file,label", "0.png,cat"), name)


def test_guesses_need_classes(photos, tmp_path, refusal):
    project = create_project(photos)
    project.index()
    with refusal():
        import_guesses(project, table(tmp_path, "file,label", "0.png,cat"), "gpt")
    project.close()


def test_folder_names_can_be_guesses(tmp_path, picture):
    for number in range(6):
        picture(tmp_path / "photos" / ("cat" if number % 2 else "dog") / f"{number}.png", number)
    project = create_project(tmp_path / "photos")
    project.index()
    assert take_labels_from(project, "folders", "folders") == 6
    assert sorted(each.name for each in project.classes()) == ["cat", "dog"]
    assert not len(project.labels().ids)
    assert project.guesses.sources()[0].name == "folders"
    project.close()
