"""Vision models of the transformers library: DINOv2, SigLIP, CLIP, ViT, ConvNeXt. From a folder, or from the hub.

Weights are read from safetensors only, and code that comes with a model is never run.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from mma.errors import UserError
from mma.features.backbone import Embedder, NetworkBackbone
from mma.features.mobilenetv2 import MEAN, STD
from mma.files import read_json
from mma.text import first_line, install_hint

SIDE = 224
FILES = ["config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json"]


class HuggingFace(NetworkBackbone):
    """`hf:ID_OR_DIR`. The side, mean and standard deviation come from the model's own preprocessor_config.json."""

    name: Literal["hf"] = "hf"
    place: str  # a folder, or the id of a model on the hub
    side: int = Field(default=SIDE, ge=8, le=1024)

    @model_validator(mode="after")
    def _own_side(self) -> HuggingFace:
        folder = Path(self.place).expanduser()
        if "side" not in self.model_fields_set and folder.is_dir():
            object.__setattr__(self, "side", _side(folder))
        return self

    def load(self) -> nn.Module:
        """Return the image tower of the model."""
        folder, precision = find_model(self.place), self.resolve().precision or "float32"
        mean, std = _normalisation(folder)
        return Embedder(read_tower(folder), mean, std, precision)

    def weights(self) -> tuple[str, ...]:
        """Return the sha256 of the weights and of the two files that describe them."""
        folder = find_model(self.place)
        files = [*sorted(folder.glob("*.safetensors")), folder / "config.json", folder / "preprocessor_config.json"]
        return tuple(_sha256(path) for path in files if path.is_file())

    def identity(self) -> dict[str, Any]:
        """Return the settings but the place: the same files elsewhere are the same backbone."""
        return self.model_dump(mode="json", exclude={"place"})

    def label(self) -> str:
        """Return the place with its kind."""
        return f"hf:{self.place}@{self.side}" + (f"/{self.precision}" if self.precision else "")


class Tower(nn.Module):
    """A model whose output is one vector per image."""

    def __init__(self, model: nn.Module, *, pooled: bool) -> None:
        super().__init__()
        self.model, self.pooled = model, pooled

    def forward(self, x: Tensor) -> Tensor:
        """Return the model's own summary of the image, or its first token where it has none."""  # (B, 3, H, W) -> (B, D)
        sizes = {"interpolate_pos_encoding": True} if self.any_side() else {}
        out = self.model(pixel_values=x, **sizes)
        vector: Tensor | None = out.pooler_output if self.pooled and "pooler_output" in out else None
        return out.last_hidden_state[:, 0] if vector is None else vector.flatten(1)

    def any_side(self) -> bool:
        """Return whether the model must be asked to take images of another size than it was trained on."""
        return "interpolate_pos_encoding" in inspect.signature(self.model.forward).parameters


def read_tower(folder: Path) -> nn.Module:
    """Read a model; of one that knows images and texts, the part for images."""
    transformers = _import_transformers()
    try:
        model, info = transformers.AutoModel.from_pretrained(
            folder, use_safetensors=True, trust_remote_code=False, local_files_only=True, output_loading_info=True
        )
    except Exception as error:  # every library involved has classes of its own for what can be broken
        raise UserError(
            f"hf:{folder} cannot be read as a model of transformers: {first_line(error)}. Its weights are {_hashes(folder)}. "
            "Get another copy of the folder."
        ) from error
    tower = getattr(model, "vision_model", model)
    missing = [name for name in info["missing_keys"] if "pooler" not in name]
    if missing:
        raise UserError(
            f"hf:{folder} lacks {len(missing)} of its weights, the first of them {sorted(missing)[0]}. Use another copy."
        )
    if getattr(tower, "main_input_name", "") != "pixel_values":
        raise UserError(f"hf:{folder} is a {type(model).__name__}, which does not take images. Use a vision model.")
    return Tower(tower, pooled=not info["missing_keys"])  # a summary without weights would be random


def find_model(place: str) -> Path:
    """Return the folder of a model: the one given, or the hub's copy, which is downloaded if it can be."""
    folder = Path(place).expanduser()
    if folder.is_dir():
        _check_folder(folder)
        return folder
    _import_transformers()
    hub = importlib.import_module("huggingface_hub")
    try:
        found = Path(hub.snapshot_download(place, allow_patterns=FILES))
    except Exception as error:  # the network fails in many ways, and so do names
        raise UserError(
            f"hf:{place} is neither a folder here nor could it be fetched from the hub ({first_line(error)}). With a network, "
            f"check the name. Without one, run  hf download {place}  on a machine that has one, copy the folder here, and "
            "write  hf:FOLDER"
        ) from error
    _check_folder(found)
    return found


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise UserError(f"hf:{folder} has no config.json, so it is not a model of transformers.")
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"hf:{folder} has no .safetensors file. Other files can run code when they are read, so they are not. Save the "
            "model as safetensors where you trust it:  model.save_pretrained(FOLDER)"
        )


def _import_transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError:
        raise UserError(f"hf: backbones need the library transformers:  {install_hint('transformers')}") from None


def _preprocessor(folder: Path) -> dict[str, Any]:
    path = folder / "preprocessor_config.json"
    return read_json(path) if path.is_file() else {}


def _side(folder: Path) -> int:
    """Return the side the model was trained with: that of its crops, or of its images."""
    known = _preprocessor(folder)
    size = known.get("crop_size") or known.get("size") or SIDE
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge") or SIDE
    return int(size)


def _normalisation(folder: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation in units of 0..255; those of ImageNet where the model says nothing."""
    known = _preprocessor(folder)
    if "image_mean" not in known or "image_std" not in known:
        return MEAN, STD
    return tuple(255.0 * value for value in known["image_mean"]), tuple(255.0 * value for value in known["image_std"])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hashes(folder: Path) -> str:
    """Name the files of weights by their hash, to compare them with another copy."""
    return ", ".join(f"{path.name} (sha256 {_sha256(path)})" for path in sorted(folder.glob("*.safetensors")))
