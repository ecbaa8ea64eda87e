"""Events and what follows from them: answers, undo, classes, labels in force, counts.

Events are only ever added; each function runs in the caller's transaction.
"""

from __future__ import annotations

import time
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any, TypeVar
from uuid import uuid4, uuid5

from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, text, update

from mma.errors import TemporarilyUnavailable, UserError
from mma.project import records
from mma.project.labels import database as db
from mma.project.labels.votes import Vote, poll, read_shared, read_vote, store_vote
from mma.project.records import ANSWERS, CLASS_KINDS, UNDOABLE, Answer, Counts, Event, Klass, LabeledImage, Labels
from mma.text import printable

COLUMNS = [db.events.c[name] for name in Event._fields]
CHUNK = 500  # images or events per statement; SQLite has a limit of 999 in old versions
POLL_EVERY = 10  # answers about images of others, after which the reliability of people is estimated anew
LEASE = 600.0  # seconds an image stays with a person who does not answer
Draft = dict[str, Any]  # an event without its seq
T = TypeVar("T")


def now() -> str:
    """Return the time as it is written into events."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def draft(kind: str, *, id: str, batch: str, by: str, **values: Any) -> Draft:
    """Prepare an event; what is not given is empty."""
    empty = dict.fromkeys(Event._fields[1:])
    return {**empty, "kind": kind, "id": id, "batch": batch, "by": by, "at": now(), **values}


def class_draft(kind: str, by: str, class_id: int, value: str | None) -> Draft:
    """Prepare a change of a class."""
    batch = str(uuid4())
    return draft(kind, id=batch, batch=batch, by=by, class_id=class_id, value=value)


def record(connection: Connection, drafts: Sequence[Draft], overlap: int) -> list[Event]:
    """Number and store events, and bring what follows from them up to date."""
    first = count(connection, "seq") + 1
    found = [Event(seq=first + number, **each) for number, each in enumerate(drafts)]
    for part in chunks(found):
        rows = [{**event._asdict(), "active": int(event.kind in UNDOABLE)} for event in part]
        connection.execute(insert(db.events), rows)
    add_counts(connection, Counter({"seq": len(found)}))
    if changes := [event for event in found if event.kind in CLASS_KINDS]:
        known: list[Klass] = reduce(apply_class_event, changes, read_classes(connection))
        store_classes(connection, known)
    for gone in chunks([event.supersedes for event in found if event.kind == "undo" and event.supersedes]):
        connection.execute(update(db.events).where(db.events.c.id.in_(gone)).values(active=0))
    images = [event.image for event in found if event.image and event.kind != "note"]
    for event in found:
        if event.kind == "vote":
            store_vote(connection, event.value)
    if any(event.kind in ("vote", "class_merge") for event in found):  # they can turn every vote
        images += read_shared(connection)
    if refresh(connection, images, overlap):
        shared, polled = read_counters(connection, "shared", "polled")
        if shared - polled >= max(POLL_EVERY, polled // 10):
            add_counts(connection, Counter({"polled": shared - polled}))
            value = poll(read_shared(connection), merge_roots(read_classes(connection)))
            number = str(uuid4())
            found += record(connection, [draft("vote", id=number, batch=number, by="vote", value=value)], overlap)
    return found


def count_labels(connection: Connection, batches: Collection[str]) -> dict[str, int]:
    """Return how many labels each of these actions gave: one, or those of a grid."""
    c = db.events.c
    found: dict[str, int] = {}
    for part in chunks(sorted(batches)):
        query = select(c.batch, func.count().label("many")).where(c.batch.in_(part), c.kind == "label")
        found.update({row.batch: row.many for row in connection.execute(query.group_by(c.batch))})
    return found


def events_after(connection: Connection, seq: int, limit: int | None = None) -> list[Event]:
    """Return the events after number `seq`, in order."""
    c = db.events.c
    return [Event(*row) for row in connection.execute(select(*COLUMNS).where(c.seq > seq).order_by(c.seq).limit(limit))]


def write_answer(connection: Connection, answer: Answer, overlap: int) -> list[Event]:
    """Store an answer, or return what was stored when the same answer came before."""
    c = db.events.c
    same = select(*COLUMNS).where(c.batch == str(answer.id)).order_by(c.seq)
    if known := [Event(*row) for row in connection.execute(same)]:
        return known
    found = record(connection, (_undo if answer.kind == "undo" else _answer)(connection, answer), overlap)
    if answer.kind != "note":
        end_leases(connection, [event for event in found if event.image])
    if answer.kind == "undo":  # the images go back to the person who undid it, as they were asked about before
        moment = time.time()
        for event in found:
            before = connection.execute(select(c.provenance, c.round).where(c.id == event.supersedes)).one()
            values = {"taken": moment, "until": moment + LEASE, "why": "taken back", "model": before.round}
            values |= {"image": event.image, "by": event.by, "provenance": before.provenance or "query"}
            connection.execute(insert(db.leases).values(**values))
    return found


def end_leases(connection: Connection, events: Sequence[Event]) -> None:
    """Give back the images of answers, and take them off the queue."""
    c, queued = db.leases.c, db.picks.c.image
    for event in events:
        connection.execute(delete(db.leases).where(c.image == event.image, c.by == event.by))
    for part in chunks([event.image for event in events if event.kind in ANSWERS]):
        still_open = select(db.images.c.id).where(db.images.c.id == queued, db.images.c.open == 1)
        connection.execute(delete(db.picks).where(queued.in_(part), ~still_open.exists()))


def _answer(connection: Connection, answer: Answer) -> list[Draft]:
    """Check an answer and prepare its events, one for each image."""
    every = [*answer.out, *answer.images]
    if not every or len(set(every)) != len(every) or not (answer.images or (answer.out and answer.kind == "later")):
        raise UserError("an answer needs its images, each of them once.")
    if (answer.kind == "label") != (answer.class_id is not None):
        raise UserError("an answer of kind label needs a class_id, and no other kind has one.")
    if answer.kind == "note" and not answer.note:
        raise UserError("a note needs its text.")
    class_id = answer.class_id
    if class_id is not None:
        classes = read_classes(connection)
        class_id = merge_roots(classes)[find_class(classes, class_id).id]
    names: dict[str, str] = {}
    for part in chunks(every):
        rows = connection.execute(select(db.images.c.id, db.images.c.name).where(db.images.c.id.in_(part)))
        names.update({row.id: row.name for row in rows})
    if missing := [image for image in every if image not in names]:
        # Whoever answers has seen it. After a rebuild it is unknown until the folder is indexed: not now, but later.
        raise TemporarilyUnavailable(f"image {missing[0]} is not indexed yet, or its file is gone.")
    source = {} if answer.source == "label" else {"provenance": answer.source}
    common = {
        "batch": str(answer.id),
        "by": answer.by,
        "class_id": class_id,
        "shown": answer.shown,
        "seconds": answer.seconds,
        "note": answer.note,
        "supersedes": None if answer.supersedes is None else str(answer.supersedes),
    }
    drafts = []
    for image in every:  # what was taken out comes first: an action is shown as its last events are
        own_id = str(answer.id if len(every) == 1 else uuid5(answer.id, image))
        values = {**common, **origin(connection, image, answer.by), **source}
        kind = "later" if image in answer.out else answer.kind
        values |= {"class_id": class_id if kind == "label" else None}
        drafts.append(draft(kind, id=own_id, image=image, file=names[image], **values))
    return drafts


def origin(connection: Connection, image: str, by: str, otherwise: str = "query") -> Draft:
    """Return why an image was asked about: as the lease says, or, for a correction, as the answer before it.

    `otherwise` stands for an image that nobody was asked about.
    """
    c, e = db.leases.c, db.events.c
    lease = connection.execute(select(c.provenance, c.model).where(c.image == image, c.by == by)).first()
    if lease:
        return {"provenance": lease.provenance, "round": lease.model}
    asked = or_(e.provenance.is_(None), e.provenance != "review", e.by == by)  # whose decision it was stays with them
    answers = select(e.provenance, e.round).where(e.image == image, e.kind.in_(UNDOABLE), asked)
    before = connection.execute(answers.order_by(e.seq.desc()).limit(1)).first()
    return {"provenance": before.provenance, "round": before.round} if before else {"provenance": otherwise}


def _undo(connection: Connection, answer: Answer) -> list[Draft]:
    """Prepare to take back the events in force of one action: the one given, or the last of this person."""
    c = db.events.c
    if answer.supersedes is not None:
        given = connection.execute(select(c.batch).where(c.id == str(answer.supersedes))).scalar()
        batch = given or str(answer.supersedes)
    else:
        mine = select(c.batch).where(c.by == answer.by, c.active == 1).order_by(c.seq.desc()).limit(1)
        batch = connection.execute(mine).scalar() or ""
    found = select(c.id, c.image, c.file).where(c.batch == batch, c.active == 1).order_by(c.seq)
    rows = connection.execute(found).all()
    if not rows:
        raise UserError(f"{printable(answer.by)} has no answer left to undo.")
    drafts = []
    for row in rows:
        values = {"batch": str(answer.id), "by": answer.by, "image": row.image, "file": row.file, "supersedes": row.id}
        drafts.append(draft("undo", id=str(answer.id if len(rows) == 1 else uuid5(answer.id, row.id)), **values))
    return drafts


# Classes are made by events: added, renamed, merged, given a key. Ids stay; the table follows from the events.

CANNOT_TELL = "?"  # what people write into a column of labels


def read_classes(connection: Connection) -> list[Klass]:
    """Return all classes, also merged ones, in the order of their ids."""
    c = db.classes.c
    return [Klass(*row) for row in connection.execute(select(c.id, c.name, c.key, c.merged_into).order_by(c.id))]


def store_classes(connection: Connection, classes: Iterable[Klass]) -> None:
    """Replace the table; there are never many classes."""
    connection.execute(delete(db.classes))
    if rows := [each._asdict() for each in classes]:
        connection.execute(insert(db.classes), rows)


def apply_class_event(classes: list[Klass], event: Event) -> list[Klass]:
    """Return the classes after one event."""
    assert event.class_id is not None
    if event.kind in ("class_add", "class_delete"):
        others = [each for each in classes if each.id != event.class_id]
        return others if event.kind == "class_delete" else [*others, Klass(event.class_id, event.value or "")]
    change: dict[str, Any] = {"key": event.value}
    if event.kind == "class_rename":
        change = {"name": event.value or ""}
    elif event.kind == "class_merge":
        change = {"merged_into": None if event.value is None else int(event.value)}
    return [each._replace(**change) if each.id == event.class_id else each for each in classes]


def merge_roots(classes: Iterable[Klass]) -> dict[int, int]:
    """Map each class id to the class its labels count for."""
    into = {each.id: each.merged_into for each in classes}
    return {number: _merge_path(into, number)[-1] for number in into}


def closes_circle(classes: Iterable[Klass], class_id: int, into: int) -> bool:
    """Say whether merging a class into another would merge it into itself, directly or through other classes."""
    return class_id in _merge_path({each.id: each.merged_into for each in classes}, into)


def in_circle(classes: Iterable[Klass], class_id: int) -> bool:
    """Say whether the merges of a class lead back to a class they came by."""
    into = {each.id: each.merged_into for each in classes}
    return into.get(_merge_path(into, class_id)[-1]) is not None


def _merge_path(into: Mapping[int, int | None], class_id: int) -> list[int]:
    """Return a class, the one it is merged into, and so on up to the class that its labels count for, or up to a circle."""
    path = [class_id]
    while (above := into.get(path[-1])) is not None and above not in path:
        path.append(above)
    return path


def find_class(classes: Iterable[Klass], class_id: int) -> Klass:
    """Return a class by its id, or say that there is none."""
    for each in classes:
        if each.id == class_id:
            return each
    raise UserError(f"this project has no class with the number {class_id}.")


def check_name(name: str, classes: Iterable[Klass], *, besides: int | None = None) -> str:
    """Return a class's name without space around it; refuse one that is empty, too long, unprintable or there already."""
    name = unicodedata.normalize("NFC", name).strip()
    if not name:
        raise UserError("a class needs a name.")
    if len(name) > records.MAX_NAME:
        raise UserError(f"the name of a class has at most {records.MAX_NAME} characters, and this one has {len(name)}.")
    records.check_characters(name)
    if name == CANNOT_TELL:
        raise UserError(f"{CANNOT_TELL} cannot be a class: in tables of labels it says that one cannot tell.")
    for each in classes:
        if each.id != besides and each.merged_into is None and each.name.casefold() == name.casefold():
            raise UserError(f"there is a class '{each.name}' already. Choose another name, or use that class.")
    return name


