"""A model on disk: model.json and model.safetensors. Read after its hash, names and shapes were checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as format_safetensors
from torch import Tensor, nn

from mma.files import create_atomically, explain_write_errors, write_atomically
from mma.model.average import average_files, load_average, parts_of
from mma.model.description import DESCRIPTION, TENSORS, About, AverageFile, ModelFile, read_description
from mma.model.engines import FeaturePredictor, PixelPredictor
from mma.model.model import Model, new_model
from mma.text import printable

CENTRE, BASIS, NETWORK = "centre/", "basis/", "network/"
REMEDY = "Restore it from a copy, or export the model again."


def save_model(model: Model, folder: Path) -> Path:
    """Write a model into a new folder, or over the model that is there."""
    odd = next((name for name in files_at(folder) if Path(name).name not in (DESCRIPTION, TENSORS)), None)
    if odd is not None:
        raise ValueError(
            f"{printable(str(folder))} holds something else than a model: {printable(odd)}. Choose another folder."
        )

    def write(place: Path) -> None:
        for name, data in model_files(model).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place / name, data)

    with explain_write_errors(folder, "the same command"):
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        create_atomically(folder.absolute(), write)
    return folder


def files_at(place: Path) -> Iterator[str]:
    """Yield what would be lost if a folder were replaced: everything below it but folders; "." for a file."""
    if place.exists() and not place.is_dir():
        yield "."
    yield from (each.relative_to(place).as_posix() for each in place.rglob("*") if not each.is_dir())


def model_files(model: Model) -> dict[str, bytes]:
    """Return the files of a model: the same bytes for the same model."""
    if isinstance(model.file, AverageFile):
        return average_files(model)
    data = format_safetensors(tensors_of(model))
    assert isinstance(model.file, ModelFile)
    file = model.file.model_copy(update={"sha256": hashlib.sha256(data).hexdigest()})
    return {DESCRIPTION: (file.model_dump_json(indent=2) + "\n").encode(), TENSORS: data}


def tensors_of(model: Model) -> dict[str, Tensor]:
    """Name every tensor of a model."""
    predictor = model.predictor
    if not isinstance(predictor, PixelPredictor | FeaturePredictor):
        raise ValueError("an ONNX model is one file already: copy it.")
    state = {f"{NETWORK}{name}": value for name, value in predictor.network.state_dict().items()}
    named = dict(state)
    if isinstance(predictor, FeaturePredictor):
        named |= {f"{CENTRE}{number}": centre for number, centre in enumerate(predictor.centres)}
        named |= {f"{BASIS}{number}": basis for number, basis in enumerate(predictor.bases) if basis is not None}
    return {name: value.detach().cpu().contiguous().clone() for name, value in sorted(named.items())}


def load_model(folder: Path) -> Model:
    """Read a model, or say what is wrong with it."""
    file = read_description(folder)
    if isinstance(file, AverageFile):
        return load_average(folder, file)
    tensors = read_tensors(folder / TENSORS, file)
    network = build_network(folder / DESCRIPTION, file)
    expected = expected_tensors(file, network)
    check_tensors(folder / TENSORS, expected, tensors)
    network.load_state_dict({name: tensors[f"{NETWORK}{name}"] for name in network.state_dict()})
    parts = range(len(file.input.parts) if file.input.kind == "features" else 0)
    centres = [tensors[f"{CENTRE}{number}"].numpy() for number in parts]
    bases = [tensors[name].numpy() if (name := f"{BASIS}{number}") in tensors else None for number in parts]
    return new_model(file, network, centres, bases)


def build_network(path: Path, file: ModelFile) -> nn.Module:
    """Build the network that model.json describes, or say that there can be none."""
    sees = "features" if file.input.kind == "features" else "images"
    if file.net.takes != sees:
        raise ValueError(f"{path} was changed: the network {file.net.name} sees {file.net.takes}, not {sees}. {REMEDY}")
    try:
        return file.net.build(file.input.shape, len(file.classes))
    except (MemoryError, RuntimeError) as error:  # torch's own errors, such as a size that no memory has
        why = str(error).splitlines()[0]
        raise ValueError(f"{path} was changed: the network cannot be built ({why}). {REMEDY}") from error


def expected_tensors(file: ModelFile, network: nn.Module) -> dict[str, Tensor]:
    """Return tensors with the names, types and shapes that a model's file must have."""
    named = {f"{NETWORK}{name}": value for name, value in network.state_dict().items()}
    if file.input.kind == "features":
        for number, part in enumerate(file.input.parts):
            named[f"{CENTRE}{number}"] = torch.zeros(part.width)
            if part.kept is not None:
                named[f"{BASIS}{number}"] = torch.zeros(part.width, part.kept)
    return named


def read_tensors(path: Path, file: ModelFile) -> dict[str, Tensor]:
    """Read the tensors after comparing the file's sha256 with the one in model.json."""
    if not path.is_file():
        raise ValueError(f"{path} is missing, so the model is not whole. Restore it from a copy.")
    data = path.read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != file.sha256:
        raise ValueError(
            f"{path} is damaged or was changed: its sha256 is {found}, and {DESCRIPTION} says {file.sha256 or 'none'}. "
            f"{REMEDY}"
        )
    try:
        return dict(parse_safetensors(data))
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file ({error}). Restore it from a copy.") from error


def check_tensors(path: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are missing, too many, of another shape or type, or not finite."""
    if odd := sorted(set(expected) ^ set(found)):
        which = "lacks" if odd[0] in expected else "has too much:"
        raise ValueError(f"{path} does not fit the network that {DESCRIPTION} describes: it {which} {odd[0]}. {REMEDY}")
    for name, wanted in expected.items():
        have = found[name]
        if have.shape != wanted.shape or have.dtype != wanted.dtype:
            raise ValueError(
                f"{path} does not fit the network that {DESCRIPTION} describes: {name} is {_kind(have)}, and must be "
                f"{_kind(wanted)}. {REMEDY}"
            )
        if have.is_floating_point() and not bool(np.isfinite(have.numpy()).all()):
            raise ValueError(f"{path} holds numbers that are not finite, in {name}. Restore it from a copy.")


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def model_digest(model: Model) -> str:
    """Name a model by a hash of everything that decides what it answers."""
    if isinstance(model.file, AverageFile):
        parts = [*(model_digest(part) for part in parts_of(model)), *(str(each.columns) for each in model.file.members)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
    if not isinstance(model.predictor, PixelPredictor | FeaturePredictor):
        return str(getattr(model.predictor, "sha256", ""))
    assert isinstance(model.file, ModelFile)
    plain = model.file.model_copy(update={"about": About(), "sha256": ""})
    digest = hashlib.sha256(plain.model_dump_json().encode())
    digest.update(format_safetensors(tensors_of(model)))
    return digest.hexdigest()
