"""Take labels in: all of them, or none and a list of what is wrong, with line numbers. Nothing is guessed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy import Connection, select

from mma.data.tables import find_name, name_problem, quoted, refuse
from mma.errors import UserError
from mma.project.exchange.formats import KINDS, LabelRow, natural, read_rows
from mma.project.labels import tables as db
from mma.project.labels.events import (
    CANNOT_TELL,
    Draft,
    check_name,
    chunks,
    draft,
    end_leases,
    merge_roots,
    new_id,
    origin,
    read_classes,
    record,
)
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


@dataclass
class _Plan:
    """What the rows amount to, checked against the project."""

    connection: Connection
    options: TakeIn
    classes: list[Klass]
    paths: dict[str, str]
    names: dict[str, str]
    current: dict[str, Any]
    told: dict[tuple[str, str], Any]  # the newest answer of each person, by image and name
    lines: dict[str, LabelRow] = field(default_factory=dict)  # per image
    known: set[str] = field(default_factory=set)  # images that have this answer already
    files: dict[str, int] = field(default_factory=dict)
    new_classes: dict[str, int] = field(default_factory=dict)  # name -> first line


def take_in(connection: Connection, rows: Sequence[LabelRow], options: TakeIn, overlap: int) -> list[Event]:
    """Check every row, then store what is new as one action. Raises with all problems, and stores nothing then."""
    plan = _plan(connection, rows, options)
    if problems := [(row.line, problem) for row in rows if (problem := _check_row(plan, row))]:
        raise ImportProblems([f"line {line}: {problem}" for line, problem in sorted(problems)])
    drafts, batch = _class_drafts(plan), str(uuid4())
    drafts += [_label_draft(plan, batch, image, row) for image, row in plan.lines.items() if image not in plan.known]
    events = record(connection, drafts, overlap) if drafts else []
    end_leases(connection, [event for event in events if event.image])
    return events


class ImportProblems(UserError):
    """What is wrong with a file of labels, line by line."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(problems)
        self.problems = list(problems)


def _plan(connection: Connection, rows: Sequence[LabelRow], options: TakeIn) -> _Plan:
    """Read what is known of the images that the rows name, and of nothing else."""
    f, i, c, e = db.files.c, db.images.c, db.current.c, db.events.c
    paths: dict[str, str] = {}
    written = {row.file_name for row in rows if row.file_name}
    for part in chunks(sorted({str(PurePosixPath(name)) for each in written for name in (each, each.strip())})):
        found = connection.execute(select(f.path, f.image).where(f.path.in_(part), f.image.is_not(None)))
        paths.update({row.path: row.image for row in found})
    wanted = sorted({*paths.values(), *(row.sha256 for row in rows if row.sha256)})
    names: dict[str, str] = {}
    current: dict[str, Any] = {}
    told: dict[tuple[str, str], Any] = {}
    for part in chunks(wanted):
        names.update({row.id: row.name for row in connection.execute(select(i.id, i.name).where(i.id.in_(part)))})
        current.update({row.image: row for row in connection.execute(select(db.current).where(c.image.in_(part)))})
        answers = select(e.image, e.by, e.kind, e.class_id).where(e.image.in_(part), e.active == 1, e.kind.in_(ANSWERS))
        told.update({(row.image, row.by): row for row in connection.execute(answers.order_by(e.seq))})
    return _Plan(connection, options, read_classes(connection), paths, names, current, told)


def _check_row(plan: _Plan, row: LabelRow) -> str:
    """Add a row to the plan, or say what is wrong with it."""
    if not row.label and not row.state:
        return ""  # nobody knows
    problem = _file_problem(plan, row) or _answer_problem(plan, row)
    if problem:
        return problem
    image = plan.paths[find_name(row.file_name, plan.paths)] if row.file_name.strip() else row.sha256
    first = plan.lines.setdefault(image, row)
    if first is row:
        return _conflict(plan, image, row)
    if (first.label, first.state) == (row.label, row.state):
        return ""
    return f"{quoted(row.file_name or row.sha256)} is the image of line {first.line}, with another answer"


def _file_problem(plan: _Plan, row: LabelRow) -> str:
    name = find_name(row.file_name, plan.paths)
    if not name and not row.sha256:
        return "there is neither a file name nor a sha256"
    if not name:
        return "" if row.sha256 in plan.names else f"there is no image with the sha256 {quoted(row.sha256)}"
    if problem := name_problem(name, plan.paths):
        return problem
    if name in plan.files:
        return f"{quoted(row.file_name or row.sha256)} is listed in line {plan.files[name]} already"
    plan.files[name] = row.line
    if row.sha256 and plan.paths[name] != row.sha256:
        return f"{quoted(row.file_name or row.sha256)} has other bytes here than the sha256 says"
    return ""


def _answer_problem(plan: _Plan, row: LabelRow) -> str:
    if row.state not in KINDS:
        return f"{quoted(row.state)} is no state; there are {', '.join(filter(None, KINDS))}"
    if len(row.by) > MAX_NAME:
        return f"the name in column by has more than {MAX_NAME} characters"
    try:
        check_characters(row.by)
    except UserError as error:
        return f"column by: {str(error).rstrip('.')}"
    if row.at and not _is_time(row.at):
        return f"{quoted(row.at)} is no time such as 2030-01-31T12:00:00+00:00"
    if row.state or _find_class_id(plan, row.label) is not None or row.label == CANNOT_TELL:
        return ""
    return _new_class(plan, row)


