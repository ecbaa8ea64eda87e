"""How far the index and the features are: one row of the table `meta` each, for the page and `mma status`. No torch."""

from __future__ import annotations

import json
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from mma.project.labels import tables as db

TASKS = ("index", "features")  # in the order in which they are done


class TaskProgress(NamedTuple):
    """How many of how many files or images are done, and how long the rest takes, in words."""

    task: str
    done: int
    total: int
    left: str | None = None


def write_progress(connection: Connection, task: str, done: int, total: int, left: str | None = None) -> None:
    """Write down how far a task is."""
    connection.execute(delete(db.meta).where(db.meta.c.key == task))
    connection.execute(insert(db.meta).values(key=task, value=json.dumps([done, total, left])))


def read_progress(connection: Connection) -> list[TaskProgress]:
    """Return how far each task is that was begun."""
    found = {row.key: row.value for row in connection.execute(select(db.meta).where(db.meta.c.key.in_(TASKS)))}
    return [TaskProgress(task, *json.loads(found[task])) for task in TASKS if task in found]
