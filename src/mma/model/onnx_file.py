"""An exported .onnx file as a model: uint8 images of any size in, probabilities out; onnxruntime computes."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from mma.data.photos import unscaled_photo
from mma.model.description import OnnxFile, check_format
from mma.model.engines import Pixel
from mma.model.model import Model
from mma.model.photo import Opener
from mma.settings import explain

KEY = "mma"  # of the description in the file's metadata
INPUT, OUTPUT = "images", "probabilities"
EXTRA = "models in ONNX need onnxruntime:  pip install 'mma-learn[onnx]'"


@dataclass(frozen=True, eq=False)
class OnnxPredictor:
    """A session of onnxruntime. Images are taken one by one, since each may have a size of its own."""

    session: Any
    sha256: str  # of the file
    enough: int  # pixels per side that a large JPEG is decoded with
    batch: int = 1

    def open(self) -> None:
        """Everything is loaded already."""

    def prepare(self, photo: Opener) -> Pixel:
        """Decode an image; the file scales it by itself."""  # (H, W, 3)
        with photo() as image:
            return unscaled_photo(image, self.enough)

    def probabilities(self, prepared: Sequence[Pixel]) -> NDArray[np.float32]:
        """Run the file."""
        rows = [self.session.run([OUTPUT], {INPUT: image[None]})[0] for image in prepared]
        return np.concatenate(rows)


def load_onnx(path: Path) -> Model:
    """Read an exported model, or say why it is none. Nothing in an ONNX file is executed but arithmetic."""
    runtime = import_runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # each core computes an image of its own
    try:
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has classes of its own for every way a file can be broken
        raise ValueError(f"{path} cannot be read as an ONNX file: {str(error).splitlines()[0]}") from error
    file = read_metadata(path, session)
    check_session(path, session, len(file.classes))
    with path.open("rb") as opened:
        sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
    return Model(file, OnnxPredictor(session, sha256, file.enough))


def read_metadata(path: Path, session: Any) -> OnnxFile:
    """Read and check what the file says of itself."""
    text = session.get_modelmeta().custom_metadata_map.get(KEY)
    if text is None:
        raise ValueError(
            f"{path} is an ONNX file, but no model that  mma export  wrote: its metadata say nothing of classes."
        )
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            check_format(found, path)
        return OnnxFile.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"{path} was changed: {explain(error)}. Export the model again.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} was changed: its metadata are not JSON ({error}). Export the model again.") from None


def check_session(path: Path, session: Any, classes: int) -> None:
    """Refuse a file whose input or output is not a model's."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    takes = [(each.name, each.type, len(each.shape), each.shape[-1]) for each in inputs]
    gives = [(each.name, each.type, len(each.shape), each.shape[-1]) for each in outputs]
    if takes != [(INPUT, "tensor(uint8)", 4, 3)] or gives != [(OUTPUT, "tensor(float)", 2, classes)]:
        raise ValueError(f"{path} was changed: it takes {takes} and returns {gives}. Export the model again.")


def import_runtime() -> Any:
    """Return onnxruntime, or say how to get it."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        raise ValueError(EXTRA) from None
