"""What every backbone offers: settings, a network that turns images into vectors, and a digest that names both."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from mma.data.photos import SMALLEST
from mma.errors import UserError
from mma.settings import Settings
from mma.text import install_hint

IMAGENET_MEAN, IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # in units of 0..255
Precision = Literal["float32", "bfloat16"]
# Values of ONEDNN_MAX_CPU_ISA that make oneDNN emulate bfloat16, whatever the processor has.
WITHOUT_BFLOAT16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}


class Backbone(Settings):
    """A frozen network with its settings. One class and one line in BACKBONES, also in user code.

    `load()` returns a module that maps images, uint8 (B, side, side, 3), to vectors, float32 (B, D). Raise `version` when
    the code changes what it returns: stored features are named by it.
    """

    version: ClassVar[int] = 1
    name: str
    side: int = Field(default=64, ge=SMALLEST, le=1024)  # pixels it sees; images are squashed to a square

    @property
    def parts(self) -> tuple[Backbone, ...]:
        """The backbones it is made of: itself, or the parts of `lite0+hog`."""
        return (self,)

    def load(self) -> nn.Module:
        """Return the network, ready to use. Raises a sentence where its weights or its package are missing."""
        raise NotImplementedError

    def weights(self) -> tuple[str, ...]:
        """Return the sha256 of each file the network is made from."""
        return ()

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide what the network returns. A place on disk is none of them."""
        return self.model_dump(mode="json", exclude={"place"})

    def resolve(self) -> Backbone:
        """Return the same backbone with everything decided that depends on this machine."""
        return self

    def digest(self) -> str:
        """Name the backbone by a hash of its weights, its settings and the version of its code."""
        identity = [self.resolve().identity(), list(self.weights()), self.version]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def label(self) -> str:
        """Return the text that `parse_backbone` reads as this backbone."""
        place, precision = getattr(self, "place", None), getattr(self, "precision", None)
        usual = place is None and self.side == type(self).model_fields["side"].default
        name = self.name if place is None else f"{self.name}:{place}"
        return name + ("" if usual else f"@{self.side}") + (f"/{precision}" if precision else "")


class NetworkBackbone(Backbone):
    """A backbone whose arithmetic has a choice of precision."""

    precision: Precision | None = None  # None: bfloat16 where the processor has it, else float32

    def resolve(self) -> NetworkBackbone:
        """Fix the precision, because it changes the values a little. bfloat16 runs everywhere, slowly where it is emulated."""
        return self if self.precision else self.model_copy(update={"precision": native_precision()})


class Embedder(nn.Module):
    """Normalise images, run a network in its precision, return float32 vectors."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, network: nn.Module, mean: tuple[float, ...], std: tuple[float, ...], precision: Precision
    ) -> None:
        super().__init__()
        self.dtype = getattr(torch, precision)
        network = network.eval().requires_grad_(False).to(self.dtype)
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return one vector per image. `mean` and `std` are in units of 0..255."""  # (B, side, side, 3) -> (B, D)
        x = (images.permute(0, 3, 1, 2).float() - self.mean) / self.std  # channels-last already
        out: Tensor = self.network(x.to(self.dtype)).float()
        return out


def native_precision() -> Precision:
    """Return bfloat16 where the processor multiplies it natively, and oneDNN may let it; else float32."""
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in WITHOUT_BFLOAT16:
        return "float32"
    has = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return "bfloat16" if has.get("avx512_bf16") or has.get("amx_bf16") or has.get("bf16") else "float32"


def import_extra(module: str, need: str, extra: str) -> Any:
    """Import a package that not everybody has, or raise `need` with the command that installs it."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reports to its makers unless told not to
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"{need}:  {install_hint(extra)}") from None


def file_sha256(path: Path) -> str:
    """Hash a file without reading it whole."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
