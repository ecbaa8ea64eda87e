"""CSV files: the one writer, the one reader, and the labels of a folder in such a file.

A spreadsheet takes a cell that begins with = + - @, a tab or a line end for a formula. `escape` puts a quote before
such a text, `restore` takes it away again. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from mma.errors import UserError
from mma.text import printable

DEFAULT = "labels.csv"  # used without being asked for when it lies in the folder
MAX_BYTES = 256 << 20
MAX_LABEL = 200  # characters
SHOWN = 20  # problems listed before "and so many more"
FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # the last four are the wide forms of = + - @
QUOTED = re.compile('[,"\r\n]')  # a lone carriage return too: some programs take it for the end of a row


def escape(text: str) -> str:
    """Keep a spreadsheet from taking a text for a formula. `restore` is its inverse."""
    return "'" + text if FORMULA.match(text) else text


def restore(text: str) -> str:
    """Return what `escape` was given."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def render_csv(rows: Iterable[Sequence[Any]]) -> bytes:
    """Return rows as CSV, the column names first. None is an empty cell; texts are escaped, numbers are not."""
    return b"".join(map(csv_line, rows))


def csv_line(row: Sequence[Any]) -> bytes:
    """Return one row as `render_csv` does, for files that do not fit into memory."""
    # Not csv.writer: whether it quotes a lone carriage return depends on the version of Python.
    cells = ("" if cell is None else escape(cell) if isinstance(cell, str) else str(cell) for cell in row)
    quoted = ('"' + cell.replace('"', '""') + '"' if QUOTED.search(cell) else cell for cell in cells)
    return ((",".join(quoted) or '""') + "\n").encode()  # a row of one empty cell is no empty line


class CsvTable(NamedTuple):
    """What a CSV file holds: rows by column with their line numbers, and what is wrong with the lines left out."""

    columns: list[str]
    rows: list[tuple[int, dict[str, str]]]
    problems: list[str]


def read_csv(path: Path, *needed: str) -> CsvTable:
    """Read a CSV file with a line of column names. `needed` are columns; "a or b" needs one of the two."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    table = CsvTable([], [], [])
    try:
        table.columns.extend(restore(column.strip()) for column in next(reader, []))
        if any(not set(wanted.split(" or ")) & set(table.columns) for wanted in needed):
            raise UserError(
                f"{printable(path.name)} must begin with a line of column names, with commas between them: "
                f"{', and '.join(needed)}. Its first line is '{printable(','.join(table.columns))[:MAX_LABEL]}'. Correct it, "
                "then run the same command again."
            )
        if len(set(table.columns)) != len(table.columns):
            raise UserError(f"{printable(path.name)} has a column twice. Correct it, then run the same command again.")
        for cells in reader:
            if len(cells) == len(table.columns):
                row = dict(zip(table.columns, map(restore, cells), strict=True))
                table.rows.append((reader.line_num, row))
            elif cells:
                first = f"{len(cells)} columns where the first line has {len(table.columns)}"
                table.problems.append(f"line {reader.line_num}: {first}")
    except csv.Error as error:
        table.problems.append(f"line {reader.line_num}: {error}")
    return table


def read_text(path: Path) -> str:
    """Read a file of UTF-8 text, or say why it cannot be used."""
    name = printable(str(path))
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{name} is larger than {MAX_BYTES:,} bytes. Split it.")
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror}.") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{name} is not UTF-8 text (line {line}). Save it as UTF-8, then run the same command again."
        ) from error


def refuse(path: Path, problems: Sequence[str]) -> None:
    """Raise if there are problems, with the first of them."""
    if problems:
        more = [f"and {len(problems) - SHOWN:,} more"] if len(problems) > SHOWN else []
        listed = "\n  ".join([*problems[:SHOWN], *more])
        raise UserError(
            f"{printable(path.name)} was not used, because of\n  {listed}\nCorrect it and run the same command again."
        )


def read_labels(path: Path, images: Collection[str], classes: Collection[str] = ()) -> dict[str, str]:
    """Read the label of each file from the columns file_name and label; an empty label means that nobody knows.

    `images` are the files there are, `classes` the labels there may be (any when it is empty).
    """
    if not path.is_file():
        raise UserError(f"there is no file {printable(str(path))}. Give the CSV of labels with --labels FILE.")
    table = read_csv(path, "file_name", "label")
    images = frozenset(images)
    labels: dict[str, str] = {}
    lines: dict[str, int] = {}
    problems = list(table.problems)
    for line, row in table.rows:
        name, label = find_name(row["file_name"], images), row["label"].strip()
        problem = name_problem(name, images)
        if not problem and name in lines:
            same = "again" if labels[name] == label else f"as {quoted(label)}, but as {quoted(labels[name])}"
            problem = f"{quoted(name)} is listed {same} in line {lines[name]}"
        if not problem and len(label) > MAX_LABEL:
            problem = f"the label has more than {MAX_LABEL} characters"
        if not problem and label and classes and label not in classes:
            problem = f"{quoted(label)} is not among the declared classes (--classes)"
        if problem:
            problems.append(f"line {line}: {problem}")
        else:
            labels[name], lines[name] = label, line
    refuse(path, problems)
    return labels


def find_name(written: str, names: Collection[str]) -> str:
    """Return the file that a cell names: as it is written, or without the space that people leave around it."""
    exact, stripped = str(PurePosixPath(written)), written.strip()
    return exact if exact in names else str(PurePosixPath(stripped)) if stripped else ""


def name_problem(name: str, names: Collection[str]) -> str:
    """Say what is wrong with a file name, if anything."""
    if not name:
        return "there is no file name"
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        return f"{quoted(name)} leads out of the folder"
    return "" if name in names else f"there is no image {quoted(name)} in the folder"


def quoted(text: str) -> str:
    """Write a name from a file as a message shows it: in quotes, not too long, control characters as escapes."""
    return f"'{printable(text[:MAX_LABEL])}'"
