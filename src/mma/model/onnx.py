"""A whole model as one ONNX file: uint8 images of any size in, probabilities out. Read it, or make it.

The graph computes in float32, whatever precision the backbones were run with in training, and rounds where training rounds:
scaled images to bytes, vectors to float16. Classes and the model's story are in the file's metadata.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from mma.data.photos import alone, unscaled_photo
from mma.errors import UserError
from mma.features.backbone import import_extra
from mma.features.inputs import decoded_side
from mma.features.onnx import Onnx, bounded_session
from mma.model.description import OnnxFile, check_format
from mma.model.model import Answers, FeaturePredictor, Model, Opener, Pixel, PixelPredictor, strangeness
from mma.nets import winograd
from mma.settings import explain
from mma.text import first_line
from mma.views.pixels import smaller

NEED = "exporting to ONNX needs onnx and onnxruntime"
KEY = "mma"  # of the description in the file's metadata
INPUT, OUTPUT, UNLIKE = "images", "probabilities", "unlike"
OPSET = 18
LIMIT = 2 << 30  # bytes of one file in ONNX's own format
TRACED = (2, 37, 53, 3)  # images that the graph is traced with; any others can be used
GREY = (19_595, 38_470, 7_471)  # of 65,536: how Pillow makes grey of red, green and blue


@dataclass(frozen=True, eq=False)
class OnnxPredictor:
    """A session of onnxruntime. Images are taken one by one, since each may have a size of its own."""

    session: Any
    sha256: str  # of the file
    enough: int  # pixels per side that a large JPEG is decoded with
    refuses: bool = False
    batch: int = 1

    def open(self) -> None:
        """Everything is loaded already."""

    def prepare(self, photo: Opener) -> Pixel:
        """Decode an image; the file scales it by itself."""  # (H, W, 3)
        with photo() as image, alone(image):
            return unscaled_photo(image, self.enough)

    def classify(self, prepared: Sequence[Pixel]) -> Answers:
        """Run the file."""
        names = [OUTPUT, UNLIKE] if self.refuses else [OUTPUT]
        try:
            found = [self.session.run(names, {INPUT: image[None]}) for image in prepared]
            probs = np.concatenate([each[0] for each in found])
            return probs, np.concatenate([each[1] for each in found]) if self.refuses else np.zeros(len(found), bool)
        except Exception as error:  # onnxruntime has classes of its own for what can fail
            raise UserError(f"this ONNX file cannot be run: {first_line(error)}. Export the model again.") from error


def load_onnx(path: Path) -> Model:
    """Read an exported model, or say why it is none. Nothing in an ONNX file is executed but arithmetic."""
    runtime = import_extra("onnxruntime", "models in ONNX need onnxruntime", "onnx")
    try:
        session = bounded_session(runtime, path)
    except Exception as error:  # onnxruntime has classes of its own for every way a file can be broken
        raise UserError(f"{path} cannot be read as an ONNX file: {first_line(error)}") from error
    text = session.get_modelmeta().custom_metadata_map.get(KEY)
    if text is None:
        raise UserError(
            f"{path} is an ONNX file, but no model that  mma export  wrote: its metadata say nothing of classes."
        )
    try:
        if isinstance(described := json.loads(text), dict):
            check_format(described, path)
        file = OnnxFile.model_validate_json(text)
    except (ValidationError, json.JSONDecodeError) as error:
        why = explain(error) if isinstance(error, ValidationError) else f"its metadata are not JSON ({error})"
        raise UserError(f"{path} was changed: {why}. Export the model again.") from None
    takes = [(each.name, each.type, len(each.shape), each.shape[-1]) for each in session.get_inputs()]
    gives = [(each.name, each.type, len(each.shape), *each.shape[1:]) for each in session.get_outputs()]
    unlike = [] if file.strange is None else [(UNLIKE, "tensor(bool)", 1)]
    wanted = [(OUTPUT, "tensor(float)", 2, len(file.classes)), *unlike]
    if takes != [(INPUT, "tensor(uint8)", 4, 3)] or gives != wanted:
        raise UserError(f"{path} was changed: it takes {takes} and returns {gives}. Export the model again.")
    with path.open("rb") as opened:
        sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
    return Model(file, OnnxPredictor(session, sha256, file.enough, refuses=file.strange is not None))


class PixelGraph(nn.Module):
    """A network that sees pixels."""

    def __init__(self, predictor: PixelPredictor) -> None:
        super().__init__()
        self.input, self.network, self.temperature = predictor.input, predictor.network, predictor.temperature
        self.resize = Resize((predictor.input.height, predictor.input.width), "lanczos")

    def forward(self, images: Tensor) -> Tensor:
        """Return the probabilities."""  # (B, H, W, 3) uint8 -> (B, classes)
        x = images.permute(0, 3, 1, 2)
        x = self.resize(to_grey(x) if self.input.channels == 1 else x)
        x = smaller(x.float() * (1.0 / 127.5) - 1.0, self.input.average_to)
        probabilities: Tensor = (self.network(x) / self.temperature).softmax(1)
        return probabilities


class FeatureGraph(nn.Module):
    """A head on backbones; those that it does not look at are left out."""

    def __init__(self, predictor: FeaturePredictor) -> None:
        super().__init__()
        self.network, self.temperature, self.predictor = predictor.network, predictor.temperature, predictor
        self.embedders = nn.ModuleList([each for each in predictor.embedders if each is not None])
        self.used = [each is not None for each in predictor.embedders]
        sides = [part.side for part, used in zip(predictor.backbones, self.used, strict=True) if used]
        self.resizes = nn.ModuleList([Resize((side, side), "bicubic") for side in sides])

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return the probabilities, and what is unlike anything labeled."""  # (B, H, W, 3) uint8 -> (B, classes), (B,)
        x = images.permute(0, 3, 1, 2)
        found = [
            embedder(resize(x).float().permute(0, 2, 3, 1))
            for embedder, resize in zip(self.embedders, self.resizes, strict=True)
        ]
        blank = found[0][:, :1] * 0.0  # as many rows as there are images
        pieces = []
        for part, used in enumerate(self.used):
            ready = self.predictor.ready(part, found.pop(0)) if used else None
            pieces.append(blank.expand(-1, self.predictor.input.shape[part]) if ready is None else ready)
        vectors, typical, strange = torch.cat(pieces, 1), self.predictor.typical, self.predictor.strange
        probabilities: Tensor = (self.network(vectors) / self.temperature).softmax(1)
        if typical is None or strange is None:
            return probabilities
        return probabilities, strangeness(vectors, typical) > strange


