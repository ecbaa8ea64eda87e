import csv
import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mma.data import FolderOptions
from mma.data import tables as label_csv
from mma.data.folder import read_folder
from mma.data.tables import read_csv, read_labels, render_csv
from tests.each import each

KNOWN = ("a.png", "b.png", "sub/c.png")


def csv_of(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "labels.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "photos"
    for i, name in enumerate(KNOWN):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    return folder


def test_labels_are_read_by_column_name(tmp_path):
    text = 'id,label,file_name\n1,cat,a.png\n2," dog, big ",./sub/c.png\n3,,b.png\n\n'
    assert read_labels(csv_of(tmp_path, text), KNOWN) == {"a.png": "cat", "sub/c.png": "dog, big", "b.png": ""}


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path):
    text = "file_name,label\r\na.png,Käse\r\n"
    assert read_labels(csv_of(tmp_path, text, "utf-8-sig"), KNOWN) == {"a.png": "Käse"}


ROWS = ["missing.png,cat", "../a.png,cat\n/etc/passwd,dog", "a.png,cat\nb.png,dog\na.png,cat", "a.png,cat\n./a.png,dog"]
ROWS += [",cat", "a.png", "a.png," + "x" * 300, 'a.png,"cat', "x\x1b[31m.png,cat"]


@each(rows=ROWS)
def test_problems_are_listed_with_their_lines_and_nothing_is_used(tmp_path, rows, refusal):
    with refusal():
        read_labels(csv_of(tmp_path, f"file_name,label\n{rows}\n"), KNOWN)


def test_a_label_that_is_not_declared_is_an_error_with_its_line(tmp_path, refusal):
    path = csv_of(tmp_path, "file_name,label\na.png,cat\nb.png,o\x1bwl\nsub/c.png,\n")
    with refusal():
        read_labels(path, KNOWN, ("cat", "dog"))
    assert set(read_labels(path, KNOWN)) == set(KNOWN)
    path = csv_of(tmp_path, "file_name,label\na.png,cat\nsub/c.png,\n")
    assert read_labels(path, KNOWN, ("cat", "dog")) == {"a.png": "cat", "sub/c.png": ""}


def test_a_folder_checks_its_csv_against_the_declared_classes(images, refusal):
    (images / "labels.csv").write_text("file_name,label\nb.png,owl\n")
    data = read_folder(images, FolderOptions(classes=("cat", "owl"), holdout=0.0))
    assert (data.train.classes, data.train.labels.max()) == (("cat", "owl"), 1)
    with refusal():
        read_folder(images, FolderOptions(classes=("cat",)))


def test_very_many_problems_are_counted(tmp_path, refusal):
    rows = "\n".join(f"{i}.png,cat" for i in range(50))
    with refusal():
        read_labels(csv_of(tmp_path, f"file_name,label\n{rows}\n"), KNOWN)


@pytest.mark.parametrize("text", ["", "a.png,cat\n", "file,label\na.png,cat\n"])
def test_a_file_without_column_names_is_refused(tmp_path, text, refusal):
    with refusal():
        read_labels(csv_of(tmp_path, text), KNOWN)


def test_a_file_that_is_not_utf8_is_refused_with_the_line(tmp_path, refusal):
    with refusal():
        read_labels(csv_of(tmp_path, "file_name,label\na.png,cat\nb.png,Käse\n", "latin-1"), KNOWN)


def test_a_file_that_is_too_large_is_refused_unread(tmp_path, monkeypatch, refusal):
    monkeypatch.setattr(label_csv, "MAX_BYTES", 10)
    with refusal():
        read_labels(csv_of(tmp_path, "file_name,label\n"), KNOWN)


def test_a_folder_uses_the_csv_it_is_given(images, tmp_path):
    csv = csv_of(tmp_path, "file_name,label\na.png,dog\nsub/c.png,cat\n")
    data = read_folder(images, FolderOptions(labels=csv, holdout=0.0))
    assert data.train.classes == ("cat", "dog")
    assert dict(zip(data.train.names, data.train.labels.tolist(), strict=True)) == {
        "a.png": 1,
        "b.png": -1,
        "sub/c.png": 0,
    }


def test_a_folder_uses_the_csv_that_lies_in_it_and_does_not_take_it_for_an_image(images):
    (images / "labels.csv").write_text("file_name,label\nb.png,owl\n")
    data = read_folder(images, FolderOptions(holdout=0.0))
    assert data.train.classes == ("owl",)
    assert data.quarantine == ()


def test_a_csv_named_relative_to_the_folder_is_found(images):
    (images / "truth.csv").write_text("file_name,label\nb.png,owl\n")
    assert read_folder(images, FolderOptions(labels=images / "truth.csv")).train.classes == ("owl",)
    assert read_folder(images, FolderOptions(labels=Path("truth.csv"))).train.classes == ("owl",)


def test_a_csv_that_is_not_there_is_an_error(images, tmp_path, refusal):
    with refusal():
        read_folder(images, FolderOptions(labels=tmp_path / "missing.csv"))


ODD = (
    "",
    "=1+1",
    "'=x",
    "''+ve",
    "-0.png",
    "\r=cmd|' !A0",
    "a\r=cmd.png",
    "a\n-b",
    '"',
    "a,b",
    " a ",
    "\t",
    "＝1",
    "'",
    "x",
)


def test_a_table_is_read_as_it_was_written_and_no_cell_is_a_formula(tmp_path):
    rows = [list(cells) for cells in itertools.product(ODD, repeat=2)]
    data = render_csv([["file_name", "label"], *rows])
    cells = [cell for row in csv.reader(io.StringIO(data.decode(), newline="")) for cell in row]
    assert not {cell[:1] for cell in cells} & set("=+-@\t\r\n＝")
    table = read_csv(csv_of(tmp_path, data.decode()))
    assert [[row["file_name"], row["label"]] for _, row in table.rows] == rows
    assert table.problems == []


def test_a_lone_carriage_return_stays_inside_its_quotes():
    assert render_csv([["a\r=cmd|' !A0.png", "x"]]) == b'"a\r=cmd|\' !A0.png",x\n'


def test_numbers_are_no_formulas_and_a_row_of_one_empty_cell_is_a_row():
    assert render_csv([["-1", -1, -0.5, None, True], [""]]) == b'\'-1,-1,-0.5,,True\n""\n'


def test_labels_that_begin_like_formulas_are_read_as_they_are(tmp_path):
    data = render_csv([["file_name", "label"], ["-0.png", "+ve"], [" a.png", "-ve"]])
    found = read_labels(csv_of(tmp_path, data.decode()), ["-0.png", " a.png", "a.png"], ("+ve", "-ve"))
    assert found == {"-0.png": "+ve", " a.png": "-ve"}
