"""What the worker made: one row per model, for the page and for whoever wants the best one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from mma.project import schema as db
from mma.project.events import now
from mma.project.records import ModelRow

STATES = ("training", "ready", "failed")


def store_model(connection: Connection, number: int, values: dict[str, Any]) -> ModelRow:
    """Add a model or replace what is known of it; values that are not given stay."""
    before = connection.execute(select(db.models).where(db.models.c.number == number)).first()
    row = {
        "kind": "live",
        "seq": 0,
        "message": "",
        "accuracy": None,
        "about": {},
        **(_fields(before) if before else {}),
    }
    row = {**row, **values, "number": number, "at": now()}
    if row.get("state") not in STATES:
        raise ValueError(f"a model is in one of the states {', '.join(STATES)}, not '{row.get('state')}'.")
    connection.execute(delete(db.models).where(db.models.c.number == number))
    connection.execute(insert(db.models).values(**{**row, "about": json.dumps(row["about"])}))
    return ModelRow(**row)


def _fields(row: Any) -> dict[str, Any]:
    return {**row._asdict(), "about": json.loads(row.about)}


def read_models(connection: Connection) -> list[ModelRow]:
    """Return all models, the first one first."""
    rows = connection.execute(select(db.models).order_by(db.models.c.number))
    return [ModelRow(**_fields(row)) for row in rows]


def next_number(connection: Connection, folder: Path) -> int:
    """Return the number of the model to come: after those of the database and of the folder models/."""
    stored = int(connection.execute(select(func.max(db.models.c.number))).scalar() or 0)
    kept = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal()]
    return max([stored, *kept]) + 1
