"""Labels as a folder per class, with links to the images or copies of them. The images themselves are never moved."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from mma.data.folder import list_files
from mma.files import create_atomically, explain_write_errors
from mma.project.exchange.rows import LabelRow
from mma.project.exchange.tables import parse_csv, render_csv
from mma.text import printable

MANIFEST = "labels.csv"  # exact names, hashes, people and times, and the images that have no class


def write_image_folder(root: Path, rows: Sequence[LabelRow], folder: Path, *, copy: bool) -> None:
    """Make the folder whole. It must not be there yet, unless it is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{printable(str(folder))} is there already. Choose another place, or remove it first.")

    def fill(beside: Path) -> None:
        beside.mkdir(parents=True)
        for row in rows:
            if not row.state:
                _place(root / row.file_name, beside / class_folder(row.label) / row.file_name, copy=copy)
        (beside / MANIFEST).write_bytes(render_csv(rows))

    with explain_write_errors(folder, "the same command"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        create_atomically(folder, fill)


def _place(source: Path, target: Path, *, copy: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if copy:
        shutil.copyfile(source, target)
    else:
        target.symlink_to(source.resolve())


def class_folder(name: str) -> str:
    """Return a folder name for a class: readable, and never a path."""
    safe = quote(name, safe=" +,()[]&'!#@" + "".join(set(name) - set(map(chr, range(128)))))
    return "%2E" + safe[1:] if safe.startswith(".") else safe


def read_image_folder(folder: Path) -> tuple[list[LabelRow], list[str]]:
    """Read the list that our export holds; a folder without one is read by its class folders and the bytes in them."""
    if not folder.is_dir():
        raise ValueError(
            f"{printable(str(folder))} is a file, and imagefolder is a folder for each class. Change --format."
        )
    if (folder / MANIFEST).is_file():
        return parse_csv(folder / MANIFEST)
    names, _ = list_files(folder)
    rows, problems = [], []
    for number, name in enumerate(names, 1):
        label, _, inner = name.partition("/")
        if not inner:
            problems.append(f"file {number}: '{printable(name)}' lies in no class folder")
            continue
        if not (folder / name).is_file():  # whoever opens a pipe waits for ever
            problems.append(f"file {number}: '{printable(name)}' is not a regular file")
            continue
        with (folder / name).open("rb") as file:
            key = hashlib.file_digest(file, "sha256").hexdigest()
        rows.append(LabelRow("", unquote(label), key, line=number))
    return rows, problems
