"""`mma.load`: a model from wherever it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mma.files import read_json
from mma.model.description import DESCRIPTION
from mma.model.model import Model
from mma.run import Run
from mma.text import printable

CONFIG, PROJECT, MODELS = "config.json", "mma.toml", "models"
SERVING = "serving.json"  # in models/: which of them is the best now


@dataclass(frozen=True)
class Origin:
    """Where a model is kept: a run, a model folder or an .onnx file; and the project it belongs to, if it does."""

    place: Path
    project: Path | None = None

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
    from mma.model.folder import load_model

    return load_model(origin.place)


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
        return Origin(project_model(project), project)
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
    beside = place.with_name(f"{place.resolve().name}.mma") if place.name else place
    return next((folder for folder in (place, beside) if (folder / PROJECT).is_file()), None)


def project_model(project: Path) -> Path:
    """Return the folder of the model that serves a project; before that is known, of its newest whole one."""
    folders = [path.parent for path in (project / MODELS).glob(f"*/{DESCRIPTION}") if path.parent.name.isdigit()]
    if not folders:
        raise ValueError(
            f"{printable(str(project))} has no model yet: one is made after the first labels. Label with  "
            f"mma start {printable(str(project))}"
        )
    newest = max(folders, key=lambda folder: int(folder.name))
    serving = project / MODELS / SERVING
    number = read_json(serving).get("number") if serving.is_file() else None
    return next((folder for folder in folders if int(folder.name) == number), newest)
