"""Labels that are asked about again, and what the answers say: pure grids, steady people, corrections."""

from __future__ import annotations

from itertools import pairwise
from uuid import uuid4

import pytest

from mma.errors import UserError
from mma.project import Answer, create_project
from mma.project import questions as again_module
from mma.project.labels.events import replay
from mma.project.quality.agreement import ENOUGH, SecondLooks, looks_words, second_looks
from mma.project.questions import Rules, audit_is_due
from mma.project.records import Pick
from mma.shares import Share


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
    assert looks_words(looks) == ["Looked at again: 1 corrected (1 cat -> dog), 0 kept."]


def test_labels_asked_again_are_spoken_of_from_ten_on():
    for of, lines in ((ENOUGH - 1, 0), (ENOUGH, 1)):
        assert len(looks_words(SecondLooks(Share(1.0, 0.7, 1.0, of, of), None, 0, ()))) == lines
    many = SecondLooks(None, Share(0.95, 0.75, 0.99, 19, 20), 0, ())
    assert looks_words(many) == [
        "Labels given one by one and asked again: 19 of 20 stayed the same (between 75 and 99 %)."
    ]


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


# Audit labels that a sure model contradicts are asked about again, blind.


def relabel(project, image, class_id, by="ann"):
    return project.answer(Answer(id=uuid4(), images=[image], kind="label", class_id=class_id, by=by))


@pytest.fixture
def doubted(project):
    """Ten labels, the audit ones all cat; one of these is to be asked again."""
    project.rules = project.rules._replace(again_share=0.02)
    audit = [item.image for item in (label_next(project) for _ in range(10)) if item.provenance == "audit"]
    project.put_picks([Pick(audit[0], "", 0.0, "recheck")], 1)
    return project, audit


def ask_until_recheck(project, by="ann", most=6):
    for _ in range(most):
        item = next(iter(project.next(by, 1)), None)
        if item is None or item.provenance == "recheck":
            return item
        answer(project, [item.image]) if by == "ann" else relabel(project, item.image, 0, by)
    return None


def test_a_doubtful_audit_label_is_asked_again_once_without_a_hint_and_the_newer_answer_counts(doubted):
    project, audit = doubted
    before = project.labels()
    item = ask_until_recheck(project)
    assert item.image == audit[0]
    assert item.suggestion is None
    assert item.why == again_module.AGAIN_WHY
    relabel(project, item.image, 1)
    labels = project.labels()
    at = labels.ids.index(item.image)
    assert labels.class_ids[at] == 1
    assert before.class_ids[before.ids.index(item.image)] == 0
    assert labels.provenance[at] == "audit"  # it measures as before
    assert project.asked_again() == {item.image}
    assert ask_until_recheck(project, most=10) is None


def test_nobody_else_is_asked_about_a_doubtful_audit_label(doubted):
    project, _ = doubted
    assert ask_until_recheck(project, "bob") is None
    assert ask_until_recheck(project, "ann") is not None


def test_a_doubtful_audit_label_is_no_ordinary_pick_and_no_measure_of_steadiness(doubted):
    project, audit = doubted
    project.rules = project.rules._replace(again_share=0.0)
    assert ask_until_recheck(project, most=6) is None
    project.rules = project.rules._replace(again_share=0.02)
    relabel(project, ask_until_recheck(project).image, 1)
    assert second_looks(project).single is None
    assert [each.image for each in second_looks(project).corrections] == [audit[0]]


def test_of_audit_images_the_queue_takes_those_to_ask_again_alone(project):
    images = project.images()
    audit, others = [i.id for i in images if i.audit][:2], [i.id for i in images if not i.audit][:1]
    picks = [Pick(audit[0], "", 0.0, "query"), Pick(audit[1], "", 0.0, "recheck"), Pick(others[0], "", 0.0, "query")]
    assert project.put_picks(picks, 1) == 2


# Measure now: audit images in a row.


def test_measuring_asks_about_audit_images_alone_and_gives_back_what_was_held(project):
    held = project.next("ann", 3)
    items = project.measure("ann", 5)
    audit = [image.id for image in project.images() if image.audit]
    assert [item.image for item in items] == audit[:5]  # in the random order that all have
    assert {item.provenance for item in items} == {"audit"}
    assert [item.image for item in project.next("ann", 5)] == audit[:5]  # a page that asks gets these first
    free = {item.image for item in project.next("bob", 9)}
    assert {item.image for item in held if item.image not in audit[:5]} <= free
    assert not free & set(audit[:5])


def test_measuring_ends_when_no_audit_image_is_left(project):
    for item in project.measure("ann", 100):
        answer(project, [item.image])
    assert project.audit_left() == 0
    with pytest.raises(UserError, match="kept for measuring has an answer"):
        project.measure("ann", 5)


def test_after_a_measurement_the_schedule_waits_until_questions_have_caught_up():
    rules = Rules()
    assert [audit_is_due(30, 40, rules), audit_is_due(119, 40, rules), audit_is_due(120, 40, rules)] == [
        False,
        False,
        True,
    ]


def test_two_questions_in_five_are_about_the_audit_until_there_are_sixty_then_one_in_ten():
    asked = audits = 0
    counts = {}
    for asked in range(1_000):
        audits += audit_is_due(asked, audits, Rules())
        counts[asked + 1] = audits
    assert (counts[25], counts[100], counts[150], counts[400], counts[1_000]) == (10, 40, 60, 85, 145)


def test_a_project_that_owes_many_audit_questions_never_asks_two_in_a_row():
    asked, audits, due = 300, 30, []
    for asked in range(300, 360):
        due.append(audit_is_due(asked, audits, Rules()))
        audits += due[-1]
    assert sum(due) == 30
    assert not any(one and other for one, other in pairwise(due))


def test_without_audit_questions_none_come_early_either():
    assert not any(audit_is_due(asked, 0, Rules(audit_asked=0.0)) for asked in range(100))
