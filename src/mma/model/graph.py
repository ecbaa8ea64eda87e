"""A whole model as one network: uint8 images of any size in, probabilities out. What an ONNX file is made from.

It computes in float32, whatever precision the backbones were run with in training, and rounds where training rounds: scaled
images to bytes, vectors to float16.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from mma.features import Backbone
from mma.features.onnx import Onnx
from mma.model.average import AveragedPredictor
from mma.model.engines import FeaturePredictor, PixelPredictor
from mma.model.model import Model
from mma.model.onnx_file import INPUT, OUTPUT
from mma.model.resize import Resize
from mma.nets import winograd
from mma.views.pixels import smaller

OPSET = 18
TRACED = (2, 37, 53, 3)  # images that the graph is traced with; any others can be used
GREY = (19_595, 38_470, 7_471)  # of 65,536: how Pillow makes grey of red, green and blue


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

    def forward(self, images: Tensor) -> Tensor:
        """Return the probabilities."""  # (B, H, W, 3) uint8 -> (B, classes)
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
        probabilities: Tensor = (self.network(torch.cat(pieces, 1)) / self.temperature).softmax(1)
        return probabilities


class AverageGraph(nn.Module):
    """The mean of several models."""

    def __init__(self, predictor: AveragedPredictor) -> None:
        super().__init__()
        self.graphs = nn.ModuleList([graph_of(model) for model in predictor.models])
        self.tables = [torch.from_numpy(table) for table in predictor.tables()]

    def forward(self, images: Tensor) -> Tensor:
        """Return the probabilities."""  # (B, H, W, 3) uint8 -> (B, classes)
        found = [graph(images) @ table for graph, table in zip(self.graphs, self.tables, strict=True)]
        total = torch.stack(found).sum(0)
        probabilities: Tensor = total / total.sum(1, keepdim=True)
        return probabilities


def to_grey(x: Tensor) -> Tensor:
    """Weigh the channels as Pillow does."""  # (B, 3, H, W) uint8 -> (B, 1, H, W) float64
    shares = torch.tensor(GREY, dtype=torch.float64).view(1, 3, 1, 1)
    return torch.floor(((x.double() * shares).sum(1, keepdim=True) + 32_768.0) / 65_536.0)


def in_float32(model: Model) -> Model:
    """Return the same model with backbones that compute in float32: what an ONNX file is compared with."""
    predictor = model.predictor
    if isinstance(predictor, AveragedPredictor):
        return Model(model.file, replace(predictor, models=tuple(map(in_float32, predictor.models))))
    if not isinstance(predictor, FeaturePredictor):
        return model
    return Model(model.file, replace(predictor, backbones=tuple(map(_exact, predictor.backbones))))


def _exact(backbone: Backbone) -> Backbone:
    if "precision" not in type(backbone).model_fields:
        return backbone
    return backbone.model_copy(update={"precision": "float32"})


def graph_of(model: Model) -> nn.Module:
    """Return a model as one network, in float32."""
    predictor = in_float32(model).predictor
    if isinstance(predictor, AveragedPredictor):
        return AverageGraph(predictor).eval()
    if isinstance(predictor, PixelPredictor):
        return PixelGraph(predictor).eval()
    if not isinstance(predictor, FeaturePredictor):
        raise ValueError("this model is an ONNX file already: copy it.")
    if any(isinstance(part, Onnx) for part in predictor.backbones):
        raise ValueError(
            "a head on an onnx: backbone cannot be exported as one ONNX file. Export the model with  --to safetensors,labels"
        )
    return FeatureGraph(predictor).eval()


def to_onnx(graph: nn.Module) -> bytes:
    """Return a graph as an ONNX file for any number of images of any size."""
    example = torch.randint(0, 256, TRACED, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    axes = {INPUT: {0: "images", 1: "height", 2: "width"}, OUTPUT: {0: "images"}}
    with tempfile.TemporaryDirectory() as folder, quiet_tracing(), winograd.switched_off(), torch.no_grad():
        path = Path(folder) / "graph.onnx"
        try:
            torch.onnx.export(
                graph,
                (example,),
                path,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_axes=axes,
                opset_version=OPSET,
                dynamo=False,  # the other exporter needs a package more
            )
        except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"this network has no ONNX form ({first}). Export the model with  --to safetensors,labels"
            ) from error
        return path.read_bytes()


@contextmanager
def quiet_tracing() -> Iterator[None]:
    """Silence the tracer: it warns of every size that a network looks at, and prints a graph that it cannot export."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
