"""Loading: from runs, projects and folders; what was changed, is newer or does not fit is refused by name."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load as parse
from safetensors.torch import save as format_tensors

import mma
from mma.data import FolderOptions, get_folder
from mma.model.description import ServingFile
from mma.shares import AuditRecord
from mma.training.host import Host
from mma.training.job import load_read_only
from mma.training.predict import probabilities

ONE = Host(threads=1)
SHORT = [
    *("views.backbone=hog@32+hog@40", "views.width=24", "growth.start=8", "growth.add=4", "growth.budget=16"),
    *("optim.batch=8", "growth.first=12", "growth.every=8", "growth.final=12", "log.every=4", "log.checkpoint=5"),
]


def test_a_saved_model_predicts_the_same(pixels, heads, scene, tmp_path):
    for number, model in enumerate((pixels(), pixels("wrn", filters=8), heads("lite0@64+hog@32"))):
        again = mma.load(model.save(tmp_path / str(number)))
        assert again.file == model.file.model_copy(update={"sha256": again.file.sha256})
        assert np.array_equal(again.predict(scene).probs, model.predict(scene).probs)


def test_saving_twice_gives_the_same_bytes_and_replaces_what_was_there(pixels, tmp_path):
    pixels(seed=1).save(tmp_path / "a")
    pixels(seed=0).save(tmp_path / "a")
    pixels(seed=0).save(tmp_path / "b")
    for name in ("model.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_folder_with_something_else_is_not_written_over(pixels, tmp_path, refusal):
    (tmp_path / "notes.txt").write_text("mine")
    for _ in range(2):
        with refusal():
            pixels().save(tmp_path)
        assert (tmp_path / "notes.txt").read_text() == "mine"
        (tmp_path / "model.json").write_text("{}")  # other programs call their files so, too


def test_a_run_hands_out_its_model_with_the_accuracy_it_reports(new_run, digits, tmp_path):
    run = new_run("run")
    mma.train(run, on=ONE)
    model = mma.load(run.folder)
    found = model.predict(digits.test.pixels)
    right = float((found.probs.argmax(1) == digits.test.labels).mean())
    assert model.about.accuracy.percent == run.accuracy() == round(100 * right, 6) == mma.evaluate(run)["accuracy"]
    assert model.about.accuracy.images == len(digits.test)
    assert model.about.accuracy.low < run.accuracy() < model.about.accuracy.high
    assert sum(model.about.labels.values()) == 20
    assert np.array_equal(mma.load(model.save(tmp_path / "m")).predict(digits.test.pixels).probs, found.probs)


def test_a_model_stored_between_two_evaluations_is_tested_when_it_is_loaded(new_run):
    run = new_run("run", "log.every=7", "log.checkpoint=5")
    mma.train(run, on=ONE, until=5)
    assert mma.load(run.folder).about.accuracy.percent == mma.evaluate(run)["accuracy"]


def test_a_project_gives_the_model_that_it_chose_or_its_newest_whole_one(pixels, tmp_path):
    project = tmp_path / "photos.mma"
    (tmp_path / "photos").mkdir()
    for number in (1, 2, 10):
        pixels(seed=number).save(project / "models" / f"{number:03d}")
    (project / "models" / "011").mkdir()  # being written
    (project / "mma.toml").touch()

    def handed_out(number: str) -> bool:
        expected = hashlib.sha256((project / "models" / number / "model.safetensors").read_bytes()).hexdigest()
        return all(mma.load(place).file.sha256 == expected for place in (project, tmp_path / "photos"))

    assert handed_out("010")
    (project / "models" / "serving.json").write_text('{"number": 2}')
    assert handed_out("002")
    few = ServingFile(
        number=2, audit=AuditRecord((0.9,) * 5, (True,) * 5, (0.9,))
    )  # too few for an accuracy, not for none
    (project / "models" / "serving.json").write_text(few.model_dump_json())
    assert len(mma.load(project).about.audit.right) == 5


def test_places_without_a_model_are_named(tmp_path, refusal):
    with refusal():
        mma.load(tmp_path / "nowhere")
    with refusal():
        mma.load(tmp_path)
    (tmp_path / "mma.toml").touch()
    with refusal():
        mma.load(tmp_path)
    (tmp_path / "model.pt").touch()
    with refusal():
        mma.load(tmp_path / "model.pt")


def change_json(folder: Path, **changes: object) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_tensors(folder: Path, change) -> None:
    """Change tensors and make the hash right again, as somebody would who knows how it works."""
    tensors = parse((folder / "model.safetensors").read_bytes())
    change(tensors)
    data = format_tensors(tensors)
    (folder / "model.safetensors").write_bytes(data)
    change_json(folder, sha256=hashlib.sha256(data).hexdigest())


def test_d1_a_flipped_bit_is_found_by_the_hash(pixels, tmp_path, refusal):
    folder = pixels().save(tmp_path / "m")
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with refusal():
        mma.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({"network/head.bias": torch.zeros(4)}), r"network/head.bias is float32 of shape \(4,\)"),
        (lambda t: t.update({"network/head.bias": torch.zeros(3, dtype=torch.float64)}), "is float64 of shape"),
        (lambda t: t.pop("network/head.bias"), "it lacks network/head.bias"),
        (lambda t: t.update({"network/more": torch.zeros(1)}), "has too much: network/more"),
        (lambda t: t["network/head.bias"].fill_(float("nan")), "not finite, in network/head.bias"),
    ],
)
def test_d1_tensors_that_do_not_fit_the_network_are_refused_by_name(pixels, tmp_path, change, message):
    folder = pixels().save(tmp_path / "m")
    change_tensors(folder, change)
    with pytest.raises(ValueError, match=message):
        mma.load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, r"model of format 2, and this mma reads format 1. Get a newer mma"),
        ({"format": 0}, "format"),
        ({"classes": []}, "classes"),
        ({"classes": ["a", "a", "b"]}, "twice"),
        ({"temperature": 0.0}, "temperature"),
        ({"net": {"name": "smal"}}, "Did you mean 'small'"),
        ({"net": {"name": "small", "filters": -1}}, "filters"),
        ({"extra": 1}, "extra"),
        ({"classes": ["a", "b"]}, r"must be float32 of shape \(2, "),
        ({"net": {"name": "head"}}, r"the network head sees features, not images\. Restore it from a copy"),
        ({"net": {"name": "small", "filters": 10**15}}, r"model\.json was changed: filters is"),
    ],
)
def test_a_description_that_is_wrong_or_newer_is_refused(pixels, tmp_path, changes, message):
    folder = pixels().save(tmp_path / "m")
    change_json(folder, **changes)
    with pytest.raises(ValueError, match=message):
        mma.load(folder)


def test_a_model_without_its_tensors_or_with_torn_json_is_refused(pixels, tmp_path, refusal):
    folder = pixels().save(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with refusal():
        mma.load(folder)
    (folder / "model.json").write_text("{")
    with refusal():
        mma.load(folder)


def test_a_backbone_with_another_digest_is_refused(heads, tmp_path, refusal):
    folder = heads("hog@32").save(tmp_path / "m")
    described = json.loads((folder / "model.json").read_text())
    described["input"]["parts"][0]["digest"] = "0" * 64
    (folder / "model.json").write_text(json.dumps(described))
    with refusal():
        mma.load(folder)
    described["input"]["parts"][0]["side"] = 64
    (folder / "model.json").write_text(json.dumps(described))
    with refusal():
        mma.load(folder)


def test_a_run_on_features_answers_as_its_evaluation_does(photo_folder, tmp_path):
    """The same preprocessing, projection and rounding: the accuracy it reports is that of its predictions on the files."""
    data = get_folder(photo_folder, FolderOptions(name="shapes", holdout=0.4, side=32))
    config = mma.change(mma.preset("photos"), ["data.name=folder:shapes", *SHORT])
    run = mma.new_run(config, tmp_path / "run")
    mma.train(run, on=ONE)
    files = [photo_folder / name for name in data.test.names]
    found = mma.load(run).predict(files)
    job = load_read_only(run)
    trained = probabilities(job.state.teacher, job.test, np.arange(len(files)))
    assert np.abs(found.probs - trained).max() < 1e-5
    right = [label == path.parent.name for label, path in zip(found.labels, files, strict=True)]
    assert round(100 * sum(right) / len(right), 6) == run.accuracy() == mma.evaluate(run)["accuracy"]
    again = mma.load(mma.load(run).save(tmp_path / "model"))
    assert np.array_equal(again.predict(files).probs, found.probs)


def test_a_description_takes_no_memory_for_what_its_tensors_do_not_have(tmp_path):
    """Sizes that would need gigabytes are refused before anything of that size is made."""
    head = json.dumps({"network/x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    tensors = struct.pack("<Q", len(head)) + head + bytes(4)
    part = {"backbone": "hog@32", "digest": "0" * 64, "side": 32, "width": 324}
    pixels = {"kind": "pixels", "height": 32, "width": 32, "channels": 3}
    cases = [
        ({"name": "head", "hidden": 500_000}, {"kind": "features", "parts": [part]}),
        ({"name": "head"}, {"kind": "features", "parts": [{**part, "width": 200_000_000}]}),
        ({"name": "head"}, {"kind": "features", "parts": [{**part, "width": 9_000_000}] * 8}),
        ({"name": "head"}, {"kind": "features", "parts": [{**part, "width": 40_000, "kept": 40_000}]}),
        ({"name": "wrn", "filters": 2_000}, pixels),
        ({"name": "wrn", "filters": 1_000, "blocks": 50}, pixels),
        ({"name": "wrn", "filters": 8, "blocks": 100_000}, pixels),
    ]
    texts = [
        json.dumps({"classes": ["a", "b"], "sha256": hashlib.sha256(tensors).hexdigest(), "net": net, "input": seen})
        for net, seen in cases
    ]
    for number, text in enumerate([*texts, "[" * 200_000, '{"a":' * 200_000]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "model.json").write_text(text)
        (folder / "model.safetensors").write_bytes(tensors)
    script = """
import resource, sys
from pathlib import Path
from mma.errors import UserError
from mma.model import load
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before, refused = peak(), 0
for folder in Path(sys.argv[1]).iterdir():
    try:
        load(folder)
    except UserError:
        refused += 1
print(refused, peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    refused, megabytes = map(int, done.stdout.split())
    assert refused == len(cases) + 2
    assert megabytes < 200
