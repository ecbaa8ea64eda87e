"""`mma.load`: a model from wherever it is kept: a run, a project, a folder with model.json, or an exported .onnx file."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as format_safetensors
from torch import Tensor

from mma.data import OwnData
from mma.errors import UserError
from mma.files import create_atomically, explain_write_errors, numbered_folders, read_json, write_atomically
from mma.model.description import (
    DESCRIPTION,
    LONGEST,
    TENSORS,
    About,
    FeatureInput,
    ModelAccuracy,
    ModelFile,
    PixelInput,
    ServingFile,
    check_format,
)
from mma.model.model import FeaturePredictor, Model, PixelPredictor, describe_backbones, new_model
from mma.run import Run
from mma.settings import explain
from mma.shares import exact_interval
from mma.text import first_line, printable, quote_path
from mma.training.host import Host
from mma.training.job import Job, load_read_only
from mma.training.predict import accuracy, probabilities
from mma.views import Pixels, VectorViews

CONFIG, PROJECT, MODELS = "config.json", "mma.toml", "models"
SERVING = "serving.json"  # in models/: which of them is the best now


@dataclass(frozen=True)
class Origin:
    """Where a model is kept: a run, a model folder or an .onnx file; and the project it belongs to, if it does."""

    place: Path
    project: Path | None = None
    serving: ServingFile | None = None  # what the project says of the model it hands out

    @property
    def is_run(self) -> bool:
        """Whether the place is a run folder."""
        return not (self.place / DESCRIPTION).is_file() and (self.place / CONFIG).is_file()


def load(path: Run | Path | str, *, data: OwnData | None = None) -> Model:
    """Load a model.

    Parameters
    ----------
    path : Run or path
        A run, a project, a folder with model.json, or an exported .onnx file.
    data : DataSet or torch Dataset, optional
        What a run was trained on, where that is no data set with a name.

    Examples
    --------
    >>> mma.load("runs/digits").classes[:3]
    ('0', '1', '2')
    """
    origin = find_model(path)
    if origin.place.is_file():
        from mma.model.onnx import load_onnx

        return load_onnx(origin.place)
    if origin.is_run:
        return model_of_run(origin.place, data)
    model, serving = load_model(origin.place), origin.serving
    if serving is None or (serving.accuracy is None and serving.audit is None):
        return model
    known = ("accuracy", "per_class", "audit", "promises")
    about = model.about.model_copy(update={name: getattr(serving, name) for name in known})
    return Model(model.file.model_copy(update={"about": about}), model.predictor)


def find_model(path: Run | Path | str) -> Origin:
    """Return where the model of a run, a project, a folder or a file is kept, or say that there is none."""
    place = (path.folder if isinstance(path, Run) else Path(path)).expanduser()
    if not place.exists():
        raise UserError(f"there is no {printable(str(place))}. Give a run, a project, a model folder or an .onnx file.")
    if place.is_file() and place.name != DESCRIPTION:
        if place.suffix.lower() != ".onnx":
            raise UserError(f"{printable(str(place))} is no model. Give a folder with {DESCRIPTION}, or an .onnx file.")
        return Origin(place)
    place = place.parent if place.is_file() else place
    if (place / DESCRIPTION).is_file() or (place / CONFIG).is_file():
        return Origin(place)
    if (project := find_project(place)) is not None:
        folders = numbered_folders(project / MODELS, DESCRIPTION)
        if not folders:
            raise UserError(
                f"{printable(str(project))} has no model yet: one is made after ten labels of two classes. Label with  "
                f"mma start {quote_path(project)}"
            )
        best = project / MODELS / SERVING
        with suppress(ValidationError):
            if best.is_file() and (serving := ServingFile.model_validate_json(best.read_bytes())).number in folders:
                return Origin(folders[serving.number], project, serving)
        return Origin(folders[max(folders)], project)  # its newest whole model, before it is known which is the best
    if len(files := sorted(place.glob("*.onnx"))) == 1:
        return Origin(files[0])
    raise UserError(
        f"{printable(str(place))} holds no model: it is no run ({CONFIG}), no project ({PROJECT}), no model ({DESCRIPTION}) "
        "and no export (one .onnx file). Train one with  mma train photos --data DIR"
    )


def find_project(place: Path) -> Path | None:
    """Return the project folder: this one, or the one that lies beside a folder of images."""
    here = Path(os.path.abspath(place))
    beside = here.with_name(f"{here.name}.mma") if here.name else here
    return next((folder for folder in (place, beside) if (folder / PROJECT).is_file()), None)


# A model on disk: model.json and model.safetensors. Read after its hash, names and shapes were checked.

CENTRE, BASIS, NETWORK, TYPICAL = "centre/", "basis/", "network/", "typical"
REMEDY = "Restore it from a copy, or export the model again."
SMALL = 1_024  # a setting of a network up to this is not compared with the sizes of its tensors


def save_model(model: Model, folder: Path) -> Path:
    """Write a model into a new folder, or over the model that is there."""
    if odd := next((name for name in files_at(folder) if Path(name).name not in (DESCRIPTION, TENSORS)), None):
        raise UserError(
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
    data = format_safetensors(tensors_of(model))
    assert isinstance(model.file, ModelFile)
    file = model.file.model_copy(update={"sha256": hashlib.sha256(data).hexdigest()})
    return {DESCRIPTION: (file.model_dump_json(indent=2) + "\n").encode(), TENSORS: data}


def tensors_of(model: Model) -> dict[str, Tensor]:
    """Name every tensor of a model."""
    predictor = model.predictor
    if not isinstance(predictor, PixelPredictor | FeaturePredictor):
        raise UserError("an ONNX model is one file already: copy it.")
    named = {f"{NETWORK}{name}": value for name, value in predictor.network.state_dict().items()}
    if isinstance(predictor, FeaturePredictor):
        named |= {f"{CENTRE}{number}": centre for number, centre in enumerate(predictor.centres)}
        named |= {f"{BASIS}{number}": basis for number, basis in enumerate(predictor.bases) if basis is not None}
        named |= {} if predictor.typical is None else {TYPICAL: predictor.typical}
    return {name: value.detach().cpu().contiguous().clone() for name, value in sorted(named.items())}


def load_model(folder: Path) -> Model:
    """Read a model, or say what is wrong with it. No more memory is taken than its files are long."""
    described, path = folder / DESCRIPTION, folder / TENSORS
    if described.stat().st_size > LONGEST:
        raise UserError(
            f"{described} is longer than {LONGEST:,} bytes, so it is no model of ours. Restore it from a copy."
        )
    content = read_json(described)
    check_format(content, described)
    try:
        file = ModelFile.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise UserError(f"{described} is no model of ours, or it was changed: {explain(error)}. {REMEDY}") from None
    if not path.is_file():
        raise UserError(f"{path} is missing, so the model is not whole. Restore it from a copy.")
    data = path.read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != file.sha256:
        raise UserError(
            f"{path} is damaged or was changed: its sha256 is {found}, and {DESCRIPTION} says {file.sha256 or 'none'}. "
            f"{REMEDY}"
        )
    try:
        tensors = dict(parse_safetensors(data))
    except SafetensorError as error:
        raise UserError(f"{path} is not a safetensors file ({error}). Restore it from a copy.") from error
    check_tensors(folder, file, tensors)
    network = file.net.build(file.input.shape, len(file.classes))
    network.load_state_dict({name: tensors[f"{NETWORK}{name}"] for name in network.state_dict()})
    parts = range(len(file.input.parts) if file.input.kind == "features" else 0)
    centres, bases = [tensors[f"{CENTRE}{number}"] for number in parts], [tensors.get(f"{BASIS}{n}") for n in parts]
    return new_model(file, network, centres, bases, tensors.get(TYPICAL))


def check_tensors(folder: Path, file: ModelFile, found: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are missing, too many, of another shape or type than the file of the model says, or not finite."""
    path, sees = folder / TENSORS, "features" if file.input.kind == "features" else "images"
    changed = f"{folder / DESCRIPTION} was changed"
    if file.net.takes != sees:
        raise UserError(f"{changed}: the network {file.net.name} sees {file.net.takes}, not {sees}. {REMEDY}")
    # A size or a number of layers that the tensors do not have would only take time.
    most = max(SMALL, len(found), *(side for tensor in found.values() for side in tensor.shape), 0)
    for name, value in file.net.model_dump().items():
        if isinstance(value, int) and value > most:
            raise UserError(f"{changed}: {name} is {value:,}, and no tensor of the model has this size. {REMEDY}")
    try:
        with warnings.catch_warnings(), torch.device("meta"):  # tensors without memory
            warnings.simplefilter("ignore")  # weights that a network starts from are not copied here: torch remarks it
            network = file.net.build(file.input.shape, len(file.classes))
            expected = {f"{NETWORK}{name}": value for name, value in network.state_dict().items()}
            for number, part in enumerate(file.input.parts if file.input.kind == "features" else ()):
                expected[f"{CENTRE}{number}"] = torch.empty(part.width)
                if part.kept is not None:
                    expected[f"{BASIS}{number}"] = torch.empty(part.width, part.kept)
            if file.strange is not None and file.input.kind == "features":
                expected[TYPICAL] = torch.empty(len(file.classes), sum(file.input.shape))
    except (RuntimeError, ValueError, OverflowError) as error:  # torch's own errors, such as a size that no memory has
        raise UserError(f"{changed}: the network cannot be built ({first_line(error)}). {REMEDY}") from error
    misfit = f"{path} does not fit the network that {DESCRIPTION} describes"
    if odd := sorted(set(expected) ^ set(found)):
        which = "lacks" if odd[0] in expected else "has too much:"
        raise UserError(f"{misfit}: it {which} {odd[0]}. {REMEDY}")
    for name, wanted in expected.items():
        have = found[name]
        if have.shape != wanted.shape or have.dtype != wanted.dtype:
            is_, must = (f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}" for x in (have, wanted))
            raise UserError(f"{misfit}: {name} is {is_}, and must be {must}. {REMEDY}")
        if have.is_floating_point() and not bool(have.isfinite().all()):
            raise UserError(f"{path} holds numbers that are not finite, in {name}. Restore it from a copy.")


