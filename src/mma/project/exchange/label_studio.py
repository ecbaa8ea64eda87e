"""Labels as tasks of Label Studio (JSON). Our own fields travel in `data`, which Label Studio keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mma.project.exchange.rows import LabelRow, read_text
from mma.text import printable

LOCAL_FILES = "/data/local-files/?d="  # how Label Studio names files of its own machine


def task(row: LabelRow, number: int) -> dict[str, Any]:
    """Return one image to label, without an answer."""
    data = {"image": LOCAL_FILES + quote(row.file_name), "file_name": row.file_name, "sha256": row.sha256}
    return {"id": number, "data": data}


def render_tasks(rows: Iterable[LabelRow]) -> bytes:
    """Write rows as tasks with one annotation each."""
    tasks = [{**task(row, number), "annotations": [_annotation(row)]} for number, row in enumerate(rows, 1)]
    return (json.dumps(tasks, ensure_ascii=False, indent=1) + "\n").encode()


def _annotation(row: LabelRow) -> dict[str, Any]:
    result = [{"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [row.label]}}]
    meta = {"state": row.state, "by": row.by, "at": row.at}
    return {"result": [] if row.state else result, "was_cancelled": row.state == "cannot_tell", "meta": meta}


def parse_tasks(path: Path) -> tuple[list[LabelRow], list[str]]:
    """Read tasks, ours or exported by Label Studio; "line" is the number of the task in the file."""
    try:
        tasks = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{printable(path.name)} is not JSON ({printable(str(error))}). Export it again.") from error
    if not isinstance(tasks, list):
        raise ValueError(f"{printable(path.name)} is no list of tasks. Export it from Label Studio as JSON.")
    rows: list[LabelRow] = []
    problems: list[str] = []
    for number, each in enumerate(tasks, 1):
        try:
            rows += _rows(each, number)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            detail = f" ({error})" if type(error) is ValueError else ""
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
        label = "" if state else _choice(annotation["result"])
        found.append(LabelRow(name, label, key, state, by, at, number))
    if len({(row.label, row.state) for row in found}) > 1:
        raise ValueError("its annotations differ")
    return found[-1:]


def _choice(result: list[dict[str, Any]]) -> str:
    choices = [choice for part in result if part["type"] == "choices" for choice in part["value"]["choices"]]
    if len(choices) != 1 or not isinstance(choices[0], str):
        raise ValueError(f"{len(choices)} choices")
    return choices[0]
