"""Copies in state/backups: of the database before it is migrated, of all events before each round."""

from __future__ import annotations

import sqlite3

from mma.files import explain_write_errors, write_atomically
from mma.project.layout import Layout
from mma.project.store import Store

KEPT = 5  # copies of rounds


def back_up_database(store: Store, layout: Layout, name: str) -> None:
    """Copy the database, or for PostgreSQL the second copy of all events, to state/backups."""
    with explain_write_errors(layout.backups, f"mma doctor {layout.folder}"):
        if not store.sqlite:
            if layout.log.exists():
                write_atomically(layout.backups / f"{name}.jsonl", layout.log.read_bytes(), private=True)
            return
        place = layout.backups / f"{name}.db"
        place.unlink(missing_ok=True)
        source, target = sqlite3.connect(layout.database), sqlite3.connect(place)
        try:
            source.backup(target)
        finally:
            source.close()
            target.close()
        place.chmod(0o600)


def back_up_events(layout: Layout, number: int) -> None:
    """Copy labels.jsonl before a round; a few rounds are kept. The database can be made from any of these."""
    if not layout.log.exists():
        return
    with explain_write_errors(layout.backups, f"mma start {layout.folder}"):
        place = layout.backups / f"round-{number:06d}.jsonl"
        write_atomically(place, layout.log.read_bytes(), private=True)
        for old in sorted(layout.backups.glob("round-*.jsonl"))[:-KEPT]:
            old.unlink(missing_ok=True)
