"""The models of a project: numbers, rows of the table, folders models/NNN, reports, stored answers. No torch.

`Models` owns all of that, and everybody asks it. A model has a row while it is trained, and a folder from when it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from sqlalchemy import delete, func, insert, select

from mma.errors import UserError
from mma.files import create_atomically, numbered_folders, write_atomically
from mma.project.labels import database as db
from mma.project.labels.copies import back_up_events
from mma.project.labels.database import Store
from mma.project.labels.events import now
from mma.project.quality.accuracy import JudgedImage, Quality
from mma.project.quality.forecast import AccuracyPoint, Gain
from mma.project.quality.query_benefit import NOT_COMPARED, QueryBenefit
from mma.project.records import Layout, ModelRow
from mma.settings import explain
from mma.shares import AuditRecord
from mma.text import printable

FORMAT = 2  # of reports; 1 knew accuracies by cross-validation on labels that were asked for
REPORT = "report.json"
PREDICTIONS = "predictions.safetensors"  # of a deep model, to be compared with the live ones to come
ANSWERS = "answers.safetensors"  # of what serves now, beside the newest live model alone
MORE = 50  # labels that a forecast looks ahead
STATES = ("training", "ready", "failed")
Kind = Literal["live", "deep"]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Serving:
    """Which model chooses the picks and is handed out, and why."""

    use: Kind
    number: int
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
    labels: int  # there were; a live model learned them all, a deep one those outside the audit
    audit: int  # of these, drawn at random: they measure
    classes: tuple[str, ...]
    class_ids: tuple[int, ...]
    per_class: dict[str, int]
    provenance: dict[str, int]  # of all labels
    curve: tuple[AccuracyPoint, ...]  # of the live models so far, all judged on the same audit images
    forecasts: tuple[Forecasted, ...] = ()
    agreement: tuple[float, ...] = ()  # kappa of each live model with the one before
    helping: QueryBenefit = NOT_COMPARED
    serving: Serving = Serving("live", 0, "")
    quality: Quality | None = None  # None: too few audit labels to say anything
    left_out: dict[str, int] = field(default_factory=dict)  # audit image -> class id, by heads that never saw it
    judged: tuple[JudgedImage, ...] = ()  # images that `quality` comes from
    record: AuditRecord | None = None  # what promises about errors follow from
    uses: str = ""  # which representation or network, and why
    backbones: dict[str, float] = field(default_factory=dict)  # cross-validated accuracy in percent, of each and of all
    query: str = ""  # how the picks were chosen, and why
    seconds: float = 0.0  # from snapshot to picks
    format: int = FORMAT


_adapter = TypeAdapter(ModelReport)


@dataclass(frozen=True, eq=False)
class StoredAnswers:
    """What a model says about every image, so that the page and the live worker need not load its network.

    Or what a source of guesses says about some: then it has a name.
    """

    number: int
    classes: tuple[int, ...]  # ids
    probs: Floats  # (N, classes)
    row: dict[str, int]  # image -> row
    unlike: NDArray[np.bool_]  # (N,) unlike anything labeled
    name: str = ""
    at: str = ""

    def of(self, ids: Sequence[str], classes: Sequence[int]) -> Floats | None:
        """Return the probabilities of images for these classes; None unless all images are known. (N, classes)"""
        if any(each not in self.row for each in ids):
            return None
        rows = np.array([self.row[each] for each in ids], np.int64)
        return columns_for(self.probs[rows], self.classes, classes)


def columns_for(probs: Floats, known: Sequence[int], wanted: Sequence[int]) -> NDArray[np.float32]:
    """Return probabilities of the classes `known` in the order of `wanted`; 0 for a class that is new. (N, wanted)"""
    found = np.zeros((len(probs), len(wanted)), np.float32)
    for place, klass in enumerate(wanted):
        if klass in known:
            found[:, place] = probs[:, known.index(klass)]
    return found


class Models:
    """Everything about a project's models that is stored."""

    def __init__(self, layout: Layout, store: Store) -> None:
        self.layout, self.store, self.place = layout, store, layout.folder / "models"

    # the table

    def rows(self) -> list[ModelRow]:
        """Return all models, the first one first."""
        with self.store.reading() as connection:
            found = connection.execute(select(db.models).order_by(db.models.c.number)).all()
        return [ModelRow(**_fields(row)) for row in found]

    def put(self, number: int | None = None, **values: Any) -> ModelRow:
        """Add a model, or replace what is known of model `number`: kind, seq, state, message, accuracy, about."""
        c = db.models.c
        row = {"kind": "live", "seq": 0, "message": "", "accuracy": None, "about": {}, "state": None}
        with self.store.writing() as connection:
            if number is None:
                stored = int(connection.execute(select(func.max(c.number))).scalar() or 0)
                number = max([stored, *numbered_folders(self.place)]) + 1
            before = connection.execute(select(db.models).where(c.number == number)).first()
            row |= {**(_fields(before) if before else {}), **values, "number": number, "at": now()}
            assert row["state"] in STATES, row["state"]
            connection.execute(delete(db.models).where(c.number == number))
            connection.execute(insert(db.models).values(**{**row, "about": json.dumps(row["about"])}))
        if row["state"] == "training" and (before is None or before.state != "training"):
            back_up_events(self.layout, number)
        return ModelRow(**row)  # type: ignore[arg-type]

    def begin(self, kind: Kind, seq: int, message: str = "") -> int:
        """Take the number of the next model; again that of one that never ended, or of a live one if it failed just now."""
        rows, states = self.rows(), ("training", "failed") if kind == "live" else ("training",)
        last = next((row for row in reversed(rows) if row.kind == kind and row.state in states), None)
        again = last is not None and (last.state == "training" or last is rows[-1])
        number = last.number if last is not None and again else None
        return self.put(number, kind=kind, seq=seq, state="training", message=message).number

    def publish(self, report: ModelReport) -> None:
        """Say that a model is ready: the page shows it."""
        quality, last = report.quality, report.forecasts[-1] if report.forecasts else None
        about: dict[str, Any] = {"labels": report.labels, "audit": report.audit, "serving": report.serving.why}
        if quality is not None:
            about |= {"low": quality.accuracy.low, "high": quality.accuracy.high}
            named = {each.name: each.recall for each in quality.classes if each.recall}
            about["reached"] = {key: asdict(found) for key, found in {**named, "": quality.accuracy}.items()}
            about["source"] = f"from {quality.accuracy.of} photos drawn at random"
        if last is not None and last.labels == report.labels and last.gain.decides:
            gain = last.gain
            about["forecast"] = f"next {MORE} labels: {gain.points:+.1f} points ({gain.low:.1f} to {gain.high:.1f})"
        accuracy = None if quality is None else quality.accuracy.value
        values = {"kind": report.kind, "seq": report.seq, "message": "", "accuracy": accuracy, "about": about}
        self.put(report.number, state="ready", **values)

    # the folders

    def folder(self, number: int) -> Path:
        """Return where a model lies."""
        return self.place / f"{number:03d}"

    def numbers(self, file: str = REPORT) -> list[int]:
        """Return the models that have a file, the oldest first."""
        return list(numbered_folders(self.place, file))

    def create(self, number: int, files: Mapping[str, bytes]) -> None:
        """Write the folder of a model: whole or absent, in place of what lies there."""
        create_atomically(self.folder(number), lambda place: self.add(number, files, place))

    def add(self, number: int, files: Mapping[str, bytes], place: Path | None = None) -> None:
        """Write more files of a model."""
        place = place or self.folder(number)
        place.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_atomically(place / name, data)

    def report(self, number: int) -> ModelReport:
        """Read the report of a model, or say what is wrong with it."""
        path = self.folder(number) / REPORT
        try:
            report = _adapter.validate_json(path.read_bytes())
        except FileNotFoundError:
            raise UserError(f"{printable(str(path))} is missing.") from None
        except ValidationError as error:
            why = f"is damaged: {explain(error)}. The next model writes a new one."
            raise UserError(f"{printable(str(path))} {why}") from None
        return report if report.format >= FORMAT else replace(report, quality=None, judged=(), curve=(), forecasts=())

    def latest_report(self, kind: Kind | None = None) -> ModelReport | None:
        """Return the newest readable report, of one kind or any; None before there is one."""
        for number in reversed(self.numbers()):
            with suppress(UserError):  # the one before it says as much
                report = self.report(number)
                if kind in (None, report.kind):
                    return report
        return None

    def answers(self, *names: str) -> StoredAnswers | None:
        """Return the newest stored answers in files of these names; None before there are any that can be read."""
        for number, folder in reversed(numbered_folders(self.place).items()):
            for name in names:
                if (found := read_answers(folder / name, number)) is not None:
                    return found
        return None

    def keep_answers_of(self, number: int) -> None:
        """Delete the answers of all other live models: they are large, and can be computed again."""
        for other in self.numbers(ANSWERS):
            if other != number:
                (self.folder(other) / ANSWERS).unlink()