def to_grey(x: Tensor) -> Tensor:
    """Weigh the channels as Pillow does."""  # (B, 3, H, W) uint8 -> (B, 1, H, W) float64
    shares = torch.tensor(GREY, dtype=torch.float64).view(1, 3, 1, 1)
    return torch.floor(((x.double() * shares).sum(1, keepdim=True) + 32_768.0) / 65_536.0)


def in_float32(model: Model) -> Model:
    """Return the same model with backbones that compute in float32: what an ONNX file is compared with."""
    predictor = model.predictor
    if not isinstance(predictor, FeaturePredictor):
        return model
    exact = (
        each.model_copy(update={"precision": "float32"}) if "precision" in type(each).model_fields else each
        for each in predictor.backbones
    )
    return Model(model.file, replace(predictor, backbones=tuple(exact)))


def graph_of(model: Model) -> nn.Module:
    """Return a model as one network, in float32."""
    predictor = in_float32(model).predictor
    if isinstance(predictor, PixelPredictor):
        return PixelGraph(predictor).eval()
    if not isinstance(predictor, FeaturePredictor):
        raise UserError("this model is an ONNX file already: copy it.")
    if any(isinstance(part, Onnx) for part in predictor.backbones):
        raise UserError(
            "a head on an onnx: backbone cannot be exported as one ONNX file. Export the model with  --to safetensors,labels"
        )
    return FeatureGraph(predictor).eval()


def to_onnx(graph: nn.Module) -> bytes:
    """Return a graph as an ONNX file for any number of images of any size."""
    example = torch.randint(0, 256, TRACED, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    predictor = getattr(graph, "predictor", None)
    outputs = [OUTPUT] if getattr(predictor, "strange", None) is None else [OUTPUT, UNLIKE]
    axes = {INPUT: {0: "images", 1: "height", 2: "width"}, **{name: {0: "images"} for name in outputs}}
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),  # the tracer warns of every size that a network looks at,
        redirect_stdout(io.StringIO()),  # and prints a graph that it cannot export
        winograd.switched_off(),
        torch.no_grad(),
    ):
        warnings.simplefilter("ignore")
        path = Path(folder) / "graph.onnx"
        try:
            torch.onnx.export(
                graph,
                (example,),
                path,
                input_names=[INPUT],
                output_names=outputs,
                dynamic_axes=axes,
                opset_version=OPSET,
                dynamo=False,  # the other exporter needs a package more
            )
        except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
            raise UserError(
                f"this network has no ONNX form ({first_line(error)}). Export the model with  --to safetensors,labels"
            ) from error
        return path.read_bytes()


