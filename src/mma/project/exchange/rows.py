"""Labels as rows: what every format holds, one row per file, in natural order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, select

from mma.data.label_csv import MAX_BYTES
from mma.project import schema as db
from mma.project.classes import merge_roots, read_classes
from mma.project.derive import chunks
from mma.text import printable

FIELDS = ("file_name", "label", "sha256", "state", "by", "at")
STATES = {"label": "", "cannot_tell": "cannot_tell", "exclude": "excluded"}
KINDS = {state: kind for kind, state in STATES.items()}
CANNOT_TELL = "?"  # what people write into a column of labels
FORMULA = re.compile("'*[=+\\-@\t\r]")


class LabelRow(NamedTuple):
    """One answer in force. `state` is empty for a label; `line` is where it stood in the file it was read from."""

    file_name: str
    label: str = ""
    sha256: str = ""
    state: str = ""
    by: str = ""
    at: str = ""
    line: int = 0

    def cells(self) -> list[str]:
        """Return the values of FIELDS."""
        return [self.file_name, self.label, self.sha256, self.state, self.by, self.at]


def read_current(connection: Connection, *, gone: bool = False) -> list[LabelRow]:
    """Return the answers in force, one row per file; with `gone` also those of images that have no file any more."""
    classes = read_classes(connection)
    roots, names = merge_roots(classes), {each.id: each.name for each in classes}
    c, e = db.current.c, db.events.c
    query = select(c.image, c.kind, c.class_id, c.by, e.at).select_from(db.current).join(db.events, e.seq == c.seq)
    found = connection.execute(query).all()
    paths = _paths(connection, [row.image for row in found], gone=gone)
    rows = [
        LabelRow(path, names[roots[number]] if kind == "label" else "", image, STATES[kind], by, at)
        for image, kind, number, by, at in found
        for path in paths[image]
    ]
    return sorted(rows, key=lambda row: (natural(row.file_name), row.sha256))


def _paths(connection: Connection, images: list[str], *, gone: bool) -> dict[str, list[str]]:
    """Return the files of each image. Asked for by image: joined, a database may walk through all files there are."""
    paths: dict[str, list[str]] = {image: [] for image in images}
    for part in chunks(images):
        for row in connection.execute(select(db.files.c.image, db.files.c.path).where(db.files.c.image.in_(part))):
            paths[row.image].append(row.path)
    lost = [image for image, found in paths.items() if not found]
    for part in chunks(lost if gone else []):
        for row in connection.execute(select(db.images.c.id, db.images.c.name).where(db.images.c.id.in_(part))):
            paths[row.id].append(row.name)
    return paths


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Order names as people do: 2 before 10."""
    pieces = re.findall("([0-9]+)|([^0-9]+)", name)
    return [(int(number) if number else -1, text) for number, text in pieces], name


def neutralise(text: str) -> str:
    """Keep a spreadsheet from taking a name for a formula. `restore` is its inverse."""
    return "'" + text if FORMULA.match(text) else text


def restore(text: str) -> str:
    """Return what `neutralise` was given."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def read_text(path: Path) -> str:
    """Read a file of labels, or say why it cannot be one."""
    name = printable(str(path))
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{name} is larger than {MAX_BYTES:,} bytes. Split it.")
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}.") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{name} is not UTF-8 text (line {line}). Save it as UTF-8, then run the same command again."
        ) from error
