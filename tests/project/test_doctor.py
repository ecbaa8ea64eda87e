"""The doctor compares the two copies of every event, and makes the database again; copies of a project are merged."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text

from bench.project import synthetic_project
from mma.errors import TemporarilyUnavailable
from mma.project import Answer, Event, create_project, open_project
from mma.project.labels.copies import read_log
from mma.project.labels.database import open_database
from mma.project.labels.events import draft, record
from mma.project.labels.repair import bring_together, doctor, rebuild_database
from mma.project.project import Project, training
from mma.project.records import Layout, read_settings
from mma.project.review import find_mistakes


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


def test_models_outlive_a_rebuild(labeled):
    rows = labeled.models.rows()
    doctor(labeled.folder, rebuild=True)
    again = open_project(labeled.folder)
    assert rows
    assert again.models.rows() == rows
    again.close()


def test_r3_a_damaged_database_file_is_reported_and_made_again(photos, label):
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
    from mma.project.project import change_settings
    from mma.project.records import relative_images

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


# damage


@pytest.fixture
def damaged(tmp_path):
    """A project with a few pages of events in its database, closed."""
    project = synthetic_project(tmp_path, 150)
    rows = [
        draft(
            "label", id=(one := str(uuid4())), batch=one, by="ann", image=image.id, file=image.name, class_id=number % 2
        )
        for number, image in enumerate(project.images())
    ]
    with project.store.writing() as connection:
        events = record(connection, rows, 1)
        supersedes = [event.id for event in events[::10]]
        undos = [(event.image, str(uuid4()), other) for event, other in zip(events[::10], supersedes, strict=True)]
        record(
            connection,
            [draft("undo", id=one, batch=one, by="ann", image=image, supersedes=gone) for image, one, gone in undos],
            1,
        )
    project.log.catch_up(project.store, project.seq())
    project.close()
    return project


def flip_and_rebuild(project, draw, folder):
    """Damage both copies at random, rebuild, and compare with what can still be read of them."""
    layout = Layout(folder)
    shutil.copytree(project.folder, folder)
    database, log = bytearray(layout.database.read_bytes()), bytearray(layout.log.read_bytes())
    whole = {event.id: event for event in map_log(layout.log)}
    if draw.random() < 0.5:
        page = draw.randrange(1, len(database) // 4096) * 4096
        database[page : page + 4096] = draw.randbytes(4096)
    else:
        for _ in range(draw.randint(1, 40)):
            database[draw.randrange(100, len(database))] ^= 1 << draw.randrange(8)
    for _ in range(draw.randint(0, 3)):
        log[draw.randrange(len(log))] ^= 1 << draw.randrange(8)
    layout.database.write_bytes(database)
    layout.log.write_bytes(log)
    readable = {event.id for event in map_log(layout.log)} | readable_in(layout.database, whole)
    rebuild_database(layout, read_settings(layout))
    found = {event.id: event for event in map_log(layout.log)}
    lost = [whole[name] for name in readable - set(found)]
    twins = {(event.image, event.kind, event.batch) for name, event in found.items() if name in whole}
    doubled = [e for name, e in found.items() if name not in whole and (e.image, e.kind, e.batch) in twins]
    assert not lost, lost[:3]
    assert not doubled, doubled[:3]
    assert not any(finding.problem for finding in doctor(folder) if "images" not in finding.text)


def map_log(path):
    return [line.event for line in read_log(path) if line.event]


def readable_in(path, whole):
    """Return the ids of events that a query by number still returns whole."""
    found = set()
    connection = sqlite3.connect(path)
    for number, event in ((event.seq, event) for event in whole.values()):
        try:
            row = connection.execute(f"SELECT {COLUMNS_TEXT} FROM events WHERE seq = ?", [number]).fetchone()
        except (sqlite3.Error, UnicodeDecodeError):
            continue
        if row is not None and tuple(row) == tuple(event):
            found.add(event.id)
    connection.close()
    return found


COLUMNS_TEXT = ", ".join(f'"{name}"' for name in Event._fields)


def test_r3_damage_of_both_copies_loses_nothing_that_can_be_read_and_doubles_nothing(damaged, tmp_path):
    for seed in (1, 2, 4, 5, 19):  # 400 were run once
        flip_and_rebuild(damaged, random.Random(seed), tmp_path / f"copy-{seed}" / "photos.mma")


def test_r3_events_behind_a_damaged_page_are_read_and_a_flipped_id_is_no_second_event():
    event = Event(
        3, str(uuid4()), "b", "label", "0" * 64, "f", 0, None, "ann", "t", None, "query", None, None, None, None
    )
    added = event._replace(seq=1, id=str(uuid4()), batch="c", kind="class_add", image=None, value="cat", at="s")
    flipped = event._replace(id=event.id[:-1] + ("0" if event.id[-1] != "0" else "1"))
    assert [each.id for each in bring_together([added, event], [added, flipped])] == [added.id, event.id]
    moved = event._replace(seq=9, by="bob")  # labels.jsonl carries checks: what it says of an event counts
    assert [each.by for each in bring_together([added, event], [added, moved])] == ["ann", "ann"]
    other = event._replace(id=str(uuid4()), batch="d", at="u", image="1" * 64)  # another label under the same number
    assert len(bring_together([added, event], [added, other])) == 3


def test_r3_labels_jsonl_wins_over_the_database_because_it_carries_checks(photos, label):
    project = create_project(photos, classes=["cat", "dog"])
    project.index()
    label(project, project.images()[0].id, 1)
    with project.store.writing() as connection:
        connection.execute(text("UPDATE events SET class_id = 0 WHERE kind = 'label'"))
        connection.execute(text("UPDATE current SET class_id = 0"))
    project.close()
    assert any("tell the same event differently" in line for line in problems(project.folder))
    doctor(project.folder, rebuild=True)
    again = open_project(project.folder)
    assert again.labels().class_ids == (1,)
    again.close()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE classes SET name = 'cow' WHERE id = 1", "classes"),
        ("UPDATE counts SET value = value + 7 WHERE name = 'class:1'", "counts"),
        ("UPDATE counts SET value = 3 WHERE name = 'open'", "counts"),
        ("UPDATE current SET class_id = 0", "labels in force"),
    ],
)
def test_tables_that_do_not_follow_from_the_events_are_named(labeled, change, what):
    with labeled.store.writing() as connection:
        connection.execute(text(change))
    assert any(line.startswith(f"{what} do not follow from the events") for line in problems(labeled.folder))


def test_a_rebuild_waits_for_whoever_trains(labeled):
    with training(labeled.layout.state, "mma work"), pytest.raises(ValueError, match="is being trained"):
        doctor(labeled.folder, rebuild=True)


def test_a_label_written_to_an_older_database_is_no_refusal_and_is_said(photos, label, tmp_path):
    project = create_project(photos, classes=["cat"])
    project.index()
    images = [image.id for image in project.images()]
    project.close()
    shutil.copy(project.layout.database, tmp_path / "old.db")
    again = open_project(project.folder)
    for image in images[:3]:
        label(again, image)
    again.close()
    shutil.copy(tmp_path / "old.db", project.layout.database)
    settings = read_settings(project.layout)
    older = Project(project.layout, settings, open_database(project.layout, settings))
    with pytest.raises(TemporarilyUnavailable, match="the database is an older copy"):
        label(older, images[5])
    older.store.close()