def model_digest(model: Model) -> str:
    """Name a model by a hash of everything that decides what it answers."""
    if not isinstance(model.predictor, PixelPredictor | FeaturePredictor):
        return str(getattr(model.predictor, "sha256", ""))
    assert isinstance(model.file, ModelFile)
    plain = model.file.model_copy(update={"about": About(), "sha256": ""})
    digest = hashlib.sha256(plain.model_dump_json().encode())
    digest.update(format_safetensors(tensors_of(model)))
    return digest.hexdigest()


# The model that a run hands out: the teacher of its latest stored state.


def model_of_run(run: Run | Path | str, data: OwnData | None = None, *, tested: bool = False) -> Model:
    """Return the latest model of a run. The run's data must be there: features are centred on its pool.

    With `tested`, it is tested class by class as well.
    """
    job = load_read_only(run, data, Host("cpu"))
    views = job.as_trained(job.views)
    about = about_run(job, per_class=tested)
    file = ModelFile(classes=job.data.train.classes, input=input_of(views), net=job.config.net, about=about)
    network = job.config.net.build(views.shape, len(file.classes))
    network.load_state_dict(job.state.teacher.state_dict())
    projections = views.projections if isinstance(views, VectorViews) else ()
    return new_model(file, network, [each.mean.cpu() for each in projections], [each.basis for each in projections])


