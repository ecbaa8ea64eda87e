"""The commands, and what they say when something is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mma.cli import commands
from mma.cli.photos import describe_start, open_or_create
from mma.project import create_project, open_project
from mma.project.exchange.import_labels import take_labels_from
from mma.project.quality.agreement import pairwise_kappas


def mma(*arguments, code=0) -> str:
    """Run a command; return what it says."""
    done = CliRunner().invoke(commands(), list(map(str, arguments)), prog_name="mma")
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.output


@pytest.fixture
def made(photos):
    project = create_project(photos, classes=["cat", "dog"])
    project.index()
    yield project
    project.close()


# by files, without a page


def test_ask_and_tell_go_round_by_files(made, photos, tmp_path):
    out = tmp_path / "picks.csv"
    said = mma("ask", photos, "-n", 6, "-o", out)
    assert f"mma tell {photos} {out}" in said
    lines = out.read_text().splitlines()
    assert lines[0] == "file_name,label,sha256,why"
    filled = [
        lines[0],
        *(line.replace(",,", ",cat,", 1) for line in lines[1:5]),
        lines[5].replace(",,", ",?,", 1),
        lines[6],
    ]
    out.write_text("\n".join(filled) + "\n")
    assert "5 answers are new; 4 images are labeled, 15 are left" in mma("tell", photos, out)
    assert "0 answers are new" in mma("tell", photos, out)
    assert len(made.labels()) == 4
    assert {event.provenance for event in made.events() if event.image} == {"audit", "start"}
    assert len(made.labels().cannot_tell) == 1


def test_asking_again_before_answering_asks_the_same_and_other_people_something_else(made, photos, tmp_path):
    from mma.project.exchange.formats import ask

    first = ask(made, 5, tmp_path / "a.csv")[0].read_text()
    again = ask(made, 5, tmp_path / "b.csv")[0].read_text()
    assert sorted(again.splitlines()) == sorted(first.splitlines())
    other = ask(made, 5, tmp_path / "c.csv", "bob")[0].read_text()
    assert not set(first.splitlines()[1:]) & set(other.splitlines()[1:])


def test_a_corrected_table_can_be_told_again(made, photos, tmp_path):
    out = tmp_path / "answers.csv"
    out.write_text("file_name,label\n1.png,cat\n")
    mma("tell", photos, out)
    out.write_text("file_name,label\n1.png,dog\n")
    assert "1 answers are new; 1 images are labeled" in mma("tell", photos, out)
    assert {event.provenance for event in made.events() if event.image} == {"import"}  # nobody was asked


def test_answers_that_agree_are_answers_too(photos, tmp_path):
    project = create_project(photos, classes=["cat", "dog"], overlap=2)
    project.index()
    for by, dogs in (("ann", 0), ("bob", 6)):
        rows = [f"{number}.png,{'dog' if number < dogs else 'cat'}" for number in range(20)]
        (tmp_path / "answers.csv").write_text("\n".join(["file_name,label", *rows]) + "\n")
        assert "20 answers are new" in mma("tell", photos, tmp_path / "answers.csv", "--by", by)
        assert "0 answers are new" in mma("tell", photos, tmp_path / "answers.csv", "--by", by)
    assert project.counts().left == 0  # everybody was asked
    answers: dict[str, dict[str, int]] = {}
    for event in project.events():
        if event.image:
            answers.setdefault(event.image, {})[event.by] = event.class_id
    agreement = pairwise_kappas(answers)["ann", "bob"]
    assert (agreement.images, agreement.same) == (20, 0.7)
    project.close()


def test_the_contact_sheet_holds_its_pictures_and_no_markup_of_names(photos, tmp_path, picture):
    from mma.project.exchange.formats import ask

    picture(photos / "<script>alert(1)<b>.png", 77)
    project = create_project(photos, classes=["<i>cat</i>"])
    project.index()
    page = ask(project, 21, tmp_path / "p.csv")[1].read_text()
    project.close()
    assert page.count("data:image/jpeg;base64,") == 21
    assert "&lt;script&gt;" in page
    assert "&lt;i&gt;cat&lt;/i&gt;" in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!data:image/jpeg;base64,)", page)
    tasks = json.loads((tmp_path / "p.label-studio.json").read_text())
    assert len(tasks) == 21
    assert all(set(task["data"]) == {"image", "file_name", "sha256"} for task in tasks)


def test_labels_go_out_and_in_by_command(made, photos, tmp_path, label):
    label(made, made.images()[0].id)
    assert "1 files" in mma("labels", "export", photos, tmp_path / "l.csv")
    assert "0 answers are new" in mma("labels", "import", photos, tmp_path / "l.csv")
    (tmp_path / "bad.csv").write_text("file_name,label\n1.png,kat\n")
    said = mma("labels", "import", photos, tmp_path / "bad.csv", code=1)
    assert said.startswith("mma labels import: bad.csv was not used")
    assert "line 2: there is no class 'kat'. Did you mean 'cat'?" in said
    shutil.copytree(made.folder, tmp_path / "copy.mma")
    assert "0 events are new" in mma("labels", "merge", made.folder, tmp_path / "copy.mma")


def test_doctor_ends_with_one_when_something_is_wrong(made, photos):
    assert "labels in force follow" in mma("doctor", photos)
    made.close()
    made.layout.log.write_bytes(made.layout.log.read_bytes()[:-5])
    assert any(finding["problem"] for finding in json.loads(mma("doctor", photos, "--json", code=1)))
    assert "made the database" in mma("doctor", photos, "--rebuild")
    assert mma("doctor", photos)


# start


def test_start_makes_a_project_and_the_same_command_goes_on(photos, label):
    project = open_or_create(photos, None, "cat,dog", budget=50)
    project.index()
    label(project, project.images()[0].id)
    project.close()
    again = open_or_create(photos, None, "dog, bird", budget=60)
    assert again.folder == photos.with_name("photos.mma")
    assert [each.name for each in again.classes()] == ["cat", "dog", "bird"]
    assert len(again.labels()) == 1
    assert again.settings.budget == 60
    again.close()
    by_folder = open_or_create(photos.with_name("photos.mma"), None, None)
    assert by_folder.root == photos.resolve()
    by_folder.close()


def test_what_an_index_found_is_said_in_sentences(photos, picture, label):
    picture(photos / "a" / "x.png", 50)
    picture(photos / "b" / "y.png", 51)
    shutil.copy(photos / "1.png", photos / "b" / "copy.png")
    (photos / "empty\x1b[31m.png").write_bytes(b"")
    project = create_project(photos)
    lines = describe_start(project, project.index())
    project.close()
    text = "\n".join(lines)
    assert "22 images in 24 files, 22 of them new" in text
    assert "files with the same bytes as another one, whose label they share: 1" in text
    assert "files that cannot be used: 1" in text
    assert "\x1b" not in text
    assert "sub-folders could be classes: a, b" in text


def test_labels_from_folders_are_taken_when_asked_for(tmp_path, picture):
    for number in range(8):
        picture(tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.png", number)
    project = create_project(tmp_path / "photos")
    project.index()
    take_labels_from(project, "folders")
    assert [each.name for each in project.classes()] == ["cat", "dog"]
    assert project.counts().per_class == {0: 4, 1: 4}
    project.close()


def test_labels_from_nested_folders_are_a_question_until_it_is_answered(tmp_path, picture, refusal):
    for number in range(12):
        kind, year = ("cat", "dog")[number % 2], ("2020", "2021", "2022")[number % 3]
        picture(tmp_path / "photos" / year / kind / f"{number}.png", number)
    project = create_project(tmp_path / "photos")
    project.index()
    with refusal():
        take_labels_from(project, "folders")
    take_labels_from(project, "folders:last")
    assert [each.name for each in project.classes()] == ["cat", "dog"]
    project.close()


def test_a_labels_file_with_unknown_names_or_a_class_per_image_is_a_hint(photos, made, tmp_path, refusal):
    (photos / "truth.csv").write_text("file_name,label\n1.png,kat\n")
    with refusal():
        take_labels_from(made, "truth.csv")
    lines = "".join(f"{number}.png,visit {number}\n" for number in range(20))
    (tmp_path / "visits.csv").write_text("file_name,label\n" + lines)
    with refusal():
        take_labels_from(made, str(tmp_path / "visits.csv"))
    with refusal():
        take_labels_from(made, "nothing.csv")
    assert len(made.labels()) == 0


# bad input: a sentence each, nothing made, nothing lost


def refused(*arguments) -> str:
    said = mma(*arguments, code=1)
    assert said.startswith("mma ")
    return said


def test_a_folder_without_images_or_without_existence_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("x")
    assert "holds no images" in refused("start", tmp_path / "empty")
    assert "there is no folder" in refused("start", tmp_path / "nothing")
    assert not (tmp_path / "empty.mma").exists()
    assert not (tmp_path / "nothing.mma").exists()


def test_class_names_that_cannot_be_are_refused_before_anything_is_made(photos):
    for names, problem in (
        ("cat,Cat", "'cat' already"),
        ("cat,", "needs a name"),
        ("x" * 200, "at most 100 characters"),
    ):
        assert problem in refused("start", photos, "--classes", names)
    assert not photos.with_name("photos.mma").exists()


def test_a_project_inside_the_images_is_refused(photos):
    before = sorted(photos.iterdir())
    assert "would lie inside the images" in refused("start", photos, "--project", photos / "inside.mma")
    assert sorted(photos.iterdir()) == before


def test_a_store_that_is_no_url_or_no_server_is_refused(photos, tmp_path):
    assert "--store takes a URL" in refused("start", photos, "--store", "mysql://me:secret@host/x")
    said = refused("start", photos, "--store", f"postgresql://me:secret@/x?host={tmp_path}")
    assert "cannot be used" in said
    assert "secret" not in said


def test_no_project_is_said(tmp_path):
    assert "is no project. Make one with  mma start FOLDER" in refused("doctor", tmp_path)
    assert "is no project" in refused("tell", tmp_path, tmp_path / "x.csv")


def test_a_second_start_says_who_holds_the_project(made, photos):
    with made.owner("mma start photos"):
        assert f"in use by process {os.getpid()}" in refused("start", photos)


def test_a_moved_image_folder_is_said_with_the_way_out(made, photos, tmp_path, refusal):
    photos.rename(tmp_path / "moved")
    assert "If they were moved:  mma start FOLDER --project" in mma("doctor", made.folder, code=1)
    with refusal():
        made.index()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_read_or_written_is_a_sentence(photos, made, label, tmp_path):
    image = made.images()[0].id
    made.close()

    def open_and_label():
        again = open_project(made.folder)
        try:
            label(again, image)
        finally:
            again.store.close()

    files = list(made.layout.state.iterdir())
    for path in (*files, made.layout.state):
        path.chmod(0o500)
    try:
        with pytest.raises(ValueError, match=r"cannot .*(Make room|make room|allow writing)"):
            open_and_label()
    finally:
        for path in (made.layout.state, *files):
            path.chmod(0o700)
    again = open_project(made.folder)
    assert again.seq() == 2
    again.close()
    photos.chmod(0)
    try:
        with pytest.raises(ValueError, match="may not be read"):
            create_project(photos, tmp_path / "x.mma")
    finally:
        photos.chmod(0o700)


def test_a_full_disk_is_a_sentence_and_what_was_saved_is_whole(made, label, monkeypatch, refusal):
    """The second copy cannot be written: the answer is not acknowledged, and goes through when there is room."""
    from uuid import uuid4

    from mma.project import Answer

    first, second = (image.id for image in made.images()[:2])
    label(made, first)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    answer = Answer(id=uuid4(), images=[second], kind="label", class_id=0, by="ann")
    with monkeypatch.context() as patch:
        patch.setattr("mma.project.labels.copies.append_bytes", full)
        with refusal():
            made.answer(answer)
    made.answer(answer)
    made.close()
    again = open_project(made.folder)
    assert again.labels().ids == (first, second)
    again.close()
    assert made.layout.log.read_bytes().count(b"\n") == 4


def test_a_full_database_is_a_sentence(made, label, refusal):
    from sqlalchemy import event

    images = [image.id for image in made.images()]
    label(made, images[0])
    before = made.events()

    @event.listens_for(made.store.engine, "begin")
    def limit(connection):
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    def fill_up():
        for image in images[1:] * 40:
            label(made, image, note="x" * 5_000)

    with refusal():
        fill_up()
    event.remove(made.store.engine, "begin", limit)
    events = made.events()
    assert events[: len(before)] == before
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="this system has no groups of processes")
def test_ctrl_c_at_the_terminal_stops_page_and_training_without_a_traceback(photos):
    """A terminal sends Ctrl-C to everything that was started from it, also to the training process."""
    command = [sys.executable, "-m", "mma", "start", str(photos), "--classes", "a,b", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        assert any("open this file" in line for line in process.stderr)
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 0
    assert not {"Traceback", "stopped", "ignored"} & set(rest.split())
