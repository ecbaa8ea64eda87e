"""Classes are made by events: added, renamed, merged, given a key. Ids stay; the table follows from the events."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, delete, insert, select

from mma.errors import UserError
from mma.project import schema as db
from mma.project.records import Event, Klass, check_characters
from mma.text import did_you_mean, printable

MAX_NAME = 100  # characters


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
    if event.kind == "class_add":
        return [*classes, Klass(event.class_id, event.value or "")]
    return [_apply_change(each, event) if each.id == event.class_id else each for each in classes]


def _apply_change(klass: Klass, event: Event) -> Klass:
    if event.kind == "class_rename":
        return klass._replace(name=event.value or "")
    if event.kind == "class_key":
        return klass._replace(key=event.value)
    return klass._replace(merged_into=None if event.value is None else int(event.value))


def merge_roots(classes: Iterable[Klass]) -> dict[int, int]:
    """Map each class id to the class its labels count for."""
    into = {each.id: each.merged_into for each in classes}
    return {number: _merge_path(into, number)[-1] for number in into}


def closes_circle(classes: Iterable[Klass], class_id: int, into: int) -> bool:
    """Say whether merging a class into another would merge it into itself, directly or through other classes."""
    return class_id in _merge_path({each.id: each.merged_into for each in classes}, into)


def _merge_path(into: Mapping[int, int | None], class_id: int) -> list[int]:
    """Return a class, the one it is merged into, and so on up to the class that its labels count for."""
    above = into[class_id]
    return [class_id] if above is None else [class_id, *_merge_path(into, above)]


def resolve(connection: Connection, class_id: int) -> int:
    """Return the class that a label of `class_id` counts for, or say that there is none."""
    roots = merge_roots(read_classes(connection))
    if class_id not in roots:
        raise UserError(f"this project has no class with the number {class_id}.")
    return roots[class_id]


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
    if len(name) > MAX_NAME:
        raise UserError(f"the name of a class has at most {MAX_NAME} characters, and this one has {len(name)}.")
    check_characters(name)
    for each in classes:
        if each.id != besides and each.merged_into is None and each.name.casefold() == name.casefold():
            raise UserError(f"there is a class '{each.name}' already. Choose another name, or use that class.")
    return name


def check_key(key: str | None, classes: Iterable[Klass], class_id: int) -> None:
    """Refuse a key that is no single visible character, or that another class has."""
    if key is None:
        return
    if len(key) != 1 or key.isspace() or printable(key) != key:
        raise UserError("the key of a class is one character that can be typed.")
    for each in classes:
        if each.id != class_id and each.merged_into is None and each.key == key:
            raise UserError(f"the key {key} belongs to '{each.name}'. Choose another one.")


def check_merge(classes: list[Klass], class_id: int, into: int | None) -> None:
    """Refuse to merge a class into itself, into one that is not there, or into one that is merged into it.

    None takes a merge back. That is refused while another class has the name or the key of this one.
    """
    klass = find_class(classes, class_id)
    if into is None:
        check_name(klass.name, classes, besides=class_id)
        check_key(klass.key, classes, class_id)
        return
    find_class(classes, into)
    if closes_circle(classes, class_id, into):
        raise UserError("a class cannot be merged into itself.")


def class_by_name(classes: Iterable[Klass], name: str) -> Klass:
    """Return the class in use that has this name, or say which there are."""
    usable = {each.name: each for each in classes if each.merged_into is None}
    if name not in usable:
        raise UserError(f"there is no class '{printable(name)}'.{did_you_mean(name, usable)}")
    return usable[name]
