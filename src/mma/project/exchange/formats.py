"""Labels as rows: what every format holds, one row per file, in natural order."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from PIL import Image
from sqlalchemy import Connection, select

from mma.data.folder import list_files
from mma.data.parquet import read_packed, write_images
from mma.data.photos import explain_bad_file, quiet_decoders, read_unscaled_photo
from mma.data.tables import read_csv, read_text, render_csv
from mma.errors import UserError
from mma.files import create_atomically, explain_write_errors, write_atomically
from mma.project.labels import database as db
from mma.project.labels.events import chunks, merge_roots, read_classes
from mma.text import did_you_mean, printable, quote_path, render_template

if TYPE_CHECKING:
    from mma.project.project import Project


FIELDS = ("file_name", "label", "sha256", "state", "by", "at")
STATES = {"label": "", "cannot_tell": "cannot_tell", "exclude": "excluded"}
KINDS = {state: kind for kind, state in STATES.items()}


class LabelRow(NamedTuple):
    """One answer in force. `state` is empty for a label; `line` is where it stood in the file it was read from."""

    file_name: str
    label: str = ""
    sha256: str = ""
    state: str = ""
    by: str = ""
    at: str = ""
    line: int = 0


def read_current(connection: Connection, *, gone: bool = False) -> list[LabelRow]:
    """Return the answers in force, one row per file; with `gone` also those of images that have no file any more."""
    classes = read_classes(connection)
    roots, names = merge_roots(classes), {each.id: each.name for each in classes}
    c, e = db.current.c, db.events.c
    query = select(c.image, c.kind, c.class_id, c.by, e.at).select_from(db.current).join(db.events, e.seq == c.seq)
    found = connection.execute(query).all()
    # Files are asked for by image: joined, a database may walk through all files there are.
    paths: dict[str, list[str]] = {row.image: [] for row in found}
    for part in chunks(list(paths)):
        for row in connection.execute(select(db.files.c.image, db.files.c.path).where(db.files.c.image.in_(part))):
            paths[row.image].append(row.path)
    for part in chunks([image for image, files in paths.items() if gone and not files]):
        for row in connection.execute(select(db.images.c.id, db.images.c.name).where(db.images.c.id.in_(part))):
            paths[row.id].append(row.name)
    rows = [
        LabelRow(path, names[roots[number]] if kind == "label" else "", image, STATES[kind], by, at)
        for image, kind, number, by, at in found
        for path in paths[image]
    ]
    return sorted(rows, key=lambda row: (natural(row.file_name), row.sha256))


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Order names as people do: 2 before 10."""
    pieces = re.findall("([0-9]+)|([^0-9]+)", name)
    return [(int(number) if number else -1, text) for number, text in pieces], name


# Labels as text tables: CSV, Hugging Face metadata.csv and metadata.jsonl.


def render_labels(rows: Iterable[LabelRow]) -> bytes:
    """Write rows as CSV."""
    return render_csv([FIELDS, *(row[: len(FIELDS)] for row in rows)])


def parse_labels(path: Path) -> tuple[list[LabelRow], list[str]]:
    """Read rows; the second list says what is wrong, with line numbers."""
    table = read_csv(path, "label", "file_name or sha256")
    return [_row(values, line) for line, values in table.rows], table.problems


def _row(values: dict[str, Any], line: int) -> LabelRow:
    """Return a row without the space that people leave around cells; a file's name may have some of its own."""
    cells = {name: str(values.get(name, "")).strip() for name in FIELDS}
    return LabelRow(**{**cells, "file_name": str(values.get("file_name", ""))}, line=line)


def render_jsonl(rows: Iterable[LabelRow]) -> bytes:
    """Write rows as Hugging Face metadata.jsonl."""
    lines = [json.dumps(dict(zip(FIELDS, row, strict=False)), ensure_ascii=False) for row in rows]
    return "".join(line + "\n" for line in lines).encode()