def report_file(report: ModelReport) -> dict[str, bytes]:
    """Return a report as a file."""
    return {REPORT: _adapter.dump_json(report, indent=1) + b"\n"}


def answers_file(
    name: str, ids: Sequence[str], probs: Floats, classes: Sequence[int], unlike: Any = None, **about: str
) -> dict[str, bytes]:
    """Return the probabilities of images as a file."""
    keys = np.frombuffer(bytes.fromhex("".join(ids)), np.uint8).reshape(-1, 32)
    tensors: dict[str, NDArray[Any]] = {
        "keys": keys.copy(),
        "probs": probs.astype(np.float16),
        "classes": np.array(classes, np.int64),
        **({} if unlike is None else {"unlike": unlike}),
    }
    return {name: save(tensors, about)}


def read_answers(path: Path, number: int = 0) -> StoredAnswers | None:
    """Read such a file; None where there is none, or a damaged one."""
    try:
        with safe_open(path, "numpy") as file:
            keys, probs, classes = (file.get_tensor(each) for each in ("keys", "probs", "classes"))
            unlike = file.get_tensor("unlike") if "unlike" in file.keys() else np.zeros(len(keys), bool)  # noqa: SIM118
            about = file.metadata() or {}
    except (OSError, KeyError, SafetensorError):
        return None
    row = {bytes(key).hex(): place for place, key in enumerate(keys)}
    ids = tuple(int(each) for each in classes)
    said = probs.astype(np.float32)
    return StoredAnswers(number, ids, said, row, unlike, about.get("source", ""), about.get("at", ""))


def _fields(row: Any) -> dict[str, Any]:
    return {**row._asdict(), "about": json.loads(row.about)}
