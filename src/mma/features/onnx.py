"""Any ONNX file that maps images to vectors, run by onnxruntime."""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError, model_validator
from torch import Tensor, nn

from mma.errors import UserError
from mma.features.backbone import Backbone
from mma.features.mobilenetv2 import MEAN, STD
from mma.settings import Settings, explain
from mma.text import first_line, install_hint


class Sidecar(Settings):
    """FILE.json beside FILE: what the network was trained with. `mean` and `std` are in units of 0..255."""

    side: int = Field(default=224, ge=8, le=1024)
    mean: tuple[float, float, float] = MEAN
    std: tuple[float, float, float] = STD
    layout: Literal["NCHW", "NHWC"] = "NCHW"


class Onnx(Backbone):
    """`onnx:FILE`. What is not set here comes from FILE.json, or is as for ImageNet."""

    name: Literal["onnx"] = "onnx"
    place: str  # the file
    side: int = Field(default=224, ge=8, le=1024)
    mean: tuple[float, float, float] = MEAN
    std: tuple[float, float, float] = STD
    layout: Literal["NCHW", "NHWC"] = "NCHW"

    @model_validator(mode="after")
    def _from_sidecar(self) -> Onnx:
        known = read_sidecar(Path(self.place + ".json").expanduser())
        for setting in Sidecar.model_fields:
            if setting not in self.model_fields_set and setting in known.model_fields_set:
                object.__setattr__(self, setting, getattr(known, setting))
        return self

    def load(self) -> nn.Module:
        """Return the network, after its inputs and outputs were found to be a backbone's."""
        return OnnxNetwork(self)

    def weights(self) -> tuple[str, ...]:
        """Return the sha256 of the file."""
        with find_file(self.place).open("rb") as file:
            return (hashlib.file_digest(file, "sha256").hexdigest(),)

    def identity(self) -> dict[str, Any]:
        """Return the settings but the place: the same file elsewhere is the same backbone."""
        return self.model_dump(mode="json", exclude={"place"})

    def label(self) -> str:
        """Return the file with its kind."""
        return f"onnx:{self.place}@{self.side}"


class OnnxNetwork(nn.Module):
    """A session of onnxruntime as a module."""

    def __init__(self, settings: Onnx) -> None:
        super().__init__()
        self.settings = settings
        self.session = open_session(find_file(settings.place), settings.weights()[0])
        self.output = check_session(self.session, settings)

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


def open_session(path: Path, sha256: str) -> Any:
    """Return the file as a session of onnxruntime. Weights in other files are refused: no hash of ours would name them."""
    onnx, runtime = _import("onnx"), _import("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # each core computes a batch of its own
    try:
        graph = onnx.load(path, load_external_data=False).graph
        outside = [each.name for each in graph.initializer if each.data_location == onnx.TensorProto.EXTERNAL]
        session = None if outside else runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # both have classes of their own for every way a file can be broken
        raise UserError(
            f"onnx:{path} (sha256 {sha256}) cannot be read as an ONNX file: {first_line(error)}. "
            "Export the network again, with its weights inside the file."
        ) from error
    if session is None:
        raise UserError(
            f"onnx:{path} keeps {len(outside)} of its weights in another file, the first of them {outside[0]}. Put them "
            "inside:  python -c \"import onnx; onnx.save(onnx.load('FILE'), 'NEW')\"  and use NEW."
        )
    return session


def check_session(session: Any, settings: Onnx) -> str:
    """Return the name of the output to use: the first that is one vector per image. Anything else is no backbone."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    image = [3, settings.side, settings.side] if settings.layout == "NCHW" else [settings.side, settings.side, 3]
    if len(inputs) != 1 or inputs[0].type != "tensor(float)" or not _fits(inputs[0].shape, image):
        found = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs) or "nothing"
        raise UserError(
            f"onnx:{settings.place} is no backbone for images of {image} ({settings.layout}): it takes {found}. "
            f"{_remedy(settings, inputs)}"
        )
    vectors = [each.name for each in outputs if each.type == "tensor(float)" and len(each.shape) == 2]
    if not vectors:
        found = ", ".join(f"{each.name} {each.type} {each.shape}" for each in outputs)
        raise UserError(
            f"onnx:{settings.place} is no backbone: it returns {found}, and not one vector (B, D) of floats per image."
        )
    return str(vectors[0])


def _remedy(settings: Onnx, inputs: list[Any]) -> str:
    """Say what to change, where something can be changed."""
    if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 4:
        return "A backbone has one input: float32 images. Use another file."
    if isinstance(inputs[0].shape[0], int):
        return (
            f"It must take any number of images, not {inputs[0].shape[0]}: export it with a free (dynamic) first axis."
        )
    return f"Set side and layout in {settings.place}.json, or use another file."


def _fits(shape: list[Any], image: list[int]) -> bool:
    """Compare a declared shape with ours; a side that is a name or None may be anything."""
    if len(shape) != 4 or isinstance(shape[0], int):  # the number of images must be free
        return False
    return all(wanted == side for wanted, side in zip(shape[1:], image, strict=True) if isinstance(wanted, int))


def read_sidecar(path: Path) -> Sidecar:
    """Read FILE.json if it is there."""
    if not path.is_file():
        return Sidecar()
    try:
        return Sidecar.model_validate_json(json.dumps(json.loads(path.read_text("utf-8"))))
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error)}") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}).") from None


def find_file(place: str) -> Path:
    """Return the file, or say that it is not there."""
    path = Path(place).expanduser()
    if not path.is_file():
        raise UserError(
            f"onnx:{place}: there is no file {path.absolute()}. Write  onnx:FILE  with the path of the file."
        )
    return path


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"onnx: backbones need onnx and onnxruntime:  {install_hint('onnx')}") from None