def onnx_bytes(model: Model) -> bytes:
    """Return a model as an ONNX file that was checked to be well formed."""
    onnx = import_extra("onnx", NEED, "onnx")
    proto = onnx.load_from_string(to_onnx(graph_of(model)))
    if proto.ByteSize() >= LIMIT:
        raise UserError(
            "the model is larger than one ONNX file can be (2 GiB). Export it with  --to safetensors,labels"
        )
    classes = proto.graph.output[0].type.tensor_type.shape.dim[1]
    classes.Clear()
    classes.dim_value = len(model.classes)
    assert proto.graph.output[0].name == OUTPUT
    predictor = model.predictor
    if isinstance(predictor, PixelPredictor):  # large JPEGs are decoded as in training
        enough = 4 * max(predictor.input.height, predictor.input.width)
    else:
        assert isinstance(predictor, FeaturePredictor)
        used = zip(predictor.backbones, predictor.embedders, strict=True)
        enough = max(decoded_side(backbone.side) for backbone, embedder in used if embedder is not None)
    file = OnnxFile(classes=model.classes, enough=enough, strange=model.file.strange, about=model.about)
    onnx.helper.set_model_props(proto, {KEY: file.model_dump_json()})
    proto.producer_name, proto.doc_string = "mma", "uint8 images (N, height, width, 3) of any size -> probabilities"
    onnx.checker.check_model(proto, full_check=True)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


# Scaling images as training does, to the last bit, in operations that an ONNX file can hold.
#
# Pillow (Lanczos, for networks on pixels) and torch (bicubic, for backbones) scale bytes alike: first along the rows, then
# along the columns; the weights of each new pixel add up to one and are rounded to whole numbers, and so is the result of each
# pass. A pass is then a product with a matrix that follows from the two sizes. Products and sums of such whole numbers are
# exact in float64, so nothing depends on who multiplies.

Filter = Literal["lanczos", "bicubic"]
# Bits of a weight: those of Pillow; those that torch has room for, as many as the largest weight fits.
LONG, SHORT = 22, 15


class Resize(nn.Module):
    """Scale images of any size to one size."""

    def __init__(self, size: tuple[int, int], filter: Filter) -> None:
        super().__init__()
        self.size, self.filter = size, filter

    def forward(self, images: Tensor) -> Tensor:
        """Return whole numbers from 0 to 255."""  # (B, C, H, W) -> (B, C, height, width), float64
        height, width = self.size
        columns, column_unit = weights(images.shape[3], width, self.filter)
        images = round_off(images.double() @ columns.T, column_unit)
        rows, row_unit = weights(images.shape[2], height, self.filter)
        return round_off(rows @ images, row_unit)


def round_off(sums: Tensor, unit: Tensor) -> Tensor:
    """Divide by what the weights add up to, round, and stay within a byte."""
    return torch.floor((sums + unit / 2) / unit).clamp(0, 255)


def weights(old: int, new: int, filter: Filter) -> tuple[Tensor, Tensor]:
    """Return the weight of each old pixel in each new one, as whole numbers, and what stands for one."""  # (new, old), ()
    shape, reach = FILTERS[filter]
    place = torch.arange(old, dtype=torch.float64)[None]
    scale = (place[:, -1:] + 1.0) / new  # old / new, as a matrix: a number alone would become float32
    wide = scale.clamp(min=1.0)  # where images shrink, the filter grows: this is the antialiasing
    centre = (torch.arange(new, dtype=torch.float64)[:, None] + 0.5) * scale
    begin, end = (torch.floor(centre + side * reach * wide + 0.5) for side in (-1, 1))
    inside = (place >= begin) & (place < end)
    value = torch.where(inside, shape((place - centre + 0.5) * (torch.ones_like(wide) / wide)), 0.0)
    value = value / value.sum(1, keepdim=True)
    if filter == "lanczos":
        unit = torch.tensor(2.0**LONG, dtype=torch.float64)
    else:  # the power of two that keeps the largest weight below 2 ** 15
        tried = torch.tensor([2.0**bits for bits in range(1, LONG + 1)], dtype=torch.float64)
        unit = torch.where(torch.floor(value.max() * tried + 0.5) < 2.0**SHORT, tried, 1.0).max()
    exact = value * unit
    return torch.where(exact < 0, torch.ceil(exact - 0.5), torch.floor(exact + 0.5)), unit


def lanczos(x: Tensor) -> Tensor:
    """A sinc in the window of a three times wider one."""
    inside = (x >= -3.0) & (x < 3.0)
    return torch.where(inside, sinc(x) * sinc(x / 3.0), 0.0)


def sinc(x: Tensor) -> Tensor:
    """Return sin(pi x) / (pi x)."""
    x = x * math.pi
    return torch.where(x == 0.0, 1.0, torch.sin(x) / torch.where(x == 0.0, 1.0, x))


def bicubic(x: Tensor) -> Tensor:
    """Keys' cubic with a = -1/2."""
    x, a = x.abs(), -0.5
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, 0.0))


FILTERS: dict[Filter, tuple[Callable[[Tensor], Tensor], float]] = {"lanczos": (lanczos, 3.0), "bicubic": (bicubic, 2.0)}
