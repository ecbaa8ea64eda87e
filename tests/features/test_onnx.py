"""ONNX files as backbones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mma.features import Onnx, compute_block, features, parse_backbone
from tests.features.conftest import array_images, batch

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnx]'")


def save(path: Path, shape=("n", 3, 16, 16), output=("n", 3), kind="ReduceMean") -> Path:
    """Write a network that returns the mean of each channel."""
    from onnx import TensorProto, helper

    axes = helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3])
    node = helper.make_node(kind, ["x", "axes"], ["y"], keepdims=int(len(output) == 4))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    graph = helper.make_graph([node], "means", [x], [y], [axes])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    Path(tmp_path / "means.onnx.json").write_text(json.dumps({"side": 16, "mean": [10, 20, 30], "std": [2, 4, 8]}))
    return save(tmp_path / "means.onnx")


def test_a_file_is_run_with_the_sidecars_size_and_normalisation(file):
    backbone = parse_backbone(f"onnx:{file}")
    assert backbone.side == 16
    images = batch(5, 16)
    expected = (images.float().mean((1, 2)) - torch.tensor([10, 20, 30])) / torch.tensor([2, 4, 8])
    assert torch.allclose(backbone.load()(images), expected, atol=1e-3)
    assert features(array_images(40), backbone).values.shape == (40, 1, 3)


def test_a_file_in_the_home_folder_is_run_with_its_sidecar(file, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    backbone = parse_backbone(f"onnx:~/{file.name}")
    assert (backbone.side, backbone.mean) == (16, (10.0, 20.0, 30.0))
    assert backbone.digest() == parse_backbone(f"onnx:{file}").digest()


def test_options_stand_above_the_sidecar(file):
    assert Onnx(place=str(file), std=(1.0, 1.0, 1.0)).std == (1.0, 1.0, 1.0)
    assert Onnx(place=str(file), std=(1.0, 1.0, 1.0)).mean == (10.0, 20.0, 30.0)


def test_onnxruntime_reports_nothing_to_its_makers(tmp_path):
    code = "from mma.features.backbone import import_extra; import_extra('onnxruntime', '', 'onnx')"
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", code], env=environment | {"HOME": str(tmp_path)}, check=True)
    assert not list(tmp_path.rglob("*onnxruntime*"))


def test_the_digest_names_the_file_and_not_its_place(file, tmp_path):
    before = parse_backbone(f"onnx:{file}").digest()
    for path in (file, Path(f"{file}.json")):
        path.rename(path.with_name("moved" + path.name))
    moved = parse_backbone(f"onnx:{tmp_path / 'movedmeans.onnx'}")
    assert moved.digest() == before
    save(tmp_path / "movedmeans.onnx", shape=("m", 3, 16, 16))
    assert moved.digest() != before


@pytest.mark.parametrize(
    ("shape", "output"),
    [
        (("n", 3, 32, 32), ("n", 3)),
        (("n", 1, 16, 16), ("n", 1)),
        ((1, 3, 16, 16), (1, 3)),
        (("n", 3, 16, 16, 16), ("n", 3, 16)),
        (("n", 3, 16, 16), ("n", 3, 1, 1)),
    ],
)
def test_a_file_that_is_no_backbone_is_explained(file, shape, output, refusal):
    save(file, shape, output)
    with refusal():
        parse_backbone(f"onnx:{file}").load()


def test_weights_that_no_hash_would_name_are_refused(file, refusal):
    network = onnx.load(file)
    weight = onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32), "weight")
    network.graph.initializer.append(weight)
    network.graph.node[0].output[0] = "means"
    network.graph.node.append(onnx.helper.make_node("MatMul", ["means", "weight"], ["y"]))
    onnx.save(network, file, save_as_external_data=True, location="weights", size_threshold=0)
    with refusal():
        parse_backbone(f"onnx:{file}").load()
    onnx.save(onnx.load(file), file)
    assert parse_backbone(f"onnx:{file}").load()(batch(2, 16)).shape == (2, 3)


def test_a_file_that_fails_on_images_of_this_size_is_explained(file, refusal):
    from onnx import TensorProto, helper

    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [-1, 3 * 20 * 20])
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3, "h", "w"))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 1200))
    graph = helper.make_graph([node], "flat", [x], [y], [shape])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)
    with refusal():
        parse_backbone(f"onnx:{file}").load()(batch(2, 16))
    assert parse_backbone(f"onnx:{file}@20").load()(batch(2, 20)).shape == (2, 1200)


def test_a_damaged_file_and_sidecar_are_explained(file, refusal):
    file.write_bytes(b"this is no network")
    with refusal():
        parse_backbone(f"onnx:{file}").load()
    Path(f"{file}.json").write_text('{"sides": 16}')
    with refusal():
        parse_backbone(f"onnx:{file}")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_its_packages_the_extra_is_named(file, monkeypatch, package, refusal):
    monkeypatch.setitem(sys.modules, package, None)
    with refusal():
        compute_block(array_images(2), parse_backbone(f"onnx:{file}"), np.arange(2))


HUNGRY = """
import resource, sys, numpy as np
from onnx import TensorProto, helper
import onnx
import mma.features.onnx as ours
ours.machine_memory = lambda: 1 << 30
size, path = int(sys.argv[1]), sys.argv[2]
constants = [helper.make_tensor(name, TensorProto.INT64, [len(values)], values) for name, values in (("axes", [2, 3]), ("shape", [size]))]
nodes = [
    helper.make_node("ReduceMean", ["x", "axes"], ["means"], keepdims=0),
    helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
    helper.make_node("ReduceMax", ["zeros"], ["zero"], keepdims=0),
    helper.make_node("Add", ["means", "zero"], ["y"]),
]
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ("n", 3, 16, 16)), ("y", ("n", 3))))
graph = helper.make_graph(nodes, "hungry", [x], [y], constants)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
import torch
from mma.features import parse_backbone
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    parse_backbone(f"onnx:{path}@16").load()(torch.zeros(2, 16, 16, 3, dtype=torch.uint8))
    outcome = "ran"
except ours.UserError:
    outcome = "refused"
print(outcome, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("size", "outcome"), [(10_000_000, "ran"), (200_000_000, "refused")])
def test_a_small_file_that_asks_for_memory_gets_half_of_the_machine_s(tmp_path, size, outcome):
    """Here of one GiB: 40 MB are given, 800 MB are not, neither when the file is opened nor when it is run."""
    command = [sys.executable, "-c", HUNGRY, str(size), str(tmp_path / "hungry.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found, megabytes = done.stdout.split()
    assert found == outcome
    assert int(megabytes) < 300