def read_json_rows(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    """Read lines of JSON with their numbers; the second list says which of them are none."""
    rows: list[tuple[int, dict[str, Any]]] = []
    problems: list[str] = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                rows.append((number, json.loads(line)))
            except (ValueError, RecursionError):
                problems.append(f"line {number}: it is not JSON")
    problems += [f"line {number}: it has no names and values" for number, row in rows if not isinstance(row, dict)]
    return [row for row in rows if isinstance(row[1], dict)], problems


def parse_jsonl(path: Path) -> tuple[list[LabelRow], list[str]]:
    """Read rows of JSON; every value must be text."""
    found, problems = read_json_rows(path)
    texts = [all(isinstance(values.get(name, ""), str) for name in FIELDS) for _, values in found]
    said = f"it is not a row of texts, {', '.join(FIELDS)}"
    problems += [f"line {number}: {said}" for (number, _), right in zip(found, texts, strict=True) if not right]
    return [_row(values, number) for (number, values), right in zip(found, texts, strict=True) if right], problems


# Labels as a folder per class, with links to the images or copies of them. The images themselves are never moved.

MANIFEST = "labels.csv"  # exact names, hashes, people and times, and the images that have no class


def write_image_folder(root: Path, rows: Sequence[LabelRow], folder: Path, copy: bool) -> None:
    """Make the folder whole."""

    def fill(beside: Path) -> None:
        beside.mkdir(parents=True)
        for row in rows:
            if not row.state:
                source, target = root / row.file_name, beside / class_folder(row.label) / row.file_name
                target.parent.mkdir(parents=True, exist_ok=True)
                if copy:
                    shutil.copyfile(source, target)
                else:
                    target.symlink_to(source.resolve())
        (beside / MANIFEST).write_bytes(render_labels(rows))

    create_atomically(folder, fill)


def class_folder(name: str) -> str:
    """Return a folder name for a class: readable, and never a path."""
    safe = quote(name, safe=" +,()[]&'!#@" + "".join(set(name) - set(map(chr, range(128)))))
    return "%2E" + safe[1:] if safe.startswith(".") else safe


def read_image_folder(folder: Path) -> tuple[list[LabelRow], list[str]]:
    """Read the list that our export holds; a folder without one is read by its class folders and the bytes in them."""
    if not folder.is_dir():
        raise UserError(
            f"{printable(str(folder))} is a file, and imagefolder is a folder for each class. Change --format."
        )
    if (folder / MANIFEST).is_file():
        return parse_labels(folder / MANIFEST)
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


# Labels as tasks of Label Studio (JSON). Our own fields travel in `data`, which Label Studio keeps.

LOCAL_FILES = "/data/local-files/?d="  # how Label Studio names files of its own machine


def task(row: LabelRow, number: int) -> dict[str, Any]:
    """Return one image to label, without an answer."""
    data = {"image": LOCAL_FILES + quote(row.file_name), "file_name": row.file_name, "sha256": row.sha256}
    return {"id": number, "data": data}


def render_tasks(rows: Iterable[LabelRow]) -> bytes:
    """Write rows as tasks with one annotation each."""
    tasks = []
    for number, row in enumerate(rows, 1):
        choice = {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [row.label]}}
        meta = {"state": row.state, "by": row.by, "at": row.at}
        annotation = {
            "result": [] if row.state else [choice],
            "was_cancelled": row.state == "cannot_tell",
            "meta": meta,
        }
        tasks.append({**task(row, number), "annotations": [annotation]})
    return (json.dumps(tasks, ensure_ascii=False, indent=1) + "\n").encode()


def parse_tasks(path: Path) -> tuple[list[LabelRow], list[str]]:
    """Read tasks, ours or exported by Label Studio; "line" is the number of the task in the file."""
    try:
        tasks = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{printable(path.name)} is not JSON ({printable(str(error))}). Export it again.") from error
    if not isinstance(tasks, list):
        raise UserError(f"{printable(path.name)} is no list of tasks. Export it from Label Studio as JSON.")
    rows: list[LabelRow] = []
    problems: list[str] = []
    for number, each in enumerate(tasks, 1):
        try:
            rows += _rows(each, number)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            detail = f" ({error})" if isinstance(error, UserError) else ""
            problems.append(f"task {number}: it is not a task with one choice per image{detail}")
    return rows, problems