def input_of(views: object) -> PixelInput | FeatureInput:
    """Describe what the network of a run is shown."""
    if isinstance(views, VectorViews):
        whole = describe_backbones(views.settings.backbone, [len(each.mean) for each in views.projections])
        kept = [None if each.basis is None else each.width for each in views.projections]
        parts = [part.model_copy(update={"kept": k}) for part, k in zip(whole.parts, kept, strict=True)]
        return FeatureInput(parts=tuple(parts), rounded=True)
    if isinstance(views, Pixels):
        height, width, channels = views.shape
        if channels in (1, 3):
            return PixelInput(height=height, width=width, channels=channels, average_to=views.side)  # type: ignore[arg-type]
    raise UserError("this run's network sees something else than images, so it cannot be used on them.")


def about_run(job: Job, *, per_class: bool) -> About:
    """Say where a run's model comes from, and how good it is on the run's test images, if it has any."""
    names, answers = job.data.train.classes, [label for label in job.run.answers().values() if label >= 0]
    counts = np.bincount(np.array(answers, np.int64), minlength=len(names)).tolist()
    labels, rows = job.data.test.labels, job.run.read("metrics")
    tested, whole, each = np.flatnonzero(labels >= 0), None, dict[str, ModelAccuracy]()
    if images := len(tested):
        percent: Any = rows[-1]["accuracy"] if rows and rows[-1]["step"] == job.state.step else None
        views = job.as_trained(job.test)
        if percent is None:  # a state that was stored between two evaluations, or there was no test set then
            percent = accuracy(job.state.teacher, views, labels)
        whole = measured(round(percent * images / 100), images, f"{images:,} test images of {job.data.name}")
        answered = probabilities(job.state.teacher, views, tested).argmax(1) if per_class else labels[:0]
        for number, name in enumerate(job.data.test.classes if per_class else ()):
            if count := np.count_nonzero(its := labels[tested] == number):
                each[name] = measured(int((answered[its] == number).sum()), int(count), f"test images of {name}")
    return About(
        source=job.run.folder.resolve().name,
        step=job.state.step,
        labels=dict(zip(names, counts, strict=True)),
        by={"the data set": len(answers)} if job.data.train.labels.max(initial=-1) >= 0 else {"people": len(answers)},
        images=len(job.pool),
        data=job.data.train.digest(),
        accuracy=whole,
        per_class=each,
    )


def measured(right: int, images: int, on: str) -> ModelAccuracy:
    """Return an accuracy with its exact interval."""
    low, high = exact_interval(right, images)
    percent, low, high = (round(100 * share, 6) for share in (right / images, low, high))
    return ModelAccuracy(percent=percent, low=low, high=high, images=images, measured_on=on)
