"""ONNX: every kind of model computes the same in onnxruntime, on real images of mixed sizes."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import mma
from mma.errors import UserError
from mma.features.pretrained import MOBILENETV2
from mma.model.exporter import TOLERANCE, borrowed_images, compare
from mma.model.onnx import graph_of, in_float32, onnx_bytes
from mma.nets import NETS

HEADS = ["hog", "lite0@96", "lite0@64+hog@32", "mobilenetv2@64"]
NETWORKS = [
    ("small", {"side": 8, "channels": 1}),
    ("small", {"side": 28}),
    ("wrn", {"side": 32, "filters": 16}),
    ("fast", {"side": 32, "filters": 16}),
    ("lite0", {"side": 48}),
    ("fast", {"side": 32, "filters": 16, "mirrored": True}),
    ("lite0", {"side": 48, "mirrored": True}),
]


def write(model: mma.Model, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_bytes(model))
    return path


@pytest.mark.parametrize("backbone", HEADS)
def test_a_head_on_backbones_agrees_on_real_images(heads, backbone, tmp_path):
    if "mobilenetv2" in backbone and MOBILENETV2.find() is None:
        pytest.skip(f"the weights of mobilenetv2 are not installed: {MOBILENETV2.command}")
    model = heads(backbone)
    photos = borrowed_images()
    found = compare(write(model, tmp_path), model, photos)
    assert found.largest <= TOLERANCE
    assert found.sizes == len(photos)
    assert np.ptp(in_float32(model).predict(photos).probs, axis=0).max() > 0.2  # the images are told apart


def test_a_head_with_a_hidden_layer_that_looks_at_one_of_two_backbones_agrees(heads, tmp_path):
    model = heads("hog@24+hog@32", hidden=32, gate=1)
    assert compare(write(model, tmp_path), model, borrowed_images()).largest <= TOLERANCE
    assert np.ptp(model.predict(borrowed_images()).probs, axis=0).max() > 0.05


@pytest.mark.parametrize(("net", "settings"), NETWORKS)
def test_a_whole_network_agrees_on_real_images(pixels, net, settings, tmp_path):
    if net not in NETS:
        pytest.skip(f"there is no network {net}")
    model = pixels(net, **settings)
    photos = borrowed_images()
    assert compare(write(model, tmp_path), model, photos).largest <= TOLERANCE
    probs = model.predict(photos).probs
    assert np.ptp(probs, axis=0).max() > 0.2  # the images are told apart
    assert np.median(probs.max(1)) < 0.999  # and not beyond what can be compared


def test_an_onnx_file_is_a_model_like_any_other(heads, photo_files, tmp_path):
    model = heads("hog@32")
    again = mma.load(write(model, tmp_path))
    assert again.classes == model.classes
    files = [*photo_files.values(), tmp_path / "missing.png"]
    ours, theirs = model.predict(files), again.predict(files)
    assert np.nanmax(np.abs(ours.probs - theirs.probs)) <= TOLERANCE
    assert ours.bad == theirs.bad != ()
    assert mma.load(tmp_path).classes == model.classes  # the folder with the one file


def test_many_images_of_one_size_go_in_at_once(heads, pixels, tmp_path, scene):
    for model in (heads("hog@32", gate=None), heads("hog@24+hog@32", gate=1), pixels()):
        session = mma.load(write(model, tmp_path)).predictor.session
        batch = np.stack([scene[:50, n : n + 70] for n in range(5)])
        (found,) = session.run(None, {"images": batch})
        assert np.abs(found - in_float32(model).predict(batch).probs).max() <= TOLERANCE


def test_d6_the_file_is_one_file_that_says_what_it_is(pixels, tmp_path):
    proto = onnx.load(write(pixels(), tmp_path))
    about = {each.key: each.value for each in proto.metadata_props}
    assert json.loads(about["mma"])["classes"] == list(pixels().classes)
    assert all(not each.external_data for each in proto.graph.initializer)
    assert [dim.dim_param or dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim] == [
        "images",
        "height",
        "width",
        3,
    ]
    assert onnx_bytes(pixels()) == onnx_bytes(pixels())


def test_d6_a_file_that_computes_something_else_is_refused(pixels, tmp_path, refusal):
    with refusal():
        compare(write(pixels(seed=1), tmp_path), pixels(seed=2), borrowed_images())


def test_a_changed_or_newer_or_foreign_file_is_refused(pixels, tmp_path, refusal):
    path = write(pixels(), tmp_path)
    whole = path.read_bytes()
    proto = onnx.load(path)

    def save(text: str | None) -> None:
        del proto.metadata_props[:]
        if text is not None:
            onnx.helper.set_model_props(proto, {"mma": text})
        path.write_bytes(proto.SerializeToString())

    good = json.loads(onnx.load_from_string(whole).metadata_props[0].value)
    for changes, message in [
        ({"format": 9}, "model of format 9, and this mma reads format 1"),
        ({"classes": ["a"]}, "was changed: it takes"),
        ({"enough": "many"}, "was changed: enough"),
    ]:
        save(json.dumps({**good, **changes}))
        with pytest.raises(ValueError, match=message):
            mma.load(path)
    save("[]")
    with refusal():
        mma.load(path)
    save("{")
    with refusal():
        mma.load(path)
    save(None)
    with refusal():
        mma.load(path)
    path.write_bytes(whole[: len(whole) // 2])
    with refusal():
        mma.load(path)


def test_the_graph_computes_in_float32_whatever_training_did(heads):
    graph = graph_of(heads("lite0@64/bfloat16"))
    assert {str(value.dtype) for value in graph.embedders[0].state_dict().values()} == {"torch.float32"}


def test_d6_probabilities_that_are_no_numbers_are_no_agreement(pixels, tmp_path):
    model = pixels()
    model.predictor.network.head.bias.data[0] = float("nan")
    with pytest.raises(UserError, match="computes other probabilities"):
        compare(write(model, tmp_path), model, borrowed_images())
