"""Predicting: every kind of image, the same numbers as in training, bad files named and passed by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import mma
from mma.data import FolderOptions, get_folder
from mma.data.photos import read_photo, read_unscaled_photo
from mma.features import StoredViews, features, image_source
from mma.model.model import opener


def test_every_mode_and_size_of_image_is_predicted(pixels, heads, photo_files):
    for model in (pixels(), pixels(channels=1), heads("hog@32")):
        found = model.predict(list(photo_files.values()))
        assert found.bad == ()
        assert found.probs.shape == (len(photo_files), 3)
        assert np.allclose(found.probs.sum(1), 1, atol=1e-5)
        assert set(found.labels) <= set(model.classes)


def test_an_image_means_the_same_in_every_mode(pixels, photo_files):
    """Grey, 16-bit and turned copies of one picture get the probabilities of the plain one."""
    grey, deep = pixels().predict([photo_files["grey.png"], photo_files["deep.png"]]).probs
    assert np.array_equal(grey, deep)
    turned = Image.open(photo_files["turned.jpg"])
    upright = np.rot90(np.asarray(turned.convert("RGB")), -1)
    by_file, by_array = pixels().predict([photo_files["turned.jpg"], upright]).probs
    assert np.array_equal(by_file, by_array)


def test_only_the_first_frame_is_read_and_transparency_is_white(pixels, photo_files):
    with Image.open(photo_files["moving.gif"]) as moving:
        first = np.asarray(moving.convert("RGB"))
    with Image.open(photo_files["alpha.png"]) as image:
        alpha = np.asarray(image)
    model = pixels()
    by_file = model.predict([photo_files["moving.gif"], photo_files["alpha.png"]]).probs
    assert np.array_equal(by_file, model.predict([first, alpha]).probs)
    white = np.full((9, 9, 4), 255, np.uint8)
    clear = np.zeros((9, 9, 4), np.uint8)
    assert np.array_equal(*model.predict([white, clear]).probs)


def test_pixels_are_those_that_training_reads(pixels, photo_files):
    model = pixels(side=16)
    for path in photo_files.values():
        trained, _ = read_photo(path.parent.resolve(), path.name, 16, grey=False)
        assert np.array_equal(model.predictor.prepare(opener(path)), trained), path.name


@pytest.mark.parametrize("backbone", ["hog@32", "lite0@64", "lite0@64+hog@32"])
def test_features_of_a_file_are_those_in_the_store(heads, photo_files, backbone):
    root = photo_files["large.jpg"].parent
    data = get_folder(root, FolderOptions(name="mine", holdout=0.0, side=32))
    source, _ = image_source(data.train)
    model = heads(backbone)
    files = [root / name for name in data.train.names]
    prepared = [model.predictor.prepare(opener(path)) for path in files]
    with torch.inference_mode():
        vectors = model.predictor.vectors(prepared)[: len(files)]
    expected = []
    for part, centre in zip(model.predictor.backbones, model.predictor.centres, strict=True):
        stored = features(source, part, StoredViews(crops=1)).take(np.arange(len(files)))
        expected.append(torch.nn.functional.normalize(torch.from_numpy(stored).float() - centre))
    assert torch.equal(vectors, torch.cat(expected, 1))


def test_a_backbone_that_the_head_does_not_look_at_is_not_run(heads, scene):
    joined = heads("lite0@64+hog@32", gate=1)
    joined.predictor.open()
    assert [each is None for each in joined.predictor.embedders] == [True, False]
    both = heads("lite0@64+hog@32", gate=1)
    object.__setattr__(both.predictor, "embedders", tuple(part.load() for part in both.predictor.backbones))
    assert np.array_equal(joined.predict(scene).probs, both.predict(scene).probs)


def test_a_large_jpeg_is_decoded_as_in_training(heads, photo_files):
    model = heads("hog@32")
    photo, _ = read_unscaled_photo(photo_files["large.jpg"].parent.resolve(), "large.jpg", 128)
    assert photo.shape[0] < 427
    by_file, by_array = model.predict([photo_files["large.jpg"], photo]).probs
    assert np.array_equal(by_file, by_array)


def test_bad_files_are_listed_and_the_others_are_predicted(pixels, photo_files, tmp_path):
    bad = tmp_path / "cut.jpg"
    bad.write_bytes(photo_files["large.jpg"].read_bytes()[:2000])
    text, empty, missing = tmp_path / "notes.txt", tmp_path / "empty.png", tmp_path / "missing.png"
    text.write_text("no image")
    empty.touch()
    found = pixels().predict([bad, photo_files["small.png"], text, str(empty), missing])
    assert [each.file for each in found.bad] == [str(bad), str(text), str(empty), str(missing)]
    assert "cut short" in found.bad[0].reason
    assert found.bad[3].reason == "there is no such file"
    assert "mma.predict_folder" in pixels().predict(tmp_path).bad[0].reason
    assert [label is None for label in found.labels] == [True, False, True, True, True]
    assert np.isnan(found.probs[0]).all()
    assert np.isfinite(found.probs[1]).all()


def test_an_image_does_not_depend_on_those_it_is_predicted_with(pixels, heads, scene):
    crops = [scene[n : n + 60 + n, n : n + 40] for n in range(40)]
    for model in (pixels(), heads("hog@32")):
        together = model.predict(crops).probs
        alone = np.concatenate([model.predict(crop).probs for crop in crops[30:36]])
        assert np.array_equal(together[30:36], alone)


def test_arrays_come_in_every_form(pixels, scene, refusal):
    model = pixels()
    assert len(model.predict(scene)) == 1
    assert len(model.predict(scene[None].repeat(3, 0))) == 3
    assert len(model.predict([scene[:, :, 0], scene[:, :, :1], Image.fromarray(scene)])) == 3
    assert len(model.predict([])) == 0
    assert model.predict([]).labels == []
    with refusal():
        model.predict(scene / 255.0)
    with refusal():
        model.predict([scene[:, :, :2]])


@pytest.mark.parametrize("kind", [bool, np.int8, np.int16, np.uint32, np.int64, np.float16, np.float32, complex])
def test_numbers_whose_range_nobody_knows_are_refused(pixels, scene, kind, refusal):
    with refusal():
        pixels().predict(scene.astype(kind))


@pytest.mark.parametrize(
    "shape", [(), (5,), (3, 40, 50), (12, 40, 50), (0, 40, 3), (40, 0), (2, 3, 40, 50), (1, 1, 1, 1, 1)]
)
def test_arrays_that_may_mean_something_else_are_refused(pixels, shape, refusal):
    with refusal():
        pixels().predict(np.zeros(shape, np.uint8))


def test_sixteen_bits_are_scaled_and_names_may_come_in_an_array(pixels, scene, photo_files):
    model = pixels()
    assert np.array_equal(
        model.predict(scene[:, :, 0]).probs, model.predict(scene[:, :, 0].astype(np.uint16) * 257).probs
    )
    names = np.array([str(photo_files["small.png"]), str(photo_files["grey.png"])])
    assert np.array_equal(model.predict(names).probs, model.predict(list(map(Path, names))).probs)
    assert len(model.predict(np.array(list(map(Path, names)), object))) == 2


def test_the_temperature_makes_a_model_less_sure_and_changes_no_answer(pixels, scene):
    model = pixels()
    hot = mma.Model(model.file, type(model.predictor)(model.predictor.input, model.predictor.network, 30.0))
    cold = mma.Model(model.file, type(model.predictor)(model.predictor.input, model.predictor.network, 1.0))
    assert hot.predict(scene).confidence < cold.predict(scene).confidence
    assert hot.predict(scene).labels == cold.predict(scene).labels


def test_top_names_the_most_likely_classes_in_order(pixels, scene):
    found = pixels().predict(scene)
    (best,) = found.top(2)
    assert [name for name, _ in best] == [found.classes[k] for k in np.argsort(-found.probs[0])[:2]]
    assert best[0][1] >= best[1][1]
    assert len(found.top(99)[0]) == 3


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(pixels, heads, tmp_path, monkeypatch):
    models = (pixels(), heads("hog@24"))
    monkeypatch.setattr("mma.data.photos.MAX_PIXELS", 3_000)
    Image.new("RGB", (400, 400)).save(tmp_path / "large.png")
    for model in models:
        assert "more than 3,000" in model.predict(tmp_path / "large.png").bad[0].reason


@pytest.mark.parametrize("rounded", [False, True])
def test_a_head_sees_vectors_rounded_where_training_rounds(heads, rounded):
    model = heads("hog@32")
    predictor = replace(model.predictor, input=model.file.input.model_copy(update={"rounded": rounded}))
    vectors = torch.rand(3, 324, generator=torch.Generator().manual_seed(0))
    seen = predictor.ready(0, vectors)
    assert torch.equal(seen, seen.half().float()) == rounded
