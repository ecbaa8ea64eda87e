"""Labels in and out: every format there and back, all or nothing, line numbers, names that mean harm."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mma.data.tables import escape, restore
from mma.errors import UserError
from mma.project import Answer, TakeIn, create_project
from mma.project.exchange.formats import LABEL_FORMATS, class_folder, format_of

FILES = {
    "csv": "out.csv",
    "hf-csv": "metadata.csv",
    "hf-jsonl": "metadata.jsonl",
    "label-studio": "tasks.json",
    "hf-parquet": "l.parquet",
}
HOSTILE = "=HYPERLINK(1)"


@pytest.fixture
def labeled(project, label):
    """Some of everything: labels of two people, a hostile class, cannot tell, excluded, a duplicate."""
    shutil.copy(project.root / "3.png", project.root / "copy of 3.png")
    project.index()
    hostile = project.add_class(HOSTILE, "ann")
    project.add_class("../up/<b>'x'", "ann")
    images = [image.id for image in sorted(project.images(), key=lambda image: image.name)]
    for number, image in enumerate(images[:12]):
        label(project, image, [0, 1, hostile.id, hostile.id + 1][number % 4], by=("ann", "bob")[number % 2])
    label(project, images[12], kind="cannot_tell")
    label(project, images[13], kind="exclude")
    return project


def empty_twin(project, tmp_path):
    """Another project of the same images, without labels."""
    twin = create_project(project.root, tmp_path / "twin.mma")
    twin.index()
    return twin


def contents(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


@pytest.mark.parametrize("name", list(LABEL_FORMATS))
def test_r11_export_import_export_is_byte_identical(labeled, tmp_path, name):
    first, second = tmp_path / "1" / FILES.get(name, "folder"), tmp_path / "2" / FILES.get(name, "folder")
    assert labeled.export_labels(first, name) >= 14
    twin = empty_twin(labeled, tmp_path)
    twin.import_labels(first, name, TakeIn(add_classes=True))
    twin.export_labels(second, name)
    assert contents(first) == contents(second)
    assert len(contents(first)) > 0
    twin.close()


ALPHABET = [
    "=",
    "+",
    "-",
    "@",
    "'",
    '"',
    ",",
    ";",
    " ",
    "a",
    "b",
    "é",
    "\u200c",
    "\u200d",
    "\t",
    "\r",
    "\n",
    "\0",
    "\x1b",
    "?",
]


def test_r11_holds_for_every_name_that_the_store_accepts(project, label, tmp_path):
    draw, classes, people = random.Random(0), [], []
    while len(classes) < 12 or len(people) < 12:
        name = "".join(draw.choices(ALPHABET, k=draw.randint(1, 4)))
        try:
            classes.append(project.add_class(name, "ann").id)
            people.append(name if Answer(id=uuid4(), kind="undo", by=name).by else "")
        except ValueError:
            continue
    for number, image in enumerate(project.images()):
        label(project, image.id, classes[number % len(classes)], by=people[number % len(people)])
    twin = empty_twin(project, tmp_path)
    for format in ("csv", "hf-jsonl", "label-studio"):
        first, second = (tmp_path / side / FILES[format] for side in "12")
        project.export_labels(first, format)
        twin.import_labels(first, format, TakeIn(add_classes=True, replace=True))
        twin.export_labels(second, format)
        assert first.read_bytes() == second.read_bytes()
    twin.close()


@pytest.mark.parametrize("name", ["a\0b", "a\x1b", "a\nb", "\u202eb", "?"])
def test_names_that_databases_and_tables_treat_differently_are_refused(project, name):
    with pytest.raises(UserError):
        project.add_class(name, "ann")
    if name != "?":
        with pytest.raises(ValueError, match="control character"):
            Answer(id=uuid4(), kind="undo", by=name)


@pytest.mark.parametrize("name", list(LABEL_FORMATS))
def test_importing_ones_own_export_changes_nothing(labeled, tmp_path, name):
    path, seq = tmp_path / FILES.get(name, "folder"), labeled.seq()
    labeled.export_labels(path, name)
    assert labeled.import_labels(path, name) == []
    assert labeled.seq() == seq


def test_every_export_holds_relative_path_and_sha256(labeled, tmp_path):
    image = labeled.labels().ids[0]
    name = next(each.name for each in labeled.images([image]))
    for format in LABEL_FORMATS:
        path = tmp_path / FILES.get(format, "folder")
        labeled.export_labels(path, format)
        rows, _ = LABEL_FORMATS[format].parse(path)
        assert (name, image) in [(row.file_name, row.sha256) for row in rows], format


def test_d5_cells_that_a_spreadsheet_would_run_are_neutralised(labeled, tmp_path):
    labeled.export_labels(tmp_path / "out.csv")
    labeled.mirror.write()
    for text in ((tmp_path / "out.csv").read_text(), labeled.layout.mirror.read_text()):
        assert f",'{HOSTILE}," in text
        assert f",{HOSTILE}," not in text


@given(st.text())
def test_d5_neutralising_can_be_taken_back(text):
    assert restore(escape(text)) == text
    assert escape(text)[:1] not in tuple("=+-@\t\r")


@example(".hidden")
@given(st.text(min_size=1))
def test_the_folder_of_a_class_is_never_a_path(name):
    folder = class_folder(name)
    assert "/" not in folder
    assert "\0" not in folder
    assert not folder.startswith(".")


def test_an_image_folder_has_links_or_copies_and_never_moves(labeled, tmp_path, refusal):
    before = contents(labeled.root)
    labeled.export_labels(tmp_path / "links")
    labeled.export_labels(tmp_path / "copies", copy=True)
    links = list((tmp_path / "links").rglob("*.png"))
    copies = list((tmp_path / "copies").rglob("*.png"))
    assert links
    assert all(path.is_symlink() for path in links)
    assert len(copies) == len(links)
    assert not any(path.is_symlink() for path in copies)
    assert contents(labeled.root) == before
    with refusal():
        labeled.export_labels(tmp_path / "links")


def test_an_image_folder_of_others_is_read_by_its_bytes(project, tmp_path):
    (tmp_path / "mine" / "cat").mkdir(parents=True)
    shutil.copy(project.root / "3.png", tmp_path / "mine" / "cat" / "another name.png")
    project.import_labels(tmp_path / "mine")
    assert [each.name for each in project.images(project.labels().ids)] == ["3.png"]


def refused(project, path, text, how=None):
    """Import a file that must be refused; return what was said. Nothing may be stored."""
    path.write_text(text, "utf-8")
    before = project.seq()
    with pytest.raises(ValueError, match="was not used") as error:
        project.import_labels(path, None, how or TakeIn())
    assert project.seq() == before
    return str(error.value)


def test_d4_every_problem_has_its_line_number_and_nothing_is_half_imported(project, tmp_path):
    said = refused(
        project,
        tmp_path / "l.csv",
        "file_name,label,sha256\n"
        "1.png,cat,\n"
        "nowhere.png,cat,\n"
        "../secret.png,cat,\n"
        "/etc/passwd,cat,\n"
        "2.png,kat,\n"
        "1.png,cat,\n"
        f"4.png,cat,{'0' * 64}\n"
        "5.png\n"
        ",cat,\n",
    )
    assert "line 9: 1 columns where the first line has 3" in said
    said = refused(
        project,
        tmp_path / "l.csv",
        "file_name,label,sha256\n1.png,cat,\nnowhere.png,cat,\n../secret.png,cat,\n/etc/passwd,cat,\n2.png,kat,\n"
        f"1.png,cat,\n4.png,cat,{'0' * 64}\n,cat,\n",
    )
    for expected in (
        "line 3: there is no image 'nowhere.png' in the folder",
        "line 4: '../secret.png' leads out of the folder",
        "line 5: '/etc/passwd' leads out of the folder",
        "line 6: there is no class 'kat'. Did you mean 'cat'?",
        "line 7: '1.png' is listed in line 2 already",
        "line 8: '4.png' has other bytes here than the sha256 says",
        "line 9: there is neither a file name nor a sha256",
    ):
        assert expected in said
    assert "line 2" not in said.replace("in line 2 already", "")


def test_d4_two_answers_for_one_image_are_a_conflict(project, tmp_path):
    shutil.copy(project.root / "3.png", project.root / "copy.png")
    project.index()
    said = refused(project, tmp_path / "l.csv", "file_name,label\n3.png,cat\ncopy.png,dog\n")
    assert "line 3: 'copy.png' is the image of line 2, with another answer" in said


def test_d4_a_label_that_differs_here_is_a_conflict_unless_it_may_replace(project, tmp_path, label):
    image = next(image for image in project.images() if image.name == "3.png")
    label(project, image.id, 1)
    path = tmp_path / "l.csv"
    assert "line 2: '3.png' has another answer here, by ann; --replace" in refused(
        project, path, "file_name,label\n3.png,cat\n"
    )
    project.import_labels(path, None, TakeIn(replace=True))
    assert project.labels().class_ids == (0,)


def test_d4_what_is_no_text_too_long_or_no_table_is_refused(project, tmp_path, monkeypatch, refusal):
    path = tmp_path / "l.csv"
    path.write_bytes(b"file_name,label\n1.png,cat\n2.png,\xff\n")
    with refusal():
        project.import_labels(path)
    path.write_text("name,class\n")
    with refusal():
        project.import_labels(path)
    path.write_text('file_name,label\n"1.png,cat\n')
    with refusal():
        project.import_labels(path)
    monkeypatch.setattr("mma.data.tables.MAX_BYTES", 10)
    with refusal():
        project.import_labels(path)
    with refusal():
        project.import_labels(shutil.copy(path, tmp_path / "l.xyz"))


def test_d4_json_that_is_broken_or_deep_is_refused(project, tmp_path, refusal):
    lines = tmp_path / "metadata.jsonl"
    said = refused(project, lines, '{"file_name": "1.png", "label": 3}\nno json\n' + "[" * 100_000 + "\n")
    assert "line 1: it is not a row of texts" in said
    assert "line 2: it is not JSON" in said
    assert "line 3: it is not JSON" in said
    tasks = tmp_path / "tasks.json"
    tasks.write_text("[" * 100_000)
    with refusal():
        project.import_labels(tasks)
    said = refused(project, tasks, json.dumps([{"data": {}}, {"data": 3}, {"nothing": 1}]))
    assert "task 2: it is not a task" in said
    assert "task 3" in said


def test_label_studio_answers_that_differ_are_a_problem(project, tmp_path):
    def annotation(name):
        return {"result": [{"type": "choices", "value": {"choices": [name]}}]}

    task = {"data": {"file_name": "1.png"}, "annotations": [annotation("cat"), annotation("dog")]}
    assert "its annotations differ" in refused(project, tmp_path / "t.json", json.dumps([task]))


def test_new_classes_are_added_only_when_asked_for(project, tmp_path):
    path = tmp_path / "l.csv"
    refused(project, path, "file_name,label\n1.png,zebra\n2.png,ant\n3.png,CAT\n")
    said = refused(project, path, path.read_text(), TakeIn(add_classes=True))
    assert "line 4: there is a class 'cat' already" in said
    path.write_text("file_name,label\n1.png,zebra\n2.png,ant\n")
    project.import_labels(path, None, TakeIn(add_classes=True))
    assert [each.name for each in project.classes()] == ["cat", "dog", "ant", "zebra"]


def test_an_import_is_undone_as_one(project, tmp_path):
    (tmp_path / "l.csv").write_text("file_name,label\n1.png,cat\n2.png,dog\n")
    events = project.import_labels(tmp_path / "l.csv", None, TakeIn(by="ann"))
    assert {event.provenance for event in events} == {"import"}
    assert len(project.undo("ann")) == 2
    assert project.counts().labeled == 0


def test_the_format_follows_from_the_name(refusal):
    names = {
        "a.csv": "csv",
        "metadata.csv": "hf-csv",
        "a.jsonl": "hf-jsonl",
        "a.json": "label-studio",
        "a": "imagefolder",
    }
    assert {name: format_of(Path(name)) for name in names} == names
    with refusal():
        format_of(Path("a"), "labelstudio")
