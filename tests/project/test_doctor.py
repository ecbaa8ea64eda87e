"""The doctor compares the two copies of every event, and makes the database again; copies of a project are merged."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text

from mma.project import Answer, open_project
from mma.project.labels.repair import doctor
from mma.project.review import find_mistakes
from mma.project.settings import Layout, read_settings


@pytest.fixture
def labeled(project, label):
    """A short history: labels, a correction, an undo, a class renamed, a model."""
    images = [image.id for image in project.images()]
    for number, image in enumerate(images[:6]):
        label(project, image, number % 2)
    label(project, images[0], 1)
    project.undo("ann")
    project.rename_class(0, "kitten", "ann")
    label(project, images[7], kind="cannot_tell")
    project.models.put(state="ready", accuracy=77.0)
    return project


def problems(folder, **options):
    return [finding.text for finding in doctor(folder, **options) if finding.problem]


def state_of(project):
    return project.labels(), project.counts(), project.classes(), project.events()


def test_a_healthy_project_has_no_problem(labeled):
    assert problems(labeled.folder) == []


def test_r3_the_database_is_made_again_from_the_second_copy(labeled, store, refusal):
    before = state_of(labeled)
    labeled.close()
    if store is None:
        for path in labeled.layout.state.glob("project.db*"):
            path.unlink()
    else:
        with labeled.store.writing() as connection:
            connection.execute(text("DROP TABLE events"))
            connection.execute(text("DROP TABLE meta"))
        labeled.store.close()
    with refusal():
        open_project(labeled.folder)
    assert problems(labeled.folder) != []
    assert problems(labeled.folder, rebuild=True) == []
    again = open_project(labeled.folder)
    assert state_of(again) == before
    again.close()


def test_r3_a_damaged_database_file_is_reported_and_made_again(photos, label):
    from mma.project import create_project

    project = create_project(photos, classes=["cat"])
    project.index()
    label(project, project.images()[0].id)
    before = state_of(project)
    project.close()
    data = bytearray(project.layout.database.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    project.layout.database.write_bytes(data)
    assert problems(project.folder) != []
    assert problems(project.folder, rebuild=True) == []
    again = open_project(project.folder)
    assert state_of(again) == before
    again.close()
    assert list(project.layout.backups.glob("project-*.db"))


@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_r3_damage_at_the_end_of_the_second_copy_is_reported_and_loses_nothing(labeled, damage):
    before = state_of(labeled)
    data = bytearray(labeled.layout.log.read_bytes())
    if damage == "torn":
        del data[-25:]
    else:
        data[data.rindex(b'"by":"') + 6] ^= 1  # still JSON, but another name
    labeled.layout.log.write_bytes(data)
    found = problems(labeled.folder)
    last = data.count(b"\n") + (damage == "torn")
    expected = "the last line is torn" if damage == "torn" else "bytes were changed"
    assert any(f"line {last}: " in line and expected in line for line in found)
    labeled.close()
    doctor(labeled.folder, rebuild=True)
    assert problems(labeled.folder) == []
    again = open_project(labeled.folder)
    assert state_of(again) == before
    again.close()


def test_r3_an_older_copy_of_the_database_is_brought_up_to_date(photos, label, tmp_path, refusal):
    from mma.project import create_project

    project = create_project(photos, classes=["cat"])
    project.index()
    images = [image.id for image in project.images()]
    label(project, images[0])
    project.close()
    shutil.copy(project.layout.database, tmp_path / "old.db")
    again = open_project(project.folder)
    label(again, images[1])
    again.close()
    shutil.copy(tmp_path / "old.db", project.layout.database)
    with refusal():
        open_project(project.folder)
    doctor(project.folder, rebuild=True)
    again = open_project(project.folder)
    assert set(again.labels().ids) == set(images[:2])
    again.close()


def test_labels_that_do_not_follow_from_the_events_are_reported(labeled):
    with labeled.store.writing() as connection:
        connection.execute(text("DELETE FROM current WHERE seq = (SELECT min(seq) FROM current)"))
    assert any("do not follow from the events" in line for line in problems(labeled.folder))
    labeled.close()
    assert problems(labeled.folder, rebuild=True) == []


def test_a_rebuild_waits_for_the_owner_to_end(labeled, refusal):
    with labeled.owner("mma start here"), refusal():
        doctor(labeled.folder, rebuild=True)


def test_images_that_are_gone_are_said(labeled, photos):
    photos.rename(photos.with_name("elsewhere"))
    assert any("the images are no longer in" in line for line in problems(labeled.folder))


def test_settings_that_are_damaged_are_a_sentence(labeled, refusal):
    path = labeled.layout.settings
    whole = path.read_text()
    for text_ in ("format = ", whole + "extra = 1\n", whole.replace("seed = 0", "seed = -1")):
        path.write_text(text_)
        with refusal():
            read_settings(Layout(labeled.folder))


# copies of a project


@pytest.fixture
def copy(photos, label, tmp_path):
    """A project and its copy on another machine."""
    from mma.project import create_project

    project = create_project(photos, classes=["cat", "dog"])
    project.index()
    label(project, project.images()[0].id)
    project.close()
    shutil.copytree(project.folder, tmp_path / "copy.mma")
    here, there = open_project(project.folder), open_project(tmp_path / "copy.mma")
    yield here, there
    here.close()
    there.close()


def test_labels_of_a_copy_are_merged_by_event_id_and_only_once(copy, label):
    here, there = copy
    images = [image.id for image in here.images()]
    label(here, images[1], 0, by="ann")
    label(there, images[2], 1, by="bob")
    label(there, images[3], 1, by="bob")
    there.undo("bob")
    assert len(here.merge(there).events) == 3
    assert set(here.labels().ids) == set(images[:3])
    assert here.merge(there).events == []
    there.merge(here)
    assert set(there.labels().ids) == set(images[:3])


def test_classes_of_a_copy_are_matched_by_event_and_by_name(copy, label):
    here, there = copy
    images = [image.id for image in here.images()]
    here.rename_class(0, "kitten", "ann")
    here.add_class("owl", "ann")
    bird, owl = there.add_class("bird", "bob"), there.add_class("Owl", "bob")
    label(there, images[1], 0, by="bob")
    label(there, images[2], bird.id, by="bob")
    label(there, images[3], owl.id, by="bob")
    here.merge(there)
    names = {each.id: each.name for each in here.classes()}
    found = dict(zip(here.labels().ids, (names[number] for number in here.labels().class_ids), strict=True))
    assert sorted(each.name for each in here.classes() if each.merged_into is None) == ["bird", "dog", "kitten", "owl"]
    assert [found[image] for image in images[1:4]] == ["kitten", "bird", "owl"]


def test_a_name_that_the_copy_set_free_can_be_given_again_there(copy, label):
    here, there = copy
    there.merge_class(1, 0, "bob")
    there.rename_class(0, "dog", "bob")
    bird = there.add_class("bird", "bob")
    there.rename_class(bird.id, "eagle", "bob")
    label(there, here.images()[1].id, there.add_class("bird", "bob").id, by="bob")
    here.merge(there)
    assert here.classes() == there.classes()
    assert here.labels().class_ids == there.labels().class_ids


def test_labels_of_photos_that_are_not_here_wait_for_them(copy, label, photos, picture, tmp_path):
    here, there = copy
    others = Path(shutil.copytree(photos, tmp_path / "others"))
    picture(others / "new.png", 99)
    there = relink_to(there, others)
    new = next(image.id for image in there.images() if image.name == "new.png")
    label(there, new, 1, by="bob")
    assert len(here.merge(there).events) == 1
    assert new not in here.labels().ids
    assert len(find_mistakes(here).notes) == 1  # it looks at all labels there are
    shutil.copy(others / "new.png", photos / "late.png")
    here.index()
    assert new in here.labels().ids
    there.close()


def relink_to(project, images):
    """Let a copy of a project have images of its own."""
    from mma.project.project import change_settings, relative_images

    again = change_settings(project, images=relative_images(project.folder, images))
    again.index()
    return again


def test_different_answers_on_both_sides_are_counted(copy, label):
    here, there = copy
    image = here.images()[5].id
    label(here, image, 0, by="ann")
    label(there, image, 1, by="bob")
    assert here.merge(there).conflicts == [image]
    assert here.labels().class_ids[-1] == 1


def test_an_answer_after_a_merge_is_sent_again_without_harm(copy):
    here, there = copy
    answer = Answer(id=uuid4(), images=[here.images()[5].id], kind="label", class_id=0, by="ann")
    there.answer(answer)
    here.merge(there)
    before = here.seq()
    here.answer(answer)
    assert here.seq() == before