def _new_class(plan: _Plan, row: LabelRow) -> str:
    if not plan.options.add_classes:
        names = [each.name for each in plan.classes if each.merged_into is None]
        return f"there is no class {quoted(row.label)}.{did_you_mean(row.label, names)} {plan.options.new_classes}"
    if row.label in plan.new_classes:
        return ""
    others = [*plan.classes, *(Klass(-1, name) for name in plan.new_classes)]
    try:
        if check_name(row.label, others) != row.label:
            return f"{quoted(row.label)} cannot be the name of a class as it is written"
    except UserError as error:
        return str(error).rstrip(".")
    plan.new_classes[row.label] = row.line
    return ""


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return len(text) <= 40


def _find_class_id(plan: _Plan, label: str) -> int | None:
    return next((each.id for each in plan.classes if each.name == label and each.merged_into is None), None)


def _kind(plan: _Plan, row: LabelRow) -> str:
    if not row.state and row.label == CANNOT_TELL and _find_class_id(plan, row.label) is None:
        return "cannot_tell"
    return KINDS[row.state]


def _conflict(plan: _Plan, image: str, row: LabelRow) -> str:
    """Say that the project has another answer; if it has the same one, there is nothing to store.

    A person who is told about says something also where they agree with others: only their own answer is the same.
    """
    by = row.by or plan.options.by
    before = plan.told.get((image, by)) if plan.options.told else plan.current.get(image)
    if before is None:
        return ""
    kind = _kind(plan, row)
    same = before.kind == kind and (
        kind != "label" or merge_roots(plan.classes)[before.class_id] == _find_class_id(plan, row.label)
    )
    if same:
        plan.known.add(image)
        return ""
    if plan.options.replace or plan.options.told:
        return ""
    file = quoted(row.file_name or row.sha256)
    return f"{file} has another answer here, by {printable(before.by)}; {plan.options.other_answers}"


def _class_drafts(plan: _Plan) -> list[Draft]:
    first = max((each.id for each in plan.classes), default=-1) + 1
    drafts = []
    for number, name in enumerate(sorted(plan.new_classes, key=natural), first):
        batch = str(uuid4())
        drafts.append(draft("class_add", id=batch, batch=batch, by=plan.options.by, class_id=number, value=name))
        plan.classes.append(Klass(number, name))
    return drafts


def _label_draft(plan: _Plan, batch: str, image: str, row: LabelRow) -> Draft:
    kind, by = _kind(plan, row), row.by or plan.options.by
    where = origin(plan.connection, image, by, "import") if plan.options.told else {"provenance": "import"}
    values = {**where, **({"at": row.at} if row.at else {})}
    class_id = _find_class_id(plan, row.label) if kind == "label" else None
    file = find_name(row.file_name, plan.paths) or plan.names[image]
    return draft(kind, id=new_id(batch, image), batch=batch, by=by, image=image, file=file, class_id=class_id, **values)


# Take labels from sub-folders or a file when a person asks for it. What is not clear is a question, never a guess.

FOLDERS: dict[str, Level | None] = {"folders": None, "folders:first": "first", "folders:last": "last"}
FEW = 10  # images below which as many classes as images are nothing odd


def take_labels_from(project: Project, source: str) -> list[Event]:
    """Take labels from "folders", "folders:first", "folders:last" or a file. Classes are added if there are none yet."""
    if source in FOLDERS:
        path, rows = project.root, _rows_of_folders(project, source)
    else:
        path = _find(project.root, source)
        rows = _rows_of_file(path)
    how = TakeIn(
        by="import",
        add_classes=not project.classes(),
        new_classes="--classes adds it",
        other_answers=f"mma labels import {quote_path(project.folder)} {quote_path(path)} --replace  takes the one of the file",
    )
    return project.take_in(rows, how, path)


def check_source(root: Path, source: str) -> None:
    """Refuse a source of labels that no project could use, before one is made."""
    if source in FOLDERS:
        _level(root, list_images(root)[0], source)
    else:
        _rows_of_file(_find(root, source))


def _rows_of_file(path: Path) -> list[LabelRow]:
    rows, problems = read_rows(path)
    refuse(path, problems)
    _check_classes(path, [row.label for row in rows])
    return rows


def _check_classes(path: Path, labels: Sequence[str]) -> None:
    """Refuse nearly one class per image: names of visits, say, or of people."""
    used, labeled = set(filter(None, labels)), sum(map(bool, labels))
    if labeled > FEW and len(used) > MOST_CLASSES * labeled:
        raise UserError(
            f"{printable(path.name)} names {len(used):,} classes for {labeled:,} images, nearly one per image. These are "
            "hardly classes. Say what the classes are with --classes, and leave --labels-from out."
        )


def _find(root: Path, source: str) -> Path:
    """Return a file given by its path, or by its name in the image folder."""
    inside = root / source
    path = inside if not Path(source).exists() and inside.exists() else Path(source)
    if not path.exists():
        raise UserError(f"there is no file {printable(source)}. --labels-from takes a file, or: {', '.join(FOLDERS)}.")
    return path


def _rows_of_folders(project: Project, source: str) -> list[LabelRow]:
    with project.store.reading() as connection:
        f = db.files.c
        files = connection.execute(select(f.path, f.image).where(f.image.is_not(None)).order_by(f.path)).all()
    level = _level(project.root, [row.path for row in files], source)
    rows = enumerate(files, 1)
    return [LabelRow(row.path, folder_of(row.path, level), row.image, line=number) for number, row in rows]


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
