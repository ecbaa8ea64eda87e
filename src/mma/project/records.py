"""The nouns of a project: what a person answers, what is stored of it, and what others read."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from mma.errors import UserError
from mma.text import printable

Kind = Literal["label", "cannot_tell", "exclude", "later", "note", "undo"]
Provenance = Literal["start", "query", "random", "audit", "grid", "review", "again", "recheck", "import"]
SECOND_LOOKS = ("review", "again", "recheck")  # answers about a label: where it came from stays with the label
ANSWERS = ("label", "cannot_tell", "exclude")  # what settles an image
UNDOABLE = (*ANSWERS, "later")
CLASS_KINDS = ("class_add", "class_rename", "class_merge", "class_key", "class_delete")
MAX_GRID = 1_000  # images in one answer

JOINERS = "\u200c\u200d"  # they cannot be seen, but Persian words and many emoji need them


def check_characters(name: str) -> str:
    """Refuse a name with characters that cannot be seen: databases, terminals and spreadsheets treat them differently."""
    for each in name:
        if each not in JOINERS and printable(each) != each:
            raise UserError(f"a name cannot hold the control character {printable(each)}. Type it again without.")
    return name


def check_text(text: str) -> str:
    """Refuse NUL and its like in a text; lines and tabs are fine."""
    for each in text:
        if unicodedata.category(each) in ("Cc", "Cs") and each not in "\n\r\t":
            raise UserError(f"a text cannot hold the control character {printable(each)}. Type it again without.")
    return text


Key = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
MAX_NAME = 100  # characters of a person's or a class's name
Person = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_NAME, strip_whitespace=True),  # tables are read without it, too
    AfterValidator(check_characters),
]
Text = Annotated[str, AfterValidator(check_text)]


class Answer(BaseModel):
    """What a person said, with an id made where they said it: sent twice, it is stored once."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: UUID
    images: list[Key] = Field(default_factory=list, max_length=MAX_GRID)
    out: list[Key] = Field(default_factory=list, max_length=MAX_GRID)  # shown in the same grid, and not of this class
    kind: Kind
    class_id: int | None = None
    by: Person
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    shown: Text | None = Field(default=None, max_length=200)
    note: Text | None = Field(default=None, max_length=10_000)
    supersedes: UUID | None = None
    source: Literal["label", "grid", "review"] = "label"


class Event(NamedTuple):
    """One thing that happened. Events are only ever added; everything else follows from them."""

    seq: int
    id: str
    batch: str  # events with one batch were one action, and are undone together
    kind: str  # a Kind, one of CLASS_KINDS, or vote: how reliable people are from here on
    image: str | None
    file: str | None  # the image's relative path when it was answered
    class_id: int | None
    value: str | None  # a class's name, key, or the class it is merged into
    by: str
    at: str  # UTC, ISO 8601; the order is that of seq
    round: int | None  # the number of the model that asked
    provenance: str | None
    shown: str | None
    seconds: float | None
    note: str | None
    supersedes: str | None


class Klass(NamedTuple):
    """A class. Its id never changes; labels of a merged class count for `merged_into`."""

    id: int
    name: str
    key: str | None = None
    merged_into: int | None = None


class Item(NamedTuple):
    """An image to ask one person about."""

    image: str
    provenance: str
    why: str
    suggestion: list[tuple[int, float]] | None  # class ids with probabilities; None for audit images
    width: int
    height: int
    name: str
    model: int | None


@dataclass(frozen=True)
class Pick:
    """An image that a model wants labeled."""

    image: str
    why: str = ""
    score: float = 0.0
    provenance: Provenance = "query"
    suggestion: list[tuple[int, float]] | None = None


class ProjectImage(NamedTuple):
    """An image of the project; `name` is the relative path of its first file."""

    id: str
    name: str
    width: int
    height: int
    group: str  # the id of the first image of its near-duplicates
    audit: bool


class LabeledImage(NamedTuple):
    """A label in force as something that can be corrected."""

    image: str
    file: str
    class_id: int
    event: str
    by: str


@dataclass(frozen=True)
class Labels:
    """The labels in force after event `seq`, in the order of their events. Never changes."""

    seq: int
    ids: tuple[str, ...]
    class_ids: tuple[int, ...]  # merged classes are resolved
    provenance: tuple[str, ...]
    by: tuple[str, ...]
    seqs: tuple[int, ...]
    classes: tuple[Klass, ...]
    cannot_tell: tuple[str, ...]
    excluded: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Counts:
    """How far the labeling is. `left` images can still be asked about."""

    per_class: dict[int, int]
    labeled: int
    cannot_tell: int
    excluded: int
    left: int
    images: int
    seq: int


class ModelRow(NamedTuple):
    """What the worker made or is making."""

    number: int
    kind: str  # live or deep
    seq: int  # the last event it was trained on
    state: str  # training, ready, failed
    message: str
    accuracy: float | None
    at: str
    about: dict[str, Any]  # intervals, seconds left and whatever else the page shows