def check_key(key: str | None, classes: Iterable[Klass], class_id: int) -> str | None:
    """Return the key of a class; refuse one that is no single visible character, or that another class has."""
    if key is None:
        return None
    if len(key) != 1 or key.isspace() or printable(key) != key:
        raise UserError("the key of a class is one character that can be typed.")
    for each in classes:
        if each.id != class_id and each.merged_into is None and each.key == key:
            raise UserError(f"the key {key} belongs to '{each.name}'. Choose another one.")
    return key


def check_merge(classes: list[Klass], class_id: int, into: int | None) -> str | None:
    """Refuse to merge a class into itself, into one that is not there, or into one that is merged into it.

    None takes a merge back. That is refused while another class has the name or the key of this one.
    """
    klass = find_class(classes, class_id)
    if into is None:
        check_name(klass.name, classes, besides=class_id)
        check_key(klass.key, classes, class_id)
        return None
    find_class(classes, into)
    if closes_circle(classes, class_id, into):
        raise UserError("a class cannot be merged into itself.")
    return str(into)


def check_delete(connection: Connection, class_id: int) -> None:
    """Refuse to delete a class that a label needs, also one that a correction hides: taken back, it would count again."""
    classes, c, e = read_classes(connection), db.current.c, db.events.c
    name = printable(find_class(classes, class_id).name)
    if any(each.merged_into == class_id for each in classes):
        raise UserError(f"other classes are merged into '{name}'. Take these merges back first.")
    if many := connection.execute(select(func.count()).where(c.kind == "label", c.class_id == class_id)).scalar_one():
        labels = "1 label" if many == 1 else f"{many:,} labels"
        raise UserError(f"'{name}' has {labels}. Give its photos another class first, or merge it into another one.")
    if connection.execute(select(e.id).where(e.kind == "label", e.active == 1, e.class_id == class_id)).first():
        raise UserError(
            f"labels '{name}' were corrected, and whoever takes a correction back needs the class. Merge it into another "
            "one instead."
        )


