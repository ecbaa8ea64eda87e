"""Vision models of transformers, on tiny ones that the tests save."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mma.features import features, parse_backbone
from tests.features.conftest import array_images, batch

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[transformers]'")

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 28,
    "patch_size": 14,
}


def save(folder: Path, config: str, model: str, **settings: object) -> Path:
    import transformers

    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**{**SMALL, **settings}))
    made.save_pretrained(folder, safe_serialization=True)
    about = {"crop_size": {"height": 28, "width": 28}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    (folder / "preprocessor_config.json").write_text(json.dumps(about))
    return folder


@pytest.fixture
def dino(tmp_path: Path) -> Path:
    return save(tmp_path / "dino", "Dinov2Config", "Dinov2Model")


def test_a_saved_model_gives_its_own_summary_of_an_image(dino):
    from transformers import Dinov2Model

    backbone = parse_backbone(f"hf:{dino}").model_copy(update={"precision": "float32"})
    assert backbone.side == 28
    images = batch(3, 28)
    with torch.inference_mode():
        expected = Dinov2Model.from_pretrained(dino).eval()(images.permute(0, 3, 1, 2) / 127.5 - 1).pooler_output
        assert torch.allclose(backbone.load()(images), expected, atol=1e-4)


def test_a_model_in_the_home_folder_has_its_own_side(dino, monkeypatch):
    monkeypatch.setenv("HOME", str(dino.parent))
    assert parse_backbone("hf:~/dino").side == 28


def test_another_side_than_the_model_was_trained_with_is_possible(dino):
    assert features(array_images(5), f"hf:{dino}@42").values.shape == (5, 1, 16)


def test_the_image_tower_of_a_model_of_images_and_texts_is_used(tmp_path):
    from transformers import SiglipConfig, SiglipModel

    text = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "vocab_size": 50,
    }
    SiglipModel(SiglipConfig(text_config=text, vision_config=SMALL)).save_pretrained(tmp_path / "siglip")
    assert features(array_images(5), f"hf:{tmp_path / 'siglip'}@28").values.shape == (5, 1, 16)


def test_a_summary_without_weights_is_not_used(tmp_path):
    import transformers

    torch.manual_seed(0)
    folder = tmp_path / "vit"
    config = transformers.ViTConfig(**SMALL)
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    first, second = (parse_backbone(f"hf:{folder}@28").load()(batch(2, 28)) for _ in range(2))
    assert torch.equal(first, second)  # a random layer would differ


def test_the_digest_names_the_weights_and_not_the_place(dino, tmp_path):
    before = parse_backbone(f"hf:{dino}").digest()
    dino.rename(tmp_path / "moved")
    assert parse_backbone(f"hf:{tmp_path / 'moved'}").digest() == before
    weights = tmp_path / "moved" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert parse_backbone(f"hf:{tmp_path / 'moved'}").digest() != before


def test_weights_in_other_files_than_safetensors_are_not_read(dino, refusal):
    (dino / "model.safetensors").rename(dino / "pytorch_model.bin")
    with refusal():
        parse_backbone(f"hf:{dino}").load()


def test_code_that_comes_with_a_model_is_not_run(dino, tmp_path, refusal):
    about = json.loads((dino / "config.json").read_text())
    about |= {"model_type": "mine", "auto_map": {"AutoConfig": "code.C", "AutoModel": "code.M"}}
    (dino / "config.json").write_text(json.dumps(about))
    (dino / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with refusal():
        parse_backbone(f"hf:{dino}").load()
    assert not (tmp_path / "ran").exists()


def test_weights_that_are_cut_short_or_of_another_shape_are_named_by_their_hash(dino):
    path = dino / "model.safetensors"
    whole, about = path.read_bytes(), json.loads((dino / "config.json").read_text())
    for weights, width in ((whole[:500], 16), (whole, 32)):
        path.write_bytes(weights)
        (dino / "config.json").write_text(json.dumps({**about, "hidden_size": width}))
        with pytest.raises(ValueError, match=hashlib.sha256(weights).hexdigest()) as refusal:
            parse_backbone(f"hf:{dino}").load()
        assert "cannot be read as a model of transformers" in str(refusal.value)
        assert "Get another copy" in str(refusal.value)


def test_a_model_that_takes_no_images_is_refused(tmp_path, refusal):
    from transformers import BertConfig, BertModel

    text = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "vocab_size": 50,
    }
    BertModel(BertConfig(**text)).save_pretrained(tmp_path / "bert")
    with refusal():
        parse_backbone(f"hf:{tmp_path / 'bert'}").load()


def test_without_a_network_it_says_what_to_do(monkeypatch, refusal):
    import huggingface_hub

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with refusal():
        parse_backbone("hf:facebook/dinov2-small").digest()


def test_without_transformers_the_extra_is_named(dino, monkeypatch, refusal):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refusal():
        parse_backbone(f"hf:{dino}").load()


def test_features_of_a_model_are_finite(dino):
    assert np.isfinite(features(array_images(3), f"hf:{dino}").values.astype(np.float32)).all()
