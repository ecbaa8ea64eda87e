"""The report as one HTML file: no scripts, nothing loaded from elsewhere, every name escaped."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape

from mma.experiments.report.numbers import plus_minus
from mma.experiments.report.summary import Section
from mma.experiments.report.tables import ReportTable, TableCell

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .25rem .8rem; text-align: left; border-bottom: 1px solid #e3e3e3; white-space: nowrap; }
th { border-bottom: 2px solid #888; font-weight: 600; } tbody tr:hover { background: #f5f8fb; }
.note, figcaption { color: #555; font-size: .88rem; max-width: 60rem; } .absent { color: #a05a00; } .paper { color: #777; }
figure { margin: 1.5rem 0; } img { width: 100%; max-width: 40rem; height: auto; }
"""


def html(
    title: str, found: ReportTable, parts: Sequence[Section], plots: Mapping[str, bytes], about: Sequence[str]
) -> str:
    """Return the page. `plots` are SVG images by caption."""
    body = [f"<h1>{escape(title)}</h1>", *map(note, about), "<h2>Accuracy</h2>", accuracy(found)]
    body += [*map(note, found.notes), *(image(caption, data) for caption, data in plots.items())]
    for heading, columns, rows, remarks in parts:
        body.append(f"<h2>{escape(heading)}</h2>")
        body += [text_table(columns, rows)] if rows else []
        body += map(note, remarks)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    head += f'{view}<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def note(text: str) -> str:
    """Return a remark with its Markdown rendered: `code` and **bold**."""
    shown = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))
    return f'<p class="note">{shown}</p>'


def accuracy(found: ReportTable) -> str:
    """Return the main table."""
    rows = [
        [escape(name), *(cell_html(cell, found.same_n) for cell in row)]
        for name, row in zip(found.rows, found.cells, strict=True)
    ]
    return table_html([found.corner, *found.columns], rows)


def cell_html(cell: TableCell | None, same_n: bool) -> str:
    """Return one cell of the main table."""
    if cell is None:
        return "-"
    parts = []
    if cell.mean is not None:
        shown = plus_minus(cell.mean, cell.std) + ("" if same_n else f" (n={cell.n})")
        parts.append(f"<b>{shown}</b>" if cell.better else shown)
    if cell.missing:
        parts.append(f'<span class="absent">{escape(cell.missing)}</span>')
    if cell.published is not None:
        parts.append(f'<span class="paper">paper {plus_minus(*cell.published)}</span>')
    return "<br>".join(parts)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of words."""
    return table_html(columns, [[escape(part) for part in row] for row in rows])


def table_html(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose cells are HTML already."""
    heading = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = "".join(f"<tr>{''.join(f'<td>{part}</td>' for part in row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heading}</tr></thead><tbody>\n{lines}</tbody></table></div>'


def image(caption: str, data: bytes) -> str:
    """Return a plot inside the page itself."""
    source = f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}"
    return f'<figure><img src="{source}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
