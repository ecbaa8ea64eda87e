"""Any ONNX file that maps images to vectors, run by onnxruntime."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError, model_validator
from torch import Tensor, nn

from mma.errors import UserError
from mma.features.backbone import IMAGENET_MEAN, IMAGENET_STD, Backbone, file_sha256, import_extra
from mma.settings import Settings, explain
from mma.text import first_line

MISSING = "onnx: backbones need onnx and onnxruntime"


class Sidecar(Settings):
    """FILE.json beside FILE: what the network was trained with. `mean` and `std` are in units of 0..255."""

    side: int = Field(default=224, ge=8, le=1024)
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    layout: Literal["NCHW", "NHWC"] = "NCHW"


class Onnx(Sidecar, Backbone):
    """`onnx:FILE`. What is not set here comes from FILE.json, or is as for ImageNet."""

    name: Literal["onnx"] = "onnx"
    place: str  # the file

    @model_validator(mode="after")
    def _from_sidecar(self) -> Onnx:
        path = Path(self.place + ".json").expanduser()
        if not path.is_file():
            return self
        try:
            sidecar = Sidecar.model_validate_json(json.dumps(json.loads(path.read_text("utf-8"))))
        except ValidationError as error:
            raise UserError(f"{path}: {explain(error)}") from None
        except ValueError as error:  # of the JSON, or of its bytes
            raise UserError(f"{path} is not JSON ({error}).") from None
        for setting in sidecar.model_fields_set - self.model_fields_set:
            object.__setattr__(self, setting, getattr(sidecar, setting))
        return self

    def load(self) -> nn.Module:
        """Return the network, after its inputs and outputs were found to be a backbone's."""
        return OnnxNetwork(self)

    def weights(self) -> tuple[str, ...]:
        """Return the sha256 of the file."""
        return (file_sha256(find_file(self.place)),)


class OnnxNetwork(nn.Module):
    """A session of onnxruntime as a module."""

    def __init__(self, settings: Onnx) -> None:
        super().__init__()
        self.settings = settings
        path, outside = find_file(settings.place), list[str]()
        onnx, runtime = (import_extra(name, MISSING, "onnx") for name in ("onnx", "onnxruntime"))
        try:
            graph = onnx.load(path, load_external_data=False).graph
            outside = [each.name for each in graph.initializer if each.data_location == onnx.TensorProto.EXTERNAL]
            self.session: Any = None if outside else bounded_session(runtime, path)
        except Exception as error:  # both have classes of their own for every way a file can be broken
            raise UserError(
                f"onnx:{path} (sha256 {settings.weights()[0]}) cannot be read as an ONNX file: {first_line(error)}. "
                "Export the network again, with its weights inside the file."
            ) from error
        if outside:  # no hash of ours would name them
            raise UserError(
                f"onnx:{path} keeps {len(outside)} of its weights in another file, the first of them {outside[0]}. Put them "
                "inside:  python -c \"import onnx; onnx.save(onnx.load('FILE'), 'NEW')\"  and use NEW."
            )
        assert self.session is not None
        # The output to use is the first that is one vector per image. Anything else is no backbone.
        inputs, outputs, s = self.session.get_inputs(), self.session.get_outputs(), settings
        image = [3, s.side, s.side] if s.layout == "NCHW" else [s.side, s.side, 3]
        remedy = ""
        if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 4:
            remedy = "A backbone has one input: float32 images. Use another file."
        elif isinstance(count := inputs[0].shape[0], int):
            remedy = f"It must take any number of images, not {count}: export it with a free (dynamic) first axis."
        elif any(side != ours for side, ours in zip(inputs[0].shape[1:], image, strict=True) if isinstance(side, int)):
            remedy = f"Set side and layout in {s.place}.json, or use another file."  # a name or None may be anything
        if remedy:
            given = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs) or "nothing"
            raise UserError(
                f"onnx:{s.place} is no backbone for images of {image} ({s.layout}): it takes {given}. {remedy}"
            )
        vectors = [each.name for each in outputs if each.type == "tensor(float)" and len(each.shape) == 2]
        if not vectors:
            given = ", ".join(f"{each.name} {each.type} {each.shape}" for each in outputs)
            raise UserError(
                f"onnx:{s.place} is no backbone: it returns {given}, and not one vector (B, D) of floats per image."
            )
        self.output = str(vectors[0])

    def forward(self, images: Tensor) -> Tensor:
        """Return one vector per image."""  # (B, side, side, 3) -> (B, D)
        s = self.settings
        x = (images.float() - torch.tensor(s.mean)) / torch.tensor(s.std)
        x = x.permute(0, 3, 1, 2) if s.layout == "NCHW" else x
        given = {self.session.get_inputs()[0].name: x.contiguous().numpy()}
        try:
            return torch.from_numpy(self.session.run([self.output], given)[0])
        except Exception as error:  # onnxruntime has classes of its own for what can fail
            raise UserError(
                f"onnx:{s.place} cannot be run on images of {s.side} x {s.side} pixels: {first_line(error)}. Set the side it "
                f"was made for in {s.place}.json, or use another file."
            ) from error


def bounded_session(runtime: Any, path: Path) -> Any:
    """Open a file in a session on one core. All sessions of a process together take at most half of the machine's memory.

    A file of 250 bytes can ask for any amount: its operations make arrays of any size. Constants are not computed while
    the file is opened, because that memory would not be counted.
    """
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # each core computes a batch of its own
    options.add_session_config_entry("session.use_env_allocators", "1")
    limit_memory(runtime, machine_memory() // 2)
    more = {"providers": ["CPUExecutionProvider"], "disabled_optimizers": ["ConstantFolding"]}
    return runtime.InferenceSession(path, options, **more)


def machine_memory() -> int:
    """Return the bytes of main memory; 8 GiB where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return 8 << 30


@cache
def limit_memory(runtime: Any, most: int) -> None:
    """Give the sessions of this process one store of at most so many bytes."""
    kind = runtime.OrtMemoryInfo("Cpu", runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT)
    as_asked = {"max_mem": most, "arena_extend_strategy": 1}
    rest = ("initial_chunk_size_bytes", "max_dead_bytes_per_chunk", "initial_growth_chunk_size_bytes")
    runtime.create_and_register_allocator(kind, runtime.OrtArenaCfg({**as_asked, **dict.fromkeys(rest, -1)}))


def find_file(place: str) -> Path:
    """Return the file, or say that it is not there."""
    path = Path(place).expanduser()
    if not path.is_file():
        raise UserError(
            f"onnx:{place}: there is no file {path.absolute()}. Write  onnx:FILE  with the path of the file."
        )
    return path
