"""The tables. `events` is the truth; what else is here follows from the events and the image folder."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, SmallInteger, String, Table, Text

FORMAT = 1  # of the tables; those of another format are made again from labels.jsonl

metadata = MetaData()

meta = Table("meta", metadata, Column("key", String, primary_key=True), Column("value", Text, nullable=False))

# Numbers that would otherwise be counted anew: seq, images, open, labeled, class:3, ...
counts = Table(
    "counts", metadata, Column("name", String, primary_key=True), Column("value", BigInteger, nullable=False)
)

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("id", String(36), nullable=False, unique=True),
    Column("batch", String(36), nullable=False),
    Column("kind", String, nullable=False),
    Column("image", String(64)),
    Column("file", Text),
    Column("class_id", Integer),
    Column("value", Text),
    Column("by", String, nullable=False),
    Column("at", String, nullable=False),
    Column("round", Integer),
    Column("provenance", String),
    Column("shown", Text),
    Column("seconds", Float),
    Column("note", Text),
    Column("supersedes", String(36)),
    Column("active", SmallInteger, nullable=False),  # derived: an answer that nobody has undone
    Index("events_of_image", "image", "seq"),
    Index("events_of_person", "by", "active", "seq"),
    Index("events_of_batch", "batch"),
)

images = Table(
    "images",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("width", Integer, nullable=False),
    Column("height", Integer, nullable=False),
    Column("phash", String(16), nullable=False),
    Column("near", String(64), nullable=False),  # the first image of its near-duplicates
    Column("rank", BigInteger, nullable=False),  # a random order that never changes
    Column("audit", SmallInteger, nullable=False),
    Column("present", SmallInteger, nullable=False),
    # Derived from events and `present`:
    Column("open", SmallInteger, nullable=False),  # may be asked about
    Column("answers", SmallInteger, nullable=False),  # people who answered
    Column("deferred", BigInteger, nullable=False),  # seq of the last "later", 0 without one
    Index("images_to_ask", "open", "audit", "deferred", "rank"),
)
_gone = images.c.present == 0
Index("images_gone", images.c.id, sqlite_where=_gone, postgresql_where=_gone)  # only the few of which no file is left

files = Table(
    "files",
    metadata,
    Column("path", Text, primary_key=True),
    Column("image", String(64)),
    Column("size", BigInteger, nullable=False),
    Column("mtime", BigInteger, nullable=False),  # nanoseconds
    Column("reason", Text),  # why it cannot be used
    Index("files_of_image", "image"),
)

classes = Table(
    "classes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("key", String),
    Column("merged_into", Integer),
)

current = Table(
    "current",
    metadata,
    Column("image", String(64), primary_key=True),
    Column("kind", String, nullable=False),
    Column("class_id", Integer),
    Column("by", String, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("provenance", String),
    Index("current_by_class", "class_id", "seq"),
)

picks = Table(
    "picks",
    metadata,
    Column("image", String(64), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("why", Text, nullable=False),
    Column("score", Float, nullable=False),
    Column("provenance", String, nullable=False),
    Column("suggestion", Text),  # JSON: [[class id, probability], ...]
    Column("model", Integer),
    Index("picks_in_order", "position"),
)

leases = Table(
    "leases",
    metadata,
    Column("image", String(64), primary_key=True),
    Column("by", String, primary_key=True),
    Column("taken", Float, nullable=False),  # seconds since 1970
    Column("until", Float, nullable=False),
    Column("provenance", String, nullable=False),
    Column("why", Text, nullable=False),
    Column("suggestion", Text),
    Column("model", Integer),
    Index("leases_of_person", "by", "until"),
)

models = Table(
    "models",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("state", String, nullable=False),
    Column("message", Text, nullable=False),
    Column("accuracy", Float),
    Column("at", String, nullable=False),
    Column("about", Text, nullable=False),  # JSON
)