def free_class_id(connection: Connection) -> int:
    """Return a number that no class ever had: models and guesses may still speak of a deleted one."""
    last = connection.execute(select(func.max(db.events.c.class_id))).scalar()
    return 0 if last is None else int(last) + 1


# What follows from events: the label of each image, whether it is to be asked about, and the counts. Never a scan.


def refresh(connection: Connection, images: Sequence[str], overlap: int) -> int:
    """Bring everything derived of these images up to date. Return how many got an answer of one more person, not the first."""
    change, c, vote = Counter[str](), db.events.c, Vote()
    columns = (c.seq, c.kind, c.image, c.class_id, c.by, c.provenance)
    for part in chunks(sorted(set(images))):
        known = {row.id: row for row in connection.execute(select(db.images).where(db.images.c.id.in_(part)))}
        before = {row.image: row for row in connection.execute(select(db.current).where(db.current.c.image.in_(part)))}
        active: dict[str, list[Any]] = {image: [] for image in part}
        for row in connection.execute(select(*columns).where(c.image.in_(part), c.active == 1).order_by(c.seq)):
            active[row.image].append(row)
        if vote.roots == {} and any(len({row.by for row in rows}) > 1 for rows in active.values()):
            vote = read_vote(connection, merge_roots(read_classes(connection)))
        now = {image: vote.standing(rows) for image, rows in active.items()}
        moved, gone = list[db.CurrentRow](), list[str]()
        for image, stand in now.items():
            old, a = before.get(image), stand.answer
            new = None if a is None else db.CurrentRow(image, a.kind, a.class_id, a.by, a.seq, stand.provenance)
            if (old and (old.seq, old.provenance)) == (new and (new.seq, new.provenance)):
                continue
            if old is not None:
                change.subtract(count_names(old.kind, old.class_id))
                gone.append(image)
            if new is not None:
                change.update(count_names(new.kind, new.class_id))
                moved.append(new)
        if gone:
            connection.execute(delete(db.current).where(db.current.c.image.in_(gone)))
        db.insert_rows(connection, db.current, moved)
        changed = []
        for image, row in known.items():
            stand = now[image]
            settled = stand.answer is not None and (stand.answer.kind == "exclude" or stand.people >= overlap)
            after = (int(row.present and not settled), stand.people, stand.deferred)
            if after != (row.open, row.answers, row.deferred):
                change["open"] += after[0] - row.open
                change["shared"] += stand.people > max(row.answers, 1)
                changed.append({"image": image, **dict(zip(("open", "answers", "deferred"), after, strict=True))})
        if changed:
            names = ("open", "answers", "deferred")
            statement = update(db.images).where(db.images.c.id == bindparam("image"))
            connection.execute(statement.values({name: bindparam(name) for name in names}), changed)
    add_counts(connection, change)
    return change["shared"]


