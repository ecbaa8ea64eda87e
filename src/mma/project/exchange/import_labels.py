"""Take labels in: all of them, or none and a list of what is wrong, with line numbers. Nothing is guessed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from uuid import uuid4, uuid5

import numpy as np
from sqlalchemy import Connection, select

from mma.data.tables import find_name, name_problem, quoted, read_csv, refuse
from mma.errors import UserError
from mma.project.exchange.formats import KINDS, LabelRow, natural, read_json_rows, read_rows
from mma.project.guesses import check_source_name
from mma.project.labels import database as db
from mma.project.labels import events as labels
from mma.project.photos import MOST_CLASSES, Level, class_hints, folder_of, list_images
from mma.project.records import ANSWERS, MAX_NAME, Event, Klass, check_characters
from mma.text import did_you_mean, printable, quote_path

if TYPE_CHECKING:
    from mma.project.project import Project


@dataclass(frozen=True)
class TakeIn:
    """How to take labels in."""

    by: str = "import"  # where the file does not say who
    add_classes: bool = False
    replace: bool = False  # what is labeled otherwise here
    told: bool = False  # answers to what was asked: they keep the reason they were asked for
    new_classes: str = "--add-classes adds it"  # what to type
    other_answers: str = "--replace takes the one of the file"


def take_in(
    connection: Connection, rows: Sequence[LabelRow], options: TakeIn, overlap: int, source: Path
) -> list[Event]:
    """Check every row, then store what is new as one action. Refuses the source with all problems, and stores nothing then."""
    plan = _Plan(connection, rows, options)
    problems = sorted((row.line, problem) for row in rows if (problem := plan.add(row)))
    refuse(source, [f"line {line}: {problem}" for line, problem in problems])
    drafts = plan.drafts()
    events = labels.record(connection, drafts, overlap) if drafts else []
    labels.end_leases(connection, [event for event in events if event.image])
    return events


class _Plan:
    """What the rows amount to, checked against what is known of the images that they name."""

    def __init__(self, connection: Connection, rows: Sequence[LabelRow], options: TakeIn) -> None:
        self.connection, self.options, self.classes = connection, options, labels.read_classes(connection)
        self.paths: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.current: dict[str, Any] = {}
        self.told: dict[tuple[str, str], Any] = {}  # the newest answer of each person, by image and name
        self.lines: dict[str, LabelRow] = {}  # per image
        self.same: set[str] = set()  # images that have this answer already
        self.files: dict[str, int] = {}
        self.new_classes: dict[str, int] = {}  # name -> first line
        f, i, c, e = db.files.c, db.images.c, db.current.c, db.events.c
        written = {row.file_name for row in rows if row.file_name}
        for part in labels.chunks(
            sorted({str(PurePosixPath(name)) for each in written for name in (each, each.strip())})
        ):
            found = connection.execute(select(f.path, f.image).where(f.path.in_(part), f.image.is_not(None)))
            self.paths.update({row.path: row.image for row in found})
        for part in labels.chunks(sorted({*self.paths.values(), *(row.sha256 for row in rows if row.sha256)})):
            named = connection.execute(select(i.id, i.name).where(i.id.in_(part)))
            self.names.update({row.id: row.name for row in named})
            in_force = connection.execute(select(db.current).where(c.image.in_(part)))
            self.current.update({row.image: row for row in in_force})
            answers = select(e.image, e.by, e.kind, e.class_id).where(e.image.in_(part), e.active == 1)
            found = connection.execute(answers.where(e.kind.in_(ANSWERS)).order_by(e.seq))
            self.told.update({(row.image, row.by): row for row in found})

    def add(self, row: LabelRow) -> str:
        """Add a row to the plan, or say what is wrong with it."""
        if not row.label and not row.state:
            return ""  # nobody knows
        if problem := self._file_problem(row) or self._answer_problem(row):
            return problem
        image = self.paths[find_name(row.file_name, self.paths)] if row.file_name.strip() else row.sha256
        first = self.lines.setdefault(image, row)
        if first is row:
            return self._conflict(image, row)
        same = (first.label, first.state) == (row.label, row.state)
        return "" if same else f"{shown(row)} is the image of line {first.line}, with another answer"

    def _file_problem(self, row: LabelRow) -> str:
        name = find_name(row.file_name, self.paths)
        if not name and not row.sha256:
            return "there is neither a file name nor a sha256"
        if not name:
            return "" if row.sha256 in self.names else f"there is no image with the sha256 {quoted(row.sha256)}"
        if problem := name_problem(name, self.paths):
            return problem
        if (line := self.files.setdefault(name, row.line)) != row.line:
            return f"{shown(row)} is listed in line {line} already"
        other = row.sha256 and self.paths[name] != row.sha256
        return f"{shown(row)} has other bytes here than the sha256 says" if other else ""

    def _answer_problem(self, row: LabelRow) -> str:
        if row.state not in KINDS:
            return f"{quoted(row.state)} is no state; there are {', '.join(filter(None, KINDS))}"
        if len(row.by) > MAX_NAME:
            return f"the name in column by has more than {MAX_NAME} characters"
        try:
            check_characters(row.by)
        except UserError as error:
            return f"column by: {str(error).rstrip('.')}"
        try:
            is_time = not row.at or (datetime.fromisoformat(row.at) is not None and len(row.at) <= 40)
        except ValueError:
            is_time = False
        if not is_time:
            return f"{quoted(row.at)} is no time such as 2030-01-31T12:00:00+00:00"
        if row.state or self._class_id(row.label) is not None or row.label == labels.CANNOT_TELL:
            return ""
        if not self.options.add_classes:
            names = [each.name for each in self.classes if each.merged_into is None]
            return f"there is no class {quoted(row.label)}.{did_you_mean(row.label, names)} {self.options.new_classes}"
        if row.label in self.new_classes:
            return ""
        try:
            if (
                labels.check_name(row.label, [*self.classes, *(Klass(-1, name) for name in self.new_classes)])
                != row.label
            ):
                return f"{quoted(row.label)} cannot be the name of a class as it is written"
        except UserError as error:
            return str(error).rstrip(".")
        self.new_classes[row.label] = row.line
        return ""

    def _class_id(self, label: str) -> int | None:
        return next((each.id for each in self.classes if each.name == label and each.merged_into is None), None)

    def _kind(self, row: LabelRow) -> str:
        if not row.state and row.label == labels.CANNOT_TELL and self._class_id(row.label) is None:
            return "cannot_tell"
        return KINDS[row.state]

    def _conflict(self, image: str, row: LabelRow) -> str:
        """Say that the project has another answer; if it has the same one, there is nothing to store.

        A person who is told about says something also where they agree with others: only their own answer is the same.
        """
        by, kind = row.by or self.options.by, self._kind(row)
        before = self.told.get((image, by)) if self.options.told else self.current.get(image)
        if before is None:
            return ""
        here = labels.merge_roots(self.classes).get(before.class_id)
        if before.kind == kind and (kind != "label" or here == self._class_id(row.label)):
            self.same.add(image)
        elif not self.options.replace and not self.options.told:
            return f"{shown(row)} has another answer here, by {printable(before.by)}; {self.options.other_answers}"
        return ""

    def drafts(self) -> list[labels.Draft]:
        """Prepare the events: new classes first, then the answers that are not here yet."""
        first, drafts, batch = labels.free_class_id(self.connection), [], uuid4()
        for number, name in enumerate(sorted(self.new_classes, key=natural), first):
            drafts.append(labels.class_draft("class_add", self.options.by, number, name))
            self.classes.append(Klass(number, name))
        for image, row in self.lines.items():
            if image in self.same:
                continue
            kind, by = self._kind(row), row.by or self.options.by
            values: labels.Draft = {
                "provenance": "import",
                "class_id": self._class_id(row.label) if kind == "label" else None,
            }
            values |= labels.origin(self.connection, image, by, "import") if self.options.told else {}
            values |= {"at": row.at} if row.at else {}
            file = find_name(row.file_name, self.paths) or self.names[image]
            own, action = str(uuid5(batch, image)), str(batch)
            drafts.append(labels.draft(kind, id=own, batch=action, by=by, image=image, file=file, **values))
        return drafts


def shown(row: LabelRow) -> str:
    """Return the file of a row, or its key, as it is shown."""
    return quoted(row.file_name or row.sha256)


# Take labels from sub-folders or a file when a person asks for it. What is not clear is a question, never a guess.

RANKS = [f"_{rank}" for rank in range(2, 101)]  # of the columns that `mma predict --top` writes
LOOSE = 0.01  # that probabilities may miss 1 by: tables round
FOLDERS: dict[str, Level | None] = {"folders": None, "folders:first": "first", "folders:last": "last"}
FEW = 10  # images below which as many classes as images are nothing odd


def take_labels_from(project: Project, source: str, guesses: str | None = None) -> list[Event] | int:
    """Take labels from "folders", "folders:first", "folders:last" or a file. Classes are added if there are none yet.

    With `guesses` they are those of a source of this name. Returns the events, or how many guesses there are.
    """
    path, rows = _rows_of(project.root, source, [(row.path, row.image) for row in project.files()])
    if guesses is not None:
        name, known = check_source_name(guesses), project.classes()
        for label in [] if known else sorted({row.label for row in rows if row.label}, key=natural):
            project.add_class(label, "start")
        said = [(row.line, {"file": row.file_name, "sha256": row.sha256, "label": row.label}) for row in rows]
        return _store_guesses(project, path, name, said, [])
    how = TakeIn(
        by="import",
        add_classes=not project.classes(),
        new_classes="--classes adds it",
        other_answers=f"mma labels import {quote_path(project.folder)} {quote_path(path)} --replace  takes the one of the file",
    )
    return project.take_in(rows, how, path)


# Take answers of something that is no person. They become guesses with a name, never labels.


def import_guesses(project: Project, path: Path, source: str, form: str | None = None) -> int:
    """Take in what a source says of photos: a class, with or without its probability, or probabilities. All or nothing.

    A table has the columns file, label and confidence, label_2 and so on, as  mma predict --top  writes it; or file and a
    column for each class. Returns how many photos have a guess.
    """
    name, kind = check_source_name(source), path.suffix.lower() if form is None and path.is_file() else ""
    rows: list[tuple[int, dict[str, Any]]]
    if kind == ".csv":
        table = read_csv(path, "file or file_name or sha256")
        rows, problems = [*table.rows], table.problems
    elif kind == ".jsonl":
        rows, problems = read_json_rows(path)
    else:
        labels, problems = read_rows(path, form)
        rows = [(row.line, {"file": row.file_name, "sha256": row.sha256, "label": row.label}) for row in labels]
    return _store_guesses(project, path, name, rows, problems)


def _store_guesses(
    project: Project, path: Path, name: str, rows: Sequence[tuple[int, dict[str, Any]]], problems: Sequence[str]
) -> int:
    used = [each for each in project.classes() if each.merged_into is None]
    if not used:
        raise UserError(
            "the project has no classes yet that a guess could be about. Add them:  mma start FOLDER --classes cat,dog"
        )
    files = {row.path: row.image for row in project.files()}
    names, images = [each.name for each in used], set(files.values())
    found: dict[str, np.ndarray] = {}
    problems = list(problems)
    for line, row in rows:
        called = str(row.get("file") or row.get("file_name") or row.get("sha256") or "")
        image = files.get(find_name(called, files)) or (called if called in images else None)
        guess = _read_guess(row, names)
        if guess is None:
            continue  # nothing is said about it
        if image is None:
            problems.append(f"line {line}: there is no photo {quoted(called)}")
        elif image in found:
            problems.append(f"line {line}: {quoted(called)} has a guess already")
        elif isinstance(guess, str):
            problems.append(f"line {line}: {guess}")
        else:
            found[image] = guess
    refuse(path, problems)
    if not found:
        raise UserError(f"{printable(path.name)} holds no guesses. It needs a column label, or one for each class.")
    project.guesses.put(name, list(found), np.stack(list(found.values())), [each.id for each in used])
    return len(found)


def _read_guess(row: dict[str, Any], names: Sequence[str]) -> np.ndarray | str | None:
    """Return a row's probabilities, or what is wrong with it; None where it says nothing."""
    columns = {name: row[name] for name in names if str(row.get(name, "") or "").strip()}
    said = [(str(row.get(f"label{rank}") or "").strip(), row.get(f"confidence{rank}")) for rank in ("", *RANKS)]
    said = [*columns.items()] or [(label, sure) for label, sure in said if label]
    if not said:
        return None
    probs = np.zeros(len(names))
    for label, sure in said:
        if label not in names:
            return f"there is no class {quoted(label)}.{did_you_mean(label, names)}"
        try:
            value = 1.0 if sure is None or str(sure).strip() == "" else float(sure)
        except (TypeError, ValueError):
            value = math.nan
        if not 0 <= value <= 1:
            return f"{quoted(str(sure))} is no probability from 0 to 1"
        probs[names.index(label)] = value
    rest = 1.0 - float(probs.sum())
    if rest < -LOOSE or (columns and abs(rest) > LOOSE):
        return f"the probabilities sum to {probs.sum():.3g}, not to 1"
    others = probs == 0
    if not columns and rest > 0 and others.any():
        probs[others] = rest / others.sum()
    found: np.ndarray = probs / probs.sum()
    return found