def _rows(each: dict[str, Any], number: int) -> list[LabelRow]:
    """Return the answer of a task; an unanswered one has none."""
    data = each["data"]
    name, key = str(data.get("file_name", "")), str(data.get("sha256", ""))
    found = []
    for annotation in each.get("annotations", []):
        meta = annotation.get("meta") or {}
        state, by, at = (str(meta.get(field, "")) for field in ("state", "by", "at"))
        if annotation.get("was_cancelled"):
            state = "cannot_tell"
        label = ""
        if not state:
            parts = [part["value"]["choices"] for part in annotation["result"] if part["type"] == "choices"]
            choices = [choice for part in parts for choice in part]
            if len(choices) != 1 or not isinstance(choices[0], str):
                raise UserError(f"{len(choices)} choices")
            label = choices[0]
        found.append(LabelRow(name, label, key, state, by, at, number))
    if len({(row.label, row.state) for row in found}) > 1:
        raise UserError("its annotations differ")
    return found[-1:]


# Labels with their images as one Parquet file, as the library `datasets` reads it.


def write_parquet(root: Path, rows: Sequence[LabelRow], path: Path, copy: bool) -> None:
    """Write images and labels; images that have no class come with the state that says why."""
    more = {name: [getattr(row, name) for row in rows] for name in FIELDS if name != "label"}
    beside = path.with_name(f".{path.name}.new")
    try:
        write_images(beside, [(root / row.file_name, row.file_name, row.label) for row in rows], more)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def parse_parquet(path: Path) -> tuple[list[LabelRow], list[str]]:
    """Read the labels of a file of ours or of `datasets`; images are known by their bytes."""
    rows = []
    for number, image in enumerate(read_packed([path]), 1):
        key = hashlib.sha256(image.data).hexdigest()
        name, state, by, at = (image.more.get(part, "") for part in ("file_name", "state", "by", "at"))
        rows.append(LabelRow(name, image.label, key, state, by, at, number))
    return rows, []


# Labels in and out of a project, in the formats of other tools.

Parse = Callable[[Path], tuple[list[LabelRow], list[str]]]


class LabelFormat(NamedTuple):
    """How one format is written and read."""

    about: str
    parse: Parse
    render: Callable[[Iterable[LabelRow]], bytes] | None  # None: `write` makes it, from the images as well
    write: Callable[[Path, Sequence[LabelRow], Path, bool], None] | None = None  # root, rows, place, copies wanted


def format_of(path: Path, name: str | None = None) -> str:
    """Return the format asked for, or the one that a path stands for."""
    if name is not None:
        if name not in LABEL_FORMATS:
            listed = ", ".join(LABEL_FORMATS)
            raise UserError(
                f"there is no format '{printable(name)}'.{did_you_mean(name, LABEL_FORMATS)} There are: {listed}."
            )
        return name
    if path.is_dir():
        return "imagefolder"
    kinds = {".csv": "csv", ".jsonl": "hf-jsonl", ".json": "label-studio", ".parquet": "hf-parquet", "": "imagefolder"}
    found = kinds.get(path.suffix.lower())
    found = None if found == "imagefolder" and path.is_file() else found
    if found is None:
        raise UserError(f"which format is {printable(path.name)}? Say it with --format: {', '.join(LABEL_FORMATS)}.")
    return "hf-csv" if path.name == "metadata.csv" else found


def read_rows(path: Path, name: str | None = None) -> tuple[list[LabelRow], list[str]]:
    """Read a file or folder of labels; the second list says what is wrong with it."""
    if not path.exists():
        raise UserError(f"there is no {printable(str(path))}. Give a file or a folder of labels.")
    return LABEL_FORMATS[format_of(path, name)].parse(path)


