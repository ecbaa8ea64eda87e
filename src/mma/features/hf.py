"""Vision models of the transformers library: DINOv2, SigLIP, CLIP, ViT, ConvNeXt. From a folder, or from the hub.

Weights are read from safetensors only, and code that comes with a model is never run.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from mma.errors import UserError
from mma.features.backbone import IMAGENET_MEAN, IMAGENET_STD, Embedder, NetworkBackbone, file_sha256, import_extra
from mma.files import read_json
from mma.text import first_line

SIDE = 224
TRANSFORMERS = ("transformers", "hf: backbones need the library transformers", "transformers")
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
            described = _preprocessor(folder)
            size = described.get("crop_size") or described.get("size") or SIDE
            if isinstance(size, dict):
                size = size.get("height") or size.get("shortest_edge") or SIDE
            object.__setattr__(self, "side", int(size))
        return self

    def load(self) -> nn.Module:
        """Return the image tower of the model, normalised as for ImageNet where the model says nothing."""
        folder, mean, std = find_model(self.place), IMAGENET_MEAN, IMAGENET_STD
        described = _preprocessor(folder)
        if {"image_mean", "image_std"} <= set(described):
            mean, std = (tuple(255.0 * value for value in described[name]) for name in ("image_mean", "image_std"))
        transformers = import_extra(*TRANSFORMERS)
        try:
            model, info = transformers.AutoModel.from_pretrained(
                folder, use_safetensors=True, trust_remote_code=False, local_files_only=True, output_loading_info=True
            )
        except Exception as error:  # every library involved has classes of its own for what can be broken
            files = sorted(folder.glob("*.safetensors"))
            hashes = ", ".join(f"{path.name} (sha256 {file_sha256(path)})" for path in files)
            raise UserError(
                f"hf:{folder} cannot be read as a model of transformers: {first_line(error)}. Its weights are {hashes}. "
                "Get another copy of the folder."
            ) from error
        tower = getattr(model, "vision_model", model)  # of one that knows images and texts, the part for images
        missing = [name for name in info["missing_keys"] if "pooler" not in name]
        if missing:
            raise UserError(
                f"hf:{folder} lacks {len(missing)} of its weights, the first of them {sorted(missing)[0]}. Use another copy."
            )
        if getattr(tower, "main_input_name", "") != "pixel_values":
            raise UserError(f"hf:{folder} is a {type(model).__name__}, which does not take images. Use a vision model.")
        network = Tower(tower, pooled=not info["missing_keys"])  # a summary without weights would be random
        return Embedder(network, mean, std, self.resolve().precision or "float32")

    def weights(self) -> tuple[str, ...]:
        """Return the sha256 of the weights and of the two files that describe them."""
        folder = find_model(self.place)
        files = [*sorted(folder.glob("*.safetensors")), folder / "config.json", folder / "preprocessor_config.json"]
        return tuple(file_sha256(path) for path in files if path.is_file())


class Tower(nn.Module):
    """A model whose output is one vector per image."""

    def __init__(self, model: nn.Module, *, pooled: bool) -> None:
        super().__init__()
        self.model, self.pooled = model, pooled

    def forward(self, x: Tensor) -> Tensor:
        """Return the model's own summary of the image, or its first token where it has none."""  # (B, 3, H, W) -> (B, D)
        # Some models must be asked to take images of another size than they were trained on.
        any_side = "interpolate_pos_encoding"
        takes = any_side in inspect.signature(self.model.forward).parameters
        out = self.model(pixel_values=x, **({any_side: True} if takes else {}))
        vector: Tensor | None = out.pooler_output if self.pooled and "pooler_output" in out else None
        return out.last_hidden_state[:, 0] if vector is None else vector.flatten(1)


def find_model(place: str) -> Path:
    """Return the folder of a model: the one given, or the hub's copy, which is downloaded if it can be."""
    folder = Path(place).expanduser()
    if not folder.is_dir():
        import_extra(*TRANSFORMERS)
        hub = importlib.import_module("huggingface_hub")
        try:
            folder = Path(hub.snapshot_download(place, allow_patterns=FILES))
        except Exception as error:  # the network fails in many ways, and so do names
            raise UserError(
                f"hf:{place} is neither a folder here nor could it be fetched from the hub ({first_line(error)}). With a "
                f"network, check the name. Without one, run  hf download {place}  on a machine that has one, copy the folder "
                "here, and write  hf:FOLDER"
            ) from error
    if not (folder / "config.json").is_file():
        raise UserError(f"hf:{folder} has no config.json, so it is not a model of transformers.")
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"hf:{folder} has no .safetensors file. Other files can run code when they are read, so they are not. Save the "
            "model as safetensors where you trust it:  model.save_pretrained(FOLDER)"
        )
    return folder


def _preprocessor(folder: Path) -> dict[str, Any]:
    path = folder / "preprocessor_config.json"
    return read_json(path) if path.is_file() else {}
