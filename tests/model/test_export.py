"""Exports: whole and compared, or not there; cards that tell the truth; a snippet that runs without mma."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import mma
from mma.model import About, Model, ModelFile, measured, new_model
from mma.model.exporter import TOLERANCE, Agreement, export, weak_classes, write_card
from mma.training.host import Host

ONE = Host(threads=1)


@pytest.fixture
def run(new_run):
    made = new_run("run")
    mma.train(made, on=ONE)
    return made


def told(model: Model, **about: object) -> Model:
    file = model.file.model_copy(update={"about": About(**about)})
    return new_model(file, model.predictor.network)


def test_a_run_is_exported_whole(run, digits, tmp_path):
    found = export(run.folder, tmp_path / "x")
    assert found.files == (
        "MODEL.md",
        "SHA256SUMS",
        "labels.csv",
        "model.json",
        "model.onnx",
        "model.safetensors",
        "use.py",
    )
    assert found.agreement.largest <= TOLERANCE
    assert found.agreement.sizes > 5
    for line in (tmp_path / "x" / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((tmp_path / "x" / name).read_bytes()).hexdigest() == digest
    probs = mma.load(run.folder).predict(digits.test.pixels[:50]).probs
    assert np.array_equal(mma.load(tmp_path / "x").predict(digits.test.pixels[:50]).probs, probs)
    by_onnx = mma.load(tmp_path / "x" / "model.onnx").predict(digits.test.pixels[:50]).probs
    assert np.abs(by_onnx - probs).max() <= TOLERANCE
    card = (tmp_path / "x" / "MODEL.md").read_text("utf-8")
    assert f"{run.accuracy():.1f} % (95 % interval" in card
    assert "500 test images of digits" in card
    assert digits.train.digest() in card
    labels = (tmp_path / "x" / "labels.csv").read_text().splitlines()
    assert labels[0] == "label,sha256"
    assert len(labels) == 21


def test_the_head_of_a_card_is_what_the_hub_reads(run, heads, tmp_path):
    from huggingface_hub import ModelCard

    export(run.folder, tmp_path / "x")
    text = (tmp_path / "x" / "MODEL.md").read_text("utf-8")
    data = ModelCard(text).data
    assert (data.license, data.library_name, data.pipeline_tag) == ("unknown", "mma-learn", "image-classification")
    assert {"image-classification", "onnx"} <= set(data.tags)
    assert data.metrics == ["accuracy"]
    (result,) = data.eval_results
    assert (result.task_type, result.metric_type) == ("image-classification", "accuracy")
    assert (result.dataset_type, result.dataset_name) == ("own", "500 test images of digits")
    assert result.metric_value == pytest.approx(run.accuracy() / 100, abs=1e-6)
    assert data.model_name == "run"
    hostile = told(heads(), source='a: "b"\n---\n# <c>', accuracy=measured(7, 9, "nine: 'images'\n- x"))
    named = ModelCard(write_card(hostile, None, ["MODEL.md"])).data
    assert named.model_name == 'a: "b"\n---\n# <c>'
    assert named.eval_results[0].dataset_name == "nine: 'images'\n- x"
    untested = ModelCard(write_card(told(heads()), None, [])).data
    assert (untested.eval_results, untested.metrics) == (None, None)


def test_only_what_was_asked_for_is_exported(run, tmp_path):
    assert export(run.folder, tmp_path / "a", ["labels"]).files == ("MODEL.md", "SHA256SUMS", "labels.csv")
    found = export(run.folder, tmp_path / "b", ["safetensors"])
    assert found.files == ("MODEL.md", "SHA256SUMS", "model.json", "model.safetensors")
    assert found.agreement is None


def test_an_earlier_export_is_replaced_and_nothing_else_is(run, tmp_path, refusal):
    export(run.folder, tmp_path / "x", ["labels"])
    assert "model.json" in export(run.folder, tmp_path / "x", ["safetensors"]).files
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with refusal():
        export(run.folder, tmp_path / "mine", ["labels"])
    (tmp_path / "mine" / "SHA256SUMS").write_text(f"{'0' * 64}  notes.txt\n")  # of something downloaded
    with refusal():
        export(run.folder, tmp_path / "mine", ["labels"])
    assert (tmp_path / "mine" / "notes.txt").exists()
    (tmp_path / "x" / "notes.txt").touch()  # put beside the files of an export
    with refusal():
        export(run.folder, tmp_path / "x", ["labels"])
    model = mma.load(run.folder).save(tmp_path / "model")
    with refusal():
        export(model, model, ["safetensors"])


def test_d6_an_export_that_does_not_agree_leaves_nothing_behind(run, tmp_path, monkeypatch, refusal):
    wrong = onnx.load_from_string(mma_onnx(mma.load(run.folder)))
    for tensor in wrong.graph.initializer:
        if tensor.name.endswith("head.bias"):
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(
                    onnx.numpy_helper.to_array(tensor) + np.arange(10, dtype=np.float32), tensor.name
                )
            )
    monkeypatch.setattr("mma.model.exporter.onnx_bytes", lambda model: wrong.SerializeToString())
    with refusal():
        export(run.folder, tmp_path / "x")
    assert not [each.name for each in tmp_path.iterdir() if "x" in each.name]


def mma_onnx(model: Model) -> bytes:
    from mma.model.onnx import onnx_bytes

    return onnx_bytes(model)


def test_wrong_requests_are_sentences(run, pixels, tmp_path, monkeypatch, refusal):
    with refusal():
        export(run.folder, tmp_path / "x", ["onxn"])
    model = pixels().save(tmp_path / "model")
    with refusal():
        export(model, tmp_path / "x", ["labels"])
    export(model, tmp_path / "x")  # all that there is
    with refusal():
        export(tmp_path / "x" / "model.onnx", tmp_path / "y")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with refusal():
        export(model, tmp_path / "y", ["onnx"])
    assert not (tmp_path / "y").exists()


def test_a_project_is_exported_into_its_own_folder_with_its_labels(pixels, photo_files, tmp_path):
    project = tmp_path / "photos.mma"
    pixels().save(project / "models" / "007")
    (project / "mma.toml").write_text('format = 1\nimages = "../photos"\n')
    (project / "labels.csv").write_text("file_name,label\nsmall.png,disk\n")
    found = export(tmp_path / "photos")
    assert found.folder == project / "export" / "model-007"
    assert found.agreement.images > 12  # photos of the project among them
    assert (found.folder / "labels.csv").read_bytes() == (project / "labels.csv").read_bytes()


def test_the_card_names_weak_classes_people_and_licences(heads, pixels):
    per_class = {"disk": measured(2, 40, ""), "square": measured(39, 40, "")}
    about = {
        "labels": {"disk": 9, "square": 20, "cross": 1},
        "by": {"Ann": 25, "<b>Bob</b>": 5},
        "accuracy": measured(90, 100, "audit: 100 images drawn at random"),
        "per_class": per_class,
        "notes": ("labels may be wrong",),
    }
    model = told(pixels(), **about)
    assert set(weak_classes(model.file)) == {"disk", "cross"}
    card = write_card(model, Agreement(20, 12, 1e-6, 1e-6, 20), ["model.onnx"])
    for part in (
        "90.0 % (95 % interval 82.4 to 95.1), measured on audit",
        "30 labels. Given by: Ann (25), \\<b\\>Bob\\</b\\> (5)",
        "- cross: labels: 1",
        "temperature of 1.5",
        "trained from scratch",
        "- labels may be wrong",
        "compared on 20 real images of 12 sizes",
    ):
        assert part in card
    assert "Apache-2.0" in write_card(heads("lite0@64+hog@32"), None, [])
    only_hog = write_card(heads("lite0@64+hog@32", gate=1), None, [])
    assert "Apache-2.0" not in only_hog
    assert "Nobody knows" in only_hog


def use_module(path: Path):
    spec = importlib.util.spec_from_file_location("use", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_snippet_reads_every_kind_of_image_as_we_do(heads, photo_files, tmp_path):
    export(heads("hog@32").save(tmp_path / "model"), tmp_path / "x")
    classifier = use_module(tmp_path / "x" / "use.py").Classifier()
    ours = mma.load(tmp_path / "x" / "model.onnx").predict(list(photo_files.values()))
    for path, best, row in zip(photo_files.values(), ours.labels, ours.probs, strict=True):
        found = classifier.classify(path)
        assert found[0][0] == best, path.name
        assert dict(found) == {name: float(p) for name, p in zip(ours.classes, row, strict=True)}, path.name


@pytest.mark.slow
def test_the_snippet_runs_with_onnxruntime_numpy_and_pillow_alone(heads, photo_files, tmp_path):
    export(heads("lite0@64+hog@32").save(tmp_path / "model"), tmp_path / "x")
    python = fresh_environment(tmp_path / "env")
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True)
    installed = {each["name"].lower() for each in json.loads(listed.stdout)}
    assert not {"torch", "mma-learn", "onnx", "scikit-learn"} & installed
    files = [str(path) for path in photo_files.values()]
    alone = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [python, "use.py", *files], cwd=tmp_path / "x", env=alone, capture_output=True, text=True, check=True
    )
    ours = mma.load(tmp_path / "model").predict(files)
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [
        [name, label] for name, label in zip(files, ours.labels, strict=True)
    ]


def fresh_environment(folder: Path) -> Path:
    """Make an environment with what the snippet needs, or skip where pip cannot install."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    wanted = ["onnxruntime", "numpy", "pillow"]
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "0", *wanted]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("pip could not install onnxruntime, numpy and pillow within 5 minutes")
    if done.returncode:
        pytest.skip("pip cannot install onnxruntime, numpy and pillow here")
    return python


def test_model_files_name_what_they_hold(pixels, tmp_path):
    export(pixels().save(tmp_path / "model"), tmp_path / "x", ["safetensors"])
    described = json.loads((tmp_path / "x" / "model.json").read_text())
    assert ModelFile.model_validate_json(json.dumps(described)).classes == pixels().classes
    assert described["input"]["resize"] == "lanczos"
