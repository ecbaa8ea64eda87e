"""What the worker found out about a model: models/NNN/report.json, read by the page and `mma status`. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from mma.files import write_atomically
from mma.project.audit import JudgedImage, Quality
from mma.project.forecast import AccuracyPoint, Gain
from mma.project.helping import NOT_COMPARED, Helping
from mma.settings import explain
from mma.text import printable

FORMAT = 1
REPORT = "report.json"
Kind = Literal["live", "deep"]


Use = Literal["live", "deep", "both"]


@dataclass(frozen=True)
class Serving:
    """Which model chooses the picks, and why."""

    use: Use
    number: int  # the model to hand out: of two that are averaged, the better one
    why: str


@dataclass(frozen=True)
class Forecasted:
    """A forecast as it was made, to be compared with what comes."""

    labels: int  # that were trained with
    gain: Gain  # `more` counts labels to train with


@dataclass(frozen=True)
class ModelReport:
    """One model: what it was made of, how good it is, and what its project knew then. Accuracies of curves in percent."""

    number: int
    kind: Kind
    seq: int  # the last event it was trained on
    labels: int  # trained with
    audit: int  # labels kept for measuring
    classes: tuple[str, ...]
    class_ids: tuple[int, ...]
    per_class: dict[str, int]  # labels trained with
    provenance: dict[str, int]  # of all labels
    curve: tuple[AccuracyPoint, ...]  # of the models so far, on the same images where there is an audit
    curve_source: Literal["audit", "cross-validation"]
    forecasts: tuple[Forecasted, ...] = ()
    agreement: tuple[float, ...] = ()  # kappa of each live model with the one before
    helping: Helping = NOT_COMPARED
    serving: Serving = Serving("live", 0, "")
    quality: Quality | None = None  # None: too few labels to say anything
    judged: tuple[JudgedImage, ...] = ()  # images that `quality` comes from
    uses: str = ""  # which representation or network, and why
    backbones: dict[str, float] = field(default_factory=dict)  # cross-validated accuracy in percent, of each and of all
    query: str = ""  # how the picks were chosen, and why
    seconds: float = 0.0  # from snapshot to picks
    format: int = FORMAT


_adapter = TypeAdapter(ModelReport)


def write_report(folder: Path, report: ModelReport) -> None:
    """Write report.json into a model's folder."""
    write_atomically(folder / REPORT, _adapter.dump_json(report, indent=1) + b"\n")


def read_report(folder: Path) -> ModelReport:
    """Read report.json, or say what is wrong with it."""
    path = folder / REPORT
    try:
        return _adapter.validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{printable(str(path))} is missing.") from None
    except ValidationError as error:
        raise ValueError(
            f"{printable(str(path))} is damaged: {explain(error)}. The next model writes a new one."
        ) from None


def model_folder(project: Path, number: int) -> Path:
    """Return where a model of a project lies."""
    return project / "models" / f"{number:03d}"


def latest_report(project: Path, kind: Kind | None = None) -> ModelReport | None:
    """Return the newest readable report, of one kind or any; None before there is one."""
    numbers = sorted(
        int(path.parent.name) for path in (project / "models").glob(f"*/{REPORT}") if path.parent.name.isdigit()
    )
    for number in reversed(numbers):
        try:
            report = read_report(model_folder(project, number))
        except ValueError:
            continue  # the one before it says as much
        if kind is None or report.kind == kind:
            return report
    return None
