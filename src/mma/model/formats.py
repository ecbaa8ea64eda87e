"""The formats of predictions: CSV, JSON lines and Parquet, all with the same columns."""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from mma.files import open_atomically

GROUP = 65_536  # rows of a group in a Parquet file: what is in memory at a time
FORMULA = re.compile(r"[=+\-@\t\r\n]")  # what makes a spreadsheet take a cell for a formula
EXTRA = "predictions in Parquet need pyarrow:  pip install 'mma-learn[parquet]'   Or write  -o NAME.csv"
Prediction = Mapping[str, Any]  # column -> value; None where there is none


def columns(top: int) -> list[str]:
    """Name the columns: the file, the most likely classes with their probabilities, and what was wrong with a file."""
    ranks = [f"_{rank}" if rank > 1 else "" for rank in range(1, top + 1)]
    return ["file", *(f"{name}{rank}" for rank in ranks for name in ("label", "confidence")), "problem"]


def cell(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: with a quote before it where it could."""
    return f"'{text}" if FORMULA.match(text) else text


def write_csv(file: IO[bytes], names: Sequence[str], rows: Iterable[Prediction]) -> None:
    """Write a table for spreadsheets and everything else."""
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = [row.get(name) for name in names]
        writer.writerow([cell(value) if isinstance(value, str) else value for value in values])
    text.detach()


def write_jsonl(file: IO[bytes], names: Sequence[str], rows: Iterable[Prediction]) -> None:
    """Write one JSON object per line."""
    for row in rows:
        file.write(json_line({name: row.get(name) for name in names}))


def json_line(row: Prediction) -> bytes:
    """Return one line of JSON."""
    return (json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n").encode()


def write_parquet(file: IO[bytes], names: Sequence[str], rows: Iterable[Prediction]) -> None:
    """Write Parquet, a group of rows at a time."""
    arrow, parquet = import_arrow()
    kinds = {name: arrow.float32() if name.startswith("confidence") else arrow.string() for name in names}
    schema = arrow.schema(list(kinds.items()))
    with parquet.ParquetWriter(file, schema) as writer:
        remaining = iter(rows)
        while group := list(islice(remaining, GROUP)):
            table = {name: [row.get(name) for row in group] for name in names}
            writer.write_table(arrow.table(table, schema=schema))


def import_arrow() -> tuple[Any, Any]:
    """Return pyarrow and its part for Parquet, or say how to get it."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ValueError(EXTRA) from None


FORMATS: dict[str, Callable[[IO[bytes], Sequence[str], Iterable[Prediction]], None]] = {
    ".csv": write_csv,
    ".jsonl": write_jsonl,
    ".parquet": write_parquet,
}


def write_output(out: Path, top: int, rows: Iterator[Prediction]) -> None:
    """Write all rows in the format that the file's name asks for."""
    with open_atomically(out) as file:
        FORMATS[out.suffix.lower()](file, columns(top), rows)
