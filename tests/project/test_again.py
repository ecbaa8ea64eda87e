"""Labels that are asked about again, and what the answers say: pure grids, steady people, corrections."""

from __future__ import annotations

from uuid import uuid4

import pytest

from mma.project import Answer, create_project
from mma.project import questions as again_module
from mma.project.labels.events import replay
from mma.project.quality.agreement import looks_words, second_looks


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Ask again after four events."""
    monkeypatch.setattr(again_module, "DELAY", 4)


@pytest.fixture
def asking_again(project):
    """Every fifth question is one about an earlier label."""
    project.rules = project.rules._replace(again_share=0.2, audit_asked=0.0)
    return project


def pool(project):
    return [image.id for image in project.images() if not image.audit]


def answer(project, images, class_id=0, **values):
    return project.answer(Answer(id=uuid4(), images=images, kind="label", class_id=class_id, by="ann", **values))


def label_next(project, class_id=0):
    item = project.next("ann", 1)[0]
    answer(project, [item.image], class_id)
    return item


def test_every_nth_question_is_about_a_label_given_before(asking_again):
    asked = [label_next(asking_again) for _ in range(15)]
    assert [place for place, item in enumerate(asked, 1) if item.provenance == "again"] == [10, 15]
    first = {item.image: place for place, item in enumerate(asked) if item.provenance != "again"}
    for place, item in enumerate(asked):
        if item.provenance == "again":
            assert place - first[item.image] > 4
            assert item.suggestion is None


def test_nobody_is_asked_again_by_default_before_a_hundred_events(project, monkeypatch):
    monkeypatch.undo()
    asked = [label_next(project) for _ in range(18)]
    assert "again" not in {item.provenance for item in asked}
    assert again_module.DELAY == 100
    assert project.settings.again_share == 0.02


def test_a_question_asked_again_survives_a_reload_and_is_no_new_label(asking_again):
    for _ in range(9):
        label_next(asking_again)
    labeled = asking_again.counts().labeled
    item = asking_again.next("ann", 1)[0]
    assert item.provenance == "again"
    assert asking_again.next("ann", 1)[0].image == item.image
    answer(asking_again, [item.image], 1)
    assert asking_again.counts().labeled == labeled
    asking_again.undo("ann")
    labels = asking_again.labels()
    assert labels.class_ids[labels.ids.index(item.image)] == 0


def test_nobody_is_asked_again_about_somebody_elses_label(asking_again):
    for _ in range(9):
        label_next(asking_again)
    assert asking_again.next("bob", 1)[0].provenance != "again"


def test_a_label_keeps_where_it_came_from_when_it_is_asked_or_reviewed_again(asking_again):
    asked = [label_next(asking_again) for _ in range(10)]
    image = asked[-1].image
    assert asked[-1].provenance == "again"
    first = next(item.provenance for item in asked if item.image == image)
    answer(asking_again, [asked[0].image], 1, source="review")
    labels = asking_again.labels()
    assert labels.provenance[labels.ids.index(image)] == first
    assert labels.provenance[labels.ids.index(asked[0].image)] == asked[0].provenance
    replayed = {event.image: event.provenance for event in replay(asking_again.events())[0]}
    assert dict(zip(labels.ids, labels.provenance, strict=True)) == replayed


def test_grids_are_as_pure_as_their_labels_that_are_asked_again_one_by_one(asking_again):
    grid = pool(asking_again)[:6]
    answer(asking_again, grid, 0, source="grid")
    asking_again.rules = asking_again.rules._replace(again_share=0.5)
    wrong = 0
    for _ in range(8):
        item = asking_again.next("ann", 1)[0]
        wrong += item.image in grid
        answer(asking_again, [item.image], 1 if item.image in grid and wrong == 1 else 0)
    looks = second_looks(asking_again)
    assert looks.grid is not None
    assert looks.grid.of == wrong >= 2
    assert looks.grid.right == wrong - 1
    assert [(each.before, each.after, each.asked_again) for each in looks.corrections] == [("cat", "dog", True)]
    assert f"{wrong - 1} of {wrong} stayed the same" in looks_words(looks)[0]


def test_keeping_and_correcting_in_the_review_are_counted(project, label):
    first, second, third = pool(project)[:3]
    for image in (first, second, third):
        label(project, image, 0)
    answer(project, [first], 0, source="review")
    answer(project, [second], 1, source="review")
    looks = second_looks(project)
    assert (looks.kept, len(looks.corrections), looks.grid, looks.single) == (1, 1, None, None)
    assert looks_words(looks) == ["Looked at again: 1 corrected (1 cat -> dog), 1 kept."]


def test_without_second_looks_nothing_is_said(project, label):
    label(project, pool(project)[0])
    assert looks_words(second_looks(project)) == []


def test_undoing_the_first_answer_leaves_the_second_look_in_force(project, label):
    image = pool(project)[0]
    first = label(project, image, 0)
    answer(project, [image], 1, source="review")
    project.undo("ann", first.id)
    assert project.labels().class_ids == (1,)
    assert project.labels().provenance == tuple(event.provenance for event in replay(project.events())[0])


def test_a_merged_class_is_the_same_class(tmp_path, picture):
    for number in range(4):
        picture(tmp_path / "photos" / f"{number}.png", number)
    project = create_project(tmp_path / "photos", classes=["cat", "kitten"])
    project.index()
    image = project.images()[0].id
    answer(project, [image], 0)
    answer(project, [image], 1, source="review")
    project.merge_class(1, 0, "ann")
    assert second_looks(project).corrections == ()
    assert second_looks(project).kept == 1
    project.close()
