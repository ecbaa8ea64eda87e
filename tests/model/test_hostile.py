"""Damaged and hostile models, ONNX files and backbones: loaded or refused in a sentence."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from mma.errors import UserError
from mma.features import features, parse_backbone
from mma.model import load
from mma.model.exporter import export
from tests.data.test_hostile import attack
from tests.features.conftest import array_images


def test_damaged_descriptions_and_tensors(tmp_path, heads):
    folder = heads("hog@32").save(tmp_path / "m")
    for name in ("model.json", "model.safetensors"):
        attack(folder, name, (folder / name).read_bytes(), lambda: load(folder))


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 50_000,
        b'{"a":' * 50_000,
        json.dumps({"x": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 2**64]}}).encode(),
        json.dumps({"x": {"dtype": "F32", "shape": [2**40, 0], "data_offsets": [0, 0]}}).encode(),
        json.dumps({"x": {"dtype": "F9", "shape": [1], "data_offsets": [0, 4]}}).encode(),
        json.dumps({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}).encode(),
    ],
)
def test_a_hostile_header_of_tensors_is_refused(tmp_path, heads, header):
    import hashlib

    folder = heads("hog@32").save(tmp_path / "m")
    for length in (len(header), 2**40, 2**64 - 1):
        data = struct.pack("<Q", length) + header + bytes(8)
        (folder / "model.safetensors").write_bytes(data)
        description = json.loads((folder / "model.json").read_text())
        description["sha256"] = hashlib.sha256(data).hexdigest()
        (folder / "model.json").write_text(json.dumps(description))
        with pytest.raises(UserError):
            load(folder)


def test_damaged_onnx_files(tmp_path, heads):
    """Their graphs are onnxruntime's to check: what loads must also have our inputs, outputs and metadata."""
    pytest.importorskip("onnxruntime")
    photos = [np.full((9, 9, 3), 7, np.uint8)]
    folder = export(heads("hog@32").save(tmp_path / "m"), tmp_path / "x", ["onnx"], photos=photos).folder
    path = folder / "model.onnx"
    attack(folder, path.name, path.read_bytes(), lambda: load(path))


def test_damaged_stored_features(tmp_path):
    images, backbone = array_images(40), parse_backbone("hog@32")
    features(images, backbone, root=tmp_path)
    (folder,) = (tmp_path / "features").iterdir()
    for name in ("meta.json", "shape.json"):
        attack(folder, name, (folder / name).read_bytes(), lambda: features(images, backbone, root=tmp_path))
