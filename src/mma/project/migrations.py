"""Bring an older database to today's format, after a backup; refuse a newer one."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, insert, inspect, select, update

from mma.project import schema as db
from mma.project.backups import back_up_database
from mma.project.layout import Layout
from mma.project.store import Store
from mma.text import printable

# From each format to the next one: MIGRATIONS[1] makes a database of format 1 one of format 2.
MIGRATIONS: dict[int, Callable[[Connection], None]] = {}


def prepare(store: Store, layout: Layout) -> None:
    """Make the tables of a new database; migrate those of an older one."""
    found = read_format(store)
    if found == db.FORMAT:
        return
    if found is not None and found > db.FORMAT:
        raise ValueError(
            f"the database of {printable(str(layout.folder))} was made by a newer mma (format {found}, this one knows "
            f"{db.FORMAT}). Update:  pip install --upgrade mma-learn"
        )
    if found is not None:
        back_up_database(store, layout, f"format-{found}")
    with store.writing() as connection:
        if found is None:
            create_tables(connection)
            return
        for number in range(found, db.FORMAT):
            MIGRATIONS[number](connection)
        connection.execute(update(db.meta).where(db.meta.c.key == "format").values(value=str(db.FORMAT)))


def create_tables(connection: Connection) -> None:
    """Make the tables of today's format."""
    db.metadata.create_all(connection)
    connection.execute(insert(db.meta).values(key="format", value=str(db.FORMAT)))


def read_format(store: Store) -> int | None:
    """Return the format of the tables; None where there are none yet."""
    with store.reading() as connection:
        if not inspect(connection).has_table("meta"):
            return None
        found = connection.execute(select(db.meta.c.value).where(db.meta.c.key == "format")).scalar()
    return None if found is None else int(found)
