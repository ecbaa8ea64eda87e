"""Labels in and out of a project, in the formats of other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from mma.files import explain_write_errors, write_atomically
from mma.project.exchange.image_folder import read_image_folder, write_image_folder
from mma.project.exchange.label_studio import parse_tasks, render_tasks
from mma.project.exchange.rows import LabelRow
from mma.project.exchange.tables import parse_csv, parse_jsonl, render_csv, render_jsonl
from mma.text import did_you_mean, printable

Parse = Callable[[Path], tuple[list[LabelRow], list[str]]]


class LabelFormat(NamedTuple):
    """How one format is written and read."""

    about: str
    parse: Parse
    render: Callable[[Iterable[LabelRow]], bytes] | None  # None: it is a folder


def format_of(path: Path, name: str | None = None) -> str:
    """Return the format asked for, or the one that a path stands for."""
    if name is not None:
        if name not in LABEL_FORMATS:
            listed = ", ".join(LABEL_FORMATS)
            raise ValueError(
                f"there is no format '{printable(name)}'.{did_you_mean(name, LABEL_FORMATS)} There are: {listed}."
            )
        return name
    if path.is_dir():
        return "imagefolder"
    found = {".csv": "csv", ".jsonl": "hf-jsonl", ".json": "label-studio", "": "imagefolder"}.get(path.suffix.lower())
    found = None if found == "imagefolder" and path.is_file() else found
    if found is None:
        raise ValueError(f"which format is {printable(path.name)}? Say it with --format: {', '.join(LABEL_FORMATS)}.")
    return "hf-csv" if path.name == "metadata.csv" else found


def read_rows(path: Path, name: str | None = None) -> tuple[list[LabelRow], list[str]]:
    """Read a file or folder of labels; the second list says what is wrong with it."""
    if not path.exists():
        raise ValueError(f"there is no {printable(str(path))}. Give a file or a folder of labels.")
    return LABEL_FORMATS[format_of(path, name)].parse(path)


def write_rows(root: Path, rows: list[LabelRow], path: Path, name: str | None, *, copy: bool) -> None:
    """Write labels; `root` is where the images are."""
    form = LABEL_FORMATS[format_of(path, name)]
    if form.render is None:
        write_image_folder(root, rows, path, copy=copy)
        return
    if path.is_file() and not is_export(path, form):
        raise ValueError(
            f"{printable(str(path))} is there already, and no export of ours in this format. Choose another place, or remove "
            "it first."
        )
    with explain_write_errors(path, "the same command"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, form.render(rows))


def is_export(path: Path, form: LabelFormat) -> bool:
    """Tell whether a file was written by an earlier export, which always names the sha256 of each image."""
    try:
        rows, problems = form.parse(path)
    except ValueError:
        return False
    return not problems and all(row.sha256 for row in rows)


LABEL_FORMATS: dict[str, LabelFormat] = {
    "csv": LabelFormat("a table: file_name, label, sha256, state, by, at", parse_csv, render_csv),
    "imagefolder": LabelFormat("a folder per class, with links or copies", read_image_folder, None),
    "hf-csv": LabelFormat("Hugging Face metadata.csv", parse_csv, render_csv),
    "hf-jsonl": LabelFormat("Hugging Face metadata.jsonl", parse_jsonl, render_jsonl),
    "label-studio": LabelFormat("tasks of Label Studio, JSON", parse_tasks, render_tasks),
}
