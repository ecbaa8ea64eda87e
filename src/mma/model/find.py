"""`mma.load`: a model from wherever it is kept."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from mma.model.description import DESCRIPTION, ServingFile
from mma.model.model import Model
from mma.run import Run
from mma.text import printable, quote_path

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


def load(path: Run | Path | str) -> Model:
    """Load a model: from a run, a project, a folder with model.json, or an exported .onnx file."""
    origin = find_model(path)
    if origin.place.is_file():
        from mma.model.onnx_file import load_onnx

        return load_onnx(origin.place)
    if origin.is_run:
        from mma.model.from_run import model_of_run

        return model_of_run(origin.place)
    if origin.serving is not None:
        return load_serving(origin.place, origin.serving)
    from mma.model.folder import load_model

    return load_model(origin.place)


def load_serving(place: Path, serving: ServingFile) -> Model:
    """Load what a project hands out: one of its models, or two averaged, with the accuracy that it measured."""
    from mma.model.average import average
    from mma.model.folder import load_model

    places = [place.with_name(f"{member.number:03d}") for member in serving.members] or [place]
    models = [load_model(each) for each in places]  # the first one is the newest, and has all classes
    known = {"accuracy": serving.accuracy, "per_class": serving.per_class} if serving.accuracy else {}
    about = models[0].about.model_copy(update=known)
    if not serving.members:
        return models[0].described(about)
    columns = [member.columns for member in serving.members]
    return average(models, columns, models[0].classes, about, [f"member-{member.number}" for member in serving.members])


def find_model(path: Run | Path | str) -> Origin:
    """Return where the model of a run, a project, a folder or a file is kept, or say that there is none."""
    place = (path.folder if isinstance(path, Run) else Path(path)).expanduser()
    if not place.exists():
        raise ValueError(
            f"there is no {printable(str(place))}. Give a run, a project, a model folder or an .onnx file."
        )
    if place.is_file():
        return _find_file(place)
    if (place / DESCRIPTION).is_file() or (place / CONFIG).is_file():
        return Origin(place)
    if (project := find_project(place)) is not None:
        return project_origin(project)
    if len(files := sorted(place.glob("*.onnx"))) == 1:
        return Origin(files[0])
    raise ValueError(
        f"{printable(str(place))} holds no model: it is no run ({CONFIG}), no project ({PROJECT}), no model ({DESCRIPTION}) "
        "and no export (one .onnx file). Train one with  mma train photos --data DIR"
    )


def _find_file(path: Path) -> Origin:
    if path.name == DESCRIPTION:
        return Origin(path.parent)
    if path.suffix.lower() != ".onnx":
        raise ValueError(f"{printable(str(path))} is no model. Give a folder with {DESCRIPTION}, or an .onnx file.")
    return Origin(path)


def find_project(place: Path) -> Path | None:
    """Return the project folder: this one, or the one that lies beside a folder of images."""
    here = Path(os.path.abspath(place))
    beside = here.with_name(f"{here.name}.mma") if here.name else here
    return next((folder for folder in (place, beside) if (folder / PROJECT).is_file()), None)


def project_origin(project: Path) -> Origin:
    """Return where the model is that a project hands out; before that is known, its newest whole one."""
    folders = {
        int(path.parent.name): path.parent
        for path in (project / MODELS).glob(f"*/{DESCRIPTION}")
        if path.parent.name.isdigit()
    }
    if not folders:
        raise ValueError(
            f"{printable(str(project))} has no model yet: one is made after ten labels of two classes. Label with  "
            f"mma start {quote_path(project)}"
        )
    serving = read_serving(project / MODELS / SERVING)
    if serving is None or serving.number not in folders:
        return Origin(folders[max(folders)], project)
    if any(member.number not in folders for member in serving.members):
        serving = None  # one of two is gone, so that what was measured is not what is left
    return Origin(folders[serving.number if serving else max(folders)], project, serving)


def read_serving(path: Path) -> ServingFile | None:
    """Read which model serves; None where nothing readable says so."""
    try:
        return ServingFile.model_validate_json(path.read_bytes()) if path.is_file() else None
    except ValidationError:
        return None
