"""Take labels from sub-folders or a file when a person asks for it. What is not clear is a question, never a guess."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from mma.project import schema as db
from mma.project.exchange import read_rows
from mma.project.exchange.rows import LabelRow
from mma.project.exchange.take_in import TakeIn
from mma.project.listing import MOST_CLASSES, Level, class_hints, folder_of
from mma.project.project import Project
from mma.project.records import Event
from mma.text import printable

FOLDERS: dict[str, Level | None] = {"folders": None, "folders:first": "first", "folders:last": "last"}
FEW = 10  # images below which as many classes as images are nothing odd


def take_labels_from(project: Project, source: str) -> list[Event]:
    """Take labels from "folders", "folders:first", "folders:last" or a file. Classes are added if there are none yet."""
    if source in FOLDERS:
        path, problems = project.root, list[str]()
        rows = _rows_of_folders(project, source)
    else:
        path = _find(project, source)
        rows, problems = read_rows(path)
    used = {row.label for row in rows if row.label}
    labeled = sum(bool(row.label) for row in rows)
    if labeled > FEW and len(used) > MOST_CLASSES * labeled:
        raise ValueError(
            f"{printable(path.name)} names {len(used):,} classes for {labeled:,} images, nearly one per image. These are "
            "hardly classes. Say what the classes are with --classes, or correct the file."
        )
    how = TakeIn(by="import", add_classes=not project.classes())
    return project.take_in(rows, how, path, problems)


def _find(project: Project, source: str) -> Path:
    """Return a file given by its path, or by its name in the image folder."""
    inside = project.root / source
    path = inside if not Path(source).exists() and inside.exists() else Path(source)
    if not path.exists():
        raise ValueError(f"there is no file {printable(source)}. --labels-from takes a file, or: {', '.join(FOLDERS)}.")
    return path


def _rows_of_folders(project: Project, source: str) -> list[LabelRow]:
    with project.store.reading() as connection:
        f = db.files.c
        files = connection.execute(select(f.path, f.image).where(f.image.is_not(None)).order_by(f.path)).all()
    names = [row.path for row in files]
    level = FOLDERS[source]
    if level is None:
        hints = class_hints(project.root, names)
        if hints.question:
            raise ValueError(
                f"{hints.question} Say it with --labels-from folders:first or --labels-from folders:last, or name the "
                "classes with --classes."
            )
        level = "first"
    if not any(folder_of(name, level) for name in names):
        raise ValueError(f"{printable(str(project.root))} has no sub-folders with images. Leave --labels-from out.")
    rows = enumerate(files, 1)
    return [LabelRow(row.path, folder_of(row.path, level), row.image, line=number) for number, row in rows]
