"""What the worker made: one row per model, for the page and for whoever wants the best one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save
from sqlalchemy import Connection, delete, func, insert, select

from mma.data.tables import render_csv
from mma.files import write_atomically
from mma.project.labels import tables as db
from mma.project.labels.events import now
from mma.project.quality.accuracy import FEWEST, JudgedImage, Quality, provenance_counts
from mma.project.quality.forecast import AccuracyPoint, Gain
from mma.project.quality.query_benefit import NOT_COMPARED, Helping, split_by_group
from mma.project.records import Klass, Labels, ModelRow
from mma.settings import explain
from mma.text import printable

STATES = ("training", "ready", "failed")


def store_model(connection: Connection, number: int, values: dict[str, Any]) -> ModelRow:
    """Add a model or replace what is known of it; values that are not given stay."""
    before = connection.execute(select(db.models).where(db.models.c.number == number)).first()
    row = {
        "kind": "live",
        "seq": 0,
        "message": "",
        "accuracy": None,
        "about": {},
        **(_fields(before) if before else {}),
    }
    row = {**row, **values, "number": number, "at": now()}
    if row.get("state") not in STATES:
        raise ValueError(f"a model is in one of the states {', '.join(STATES)}, not '{row.get('state')}'.")
    connection.execute(delete(db.models).where(db.models.c.number == number))
    connection.execute(insert(db.models).values(**{**row, "about": json.dumps(row["about"])}))
    return ModelRow(**row)


def _fields(row: Any) -> dict[str, Any]:
    return {**row._asdict(), "about": json.loads(row.about)}


def read_models(connection: Connection) -> list[ModelRow]:
    """Return all models, the first one first."""
    rows = connection.execute(select(db.models).order_by(db.models.c.number))
    return [ModelRow(**_fields(row)) for row in rows]


def next_number(connection: Connection, folder: Path) -> int:
    """Return the number of the model to come: after those of the database and of the folder models/."""
    stored = int(connection.execute(select(func.max(db.models.c.number))).scalar() or 0)
    kept = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal()]
    return max([stored, *kept]) + 1


# What a model says about every image, kept beside it: the page and the live worker read it and load no network.

FILE = "predictions.safetensors"  # of a deep model, which goes on to be compared with live ones
ANSWERS = "answers.safetensors"  # of whatever serves now, beside the newest live model alone
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class DeepAnswers:
    """Probabilities of a deep model by image; its classes by id."""

    number: int
    classes: tuple[int, ...]
    probs: Floats  # (N, classes)
    row: dict[str, int]

    def of(self, ids: Sequence[str], training: TrainingSet) -> Floats | None:
        """Return what it says about images, in the order of the classes there are now; None unless it knows them all."""
        if any(each not in self.row for each in ids):
            return None
        found = np.zeros((len(ids), len(training.classes)), np.float32)
        rows = np.array([self.row[each] for each in ids], np.int64)
        for column, klass in enumerate(self.classes):
            if klass in training.number:
                found[:, training.number[klass]] = self.probs[rows, column]
        return found


def write_predictions(
    folder: Path, ids: Sequence[str], probs: Floats, classes: Sequence[int], name: str = FILE
) -> None:
    """Keep the probabilities of images."""
    keys = np.frombuffer(bytes.fromhex("".join(ids)), np.uint8).reshape(-1, 32)
    tensors: dict[str, NDArray[Any]] = {
        "keys": keys.copy(),
        "probs": probs.astype(np.float16),
        "classes": np.array(classes, np.int64),
    }
    write_atomically(folder / name, save(tensors))


def read_predictions(folder: Path, name: str = FILE) -> DeepAnswers | None:
    """Read what was kept; None where nothing whole is."""
    try:
        found = load((folder / name).read_bytes())
        keys, probs, classes = found["keys"], found["probs"].astype(np.float32), found["classes"]
    except (OSError, KeyError, SafetensorError):
        return None
    row = {bytes(key).hex(): place for place, key in enumerate(keys)}
    return DeepAnswers(int(folder.name), tuple(int(each) for each in classes), probs, row)


def latest_predictions(project: Path, name: str = FILE) -> DeepAnswers | None:
    """Return the answers of the newest deep model that ended, or of what serves now; None before there is one."""
    folders = sorted((path.parent for path in (project / "models").glob(f"*/{name}")), key=lambda each: int(each.name))
    return read_predictions(folders[-1], name) if folders else None


# The labels of one moment, as training and measuring see them. It never changes. No torch.

MEASURING = ("audit", "import", "review")  # labels of audit images that nobody chose for what a model thinks of them
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingSet:
    """Labels after event `seq`. Audit images never train; those that people could not tell stay unlabeled."""

    labels: Labels
    is_audit: Callable[[str], bool]
    lost: Container[str] = ()  # audit images that cannot be looked at any more

    @cached_property
    def classes(self) -> tuple[Klass, ...]:
        """The classes there are, without merged ones; a model numbers them in this order."""
        return tuple(each for each in self.labels.classes if each.merged_into is None)

    @cached_property
    def number(self) -> dict[int, int]:
        """Map a class's id to its place."""
        return {each.id: place for place, each in enumerate(self.classes)}

    @cached_property
    def train(self) -> dict[str, int]:
        """Map images to train on to their class's place, in the order in which they were answered."""
        pairs = zip(self.labels.ids, self.labels.class_ids, strict=True)
        return {image: self.number[klass] for image, klass in pairs if not self.is_audit(image)}

    @cached_property
    def audit(self) -> dict[str, int]:
        """Map images to measure by to their class's place."""
        rows = zip(self.labels.ids, self.labels.class_ids, self.labels.provenance, strict=True)
        return {
            image: self.number[klass]
            for image, klass, provenance in rows
            if self.is_audit(image) and provenance in MEASURING and image not in self.lost
        }

    @cached_property
    def provenance(self) -> dict[str, str]:
        """Map images to where their label came from."""
        return dict(zip(self.labels.ids, self.labels.provenance, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(each.name for each in self.classes)

    def can_train(self) -> bool:
        """Tell whether there are two classes to tell apart."""
        return len(set(self.train.values())) > 1

    def per_class(self) -> dict[str, int]:
        """Count the labels that are trained with."""
        counts = Counter(self.train.values())
        return {name: counts[place] for place, name in enumerate(self.names)}

    def by(self) -> dict[str, int]:
        """Count labels by who gave them."""
        return dict(sorted(Counter(self.labels.by).items()))

    def origins(self) -> dict[str, int]:
        """Count labels by where their image came from."""
        return provenance_counts(self.labels.provenance)

    def as_csv(self) -> bytes:
        """Return the snapshot as a table: one line per label, then those who could not tell, then the excluded."""
        names = {each.id: each.name for each in self.labels.classes}
        columns = (self.labels.ids, self.labels.class_ids, self.labels.provenance, self.labels.by, self.labels.seqs)
        rows: list[list[Any]] = [["image", "answer", "class_id", "provenance", "by", "seq", "audit"]]
        for image, klass, provenance, by, seq in zip(*columns, strict=True):
            rows.append([image, names[klass], klass, provenance, by, seq, int(self.is_audit(image))])
        for kind, images in (("can't tell", self.labels.cannot_tell), ("exclude", self.labels.excluded)):
            rows += [[image, kind, None, None, None, None, int(self.is_audit(image))] for image in images]
        return render_csv(rows)


def rows_without(rows: Iterable[tuple[str, int]], left_out: Container[str]) -> Ints:
    """Return the rows of images that are not left out."""
    return np.array([row for image, row in rows if image not in left_out], np.int64)


# What the worker found out about a model: models/NNN/report.json, read by the page and `mma status`. No torch.

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


# Which model serves: live, deep, or both averaged; chosen on audit labels and said in one sentence. No torch.

WORDS: dict[Use, str] = {"live": "the live model", "deep": "the deep model", "both": "both models averaged"}


@dataclass(frozen=True, eq=False)
class AuditAnswers:
    """What two models say about the audit images, and what is right."""

    labels: NDArray[np.int64]  # (N,)
    live: Floats  # (N, classes)
    deep: Floats | None = None  # None: there is no deep model


def choose_model(answers: AuditAnswers, live: int, deep: int | None, uses: str) -> Serving:
    """Choose by accuracy on the audit images; where it is equal, the live model, because it knows the latest labels."""
    if deep is None or answers.deep is None:
        return Serving("live", live, f"the live model: {uses}.")
    if len(answers.labels) < FEWEST:
        have = len(answers.labels)
        return Serving(
            "live", live, f"the live model, until {FEWEST} audit labels can compare it with the deep one (now {have})."
        )
    percent = {name: percent_right(probs, answers.labels) for name, probs in candidates(answers).items()}
    best = max(percent, key=lambda name: percent[name])
    single = deep if percent["deep"] > percent["live"] else live
    numbers = ", ".join(f"{name} {value:.1f} %" for name, value in percent.items())
    why = f"{WORDS[best]}, the best on {len(answers.labels)} audit labels ({numbers})."
    return Serving(best, single, why)


def candidates(answers: AuditAnswers) -> dict[Use, Floats]:
    """Return what each model that could serve says; of equally good ones the first serves."""
    assert answers.deep is not None
    return {"live": answers.live, "deep": answers.deep, "both": (answers.live + answers.deep) / 2}


def percent_right(probs: Floats, labels: NDArray[np.int64]) -> float:
    """Return the accuracy in percent."""
    return 100 * float((probs.argmax(1) == labels).mean())


def measured_answers(answers: AuditAnswers, groups: Sequence[str]) -> Floats:
    """Return what a chosen model says about each audit image, to measure its accuracy by.

    The best of three on some labels looks better on these labels than it is. So each half of them is answered by the model that
    the other half chooses; near-duplicates stay in one half.
    """
    if answers.deep is None or len(answers.labels) < FEWEST:
        return answers.live
    found, measured = candidates(answers), answers.live.copy()
    halves = split_by_group(np.arange(len(groups)), dict(enumerate(groups)), seed=0)
    for mine, other in (halves, halves[::-1]):
        percent = {name: percent_right(probs[other], answers.labels[other]) for name, probs in found.items()}
        measured[mine] = found[max(percent, key=lambda name: percent[name])][mine]
    return measured