def check_source(root: Path, source: str) -> None:
    """Refuse a source of labels that no project could use, before one is made."""
    _rows_of(root, source, [(name, "") for name in list_images(root)[0]])


def _rows_of(root: Path, source: str, files: Sequence[tuple[str, str]]) -> tuple[Path, list[LabelRow]]:
    """Return the labels of a source, and where it is: the folders, or a file given by its path or its name in the folder."""
    if source in FOLDERS:
        level = _level(root, [name for name, _ in files], source)
        named = [(number, name, image, folder_of(name, level)) for number, (name, image) in enumerate(files, 1)]
        return root, [LabelRow(name, label, image, line=number) for number, name, image, label in named]
    inside = root / source
    path = inside if not Path(source).exists() and inside.exists() else Path(source)
    if not path.exists():
        raise UserError(f"there is no file {printable(source)}. --labels-from takes a file, or: {', '.join(FOLDERS)}.")
    rows, problems = read_rows(path)
    refuse(path, problems)
    _check_classes(path, [row.label for row in rows])
    return path, rows


def _check_classes(path: Path, labels: Sequence[str]) -> None:
    """Refuse nearly one class per image: names of visits, say, or of people."""
    used, labeled = set(filter(None, labels)), sum(map(bool, labels))
    if labeled > FEW and len(used) > MOST_CLASSES * labeled:
        raise UserError(
            f"{printable(path.name)} names {len(used):,} classes for {labeled:,} images, nearly one per image. These are "
            "hardly classes. Say what the classes are with --classes, and leave --labels-from out."
        )


def _level(root: Path, names: Sequence[str], source: str) -> Level:
    """Return which folders on the way to a file are the classes, or ask."""
    level = FOLDERS[source]
    if level is None:
        hints = class_hints(root, names)
        if hints.question:
            raise UserError(
                f"{hints.question} Say it with --labels-from folders:first or --labels-from folders:last, or name the "
                "classes with --classes."
            )
        level = "first"
    labels = [folder_of(name, level) for name in names]
    if not any(labels):
        raise UserError(f"{printable(str(root))} has no sub-folders with images. Leave --labels-from out.")
    _check_classes(root, labels)
    return level
