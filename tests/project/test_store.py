"""Events and what follows from them: durable, idempotent, undone without limit, read as they were."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from pydantic import ValidationError
from sqlalchemy import text

from mma.errors import UserError
from mma.project import Answer, create_project, open_project
from mma.project.labels import copies
from mma.project.labels.copies import last_seq, read_log
from mma.project.labels.events import replay


def pool(project):
    return [image.id for image in project.images()]


def logged(project):
    return [line.event for line in read_log(project.layout.log)]


def test_r1_sqlite_commits_with_wal_and_full_synchronisation(photos):
    project = create_project(photos)
    with project.store.writing() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
    project.close()


def test_r1_an_answer_is_in_both_copies_when_it_returns(project, label):
    event = label(project, pool(project)[0])
    assert project.events()[-1] == event
    assert logged(project)[-1] == event


def test_an_answer_that_is_sent_twice_is_stored_once(project):
    answer = Answer(id=uuid4(), images=[pool(project)[0]], kind="label", class_id=1, by="ann")
    assert project.answer(answer) == project.answer(answer)
    assert project.counts().labeled == 1
    assert len([event for event in project.events() if event.kind == "label"]) == 1


def test_r3_the_second_copy_catches_up_after_a_kill_between_the_two(project, label):
    label(project, pool(project)[0])
    whole = project.layout.log.read_bytes()
    project.layout.log.write_bytes(whole[: whole[:-1].rindex(b"\n") + 1])
    label(project, pool(project)[1])
    assert logged(project) == project.events()


def test_r3_a_torn_last_line_is_cut_off_and_written_again(project, label):
    label(project, pool(project)[0])
    whole = project.layout.log.read_bytes()
    project.layout.log.write_bytes(whole[:-20])
    label(project, pool(project)[1])
    assert logged(project) == project.events()


def test_r3_a_flipped_byte_in_the_last_line_is_written_again_behind_it(project, label):
    label(project, pool(project)[0])
    whole = bytearray(project.layout.log.read_bytes())
    whole[-30] ^= 1
    project.layout.log.write_bytes(whole)
    again = open_project(project.folder)
    label(again, pool(project)[1])
    again.close()
    events = [event for event in logged(project) if event is not None]
    assert len(logged(project)) == len(events) + 1
    assert events == project.events()


def test_r4_an_event_says_who_when_what_and_why(project):
    item = project.next("ann", 1)[0]
    answer = Answer(
        id=uuid4(), images=[item.image], kind="label", class_id=1, by="ann", seconds=1.5, shown="hidden", note="blurred"
    )
    event = project.answer(answer)[0]
    assert (event.id, event.image, event.class_id, event.by) == (str(answer.id), item.image, 1, "ann")
    assert (event.seconds, event.shown, event.note, event.file) == (1.5, "hidden", "blurred", item.name)
    assert event.provenance == item.provenance
    assert event.at.endswith("+00:00")


def test_r4_undo_is_an_event_and_goes_back_as_far_as_there_are_labels(project, label, refusal):
    images = pool(project)[:5]
    for image in images:
        label(project, image, 0)
    label(project, images[0], 1)
    for left in (5, 4, 3, 2, 1, 0):
        project.undo("ann")
        assert project.counts().labeled == left if left < 5 else project.labels().class_ids[0] == 0
    assert [event.kind for event in project.events()].count("undo") == 6
    with refusal():
        project.undo("ann")


def test_r4_undo_survives_a_restart(project, label):
    first, second = pool(project)[:2]
    label(project, first)
    label(project, second)
    again = open_project(project.folder)
    again.undo("ann")
    again.close()
    assert project.labels().ids == (first,)


def test_undo_takes_back_only_what_this_person_said(project, label):
    first, second = pool(project)[:2]
    label(project, first, by="ann")
    label(project, second, by="bob")
    project.undo("ann")
    assert project.labels().ids == (second,)


def test_a_given_answer_can_be_undone(project, label):
    first, second = pool(project)[:2]
    event = label(project, first)
    label(project, second)
    project.undo("ann", event.id)
    assert project.labels().ids == (second,)


def test_undo_that_is_sent_twice_undoes_once(project, label):
    for image in pool(project)[:3]:
        label(project, image)
    undo = Answer(id=uuid4(), kind="undo", by="ann")
    assert project.answer(undo) == project.answer(undo)
    assert project.counts().labeled == 2


def test_a_grid_is_one_batch_with_one_undo(project):
    images = pool(project)[:6]
    events = project.answer(Answer(id=uuid4(), images=images, kind="label", class_id=0, by="ann", source="grid"))
    assert len({event.batch for event in events}) == 1
    assert len({event.id for event in events}) == 6
    assert {event.provenance for event in events} == {"grid"}
    assert project.counts().labeled == 6
    assert len(project.undo("ann")) == 6
    assert project.counts().labeled == 0


def test_a_correction_keeps_the_provenance_of_the_question(project):
    item = project.next("ann", 1)[0]
    first = project.answer(Answer(id=uuid4(), images=[item.image], kind="label", class_id=0, by="ann"))[0]
    answer = Answer(
        id=uuid4(), images=[item.image], kind="label", class_id=1, by="ann", supersedes=UUID(first.id), shown="after"
    )
    second = project.answer(answer)[0]
    assert second.provenance == first.provenance == item.provenance
    assert second.supersedes == first.id
    assert project.labels().class_ids == (1,)
    assert project.counts().per_class == {0: 0, 1: 1}


def test_a_note_changes_no_label(project, label):
    image = pool(project)[0]
    label(project, image)
    before = project.labels()
    label(project, image, kind="note", note="torn at the edge")
    assert project.labels().ids == before.ids
    assert project.events()[-1].note == "torn at the edge"


def test_a_note_leaves_the_image_with_whoever_holds_it(project, label):
    image = project.next("ann", 1)[0].image
    label(project, image, kind="note", note="torn at the edge")
    assert image not in [item.image for item in project.next("bob", 20)]


def test_one_name_typed_in_two_ways_of_writing_is_one_class(project, refusal):
    assert project.add_class("cafe\u0301", "ann").name == "caf\u00e9"
    with refusal():
        project.add_class("caf\u00e9", "ann")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"images": []}, "needs its images"),
        ({"images": ["0" * 64]}, "image 0000.* is not indexed yet"),
        ({"class_id": 99}, "no class with the number 99"),
        ({"class_id": None}, "needs a class_id"),
        ({"kind": "exclude"}, "no other kind has one"),
        ({"images": 2}, "each of them once"),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused_and_leaves_no_trace(project, values, problem, refusal):
    base = {"id": uuid4(), "images": pool(project)[:1], "kind": "label", "class_id": 0, "by": "ann"}
    before = project.seq()
    values = {"images": 2 * base["images"]} if values == {"images": 2} else values
    with refusal():
        project.answer(Answer(**{**base, **values}))
    assert project.seq() == before


def test_answers_are_checked_strictly():
    good = {"id": str(uuid4()), "images": ["a" * 64], "kind": "label", "class_id": 0, "by": "ann"}
    Answer.model_validate_json(json.dumps(good))
    for bad in ({"class_id": "0"}, {"images": ["../x"]}, {"kind": "drop"}, {"by": ""}, {"extra": 1}, {"seconds": -1.0}):
        with pytest.raises(ValidationError):
            Answer.model_validate_json(json.dumps({**good, **bad}))


def test_r6_a_snapshot_never_changes(project, label, refusal):
    images = pool(project)
    for number, image in enumerate(images[:6]):
        label(project, image, number % 2)
    snapshot, seq = project.labels(), project.seq()
    label(project, images[0], 1)
    project.undo("ann")
    label(project, images[1], kind="exclude")
    project.merge_class(0, 1, "ann")
    assert project.labels(upto=seq) == snapshot
    assert project.labels().class_ids != snapshot.class_ids
    with refusal():
        project.labels(upto=999)


def test_a_merge_is_not_taken_back_while_another_class_has_the_name(project, refusal):
    name = project.classes()[0].name
    project.merge_class(0, 1, "ann")
    again = project.add_class(name, "ann")
    with refusal():
        project.merge_class(0, None, "ann")
    project.rename_class(again.id, "something else", "ann")
    project.merge_class(0, None, "ann")
    assert next(each.name for each in project.classes() if each.merged_into is None) == name


def test_r6_labeling_does_not_wait_for_a_reader(project, label):
    with project.store.reading() as connection:
        connection.execute(text("SELECT count(*) FROM events")).scalar()
        done = threading.Thread(target=label, args=(project, pool(project)[0]))
        done.start()
        done.join(30)
        assert not done.is_alive()
        seen = connection.execute(text("SELECT value FROM counts WHERE name = 'labeled'")).scalar()
    assert seen is None
    assert project.counts().labeled == 1


def test_what_is_kept_beside_the_events_follows_from_them(project, label):
    """A random history: after it, the tables say what a replay of the events says."""
    draw, images = random.Random(5), pool(project)
    for _ in range(60):
        image, by = draw.choice(images), draw.choice(["ann", "bob"])
        kind = draw.choice(["label", "label", "label", "cannot_tell", "exclude", "later", "undo"])
        if kind == "undo":
            if project.recent(by):
                project.undo(by)
        else:
            label(project, image, draw.randrange(2), by=by, kind=kind)
    answers, _ = replay(project.events())
    counts, now = project.counts(), project.labels()
    assert list(now.ids) == [event.image for event in answers if event.kind == "label"]
    assert counts.labeled == len(now.ids) == sum(counts.per_class.values())
    assert counts.excluded == len(now.excluded)
    assert counts.cannot_tell == len(now.cannot_tell)
    assert counts.left == 20 - len(answers)


def test_classes_are_added_renamed_merged_and_given_keys(project, label):
    bird = project.add_class("bird", "ann")
    label(project, pool(project)[0], bird.id)
    label(project, pool(project)[1], 0)
    project.rename_class(bird.id, "sparrow", "ann")
    project.set_key(bird.id, "b", "ann")
    project.merge_class(0, bird.id, "ann")
    classes = {each.id: each for each in project.classes()}
    assert classes[bird.id] == (bird.id, "sparrow", "b", None)
    assert classes[0].merged_into == bird.id
    assert project.labels().class_ids == (bird.id, bird.id)
    assert project.counts().per_class == {1: 0, bird.id: 2}
    project.merge_class(0, None, "ann")
    assert project.labels().class_ids == (bird.id, 0)


def test_a_class_is_deleted_only_when_no_label_needs_it(project, label, refusal):
    image, bird = pool(project)[0], project.add_class("bird", "ann")
    project.wish(target=90.0, target_class=bird.id)
    label(project, image, bird.id)
    with refusal():
        project.delete_class(bird.id, "ann")
    label(project, image, 0)  # a correction: taken back, it is a bird again
    with refusal():
        project.delete_class(bird.id, "ann")
    project.undo("ann")
    project.undo("ann")
    project.merge_class(0, bird.id, "ann")
    with refusal():
        project.delete_class(bird.id, "ann")
    project.merge_class(0, None, "ann")
    project.delete_class(bird.id, "ann")
    assert [each.name for each in project.classes()] == ["cat", "dog"]
    assert project.settings.target_class is None
    assert project.events()[-1].kind == "class_delete"
    assert project.add_class("Bird", "ann").id > bird.id  # models may still speak of the old number
    with refusal():
        label(project, image, bird.id)
    with refusal():
        project.delete_class(bird.id, "ann")


def test_a_label_of_a_merged_class_counts_for_the_other_one(project, label, refusal):
    project.merge_class(0, 1, "ann")
    assert label(project, pool(project)[0], 0).class_id == 1
    with refusal():
        project.merge_class(1, 0, "ann")


def test_a_class_in_the_middle_of_merges_cannot_be_merged_into_one_below_it(project, refusal):
    bird = project.add_class("bird", "ann")
    project.merge_class(0, 1, "ann")
    project.merge_class(1, bird.id, "ann")
    with refusal():
        project.merge_class(1, 0, "ann")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("CAT", "there is a class 'cat' already"),
        (" ", "needs a name"),
        ("x" * 200, "at most 100 characters, and this one has 200"),
        ("a\x1b[31m", r"control characters: 'a\\x1b\[31m'"),
    ],
)
def test_a_class_name_that_cannot_be_is_refused(project, name, problem, refusal):
    with refusal():
        project.add_class(name, "ann")


def test_a_class_name_with_markup_is_a_name_like_any_other(project):
    assert project.add_class("<b>=bold & 'brave'</b>", "ann").name == "<b>=bold & 'brave'</b>"


def test_a_key_belongs_to_one_class(project, refusal):
    project.set_key(0, "c", "ann")
    with refusal():
        project.set_key(1, "c", "ann")
    with refusal():
        project.set_key(1, "ab", "ann")


def test_models_are_kept_and_a_round_is_preceded_by_a_backup(project, label):
    label(project, pool(project)[0])
    made = project.models.put(kind="live", seq=3, state="training", message="fitting")
    backup = project.layout.backups / "round-000001.jsonl"
    assert backup.read_bytes() == project.layout.log.read_bytes()
    project.models.put(made.number, state="ready", accuracy=81.5, about={"low": 75.0})
    model = project.models.rows()[0]
    assert (model.number, model.kind, model.seq, model.state, model.accuracy) == (1, "live", 3, "ready", 81.5)
    assert model.about == {"low": 75.0}


def test_r9_a_second_start_says_who_holds_the_project(project):
    other = open_project(project.folder)
    who = rf"in use by process {os.getpid()} on .* since .*mma start photos"
    with project.owner("mma start photos"), pytest.raises(ValueError, match=who), other.owner():
        pass
    with other.owner():
        pass
    other.close()


def test_r9_the_lock_of_a_killed_process_does_not_count(photos):
    project = create_project(photos)
    code = (
        "import sys, os\nfrom mma.project import open_project\n"
        "with open_project(sys.argv[1]).owner(): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(project.folder)], check=False)
    assert (project.layout.state / "owner.json").exists()
    with project.owner():
        pass
    project.close()


def test_r10_a_newer_folder_and_a_newer_database_are_refused_with_a_sentence(project, refusal):
    with project.store.writing() as connection:
        connection.execute(text("UPDATE meta SET value = '99' WHERE key = 'format'"))
    with refusal():
        open_project(project.folder)
    settings = project.layout.settings
    settings.write_text(settings.read_text().replace("format = 1", "format = 7"))
    with refusal():
        open_project(project.folder)


def test_r10_an_older_database_is_refused_with_the_way_out(project):
    with project.store.writing() as connection:
        connection.execute(text("UPDATE meta SET value = '0' WHERE key = 'format'"))
    with pytest.raises(UserError, match=r"has format 0.*mma doctor .* --rebuild"):
        open_project(project.folder)


def test_a_clock_set_back_changes_nothing_but_the_written_times(project, label, monkeypatch):
    first, second = pool(project)[:2]
    label(project, first, 0)
    monkeypatch.setattr("mma.project.labels.events.now", lambda: "1999-01-01T00:00:00.000+00:00")
    label(project, first, 1)
    label(project, second, 0)
    assert project.labels().class_ids == (1, 0)
    assert [event.seq for event in project.events()] == list(range(1, 6))
    project.undo("ann")
    assert project.labels().ids == (first,)


def test_the_mirror_is_not_behind_when_the_project_is_closed(project, label):
    label(project, pool(project)[0])
    project.close()
    assert project.layout.mirror.read_text().count("\n") == 2


def test_a_mirror_that_could_not_be_written_is_written_when_the_project_is_closed(project, label, monkeypatch, refusal):
    def fail(path, data, **options):
        raise OSError(28, "No space left on device")

    label(project, pool(project)[0])
    with monkeypatch.context() as patch, refusal():
        patch.setattr(copies, "write_atomically", fail)
        project.mirror.write()
    project.mirror.finish()
    assert project.layout.mirror.read_text().count("\n") == 2


def test_r3_a_last_line_longer_than_what_is_read_at_once_is_found(project, label):
    image = pool(project)[0]
    label(project, image)
    label(project, image, kind="note", note="\U0001f99c" * 10_000)
    assert last_seq(project.layout.log) == project.seq()
    other = open_project(project.folder)
    label(other, image, 1)
    other.close()
    assert [line.event.seq for line in read_log(project.layout.log)] == list(range(1, project.seq() + 1))


def test_the_mirror_is_not_behind_when_the_process_ends_without_closing(photos):
    project = create_project(photos, classes=["cat"])
    project.index()
    code = (
        "import sys, uuid\nfrom mma.project import open_project, Answer\n"
        "project = open_project(sys.argv[1])\nimage = project.images()[0].id\n"
        "project.answer(Answer(id=uuid.uuid4(), images=[image], kind='label', class_id=0, by='ann'))"
    )
    subprocess.run([sys.executable, "-c", code, str(project.folder)], check=True)
    assert ",cat," in project.layout.mirror.read_text()
    project.close()


def test_a_database_that_lost_labels_is_refused(project, label, refusal):
    label(project, pool(project)[0])
    with project.store.writing() as connection:
        connection.execute(text("UPDATE counts SET value = 1 WHERE name = 'seq'"))
    with refusal():
        open_project(project.folder)


def test_a_restarted_server_is_connected_to_again(photos, postgres_url, label):
    project = create_project(photos, classes=["cat"], store=postgres_url)
    project.index()
    with project.store.reading() as connection:
        mine = connection.execute(text("SELECT pg_backend_pid()")).scalar()
    other = create_project(photos, photos.with_name("other.mma"), store=postgres_url)
    with other.store.writing() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": mine})
    label(project, pool(project)[0])
    assert len(project.labels()) == 1
    project.close()
    other.close()


def test_importing_a_project_does_not_load_torch():
    code = "import sys, mma.project.project, mma.project.labels.repair, mma.project.exchange.formats; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parent).returncode == 0


def test_r1_an_answer_is_synced_to_both_copies_before_it_is_acknowledged(photos, label, monkeypatch):
    project = create_project(photos, classes=["cat"])
    project.index()
    synced = []
    monkeypatch.setattr("mma.files.os.fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    label(project, pool(project)[0])
    assert str(project.layout.log.resolve()) in synced
    with project.store.reading() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2  # SQLite syncs its file itself
    project.close()


def test_a_grid_of_images_whose_ids_begin_alike_is_one_event_per_image(project):
    images = sorted(pool(project))
    alike = next([one, other] for one, other in itertools.pairwise(images) if one[0] == other[0])
    events = project.answer(Answer(id=uuid4(), images=alike, kind="label", class_id=0, by="ann", source="grid"))
    assert len({event.id for event in events}) == 2
    assert len(project.labels()) == 2


def test_a_correction_keeps_why_the_image_was_asked_about_last(project, label):
    image = next(item.image for item in project.next("ann", 20) if item.provenance != "audit")
    assert label(project, image, 0).provenance == "start"
    assert label(project, image, 1, source="grid").provenance == "grid"
    assert label(project, image, 0, by="bob").provenance == "grid"
