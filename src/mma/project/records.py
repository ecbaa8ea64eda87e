"""The nouns of a project: what a person answers, what is stored of it, what others read; its folder and its settings."""

from __future__ import annotations

import json
import os
import tomllib
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from mma.errors import UserError
from mma.files import write_atomically
from mma.settings import Settings, explain
from mma.text import printable, update_hint

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


# The project folder: where everything lies, its settings in mma.toml, and what kind of folder is none.

FORMAT = 1  # of the folder and of mma.toml
SUFFIX = ".mma"


class ProjectSettings(Settings):
    """What mma.toml holds. It is written by us and can be read by anyone."""

    WISHES: ClassVar[tuple[str, ...]] = ("target", "target_class", "use_model")  # may change while a project is open

    format: int = FORMAT
    id: str = Field(pattern="^[0-9a-f]{16}$")
    images: str  # relative to the project folder where both lie on one disk
    follow_links: bool = False  # also those that lead out of the folder
    seed: int = Field(ge=0)
    store: str = "sqlite"  # or postgresql; the URL is in state/, because it can hold a password
    budget: int | None = Field(default=None, ge=1)
    overlap: int = Field(default=1, ge=1, le=100)  # people asked about each image
    audit_share: float = Field(default=0.1, ge=0, le=0.5)  # of the images, kept for measuring
    audit_early: int = Field(default=60, ge=0)  # audit images that are asked about first, two questions in five
    audit_asked: float = Field(default=0.1, ge=0, le=1)  # of the images asked about, after these
    random_share: float = Field(default=0.1, ge=0, le=1)  # of the picks, drawn at random
    again_share: float = Field(default=0.02, ge=0, le=0.5)  # of the questions, about labels given long before
    query: str = "auto"  # how the picks are chosen
    backbone: str | None = None  # whose features the live model learns from; None = that of the preset photos
    fallback: bool = True  # where the query is shown to be worse than chance, ask for coverage instead
    deep_when_idle: bool = True  # train on pixels when nobody labels
    target: float | None = Field(default=None, gt=0, le=100)  # percent: of the accuracy, or of the recall of a class
    target_class: int | None = None  # the class whose recall the target is about
    use_model: Literal["better", "live", "deep"] = "better"  # which model serves; better = by the labels
    label_price: float | None = Field(default=None, gt=0)
    point_value: float | None = Field(default=None, gt=0)  # money that a point of accuracy is worth


class Layout:
    """The places in one project folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = folder / "mma.toml"  # the file that makes a folder a project
        self.mirror = folder / "labels.csv"  # the current labels, for people and other programs
        self.state = folder / "state"  # what only we may read and write
        self.database = self.state / "project.db"  # the SQLite file
        self.log = self.state / "labels.jsonl"  # the second copy of every event
        self.backups = self.state / "backups"  # copies made before rounds and rebuilds
        self.url = self.state / "store.url"  # of a PostgreSQL store

    def make(self) -> None:
        """Make the folders that are missing; state is its owner's alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("models", "export", "cache"):
            (self.folder / name).mkdir(exist_ok=True)
        for private in (self.state, self.backups):
            private.mkdir(mode=0o700, exist_ok=True)
            private.chmod(0o700)


def project_folder(images: Path) -> Path:
    """Return where the project of a folder of images lies by default: photos -> photos.mma beside it."""
    place = Path(os.path.abspath(images))
    return place.with_name(place.name + SUFFIX)


def write_settings(layout: Layout, settings: ProjectSettings) -> None:
    """Write mma.toml."""
    lines = ["# A labeling project, see docs/label.md. The images are never changed."]
    for name, value in settings.model_dump().items():
        if value is not None:  # a text, number or truth of JSON is one of TOML, but for one character
            lines.append(f"{name} = " + json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f"))
    write_atomically(layout.settings, "\n".join(lines) + "\n")


def read_settings(layout: Layout) -> ProjectSettings:
    """Read mma.toml; refuse a newer format and anything that does not fit."""
    place = printable(str(layout.settings))
    try:
        values = tomllib.loads(layout.settings.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{printable(str(layout.folder))} is no project. Make one with  mma start FOLDER") from None
    except OSError as error:
        raise UserError(f"{place} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # no TOML, or no text
        raise UserError(f"{place} is damaged ({printable(str(error))}). Restore it from a copy.") from error
    found = values.get("format")
    if isinstance(found, int) and found > FORMAT:
        raise UserError(
            f"{printable(str(layout.folder))} was made by a newer mma (format {found}, this one knows {FORMAT}). "
            f"Get a newer mma:  {update_hint()}"
        )
    try:
        return ProjectSettings.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{place}: {printable(explain(error))}. Correct it, or restore it from a copy.") from error


def relative_images(folder: Path, images: Path) -> str:
    """Return how mma.toml names the image folder: relative, so that both can be moved together."""
    try:
        return Path(os.path.relpath(images.resolve(), folder.resolve())).as_posix()
    except ValueError:  # another drive
        return images.resolve().as_posix()