def write_rows(root: Path, rows: list[LabelRow], path: Path, name: str | None, *, copy: bool) -> None:
    """Write labels; `root` is where the images are."""
    form, place = LABEL_FORMATS[format_of(path, name)], printable(str(path))
    if form.write is not None and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(f"{place} is there already. Choose another place, or remove it first.")
    if form.render is not None and path.is_file():
        try:
            before, problems = form.parse(path)
        except UserError:
            before, problems = [], [""]
        if problems or not all(row.sha256 for row in before):  # an export of ours names the sha256 of each image
            raise UserError(
                f"{place} is there already, and no export of ours in this format. Choose another place, or remove it first."
            )
    with explain_write_errors(path, "the same command"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if form.render is not None:
            write_atomically(path, form.render(rows))
        elif form.write is not None:
            form.write(root, rows, path, copy)


LABEL_FORMATS: dict[str, LabelFormat] = {
    "csv": LabelFormat("a table: file_name, label, sha256, state, by, at", parse_labels, render_labels),
    "imagefolder": LabelFormat("a folder per class, with links or copies", read_image_folder, None, write_image_folder),
    "hf-csv": LabelFormat("Hugging Face metadata.csv", parse_labels, render_labels),
    "hf-jsonl": LabelFormat("Hugging Face metadata.jsonl", parse_jsonl, render_jsonl),
    "hf-parquet": LabelFormat("Hugging Face Parquet, with the images", parse_parquet, None, write_parquet),
    "label-studio": LabelFormat("tasks of Label Studio, JSON", parse_tasks, render_tasks),
}


# Questions as files, for people without the page: a table to fill in, a contact sheet, tasks for Label Studio.

BY = "files"  # who is asked through files, unless a name is given
LEASE = 30 * 86_400.0  # seconds: files may be answered slowly
SIDE = 200  # pixels of a thumbnail


def ask(project: Project, n: int, out: Path, by: str = BY, *, measure: bool = False) -> list[Path]:
    """Lease `n` images and write the questions; asked again before they are answered, they are the same ones.

    To `measure`, they are audit images alone.
    """
    check_table(project, out)
    items = project.measure(by, n, LEASE) if measure else project.next(by, n, lease=LEASE)
    if not items:
        raise UserError("there is nothing left to ask about: every image is answered, or asked of somebody else.")
    classes = [each.name for each in project.classes() if each.merged_into is None]
    sheet, tasks = out.with_suffix(".html"), out.with_suffix(".label-studio.json")
    pictures = []
    with quiet_decoders():
        for item in items:
            try:
                pictures.append((item, thumbnail(project, item.image), ""))
            except Exception as error:  # a file may have gone or changed since it was indexed
                pictures.append((item, "", explain_bad_file(error)))
    with explain_write_errors(out, "the same command"):
        out.parent.mkdir(parents=True, exist_ok=True)
        rows = [[item.name, "", item.image, item.why] for item in items]
        write_atomically(out, render_csv([("file_name", "label", "sha256", "why"), *rows]))
        write_atomically(sheet, render_template("contact_sheet.html", items=pictures, classes=classes, side=SIDE))
        questions = [task(LabelRow(item.name, sha256=item.image), number) for number, item in enumerate(items, 1)]
        write_atomically(tasks, json.dumps(questions, ensure_ascii=False, indent=1) + "\n")
    return [out, sheet, tasks]


def check_table(project: Project, out: Path) -> None:
    """Refuse a place that is no table, or one that holds answers which the project does not have yet."""
    place = printable(str(out))
    if out.suffix.lower() != ".csv":
        raise UserError(
            f"-o {place}: the table to fill in is a CSV file. Use  -o {quote_path(out.with_suffix('.csv'))}"
        )
    if not out.exists():
        return
    try:
        rows, _ = parse_labels(out)
    except UserError:
        raise UserError(f"{place} is there already, and is no table of questions. Choose another -o.") from None
    labels = project.labels()
    known = {*labels.ids, *labels.cannot_tell, *labels.excluded}
    if waiting := sum(bool(row.label or row.state) and row.sha256 not in known for row in rows):
        raise UserError(
            f"{place} holds {waiting:,} answers that were not taken in yet. Take them in first:  mma tell "
            f"{quote_path(project.folder)} {quote_path(out)}   or choose another -o."
        )


def thumbnail(project: Project, image: str) -> str:
    """Return a small JPEG of an image, made from its pixels alone, in base64."""
    name = project.path_of(image).relative_to(project.root).as_posix()
    pixels, _ = read_unscaled_photo(project.root, name, SIDE)
    small = Image.fromarray(pixels)
    small.thumbnail((SIDE, SIDE))
    data = io.BytesIO()
    small.save(data, "JPEG", quality=80)
    return base64.b64encode(data.getvalue()).decode("ascii")
