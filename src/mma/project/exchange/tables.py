"""Labels as text tables: CSV, Hugging Face metadata.csv and metadata.jsonl."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mma.project.exchange.rows import FIELDS, LabelRow, neutralise, read_text, restore
from mma.text import printable


def render_csv(rows: Iterable[LabelRow]) -> bytes:
    """Write rows as CSV; what a spreadsheet would take for a formula begins with a quote."""
    return render_table([FIELDS, *(row.cells() for row in rows)])


def render_table(lines: Iterable[Sequence[str]]) -> bytes:
    """Write any lines of cells as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for line in lines:
        writer.writerow([neutralise(cell) for cell in line])
    return text.getvalue().encode()


def parse_csv(path: Path) -> tuple[list[LabelRow], list[str]]:
    """Read rows; the second list says what is wrong, with line numbers."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    rows: list[LabelRow] = []
    problems: list[str] = []
    try:
        header = [column.strip() for column in next(reader, [])]
        _check_header(path, header)
        for cells in reader:
            if len(cells) != len(header):
                problems += [f"line {reader.line_num}: {len(cells)} columns instead of {len(header)}"] if cells else []
            else:
                rows.append(_row(dict(zip(header, map(restore, cells), strict=True)), reader.line_num))
    except csv.Error as error:
        problems.append(f"line {reader.line_num}: {error}")
    return rows, problems


def _check_header(path: Path, header: list[str]) -> None:
    if "label" not in header or not {"file_name", "sha256"} & set(header):
        raise ValueError(
            f"{printable(path.name)} must begin with a line of column names, with commas between them: label, and file_name "
            "or sha256. Its first line is "
            f"'{printable(','.join(header))[:200]}'. Correct it, then run the same command again."
        )
    if len(set(header)) != len(header):
        raise ValueError(f"{printable(path.name)} has a column twice. Correct it, then run the same command again.")


def _row(values: dict[str, Any], line: int) -> LabelRow:
    return LabelRow(**{name: str(values.get(name, "")).strip() for name in FIELDS}, line=line)


def render_jsonl(rows: Iterable[LabelRow]) -> bytes:
    """Write rows as Hugging Face metadata.jsonl."""
    lines = [json.dumps(dict(zip(FIELDS, row.cells(), strict=True)), ensure_ascii=False) for row in rows]
    return "".join(line + "\n" for line in lines).encode()


def parse_jsonl(path: Path) -> tuple[list[LabelRow], list[str]]:
    """Read rows of JSON; every value must be text."""
    rows: list[LabelRow] = []
    problems: list[str] = []
    for number, line in _lines(read_text(path)):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            problems.append(f"line {number}: it is not JSON")
            continue
        if not isinstance(values, dict) or not all(isinstance(values.get(name, ""), str) for name in FIELDS):
            problems.append(f"line {number}: it is not a row of texts, {', '.join(FIELDS)}")
            continue
        rows.append(_row(values, number))
    return rows, problems


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line
