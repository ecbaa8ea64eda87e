"""A person with photos as they have them, from `mma start` to predictions: only commands and the page's own requests."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, Request, build_opener
from uuid import uuid4

import numpy as np
import pytest
from PIL import Image

from tests.project.shapes import KINDS, draw_shape

PATIENCE = 300  # seconds until something that must happen is given up; other programs may use every core


def mma(*words: object) -> str:
    command = [sys.executable, "-m", "mma", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


class Person:
    """Starts the page of a folder, and answers as the page would until there is a model."""

    def __init__(self, project: Path, *words: object) -> None:
        command = [sys.executable, "-m", "mma", "start", *map(str, words), "--no-browser", "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        door = project / "state" / "open.html"
        self.wait(door.is_file)
        (address,) = re.findall(r'url=([^"]+)"', door.read_text("utf-8"))
        self.base, self.opener = address.split("/?")[0], build_opener(HTTPCookieProcessor(CookieJar()))
        self.wait(lambda: self.opener.open(address, timeout=PATIENCE).status == 200)
        self.project = self.get("/api/state")["project"]["id"]

    def wait(self, happened: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self.process.poll() is None, self.process.stderr.read()
            try:
                if happened():
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError("it did not happen")

    def get(self, path: str) -> Any:
        return json.load(self.opener.open(self.base + path, timeout=PATIENCE))

    def post(self, path: str, **body: Any) -> Any:
        headers = {"Content-Type": "application/json", "X-MMA": self.project, "Origin": self.base}
        request = Request(self.base + path, json.dumps({"by": "ann", **body}).encode(), headers)
        return json.load(self.opener.open(request, timeout=PATIENCE))

    def label_until_there_is_a_model(self, truth: Callable[[str], str], most: int = 60) -> None:
        self.wait(lambda: not [each for each in self.get("/api/state")["work"] if each["name"] == "Looking at photos"])
        classes = {each["name"]: each["id"] for each in self.get("/api/state")["classes"]}
        given = 0
        while given < most and (items := self.post("/api/next", n=8)["items"]):
            for item in items:
                answer = {
                    "id": str(uuid4()),
                    "images": [item["image"]],
                    "kind": "label",
                    "class_id": classes[truth(item["name"])],
                }
                self.post("/api/answers", **answer)
                given += 1
        self.wait(lambda: any(each["state"] == "ready" for each in self.get("/api/state")["models"]))

    def stop(self) -> float:
        """Press Ctrl-C; return how long it took."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=PATIENCE)
        return time.monotonic() - begin


ODD = (
    "=cmd|calc!A0.heic",
    "-rf.heic",
    "a\nb.heic",
    "<img src=x>.heic",
    "ציפור.heic",
    "🦉 'owl' \"q\".heic",
    "x" * 200 + ".heic",
)


def test_a_folder_of_iphone_photos_with_a_huge_one_links_and_odd_names(tmp_path):
    pytest.importorskip("pillow_heif", reason="iPhone photos are read by pillow-heif").register_heif_opener()
    photos, elsewhere = tmp_path / "my photos", tmp_path / "elsewhere"
    names = [*ODD, *(f"IMG_{number:04d}.HEIC" for number in range(len(ODD), 72))]
    for folder in (photos, elsewhere):
        folder.mkdir()
    kinds = {}
    for number, name in enumerate(names):
        kinds[name] = KINDS[number % 2]
        shape = Image.fromarray(draw_shape(kinds[name], number)).resize((160, 160))
        shape.save(photos / name, "HEIF", quality=80)
    kinds["scan.jpg"], kinds["linked.jpg"] = KINDS[0], KINDS[1]
    Image.fromarray(draw_shape(KINDS[0], 500)).resize((10_000, 10_000)).save(photos / "scan.jpg", quality=60)
    Image.fromarray(draw_shape(KINDS[1], 501)).save(elsewhere / "linked.jpg")
    os.symlink(elsewhere / "linked.jpg", photos / "linked.jpg")
    (photos / "notes.txt").write_text("no photo")
    (photos / "broken.HEIC").write_bytes((photos / names[-1]).read_bytes()[:400])
    project = tmp_path / "my photos.mma"
    person = Person(project, photos, "--classes", ",".join(KINDS[:2]), "--follow-links")
    person.label_until_there_is_a_model(kinds.__getitem__)
    assert person.get("/api/state")["counts"]["images"] == len(kinds)
    person.stop()
    mma("predict", project, photos, "-o", tmp_path / "answers.csv", "--sheet", tmp_path / "sheet.html")
    with (tmp_path / "answers.csv").open(encoding="utf-8", newline="") as table:
        said = {row["file"].removeprefix("'"): row for row in csv.DictReader(table)}
    assert said["broken.HEIC"]["problem"]
    read = {name: row for name, row in said.items() if not row["problem"] and name in kinds}
    assert len(read) >= len(kinds) - 1  # a link that leads out is not read here
    assert np.mean([row["label"] == kinds[name] for name, row in read.items()]) > 0.8
    page = (tmp_path / "sheet.html").read_text("utf-8")
    assert page.count("<figure>") == 60
    assert "<img src=x>" not in page


def test_from_a_detectors_boxes_to_predictions_of_its_boxes(tmp_path):
    photos, images, kinds = tmp_path / "trap", [], {}
    photos.mkdir()
    for number in range(40):
        whole = np.full((60, 120, 3), 128, np.uint8)
        for place in (0, 1):
            kind = KINDS[(number + place) % 2]
            kinds[number, place] = kind
            whole[10:50, 10 + 60 * place : 50 + 60 * place] = draw_shape(kind, 10 * number + place)
        Image.fromarray(whole).save(photos / f"IMG_{number:02d}.JPG", quality=95)
        boxes = [{"category": "1", "conf": 0.9, "bbox": [(10 + 60 * at) / 120, 1 / 6, 1 / 3, 2 / 3]} for at in (0, 1)]
        images.append({"file": f"IMG_{number:02d}.JPG", "detections": boxes})
    found = tmp_path / "detections.json"
    found.write_text(json.dumps({"images": images, "detection_categories": {"1": "animal"}}))
    pieces, project = tmp_path / "trap.boxes", tmp_path / "trap.boxes.mma"

    def truth(name: str) -> str:
        photo, _, at = name.removesuffix(".jpg").rpartition("--")
        return kinds[int(re.findall(r"IMG_(\d+)", photo)[0]), int(at) - 1]

    person = Person(project, photos, "--crops", found, "--classes", ",".join(KINDS[:2]))
    person.label_until_there_is_a_model(truth, most=50)
    assert person.get("/api/state")["counts"]["images"] == 80
    person.stop()
    mma("predict", pieces, pieces, "-o", tmp_path / "a.jsonl", "--boxes", tmp_path / "answers.json")
    answers = json.loads((tmp_path / "answers.json").read_text("utf-8"))
    names = answers["classification_categories"]
    right = [
        names[box["classifications"][0][0]] == kinds[number, place]
        for number, image in enumerate(sorted(answers["images"], key=lambda each: each["file"]))
        for place, box in enumerate(image["detections"])
    ]
    assert len(right) == 80
    assert np.mean(right) > 0.9
