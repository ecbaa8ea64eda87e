"""Questions as files, for people without the page: a table to fill in, a contact sheet, tasks for Label Studio."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from PIL import Image

from mma.data.photos import explain_bad_file, quiet_decoders, read_unscaled_photo
from mma.files import explain_write_errors, write_atomically
from mma.project.exchange.label_studio import task
from mma.project.exchange.rows import LabelRow
from mma.project.exchange.tables import parse_csv, render_table
from mma.project.project import Project
from mma.project.records import Item
from mma.text import printable, quote_path

BY = "files"  # who is asked through files, unless a name is given
LEASE = 30 * 86_400.0  # seconds: files may be answered slowly
SIDE = 200  # pixels of a thumbnail
STYLE = (
    "body{font:16px/1.4 system-ui,sans-serif;margin:2rem;color:#222;background:#fff}main{display:grid;gap:1rem;"
    f"grid-template-columns:repeat(auto-fill,minmax({SIDE}px,1fr))}}figure{{margin:0}}img{{max-width:100%;background:#eee}}"
    "figcaption{font-size:.8rem;overflow-wrap:anywhere}"
)
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def ask(project: Project, n: int, out: Path, by: str = BY) -> list[Path]:
    """Lease `n` images and write the questions; asked again before they are answered, they are the same ones."""
    check_table(project, out)
    items = project.next(by, n, lease=LEASE)
    if not items:
        raise ValueError("there is nothing left to ask about: every image is answered, or asked of somebody else.")
    classes = [each.name for each in project.classes() if each.merged_into is None]
    sheet, tasks = out.with_suffix(".html"), out.with_suffix(".label-studio.json")
    with explain_write_errors(out, "the same command"):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, _table(items))
        write_atomically(sheet, contact_sheet(project, items, classes))
        write_atomically(tasks, _tasks(items))
    return [out, sheet, tasks]


def check_table(project: Project, out: Path) -> None:
    """Refuse a place that is no table, or one that holds answers which the project does not have yet."""
    place = printable(str(out))
    if out.suffix.lower() != ".csv":
        raise ValueError(
            f"-o {place}: the table to fill in is a CSV file. Use  -o {quote_path(out.with_suffix('.csv'))}"
        )
    if not out.exists():
        return
    try:
        rows, _ = parse_csv(out)
    except ValueError:
        raise ValueError(f"{place} is there already, and is no table of questions. Choose another -o.") from None
    labels = project.labels()
    known = {*labels.ids, *labels.cannot_tell, *labels.excluded}
    if waiting := sum(bool(row.label or row.state) and row.sha256 not in known for row in rows):
        raise ValueError(
            f"{place} holds {waiting:,} answers that were not taken in yet. Take them in first:  mma tell "
            f"{quote_path(project.folder)} {quote_path(out)}   or choose another -o."
        )


def _table(items: Sequence[Item]) -> bytes:
    rows = [[item.name, "", item.image, item.why] for item in items]
    return render_table([("file_name", "label", "sha256", "why"), *rows])


def _tasks(items: Sequence[Item]) -> str:
    tasks = [task(LabelRow(item.name, sha256=item.image), number) for number, item in enumerate(items, 1)]
    return json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"


def contact_sheet(project: Project, items: Sequence[Item], classes: Sequence[str]) -> str:
    """Return a page that holds everything it shows; names are shown as text, whatever they are made of."""
    with quiet_decoders():
        figures = "\n".join(_figure(project, number, item) for number, item in enumerate(items, 1))
    known = ", ".join(escape(printable(name)) for name in classes) or "none yet"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{len(items)} images to label</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<style>{STYLE}</style></head>\n'
        f"<body><h1>{len(items)} images to label</h1>\n<p>Classes: {known}. Write one of them into the column label of the "
        f"table, or ? where you cannot tell.</p>\n<main>\n{figures}\n</main></body></html>\n"
    )


def _figure(project: Project, number: int, item: Item) -> str:
    name = escape(printable(item.name))
    caption = f"<figcaption>{number}. {name}<br>{escape(printable(item.why))}</figcaption>"
    try:
        picture = f'<img alt="{name}" src="data:image/jpeg;base64,{thumbnail(project, item.image)}">'
    except Exception as error:  # a file may have gone or changed since it was indexed
        picture = f"<p>{escape(explain_bad_file(error))}</p>"
    return f"<figure>{picture}{caption}</figure>"


def thumbnail(project: Project, image: str) -> str:
    """Return a small JPEG of an image, made from its pixels alone, in base64."""
    name = project.path_of(image).relative_to(project.root).as_posix()
    pixels, _ = read_unscaled_photo(project.root, name, SIDE)
    small = Image.fromarray(pixels)
    small.thumbnail((SIDE, SIDE))
    data = io.BytesIO()
    small.save(data, "JPEG", quality=80)
    return base64.b64encode(data.getvalue()).decode("ascii")
