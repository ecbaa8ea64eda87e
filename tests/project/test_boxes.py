"""Boxes of a detector as items: cut, labeled, kept together by photo, and answered box by box."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from mma.cli import commands
from mma.data.boxes import cut_boxes, read_boxes, write_answers
from mma.project import Answer, open_project
from tests.project.shapes import KINDS, draw_shape

RUN = CliRunner()


def scene(path: Path, number: int, kinds: tuple[str, ...]) -> list[dict]:
    """A photo with a shape in each half, and what MegaDetector says of it; one box is too unsure to count."""
    whole = np.full((60, 120, 3), 128, np.uint8)
    for place, kind in enumerate(kinds):
        whole[10:50, 10 + 60 * place : 50 + 60 * place] = draw_shape(kind, 10 * number + place)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(whole).save(path)
    found = [
        {"category": "1", "conf": 0.9, "bbox": [(10 + 60 * at) / 120, 10 / 60, 40 / 120, 40 / 60]} for at in (0, 1)
    ]
    return [*found[: len(kinds)], {"category": "1", "conf": 0.05, "bbox": [0, 0, 0.1, 0.1]}]


@pytest.fixture
def trap(tmp_path) -> tuple[Path, Path]:
    """Photos of a camera trap and the detector's file."""
    photos, images = tmp_path / "photos", []
    for number in range(24):
        kinds = (KINDS[number % 4], KINDS[(number + 1) % 4]) if number % 3 else (KINDS[number % 4],)
        name = f"site {number % 2}/IMG_{number:02d}.JPG"
        found = scene(photos / name, number, kinds)
        images.append({"file": name, "detections": found})
    images.append({"file": "site 0/gone.JPG", "failure": "cannot be read", "detections": None})
    (tmp_path / "detections.json").write_text(json.dumps({"images": images, "detection_categories": {"1": "animal"}}))
    return photos, tmp_path / "detections.json"


def call(*words) -> str:
    found = RUN.invoke(commands(), [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_boxes_are_cut_beside_the_photos_and_only_once(trap):
    photos, file = trap
    before = {path: path.read_bytes() for path in photos.rglob("*.JPG")}
    boxes = read_boxes(file)
    assert len(boxes) == 40
    pieces = cut_boxes(photos, boxes)
    assert (pieces.boxes, pieces.photos, pieces.bad) == (40, 24, [])
    assert pieces.folder == photos.with_name("photos.boxes").resolve()
    with Image.open(pieces.folder / "site 1/IMG_01.JPG--2.jpg") as piece:
        assert piece.size == (40, 40)
        assert np.abs(np.asarray(piece).astype(int) - draw_shape(KINDS[2], 11)).mean() < 25
    stamps = {path: path.stat().st_mtime_ns for path in pieces.folder.rglob("*.jpg")}
    assert cut_boxes(photos, boxes).boxes == 40
    assert {path: path.stat().st_mtime_ns for path in pieces.folder.rglob("*.jpg")} == stamps
    assert {path: path.read_bytes() for path in photos.rglob("*.JPG")} == before


def test_coco_and_yolo_name_the_same_boxes(trap, tmp_path):
    photos, file = trap
    wanted = [(box.file, tuple(np.round(box.place, 5))) for box in read_boxes(file)]
    images = [{"id": at, "file_name": name, "width": 120, "height": 60} for at, name in enumerate(dict(wanted))]
    numbers = {each["file_name"]: each["id"] for each in images}
    pixels = np.array([120, 60, 120, 60])
    coco = {"images": images, "annotations": [{"image_id": numbers[f], "bbox": list(pixels * p)} for f, p in wanted]}
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    assert [(box.file, tuple(np.round(box.place, 5))) for box in read_boxes(tmp_path / "coco.json")] == wanted
    for name, (x, y, w, h) in wanted:
        path = (tmp_path / "yolo" / name).with_suffix(".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as text:
            text.write(f"0 {x + w / 2} {y + h / 2} {w} {h}\n")
    pieces = cut_boxes(photos, read_boxes(tmp_path / "yolo"))
    assert (
        sorted(path.relative_to(pieces.folder).as_posix() for path in pieces.folder.rglob("*.jpg"))[0]
        == "site 0/IMG_00.JPG--1.jpg"
    )
    assert (pieces.boxes, pieces.bad) == (40, [])


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"images": [{"file": "a.jpg"}]}',
        '{"images": [{"file": "a.jpg", "detections": [{"category": "1", "conf": 1, "bbox": [0, 0, 0]}]}]}',
        '{"images": [{"file": "a.jpg", "detections": [{"category": "1", "conf": 1, "bbox": [0, 0, 7, 1]}]}]}',
        '{"images": [{"file": "../a.jpg", "detections": [{"category": "1", "conf": 1, "bbox": [0, 0, 1, 1]}]}]}',
        "[" * 100_000,
    ],
)
def test_what_names_no_box_in_the_folder_is_refused(tmp_path, text, refusal):
    (tmp_path / "d.json").write_text(text)
    with refusal():
        read_boxes(tmp_path / "d.json")


def test_from_a_detectors_file_to_classes_of_its_boxes(trap, tmp_path, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    photos, file = trap
    said = call("new", photos, "--crops", file, "--classes", ",".join(KINDS))
    assert "40 images in 40 files" in said
    call("new", photos, "--crops", file)  # the same command goes on
    project = open_project(tmp_path / "photos.boxes")
    groups, images = project.groups(), {image.id: image for image in project.images()}
    by_photo: dict[str, set[str]] = {}
    for image in images.values():
        by_photo.setdefault(image.name.rpartition("--")[0], set()).add(image.id)
    for together in by_photo.values():
        assert len({groups[image] for image in together}) == 1
        assert len({images[image].audit for image in together}) == 1
    assert any(len(together) == 2 for together in by_photo.values())
    for image in images.values():
        photo, _, at = image.name.removesuffix(".jpg").rpartition("--")
        number = int(photo[-6:-4])
        kind = (number % 4 + int(at) - 1) % 4
        project.answer(Answer(id=uuid4(), images=[image.id], kind="label", class_id=kind, by="ann"))
    rows = [{"file": image.name, "label": "rings", "confidence": 0.75} for image in images.values()]
    assert write_answers(project.root, rows, tmp_path / "out.json") == 40
    found = json.loads((tmp_path / "out.json").read_text())
    first = {each["file"]: each for each in found["images"]}["site 1/IMG_01.JPG"]["detections"]
    assert [each["classifications"] for each in first] == [[["1", 0.75]]] * 2
    assert first[1]["bbox"] == [70 / 120, 10 / 60, 40 / 120, 40 / 60]
    assert found["classification_categories"] == {"1": "rings"}
    project.close()
