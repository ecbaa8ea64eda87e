"""Predictions of a folder: every format, bad files, and a result that a kill does not change."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

import mma.model.predictions as output
from mma.model.predictions import FolderTask, predict_folder


@pytest.fixture
def folder(photo_files, tmp_path) -> Path:
    """Photos, one of them broken, one named like a formula, one in a sub-folder, a hidden one, and a link to a folder."""
    root = photo_files["small.png"].parent
    (root / "sub").mkdir()
    shutil.copy(photo_files["small.png"], root / "sub" / "=1+1.png")
    shutil.copy(photo_files["small.png"], root / ".hidden.png")
    (root / "-broken.jpg").write_bytes(photo_files["large.jpg"].read_bytes()[:999])
    (root / "away").symlink_to(tmp_path, target_is_directory=True)
    return root


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_file_has_a_row_and_bad_ones_say_why(pixels, folder, tmp_path):
    model = pixels()
    found = predict_folder(model, folder, tmp_path / "out.csv")
    rows = {row["file"]: row for row in read_csv(tmp_path / "out.csv")}
    assert len(rows) == found.files == 15
    assert "cut short" in rows["'-broken.jpg"]["problem"]
    assert rows["away"]["problem"] == "links to folders are not followed"
    assert rows["away"]["label"] == rows["away"]["confidence"] == ""
    assert found.bad == 2
    assert {each.file for each in found.first_bad} == {"-broken.jpg", "away"}
    best = model.predict(folder / "large.jpg")
    assert rows["large.jpg"]["label"] == best.labels[0]
    assert float(rows["large.jpg"]["confidence"]) == pytest.approx(best.confidence[0], abs=1e-6)
    assert sorted(each.name for each in tmp_path.glob("*out*")) == ["out.csv"]


def test_csv_cells_are_never_formulas(pixels, folder, tmp_path):
    predict_folder(pixels(), folder / "sub", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith("'=1+1.png,")


def test_all_formats_hold_the_same(pixels, folder, tmp_path):
    model = pixels()
    for name in ("out.csv", "out.jsonl", "out.parquet"):
        predict_folder(model, folder, tmp_path / name, top=2)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert list(lines[0]) == ["file", "label", "confidence", "label_2", "confidence_2", "problem"]
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["file"] for row in table] == [row["file"] for row in lines]
    assert [row["label_2"] for row in table] == [row["label_2"] for row in lines]
    for row, line, cells in zip(table, lines, read_csv(tmp_path / "out.csv"), strict=True):
        if line["problem"] is None:
            assert row["confidence"] == pytest.approx(line["confidence"]) == pytest.approx(float(cells["confidence"]))
            assert line["confidence"] >= line["confidence_2"]


def test_more_classes_than_there_are_is_all_of_them(pixels, folder, tmp_path):
    predict_folder(pixels(), folder / "small.png", tmp_path / "out.jsonl", top=99)
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert set(pixels().classes) == {json.loads(line)[name] for name in ("label", "label_2", "label_3")}


class Stop(BaseException):
    """What a kill is to a process."""


def stop_after(rows: int):
    def progress(done: int, total: int) -> None:
        if done == rows:
            raise Stop

    return progress


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet"])
def test_a_result_that_was_interrupted_again_and_again_is_byte_equal(pixels, folder, tmp_path, monkeypatch, name):
    monkeypatch.setattr(output, "BLOCK", 3)
    model = pixels()
    predict_folder(model, folder, tmp_path / f"whole-{name}", top=2)
    part = tmp_path / f"{name}.part"
    for rows in (1, 3, 5, 7, 14):
        with pytest.raises(Stop):
            predict_folder(model, folder, tmp_path / name, top=2, progress=stop_after(rows))
        with part.open("ab") as file:
            file.write(b'{"file":"torn')  # killed while writing
    found = predict_folder(model, folder, tmp_path / name, top=2)
    assert found.resumed == 12  # whole blocks of 3
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    assert not part.exists()


def test_images_that_are_there_already_are_not_predicted_again(pixels, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "BLOCK", 1)
    model = pixels()
    with pytest.raises(Stop):
        predict_folder(model, folder, tmp_path / "out.csv", progress=stop_after(15))
    seen = []
    rows = FolderTask.rows
    monkeypatch.setattr(FolderTask, "rows", lambda task, start: seen.append(start) or rows(task, start))
    predict_folder(model, folder, tmp_path / "out.csv")
    assert seen == [15]


def test_a_part_of_other_work_is_refused_and_left_alone(pixels, folder, tmp_path, monkeypatch, refusal):
    monkeypatch.setattr(output, "BLOCK", 1)
    out, part = tmp_path / "out.csv", tmp_path / "out.csv.part"
    with pytest.raises(Stop):
        predict_folder(pixels(), folder, out, progress=stop_after(5))
    kept = part.read_bytes()
    with refusal():
        predict_folder(pixels(seed=1), folder, out)
    with refusal():
        predict_folder(pixels(), folder, out, top=2)
    (folder / "new.png").touch()
    with refusal():
        predict_folder(pixels(), folder, out)
    (folder / "new.png").unlink()
    assert part.read_bytes() == kept
    lines = kept.splitlines(keepends=True)
    part.write_bytes(b"".join([*lines[:2], lines[3], lines[2]]))
    with refusal():
        predict_folder(pixels(), folder, out)


def test_a_result_inside_the_folder_is_not_one_of_its_images(pixels, folder, monkeypatch):
    monkeypatch.setattr(output, "BLOCK", 1)
    with pytest.raises(Stop):
        predict_folder(pixels(), folder, folder / "out.csv", progress=stop_after(5))
    found = predict_folder(pixels(), folder, folder / "out.csv")
    assert found.resumed == 5
    assert found.files == 15


@pytest.mark.parametrize("way", ["link", "photos/sub/..", "link/sub/.."])
def test_a_result_inside_the_folder_is_found_again_on_a_roundabout_way(pixels, folder, tmp_path, monkeypatch, way):
    monkeypatch.setattr(output, "BLOCK", 1)
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    out = tmp_path / way / "out.csv"
    with pytest.raises(Stop):
        predict_folder(pixels(), folder, out, progress=stop_after(5))
    found = predict_folder(pixels(), folder, out)
    assert (found.resumed, found.files) == (5, 15)
    assert "out.csv.part" not in {row["file"] for row in read_csv(folder / "out.csv")}


def test_wrong_requests_are_refused_before_anything_is_written(pixels, folder, tmp_path, monkeypatch, refusal):
    model = pixels()
    (tmp_path / "there.csv").touch()
    (tmp_path / "empty").mkdir()
    for images, out, message in [
        (folder, "out.xlsx", "there is no format '.xlsx'. Use .csv, .jsonl, .parquet"),
        (folder, "out.cvs", "Did you mean '.csv'"),
        (folder, "out", "there is no format ''"),
        (folder, "there.csv", "is there already. Delete it, or choose another -o"),
        (tmp_path / "empty", "out.csv", "holds no files"),
        (tmp_path / "nowhere", "out.csv", "Give a folder of images"),
    ]:
        with pytest.raises(ValueError, match=message.replace(".", r"\.")):
            predict_folder(model, images, tmp_path / out)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refusal():
        predict_folder(model, folder, tmp_path / "out.parquet")
    assert not list(tmp_path.glob("*.part"))


def test_a_file_that_links_out_of_the_folder_is_a_problem_and_not_read(pixels, folder, tmp_path):
    (tmp_path / "secret").mkdir()
    shutil.copy(folder / "small.png", tmp_path / "secret" / "photo.png")
    (folder / "link.png").symlink_to(tmp_path / "secret" / "photo.png")
    predict_folder(pixels(), folder, tmp_path / "out.csv")
    rows = {row["file"]: row for row in read_csv(tmp_path / "out.csv")}
    assert rows["link.png"]["problem"] == "it is a link that leads out of the folder"
