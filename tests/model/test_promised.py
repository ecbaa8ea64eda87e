"""What a model may answer alone, and what is unlike anything labeled: in files, in ONNX, on its card."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import mma
from mma.cli import commands
from mma.model import Model, new_model
from mma.model.description import About
from mma.model.exporter import export
from mma.model.model import opener
from mma.shares import AuditRecord, Promise


@pytest.fixture
def promised(heads, photo_files) -> Model:
    """A head that knows one photo, in any mode, and takes everything else for unlike it; its audit was faultless."""
    plain = heads("hog@32")
    seen = plain.predictor
    vector = seen.vectors([seen.prepare(opener(photo_files["small.png"]))])[:1].numpy()
    record = AuditRecord(
        tuple(np.linspace(1, 0.34, 300).tolist()), (True,) * 300, tuple(np.linspace(0.34, 1, 1_001).tolist())
    )
    about = About(audit=record, promises=(Promise(0.02, 0.34, 1.0),))
    file = plain.file.model_copy(update={"strange": 0.3, "about": about})
    return new_model(file, seen.network, [each.numpy() for each in seen.centres], typical=np.repeat(vector, 3, 0))


@pytest.fixture
def folder(tmp_path, photo_files):
    """The photo that the model knows, and noise that it does not."""
    place = tmp_path / "new"
    place.mkdir()
    Image.open(photo_files["small.png"]).save(place / "known.png")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)).save(place / "noise.png")
    return place


def run(*arguments):
    return CliRunner().invoke(commands(), [str(each) for each in arguments])


def rows(path):
    return {row["file"]: row for row in csv.DictReader(path.read_text().splitlines())}


def test_what_is_unlike_anything_labeled_is_known_to_the_model_its_copy_and_its_onnx_file(promised, folder, tmp_path):
    photos = sorted(folder.iterdir())
    assert promised.predict(photos).unlike.tolist() == [False, True]
    assert mma.load(promised.save(tmp_path / "copy")).predict(photos).unlike.tolist() == [False, True]
    made = export(tmp_path / "copy", tmp_path / "out", ["onnx"]).folder
    assert mma.load(made).predict(photos).unlike.tolist() == [False, True]
    outputs = mma.load(made).predictor.session.get_outputs()
    assert [each.name for each in outputs] == ["probabilities", "unlike"]
    assert "| 2 % | 0.3400 | 100 % |" in (made / "MODEL.md").read_text("utf-8")


def test_a_model_that_cannot_tell_calls_nothing_unlike(heads, folder):
    assert not heads("hog@32").predict(sorted(folder.iterdir())).unlike.any()


def test_only_what_the_promise_covers_gets_a_label(promised, folder, tmp_path):
    model = promised.save(tmp_path / "model")
    done = run("predict", model, folder, "-o", tmp_path / "a.csv", "--max-error", 0.02)
    assert done.exit_code == 0, done.output
    assert "1 answered alone: at most 2 % of those are wrong" in done.stderr
    assert "1 unlike anything labeled" in done.stdout
    found = rows(tmp_path / "a.csv")
    known, noise = found["known.png"], found["noise.png"]
    assert (known["label"] != "", known["unlike"], known["promise"]) == (True, "", "at most 2 % wrong")
    assert (noise["label"], noise["unlike"], noise["promise"]) == ("", "yes", "ask")
    plain = run("predict", model, folder, "-o", tmp_path / "b.csv")
    assert plain.exit_code == 0, plain.output
    assert rows(tmp_path / "b.csv")["noise.png"]["label"]
    assert "promise" not in rows(tmp_path / "b.csv")["noise.png"]


def test_what_is_left_to_people_is_sorted_into_a_folder_of_its_own(promised, folder, tmp_path):
    model = promised.save(tmp_path / "model")
    done = run(
        "predict", model, folder, "-o", tmp_path / "a.csv", "--max-error", 0.02, "--sort-into", tmp_path / "sorted"
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "sorted" / "ask" / "noise.png").is_symlink()


def test_a_promise_that_cannot_be_made_writes_nothing(promised, heads, folder, tmp_path):
    model, plain = promised.save(tmp_path / "model"), heads("hog@32").save(tmp_path / "plain")
    for error, why, which in (
        (0, "cannot be made", model),
        (1, "cannot be made", model),
        (0.001, "takes about", model),
        (0.02, "149", plain),
    ):
        done = run("predict", which, folder, "-o", tmp_path / "a.csv", "--max-error", error)
        assert (done.exit_code, why in done.stderr, (tmp_path / "a.csv").exists()) == (1, True, False), done.output


def test_a_copy_without_its_typical_images_is_refused(promised, tmp_path):
    place = promised.save(tmp_path / "model")
    about = json.loads((place / "model.json").read_text())
    (place / "model.json").write_text(json.dumps({**about, "strange": None}))
    with pytest.raises(mma.errors.UserError, match="has too much: typical"):
        mma.load(place)
