"""Labels of a folder in a CSV file (columns file_name and label): taken whole, or refused with the lines at fault."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from mma.text import printable

DEFAULT = "labels.csv"  # used without being asked for when it lies in the folder
MAX_BYTES = 256 << 20
MAX_LABEL = 200  # characters
SHOWN = 20  # problems listed before "and so many more"


def read_labels(path: Path, known: Collection[str], classes: Collection[str] = ()) -> dict[str, str]:
    """Read the label of each file; an empty label means that nobody knows.

    `known` are the images there are, `classes` the labels there may be (any when it is empty).
    """
    known = frozenset(known)
    labels: dict[str, str] = {}
    lines: dict[str, int] = {}
    problems: list[str] = []
    for line, name, label in _rows(path):
        key, problem = _file(name, known)
        if not problem and key in lines:
            same = "again" if labels[key] == label else f"as {_quote(label)}, but as {_quote(labels[key])}"
            problem = f"{_quote(key)} is listed {same} in line {lines[key]}"
        problem = problem or _label_problem(label, classes)
        if problem:
            problems.append(f"line {line}: {problem}")
        else:
            labels[key], lines[key] = label, line
    _refuse(path, problems)
    return labels


def _label_problem(label: str, classes: Collection[str]) -> str:
    if len(label) > MAX_LABEL:
        return f"the label has more than {MAX_LABEL} characters"
    if label and classes and label not in classes:
        return f"{_quote(label)} is not among the declared classes (--classes)"
    return ""


def _rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line number, file name and label of each row; a row without both is an error of the whole file."""
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        header = [column.strip() for column in next(reader, [])]
        if "file_name" not in header or "label" not in header:
            raise ValueError(
                f"{printable(path.name)} must begin with a line of column names, file_name and label among them; its "
                f"first line is {_quote(','.join(header))}. Correct it and run the same command again."
            )
        name, label = header.index("file_name"), header.index("label")
        for row in reader:
            if len(row) > max(name, label):
                yield reader.line_num, row[name].strip(), row[label].strip()
            elif row:
                _refuse(path, [f"line {reader.line_num}: {len(row)} columns where the first line has {len(header)}"])
    except csv.Error as error:
        _refuse(path, [f"line {reader.line_num}: {error}"])


def _text(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"there is no file {printable(str(path))}. Give the CSV of labels with --labels FILE.")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(
            f"{printable(path.name)} is larger than {MAX_BYTES:,} bytes. Split the folder, or shorten the file."
        )
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{printable(path.name)} is not UTF-8 text (line {line}). Save it as UTF-8 and run the same command again."
        ) from error


def _file(name: str, known: frozenset[str]) -> tuple[str, str]:
    """Bring a file name into the form of `known`, and say what is wrong with it, if anything."""
    pure = PurePosixPath(name)
    if not name:
        return name, "there is no file name"
    if pure.is_absolute() or ".." in pure.parts:
        return name, f"{_quote(name)} leads out of the folder"
    if str(pure) not in known:
        return name, f"there is no image {_quote(name)} in the folder"
    return str(pure), ""


def _quote(text: str) -> str:
    return f"'{printable(text[:MAX_LABEL])}'"


def _refuse(path: Path, problems: list[str]) -> None:
    if problems:
        more = [f"and {len(problems) - SHOWN:,} more"] if len(problems) > SHOWN else []
        listed = "\n  ".join([*problems[:SHOWN], *more])
        raise ValueError(
            f"{printable(path.name)} was not used, because of\n  {listed}\nCorrect it and run the same command again."
        )
