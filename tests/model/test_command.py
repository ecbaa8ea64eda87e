"""The commands: `mma predict` and `mma export` from a shell."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mma.cli import commands


@pytest.fixture
def invoke():
    return lambda *arguments: CliRunner().invoke(commands(), [str(each) for each in arguments])


def test_predict_writes_a_file_and_says_what_could_not_be_read(invoke, pixels, photo_files, tmp_path):
    model, photos = pixels().save(tmp_path / "model"), photo_files["small.png"].parent
    (photos / "empty.png").touch()
    done = invoke("predict", model, photos, "-o", tmp_path / "out.csv", "--top", 2)
    assert done.exit_code == 0, done.output
    assert f"{len(photo_files)} images classified; 1 file could not be read" in done.stdout
    assert "empty.png (the file is empty)" in done.stdout
    assert (tmp_path / "out.csv").read_text().startswith("file,label,confidence,label_2,confidence_2,problem\n")
    again = invoke("predict", model, photos, "-o", tmp_path / "out.csv")
    assert again.exit_code == 1
    assert "is there already" in again.stderr


def test_predict_answers_in_json(invoke, pixels, photo_files, tmp_path):
    model = pixels().save(tmp_path / "model")
    done = invoke("predict", model, photo_files["small.png"], "-o", tmp_path / "out.jsonl", "--json")
    assert json.loads(done.stdout)["files"] == 1


def test_export_says_how_well_the_file_agrees(invoke, pixels, tmp_path):
    model = pixels().save(tmp_path / "model")
    done = invoke("export", model, "--to", "onnx, safetensors", "-o", tmp_path / "x")
    assert done.exit_code == 0, done.output
    assert "model.onnx agrees with the model to" in done.stdout
    as_json = invoke("export", model, "--to", "onnx", "-o", tmp_path / "y", "--json")
    assert json.loads(as_json.stdout)["agreement"]["largest"] <= 1e-4


def test_without_a_model_the_commands_say_so(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("export")
    assert done.exit_code == 1
    assert "holds no model" in done.stderr
    done = invoke("predict", "nowhere", tmp_path, "-o", "out.csv")
    assert "there is no nowhere" in done.stderr
