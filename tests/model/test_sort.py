"""`mma predict --sort-into`: a folder per class, links or copies; the images stay as they are."""

from __future__ import annotations

import pytest
from PIL import Image

from mma.errors import UserError
from mma.model import predictions
from mma.model.predictions import check_sheet, check_sorted, sort_images, write_sheet


def rows():
    return [
        {"file": "a.png", "label": "cat", "confidence": 0.9, "problem": None},
        {"file": "in/a.png", "label": "cat", "confidence": 0.8, "problem": None},
        {"file": "b.png", "label": "../dog", "confidence": 0.7, "problem": None},
        {"file": "bad.png", "label": None, "confidence": None, "problem": "the file is empty"},
    ]


@pytest.mark.parametrize("copy", [False, True])
def test_each_image_lies_in_the_folder_of_its_class(tmp_path, copy):
    root, out = tmp_path / "photos", tmp_path / "sorted"
    (root / "in").mkdir(parents=True)
    for name in ("a.png", "in/a.png", "b.png", "bad.png"):
        (root / name).write_bytes(name.encode())
    assert sort_images(root, rows(), out, copy=copy) == 3
    found = {path.relative_to(out).as_posix(): path for path in out.rglob("*.png")}
    assert {name: path.read_bytes().decode() for name, path in found.items()} == {
        "cat/a.png": "a.png",
        "cat/in/a.png": "in/a.png",
        "_dog/b.png": "b.png",
    }
    assert {path.is_symlink() for path in found.values()} == {not copy}


def test_what_is_there_and_the_images_themselves_are_not_sorted_into(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    for folder in (tmp_path / "full", tmp_path / "photos", tmp_path / "photos" / "sorted"):
        with pytest.raises(UserError):
            check_sorted(tmp_path / "photos", folder)
    check_sorted(tmp_path / "photos", tmp_path / "new")


def test_a_contact_sheet_has_the_least_sure_first_and_nothing_of_a_name_is_markup(tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "SHEET", 2)
    names = ("a.png", "<b onclick=x>.png", "c.png")
    for shade, name in enumerate(names):
        Image.new("RGB", (300, 200), (80 * shade, 0, 0)).save(tmp_path / name)
    answers = zip(names, (0.6, 0.5, 0.9), strict=True)
    given = [
        {"file": name, "label": "<i>", "confidence": sure, "unlike": "yes", "problem": None} for name, sure in answers
    ]
    write_sheet(tmp_path, [*given, *rows()[3:]], tmp_path / "sheet.html")
    page = (tmp_path / "sheet.html").read_text("utf-8")
    assert page.index("&lt;b onclick=x&gt;.png") < page.index("a.png")
    assert "c.png" not in page
    assert "<i>" not in page
    assert page.count("data:image/jpeg;base64,") == 2
    assert "50 %, unlike anything labeled" in page
    for place in (tmp_path / "sheet.html", tmp_path / "sheet.png"):
        with pytest.raises(UserError):
            check_sheet(place)