def count_names(kind: str, class_id: int | None) -> list[str]:
    """Return the counters that an answer in force adds one to."""
    return ["labeled", f"class:{class_id}"] if kind == "label" else ["excluded" if kind == "exclude" else kind]


ADD = text(  # the same words in SQLite and PostgreSQL
    "INSERT INTO counts (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = counts.value + excluded.value"
)


def add_counts(connection: Connection, change: Counter[str]) -> None:
    """Add to the counters; those that are not there yet begin at 0."""
    if rows := [{"name": name, "value": value} for name, value in sorted(change.items()) if value]:
        connection.execute(ADD, rows)


def count(connection: Connection, name: str) -> int:
    """Return one counter."""
    return read_counters(connection, name)[0]


def read_counters(connection: Connection, *names: str) -> list[int]:
    """Return counters; one that is not there is 0."""
    found = connection.execute(select(db.counts).where(db.counts.c.name.in_(names)))
    values = {row.name: int(row.value) for row in found}
    return [values.get(name, 0) for name in names]


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Yield the items a few at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


# Labels as they were after a given event: read from the table of current labels, or replayed from the events.


def read_labels_at(connection: Connection, upto: int | None) -> Labels:
    """Return the labels in force after event `upto`, by default the last one.

    Images without a file are left out: those that are gone, and those of a copy of the project that are not here yet.
    """
    last = count(connection, "seq")
    if upto is not None and not 0 <= upto <= last:
        raise UserError(f"there is no event {upto}; the last one is {last}.")
    if upto is None or upto == last:
        rows: Sequence[Any] = connection.execute(select(db.current).order_by(db.current.c.seq)).all()
        classes = read_classes(connection)
    else:
        events = [Event(*row) for row in connection.execute(select(*COLUMNS).where(db.events.c.seq <= upto))]
        rows, classes = replay(sorted(events))
    i, c = db.images.c, db.current.c
    gone = {*connection.execute(select(i.id).where(i.present == 0)).scalars()}
    strange = select(c.image).select_from(db.current).outerjoin(db.images, i.id == c.image).where(i.id.is_(None))
    gone.update(connection.execute(strange).scalars())
    rows, roots = [row for row in rows if row.image not in gone], merge_roots(classes)
    labels = [row for row in rows if row.kind == "label"]
    return Labels(
        seq=last if upto is None else upto,
        ids=tuple(row.image for row in labels),
        class_ids=tuple(roots[row.class_id] for row in labels),
        provenance=tuple(row.provenance for row in labels),
        by=tuple(row.by for row in labels),
        seqs=tuple(row.seq for row in labels),
        classes=tuple(classes),
        cannot_tell=tuple(row.image for row in rows if row.kind == "cannot_tell"),
        excluded=tuple(row.image for row in rows if row.kind == "exclude"),
    )


