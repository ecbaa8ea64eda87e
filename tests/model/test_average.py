"""Two models that answer together: kept, exported, predicted with like any other."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import mma
from mma.model.average import average, parts_of
from mma.model.description import About
from mma.model.exporter import TOLERANCE, borrowed_images, compare, export, write_card
from mma.model.loader import model_digest
from mma.model.onnx import onnx_bytes

CLASSES = ("disk", "square", "cross", "star")


@pytest.fixture
def both(heads, pixels) -> mma.Model:
    """A head that knows four classes would be newer; here it knows three, and the whole has a fourth."""
    about = About(source="photos.mma", labels=dict.fromkeys(CLASSES, 9))
    return average([heads("hog@32"), pixels()], [(0, 1, 3), (0, 1, 2)], CLASSES, about, ["live", "deep"])


def test_the_probabilities_are_the_mean_of_those_of_the_members(both):
    photos = borrowed_images()
    live, deep = (member.predict(photos).probs for member in parts_of(both))
    expected = np.zeros((len(photos), 4))
    expected[:, [0, 1, 3]] += live / 2
    expected[:, :3] += deep / 2
    assert np.abs(both.predict(photos).probs - expected).max() < 1e-6


def test_a_class_that_is_gone_takes_nothing_from_the_others(heads, pixels):
    model = average([heads("hog@32"), pixels()], [(0, 1, 2), (-1, 1, 2)], CLASSES[:3], About(), ["live", "deep"])
    probs = model.predict(borrowed_images()).probs
    assert np.allclose(probs.sum(1), 1)
    deep = parts_of(model)[1].predict(borrowed_images()).probs
    assert not np.allclose(probs[:, 0], deep[:, 0])


def test_it_is_kept_and_read_back(both, tmp_path):
    again = mma.load(both.save(tmp_path / "kept"))
    assert np.array_equal(again.predict(borrowed_images()).probs, both.predict(borrowed_images()).probs)
    assert model_digest(again) == model_digest(both)
    assert sorted(path.relative_to(tmp_path / "kept").as_posix() for path in (tmp_path / "kept").rglob("*.json")) == [
        "deep/model.json",
        "live/model.json",
        "model.json",
    ]


def test_a_member_that_was_changed_or_is_missing_is_named(both, tmp_path, refusal):
    kept = both.save(tmp_path / "kept")
    path = kept / "deep" / "model.json"
    whole = path.read_text()
    path.write_text(whole.replace('"temperature": 1.5', '"temperature": 1.6'))
    with refusal():
        mma.load(kept)
    path.write_text(whole)
    (kept / "deep" / "model.safetensors").write_bytes(b"0" * 100)
    with refusal():
        mma.load(kept)
    shutil.rmtree(kept / "deep")
    with refusal():
        mma.load(kept)


@pytest.mark.parametrize("columns", [[0, 1], [0, 1, 9]])
def test_classes_that_do_not_fit_are_refused(both, tmp_path, columns, refusal):
    kept = both.save(tmp_path / "kept")
    found = json.loads((kept / "model.json").read_text())
    found["members"][0]["columns"] = columns
    (kept / "model.json").write_text(json.dumps(found))
    with refusal():
        mma.load(kept)


def test_its_onnx_file_agrees_on_real_images(both, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_bytes(both))
    assert compare(path, both, borrowed_images()).largest <= TOLERANCE


def test_the_export_of_a_project_holds_both_and_a_card_that_names_them(heads, pixels, tmp_path):
    project = tmp_path / "photos.mma"
    heads("hog@32").save(project / "models" / "003")
    pixels().save(project / "models" / "002")
    (project / "mma.toml").write_text('images = "none"\n')
    (project / "labels.csv").write_text("file_name,label\n")
    accuracy = {"percent": 90.0, "low": 80.0, "high": 96.0, "images": 60, "measured_on": "60 audit labels"}
    members = [{"number": number, "columns": [0, 1, 2]} for number in (3, 2)]
    serving = {"number": 2, "use": "both", "members": members, "accuracy": accuracy}
    (project / "models" / "serving.json").write_text(json.dumps(serving))
    model = mma.load(project)
    assert len(parts_of(model)) == 2
    assert model.about.accuracy is not None
    assert model.about.accuracy.percent == 90.0
    found = export(project)
    assert found.folder == project / "export" / "model-003-002"
    assert "member-2/model.safetensors" in found.files
    sums = (found.folder / "SHA256SUMS").read_text()
    assert "member-3/model.json" in sums
    assert "averages the probabilities of 2 models" in (found.folder / "MODEL.md").read_text()
    shutil.rmtree(project / "models" / "003")
    assert len(parts_of(mma.load(project))) == 1  # what is left, without the accuracy of both
    assert mma.load(project).about.accuracy is None


def test_the_card_of_both_says_what_each_is_made_of(both):
    card = write_card(both, None, [])
    assert "hog@32" in card
    assert "the network small" in card
