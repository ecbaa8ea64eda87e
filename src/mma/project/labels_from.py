"""Take labels from sub-folders or a file when a person asks for it. What is not clear is a question, never a guess."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import select

from mma.project import schema as db
from mma.project.exchange import read_rows
from mma.project.exchange.rows import LabelRow
from mma.project.exchange.take_in import TakeIn, refuse
from mma.project.listing import MOST_CLASSES, Level, class_hints, folder_of, list_images
from mma.project.project import Project
from mma.project.records import Event
from mma.text import printable, quote_path

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
        raise ValueError(
            f"{printable(path.name)} names {len(used):,} classes for {labeled:,} images, nearly one per image. These are "
            "hardly classes. Say what the classes are with --classes, and leave --labels-from out."
        )


def _find(root: Path, source: str) -> Path:
    """Return a file given by its path, or by its name in the image folder."""
    inside = root / source
    path = inside if not Path(source).exists() and inside.exists() else Path(source)
    if not path.exists():
        raise ValueError(f"there is no file {printable(source)}. --labels-from takes a file, or: {', '.join(FOLDERS)}.")
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
            raise ValueError(
                f"{hints.question} Say it with --labels-from folders:first or --labels-from folders:last, or name the "
                "classes with --classes."
            )
        level = "first"
    labels = [folder_of(name, level) for name in names]
    if not any(labels):
        raise ValueError(f"{printable(str(root))} has no sub-folders with images. Leave --labels-from out.")
    _check_classes(root, labels)
    return level
