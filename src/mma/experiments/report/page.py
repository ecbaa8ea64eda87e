"""The report as one HTML file: no scripts, nothing loaded from elsewhere, every name escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from mma.experiments.report.summary import Section
from mma.experiments.report.tables import Entry, Table, plain, same_n

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 70rem; margin: 2rem auto;
  padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: left; border-bottom: 1px solid #e3e3e3; white-space: nowrap; }
th { border-bottom: 2px solid #888; font-weight: 600; } tbody tr:hover { background: #f5f8fb; }
.note, figcaption { color: #555; font-size: .88rem; max-width: 60rem; } .absent { color: #a05a00; } .paper { color: #777; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; }
"""


def html(title: str, found: Table, parts: Sequence[Section], plots: Mapping[str, bytes], about: Sequence[str]) -> str:
    """Return the whole page."""
    body = [f"<h1>{escape(title)}</h1>", *(f'<p class="note">{escape(line)}</p>' for line in about)]
    body += ["<h2>Accuracy</h2>", accuracy(found), *(f'<p class="note">{escape(note)}</p>' for note in found.notes)]
    for caption, data in plots.items():
        body.append(image(caption, data))
    for heading, columns, rows, remarks in parts:
        body.append(f"<h2>{escape(heading)}</h2>")
        body += [plain_table(columns, rows)] if rows else []
        body += [f'<p class="note">{escape(remark)}</p>' for remark in remarks]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    head += f'{view}<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def accuracy(found: Table) -> str:
    """Return the main table."""
    same = same_n(found)
    rows = [
        f"<tr><td>{escape(name)}</td>{''.join(f'<td>{cell(entry, same)}</td>' for entry in row)}</tr>"
        for name, row in zip(found.rows, found.entries, strict=True)
    ]
    heading = "".join(f"<th>{escape(name)}</th>" for name in (found.corner, *found.columns))
    return f'<div class="wide"><table><thead><tr>{heading}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def cell(entry: Entry | None, same: bool) -> str:
    """Return one cell of the main table."""
    if entry is None:
        return "-"
    parts = []
    if entry.mean is not None:
        shown = escape(plain(entry.mean, entry.std, best=False) + ("" if same else f" (n={entry.n})"))
        parts.append(f"<b>{shown}</b>" if entry.best else shown)
    if entry.missing:
        parts.append(f'<span class="absent">{escape(entry.missing)}</span>')
    if entry.published is not None:
        parts.append(f'<span class="paper">paper {plain(*entry.published, False)}</span>')
    return "<br>".join(parts)


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of words."""
    heading = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(part)}</td>' for part in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heading}</tr></thead><tbody>{lines}</tbody></table></div>'


def image(caption: str, data: bytes) -> str:
    """Return a plot inside the page itself."""
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return f'<figure><img src="{source}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
