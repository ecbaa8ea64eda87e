"""The database of a project: its tables, and connections to SQLite in its folder or PostgreSQL by URL.

`events` is the truth; the other tables follow from the events and the image folder. One writer at a time, readers see a
snapshot.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Connection, Float, Index, Integer, Table, Text, delete, insert, select, text
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError, ProgrammingError

from mma.errors import TemporarilyUnavailable, UserError
from mma.files import explain_write_errors, in_turn
from mma.project.records import Event, Klass, Layout, ModelRow, ProjectSettings
from mma.text import first_line, install_hint, printable, quote_path, update_hint

FORMAT = 1  # of the tables; those of another format are made again from labels.jsonl

metadata = sa.MetaData()
TYPES: dict[Any, Any] = {str: Text, float: Float, dict: Text, int: BigInteger().with_variant(Integer, "sqlite")}


class ImageRow(NamedTuple):
    """An image, as the table holds it. The last three follow from events and `present`."""

    id: str
    name: str
    width: int
    height: int
    phash: str
    near: str  # the first image of its near-duplicates
    rank: int  # a random order that never changes
    audit: int
    present: int = 1
    open: int = 1  # may be asked about
    answers: int = 0  # people who answered
    deferred: int = 0  # seq of the last "later", 0 without one


class FileRow(NamedTuple):
    """A file of the image folder."""

    path: str
    image: str | None
    size: int
    mtime: int  # nanoseconds
    reason: str | None  # why it cannot be used


class CurrentRow(NamedTuple):
    """The answer in force of an image."""

    image: str
    kind: str
    class_id: int | None
    by: str
    seq: int
    provenance: str | None


class PickRow(NamedTuple):
    """An image in the queue."""

    image: str
    position: int
    why: str
    score: float
    provenance: str
    suggestion: str | None  # JSON: [[class id, probability], ...]
    model: int | None


class LeaseRow(NamedTuple):
    """An image that a person is asked about."""

    image: str
    by: str
    taken: float  # seconds since 1970
    until: float
    provenance: str
    why: str
    suggestion: str | None
    model: int | None


def _table(name: str, record: Any, *more: Column[Any] | Index, keys: int = 1) -> Table:
    """Make a table of the fields of a record; the first ones are its key."""
    columns: list[Column[Any]] = []
    for field, hint in get_type_hints(record).items():
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kind, empty = TYPES[get_origin(kinds[0]) or kinds[0]], len(kinds) > 1
        columns.append(Column(field, kind, primary_key=len(columns) < keys, nullable=empty, autoincrement=False))
    return Table(name, metadata, *columns, *more)


meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))
# Numbers that would otherwise be counted anew: seq, images, open, labeled, class:3, ...
counts = Table("counts", metadata, Column("name", Text, primary_key=True), Column("value", BigInteger, nullable=False))
classes, models = _table("classes", Klass), _table("models", ModelRow)
events = _table(
    "events",
    Event,
    Column("active", Integer, nullable=False),  # derived: an answer that nobody has undone
    Index("events_by_id", "id", unique=True),
    Index("events_of_image", "image", "seq"),
    Index("events_of_person", "by", "active", "seq"),
    Index("events_of_batch", "batch"),
)
images = _table("images", ImageRow, Index("images_to_ask", "open", "audit", "deferred", "rank"))
_gone = images.c.present == 0
Index("images_gone", images.c.id, sqlite_where=_gone, postgresql_where=_gone)  # only the few of which no file is left
files = _table("files", FileRow, Index("files_of_image", "image"))
current = _table("current", CurrentRow, Index("current_by_class", "class_id", "seq"))
picks = _table("picks", PickRow, Index("picks_in_order", "position"))
leases = _table("leases", LeaseRow, Index("leases_of_person", "by", "until"), keys=2)


# Connections.

WAIT = 60_000  # milliseconds to wait for another writer
NOT_ALLOWED = "42501"  # what PostgreSQL calls a missing permission
PAGES = 64 << 10  # KiB of SQLite's cache per connection
ROOM = 256 << 10  # bytes; on a disk with less SQLite cannot even begin


class Store:
    """Connections to one project's database."""

    def __init__(self, engine: sa.Engine, place: str, turn: Path | int) -> None:
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
        with explain_database_errors(self.place), ExitStack() as held:
            if isinstance(
                self.turn, Path
            ):  # SQLite would sleep a tenth of a second between two looks, and has no turns
                held.enter_context(explain_write_errors(self.turn, "the same command"))
                held.enter_context(in_turn(self.turn))
            connection = held.enter_context(self.engine.connect()).execution_options(mma_writes=True)
            with connection.begin():
                if not self.sqlite:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": self.turn})
                yield connection

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def insert_rows(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert many rows at once, with all columns in their order: half the time of rows that have names themselves."""
    if rows:
        marks = ", ".join(["?" if connection.dialect.name == "sqlite" else "%s"] * len(table.c))
        names = ", ".join(f'"{column.name}"' for column in table.c)  # some are words of SQL
        connection.exec_driver_sql(f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})', list(rows))


def sqlite_store(path: Path) -> Store:
    """Open a database file. A new one is its owner's alone."""
    if path.parent.is_dir() and not path.exists():
        with explain_write_errors(path, "mma start"):
            path.touch(0o600)
    engine = sa.create_engine(f"sqlite+pysqlite:///{path}", pool_size=8, max_overflow=64)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say
        connection.execute(f"PRAGMA busy_timeout = {WAIT}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute(f"PRAGMA cache_size = -{PAGES}")

    @sa.event.listens_for(engine, "begin")
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
        parsed = sa.make_url(url)
    except ArgumentError:
        parsed = sa.URL.create("")
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):  # the password is not repeated
        raise UserError("--store takes a URL such as postgresql://user@host/database; without it labels are in SQLite.")
    try:
        parsed = parsed.set(drivername="postgresql+psycopg")
        arguments: dict[str, Any] = {"connect_args": {"options": options}, "pool_pre_ping": True}  # servers restart
        engine = sa.create_engine(parsed, pool_size=8, max_overflow=64, **arguments)
    except ImportError as error:
        raise UserError(f"PostgreSQL needs one more package:  {install_hint('postgres')}") from error
    store = Store(engine, parsed.render_as_string(hide_password=True), zlib.crc32(schema.encode()))
    with store.writing() as connection:
        there = text("SELECT 1 FROM pg_namespace WHERE nspname = :schema")
        if connection.execute(there, {"schema": schema}).scalar() is None:
            connection.execute(text(f'CREATE SCHEMA "{schema}"'))
    return store


def open_database(layout: Layout, settings: ProjectSettings) -> Store:
    """Open the database of a project: a file, or the server whose URL stands in a file."""
    if settings.store == "sqlite":
        return sqlite_store(layout.database)
    try:
        return postgres_store(layout.url.read_text("utf-8").strip(), settings.id)
    except OSError as error:
        place = printable(str(layout.url))
        raise UserError(f"{place} cannot be read: {error.strerror}. Give the URL again with --store.") from error


@contextmanager
def explain_database_errors(place: str) -> Iterator[None]:
    """Turn what a database complains about into a sentence."""
    try:
        yield
    except (OperationalError, ProgrammingError) as error:
        if isinstance(error, ProgrammingError) and getattr(error.orig, "sqlstate", None) != NOT_ALLOWED:
            raise
        way_out = "Start the server" if "://" in place else "Make room"
        folder, reason = Path(place).parent, printable(first_line(error.orig or error).rstrip("."))
        if folder.is_dir() and hasattr(os, "statvfs"):  # SQLite only says that a file cannot be opened or written
            disk = os.statvfs(folder)
            if disk.f_flag & os.ST_RDONLY:
                reason = f"its disk is read-only ({reason})"
            elif disk.f_bavail * disk.f_frsize < ROOM:
                reason = f"its disk is full ({reason})"
        raise TemporarilyUnavailable(
            f"the database {printable(place)} cannot be used: {reason}. What was saved before is whole. "
            f"{way_out} or allow writing there, then run the same command again."
        ) from error
    except (DatabaseError, UnicodeDecodeError) as error:  # what SQLite says of damage may be no text
        if isinstance(error, DatabaseError) and type(error) is not DatabaseError:  # a broken constraint is our mistake
            raise
        project = "PROJECT" if "://" in place else quote_path(Path(place).parents[1])  # a server does not know it
        reason = printable(first_line(getattr(error, "orig", error)).rstrip("."))
        raise TemporarilyUnavailable(
            f"the database {printable(place)} is damaged or not ours: {reason}. Rebuild it from labels.jsonl:  "
            f"mma doctor {project} --rebuild"
        ) from error


# The format of the tables, and how far index and features are.


def prepare(store: Store, layout: Layout) -> None:
    """Make the tables of a new database; refuse those of another format."""
    found, place = read_format(store), printable(str(layout.folder))
    if found is None:
        with store.writing() as connection:
            create_tables(connection)
    elif found > FORMAT:
        raise UserError(
            f"the database of {place} was made by a newer mma (format {found}, this one knows {FORMAT}). Get a newer "
            f"mma:  {update_hint()}"
        )
    elif found < FORMAT:
        raise UserError(
            f"the database of {place} has format {found}, and this mma needs {FORMAT}. Make it again:  "
            f"mma doctor {quote_path(layout.folder)} --rebuild"
        )


def create_tables(connection: Connection) -> None:
    """Make the tables of today's format."""
    metadata.create_all(connection)
    connection.execute(insert(meta).values(key="format", value=str(FORMAT)))


def read_format(store: Store) -> int | None:
    """Return the format of the tables; None where there are none yet."""
    with store.reading() as connection:
        if not sa.inspect(connection).has_table("meta"):
            return None
        found = connection.execute(select(meta.c.value).where(meta.c.key == "format")).scalar()
    return None if found is None else int(found)


TASKS = ("index", "features")  # in the order in which they are done


class TaskProgress(NamedTuple):
    """How many of how many files or images are done, and how long the rest takes, in words."""

    task: str
    done: int
    total: int
    left: str | None = None


def write_progress(connection: Connection, task: str, done: int, total: int, left: str | None = None) -> None:
    """Write down how far a task is."""
    connection.execute(delete(meta).where(meta.c.key == task))
    connection.execute(insert(meta).values(key=task, value=json.dumps([done, total, left])))


def read_progress(connection: Connection) -> list[TaskProgress]:
    """Return how far each task is that was begun."""
    found = {row.key: row.value for row in connection.execute(select(meta).where(meta.c.key.in_(TASKS)))}
    return [TaskProgress(task, *json.loads(found[task])) for task in TASKS if task in found]