def replay(events: Sequence[Event]) -> tuple[list[Event], list[Klass]]:
    """Return the answers in force and the classes after these events."""
    undone = {event.supersedes for event in events if event.kind == "undo"}
    of_image: dict[str, list[Event]] = {}
    for event in events:
        if event.image is not None and event.kind in UNDOABLE and event.id not in undone:
            of_image.setdefault(event.image, []).append(event)
    classes: list[Klass] = reduce(apply_class_event, (event for event in events if event.kind in CLASS_KINDS), [])
    votes = [event.value for event in events if event.kind == "vote"]
    vote = Vote.of(votes[-1] if votes else None, merge_roots(classes))
    stands = [found for found in map(vote.standing, of_image.values()) if found.answer is not None]
    answers = [found.answer._replace(provenance=found.provenance) for found in stands]
    return sorted(answers, key=lambda event: event.seq), classes


def read_labeled(
    connection: Connection, n: int, *, class_id: int | None = None, files: Sequence[str] = ()
) -> list[LabeledImage]:
    """Return the last `n` labels in force of a class, with those merged into it, or those of files."""
    current, event, image = db.current.c, db.events.c, db.images.c
    if class_id is None:
        name, joined = db.files.c.path, db.files.join(db.current, current.image == db.files.c.image)
        wanted = db.files.c.path.in_(files)
    else:
        name, joined = image.name, db.images.join(db.current, current.image == image.id)
        roots = merge_roots(read_classes(connection))
        wanted = current.class_id.in_([number for number, root in roots.items() if root == class_id])
    query = (
        select(current.image, name, current.class_id, event.id, event.by)
        .select_from(joined.join(db.events, event.seq == current.seq))
        .where(current.kind == "label", wanted)
    )
    return [LabeledImage(*row) for row in connection.execute(query.order_by(current.seq.desc()).limit(n))]


def read_counts(connection: Connection) -> Counts:
    """Return the counters; none of them is counted here."""
    found = {row.name: int(row.value) for row in connection.execute(select(db.counts))}
    classes = read_classes(connection)
    roots = merge_roots(classes)
    per_class = {each.id: 0 for each in classes if each.merged_into is None}
    for number, root in roots.items():
        per_class[root] += found.get(f"class:{number}", 0)
    names = {"labeled": "labeled", "cannot_tell": "cannot_tell", "excluded": "excluded", "left": "open"}
    values = {name: found.get(counter, 0) for name, counter in names.items()}
    return Counts(per_class, **values, images=found.get("images", 0), seq=found.get("seq", 0))
