"""The database of a project: SQLite in its folder, or PostgreSQL by URL. One writer at a time, readers see a snapshot."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError, ProgrammingError

from mma.errors import TemporarilyUnavailable, UserError
from mma.files import explain_write_errors, in_turn
from mma.text import install_hint, printable, quote_path

WAIT = 60_000  # milliseconds to wait for another writer
NOT_ALLOWED = "42501"  # what PostgreSQL calls a missing permission
PAGES = 64 << 10  # KiB of SQLite's cache per connection
ROOM = 256 << 10  # bytes; on a disk with less SQLite cannot even begin


class Store:
    """Connections to one project's database."""

    def __init__(self, engine: Engine, place: str, turn: Path | int) -> None:
        self.engine, self.place = engine, place
        self.turn = turn  # what writers queue for: a file beside SQLite's, or the number of a lock of PostgreSQL
        self.sqlite = engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read at one point in time, whatever others write meanwhile."""
        options = {} if self.sqlite else {"isolation_level": "REPEATABLE READ"}
        with explain_database_errors(self.place), self.engine.connect() as raw:
            connection = raw.execution_options(**options)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Write as the only writer. All of it is on disk when this ends, or none of it is stored."""
        with explain_database_errors(self.place), self._queue(), self.engine.connect() as raw:
            connection = raw.execution_options(mma_writes=True)
            with connection.begin():
                if not self.sqlite:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": self.turn})
                yield connection

    @contextmanager
    def _queue(self) -> Iterator[None]:
        """Wait for other writers. SQLite would sleep up to a tenth of a second between two looks, and nobody has a turn."""
        if isinstance(self.turn, Path):
            with explain_write_errors(self.turn, "the same command"), in_turn(self.turn):
                yield
        else:
            yield

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def insert_rows(connection: Connection, table: Table, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert many rows at once, tuples in the order of `names`: half the time of rows that have names themselves."""
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    marks = ", ".join([mark] * len(names))
    if rows:
        connection.exec_driver_sql(f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})", list(rows))


def sqlite_store(path: Path) -> Store:
    """Open a database file. A new one is its owner's alone."""
    if path.parent.is_dir() and not path.exists():
        with explain_write_errors(path, "mma start"):
            path.touch(0o600)
    engine = create_engine(f"sqlite+pysqlite:///{path}", pool_size=8, max_overflow=64)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say
        connection.execute(f"PRAGMA busy_timeout = {WAIT}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute(f"PRAGMA cache_size = -{PAGES}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A reader that turns into a writer can fail; a writer that says so at once only waits.
        writes = connection.get_execution_options().get("mma_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return Store(engine, str(path), path.with_name("write.lock"))


def postgres_store(url: str, project: str) -> Store:
    """Connect to a server. Each project has a schema of its own, so that one database can hold many."""
    schema = f"mma_{project}"
    options = f"-c search_path={schema} -c synchronous_commit=on"
    try:
        parsed = make_url(url).set(drivername="postgresql+psycopg")
        arguments: dict[str, Any] = {"connect_args": {"options": options}, "pool_pre_ping": True}  # servers restart
        engine = create_engine(parsed, pool_size=8, max_overflow=64, **arguments)
    except ImportError as error:
        raise UserError(f"PostgreSQL needs one more package:  {install_hint('postgres')}") from error
    store = Store(engine, parsed.render_as_string(hide_password=True), zlib.crc32(schema.encode()))
    with store.writing() as connection:
        there = text("SELECT 1 FROM pg_namespace WHERE nspname = :schema")
        if connection.execute(there, {"schema": schema}).scalar() is None:
            connection.execute(text(f'CREATE SCHEMA "{schema}"'))
    return store


def open_database(path: Path, url: Path, kind: str, project: str) -> Store:
    """Open the database of a project: the file at `path`, or the server whose URL stands in the file `url`."""
    if kind == "sqlite":
        return sqlite_store(path)
    try:
        return postgres_store(url.read_text("utf-8").strip(), project)
    except OSError as error:
        raise UserError(
            f"{printable(str(url))} cannot be read: {error.strerror}. Give the URL again with --store."
        ) from error


def check_url(url: str) -> None:
    """Refuse a store that is no PostgreSQL URL; the password is not repeated."""
    try:
        name = make_url(url).drivername
    except ArgumentError:
        name = ""
    if name not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise UserError("--store takes a URL such as postgresql://user@host/database; without it labels are in SQLite.")


@contextmanager
def explain_database_errors(place: str) -> Iterator[None]:
    """Turn what a database complains about into a sentence."""
    try:
        yield
    except (OperationalError, ProgrammingError) as error:
        if isinstance(error, ProgrammingError) and getattr(error.orig, "sqlstate", None) != NOT_ALLOWED:
            raise
        way_out = "Start the server" if "://" in place else "Make room"
        raise TemporarilyUnavailable(
            f"the database {printable(place)} cannot be used: {_reason(place, error)}. What was saved before is whole. "
            f"{way_out} or allow writing there, then run the same command again."
        ) from error
    except (DatabaseError, UnicodeDecodeError) as error:  # what SQLite says of damage may be no text
        if isinstance(error, DatabaseError) and type(error) is not DatabaseError:  # a broken constraint is our mistake
            raise
        raise TemporarilyUnavailable(
            f"the database {printable(place)} is damaged or not ours: {_first_line(error)}. Rebuild it from labels.jsonl:  "
            f"mma doctor {_project(place)} --rebuild"
        ) from error


def _project(place: str) -> str:
    """Return the project that a database belongs to, as it is typed; a server does not know it."""
    return "PROJECT" if "://" in place else quote_path(Path(place).parents[1])


def _reason(place: str, error: DatabaseError) -> str:
    """Say what is wrong. SQLite says of a full or read-only disk only that a file cannot be opened or written."""
    folder, said = Path(place).parent, _first_line(error)
    if not folder.is_dir() or not hasattr(os, "statvfs"):
        return said
    disk = os.statvfs(folder)
    if disk.f_flag & os.ST_RDONLY:
        return f"its disk is read-only ({said})"
    if disk.f_bavail * disk.f_frsize < ROOM:
        return f"its disk is full ({said})"
    return said


def _first_line(error: Exception) -> str:
    return printable(str(getattr(error, "orig", error)).strip().split("\n")[0].rstrip("."))
