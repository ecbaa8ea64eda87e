"""Browse, try and download through the guard."""

from __future__ import annotations

import base64
import io
import subprocess
import threading
import zipfile

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save

from mma.project import Pick
from mma.project import find as find_module
from mma.project import map as map_module
from mma.project.map import FILE, place_vectors
from mma.web import views
from tests.web.page import write_image


def browse(client, **wanted):
    reply = client.post("/api/browse", json={"by": "anna", **wanted})
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.fixture
def guessed(project):
    """Let a model take the first half for cats, the rest for dogs, and be surer the later the name comes."""
    images = sorted((image for image in project.images() if not image.audit), key=lambda image: image.name)
    guesses = [(number < len(images) // 2, 0.5 + 0.01 * number) for number in range(len(images))]
    picks = [Pick(image.id, suggestion=[(0 if cat else 1, p)]) for image, (cat, p) in zip(images, guesses, strict=True)]
    project.put_picks(picks, None)
    return images


def test_photos_are_listed_by_class_sureness_and_name(client, project, guessed):
    least = browse(client, order="unsure")
    assert [each["image"] for each in least["items"]] == [each.id for each in guessed]
    surest = browse(client, order="sure", class_id=1)
    assert [each["image"] for each in surest["items"]] == [each.id for each in reversed(guessed[len(guessed) // 2 :])]
    assert surest["items"][0]["guess"] == [1, pytest.approx(0.5 + 0.01 * (len(guessed) - 1))]
    named = browse(client, text=guessed[3].name.upper())
    assert [each["name"] for each in named["items"]] == [guessed[3].name]
    part = browse(client, order="name", offset=2, n=3)
    assert ([each["image"] for each in part["items"]], part["total"]) == (
        [each.id for each in guessed[2:5]],
        len(guessed),
    )


def test_a_label_given_since_the_last_look_is_shown(client, project, guessed, answer_for):
    assert browse(client, kind="labeled")["total"] == 0
    client.post("/api/answers", json=answer_for(guessed[0].id, 1))
    assert [each["label"] for each in browse(client, kind="labeled")["items"]] == [1]


def test_labels_count_before_guesses_and_are_found_by_person(client, project, guessed, answer_for):
    reply = client.post("/api/answers", json=answer_for(guessed[0].id, 1))
    assert reply.status_code == 200
    found = browse(client, kind="labeled", class_id=1, person="anna")
    assert [(each["image"], each["label"], each["by"]) for each in found["items"]] == [(guessed[0].id, 1, "anna")]
    assert found["people"] == ["anna"]
    assert browse(client, kind="unlabeled")["total"] == len(guessed) - 1
    assert browse(client, person="bob")["total"] == 0


def test_photos_kept_for_measuring_cannot_be_chosen(client, project, guessed):
    kept = {image.id for image in project.images() if image.audit}
    found = browse(client, n=400)
    assert kept
    assert found["hidden"] == len(kept)
    assert not kept & {each["image"] for each in found["items"]}


def test_those_most_like_a_photo_come_first(client, project, photos, guessed):
    with Image.open(photos / guessed[5].name) as image:
        near = np.asarray(image).copy()
    near[0, 0] ^= 1
    Image.fromarray(near).save(photos / "zz.png")
    project.index()
    names = [each["name"] for each in browse(client, like=guessed[5].id)["items"]]
    assert names[:2] == [guessed[5].name, "zz.png"]


def test_labels_and_the_newest_export_leave_as_one_zip(client, project, guessed, answer_for):
    client.post("/api/answers", json=answer_for(guessed[0].id, 1))
    for number in (1, 2):
        place = project.folder / "export" / f"model-00{number}"
        place.mkdir(parents=True)
        (place / "model.onnx").write_bytes(bytes([number]) * 3_000_000)
    reply = client.get("/api/download")
    assert reply.headers["content-disposition"] == 'attachment; filename="photos.zip"'
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["labels.csv", "model-002/model.onnx"]
        assert archive.read("model-002/model.onnx") == b"\x02" * 3_000_000
        assert guessed[0].name in archive.read("labels.csv").decode()


def test_a_link_in_the_export_folder_leads_nothing_out(client, project, tmp_path):
    (tmp_path / "secret").write_text("secret")
    place = project.folder / "export" / "model-001"
    place.mkdir(parents=True)
    (place / "x").symlink_to(tmp_path / "secret")
    with zipfile.ZipFile(io.BytesIO(client.get("/api/download").content)) as archive:
        assert "model-001/x" not in archive.namelist()


def test_a_picture_is_tried_with_the_model_in_use_and_not_kept(client, project, tmp_path, monkeypatch):
    seen = {}

    def run(module, command, folder, kind, photo, *options, **rest):
        from pathlib import Path
        from subprocess import CompletedProcess

        seen["place"] = Path(photo).parent
        with Image.open(photo) as picture:
            seen["size"] = picture.size
        row = '{"file": "photo.png", "label": "dog", "confidence": 0.9, "label_2": "cat", "confidence_2": 0.1, "problem": null}'
        Path(options[1]).write_text(row + "\n")
        return CompletedProcess([], 0, "{}", "")

    monkeypatch.setattr(views.children, "run", run)
    picture = base64.b64encode(write_image(tmp_path / "new.png", 77).read_bytes()).decode()
    reply = client.post("/api/try", json={"by": "anna", "picture": picture})
    assert reply.json()["answers"] == [["dog", 0.9], ["cat", 0.1]]
    assert seen["size"] == (48, 48)
    assert not seen["place"].exists()


def test_what_is_no_picture_is_refused(client):
    for picture in ("!!!", base64.b64encode(b"no picture").decode()):
        reply = client.post("/api/try", json={"by": "anna", "picture": picture})
        assert reply.status_code == 400
        assert "cannot be read" in reply.json()["error"]


def test_the_map_has_no_photo_that_is_kept_for_measuring_and_is_drawn_once(client, project, guessed, monkeypatch):
    begun = []

    def draw(module, *arguments, timeout, stop):
        begun.append((module, *arguments))
        return subprocess.CompletedProcess([], 1, "", "no room")

    project.models.put(state="ready", accuracy=0.9, about={})
    monkeypatch.setattr(find_module.children, "run", draw)
    client.get("/api/map")
    for thread in threading.enumerate():
        if thread.name == "map":
            thread.join()
    assert begun == [("mma.project.map", str(project.folder))]
    assert client.get("/api/map").json()["problem"] == "no room"
    images = project.images()
    keys = np.frombuffer(bytes.fromhex("".join(image.id for image in images)), np.uint8).reshape(-1, 32).copy()
    places = np.linspace(0, 1, 2 * len(images), dtype=np.float32).reshape(-1, 2)
    (project.folder / "cache" / FILE).write_bytes(save({"keys": keys, "places": places}))
    found = client.get("/api/map").json()
    assert {point[0] for point in found["points"]} == {image.id for image in images if not image.audit}
    assert len(begun) == 1


def test_alike_vectors_lie_near_each_other_on_the_map():
    draw = np.random.default_rng(1)
    kinds = np.repeat(np.arange(3), 40)
    vectors = draw.normal(size=(3, 64))[kinds] * 4 + draw.normal(size=(120, 64))
    places = place_vectors(vectors)
    assert places.shape == (120, 2)
    assert places.min() >= 0
    assert places.max() <= 1
    centres = np.stack([places[kinds == kind].mean(0) for kind in range(3)])
    assert (np.linalg.norm(places[:, None] - centres, axis=2).argmin(1) == kinds).all()


def test_a_map_of_many_puts_the_rest_beside_those_most_like_them(monkeypatch):
    monkeypatch.setattr(map_module, "WHOLE", 60)
    draw = np.random.default_rng(1)
    kinds = np.tile(np.arange(3), 60)
    vectors = draw.normal(size=(3, 64))[kinds] * 4 + draw.normal(size=(180, 64))
    places = place_vectors(vectors)
    centres = np.stack([places[kinds == kind].mean(0) for kind in range(3)])
    assert (np.linalg.norm(places[:, None] - centres, axis=2).argmin(1) == kinds).all()
    assert place_vectors(vectors[:3]).shape == (3, 2)


def test_a_search_and_the_heaps_are_asked_for_through_the_guard(client, project, guessed):
    reply = client.post("/api/find", json={"by": "anna", "class_id": 0})
    assert (reply.status_code, "no photo is labeled cat yet" in reply.json()["error"]) == (400, True)
    assert client.post("/api/find", json={"by": "anna", "class_id": 0, "yes": ["../x"]}).status_code == 422
    reply = client.post("/api/browse", json={"by": "anna", "max_error": 0.02, "heap": "mine"})
    assert (reply.status_code, "there is no model yet" in reply.json()["error"]) == (400, True)
