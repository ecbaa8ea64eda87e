"""The bytes of an exported .onnx file: one file, with the classes and the model's story in its metadata."""

from __future__ import annotations

import importlib
from typing import Any

from mma.features.sources import decoded_side
from mma.model.average import AveragedPredictor
from mma.model.description import OnnxFile
from mma.model.engines import FeaturePredictor, PixelPredictor
from mma.model.graph import graph_of, to_onnx
from mma.model.model import Model
from mma.model.onnx_file import KEY, OUTPUT

EXTRA = "exporting to ONNX needs onnx and onnxruntime:  pip install 'mma-learn[onnx]'"
LIMIT = 2 << 30  # bytes of one file in ONNX's own format


def onnx_bytes(model: Model) -> bytes:
    """Return a model as an ONNX file that was checked to be well formed."""
    onnx = import_onnx()
    proto = onnx.load_from_string(to_onnx(graph_of(model)))
    if proto.ByteSize() >= LIMIT:
        raise ValueError(
            "the model is larger than one ONNX file can be (2 GiB). Export it with  --to safetensors,labels"
        )
    classes = proto.graph.output[0].type.tensor_type.shape.dim[1]
    classes.Clear()
    classes.dim_value = len(model.classes)
    assert proto.graph.output[0].name == OUTPUT
    file = OnnxFile(classes=model.classes, enough=enough_pixels(model), about=model.about)
    onnx.helper.set_model_props(proto, {KEY: file.model_dump_json()})
    proto.producer_name, proto.doc_string = "mma", "uint8 images (N, height, width, 3) of any size -> probabilities"
    onnx.checker.check_model(proto, full_check=True)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def enough_pixels(model: Model) -> int:
    """Return with how many pixels per side a large JPEG is decoded for this model, as in training."""
    predictor = model.predictor
    if isinstance(predictor, AveragedPredictor):
        return max(map(enough_pixels, predictor.models))
    if isinstance(predictor, PixelPredictor):
        return 4 * max(predictor.input.height, predictor.input.width)
    assert isinstance(predictor, FeaturePredictor)
    used = zip(predictor.backbones, predictor.embedders, strict=True)
    return max(decoded_side(backbone.side) for backbone, embedder in used if embedder is not None)


def import_onnx() -> Any:
    """Return the library onnx, or say how to get it."""
    try:
        onnx = importlib.import_module("onnx")
        importlib.import_module("onnx.checker")
        importlib.import_module("onnx.helper")
    except ImportError:
        raise ValueError(EXTRA) from None
    return onnx
