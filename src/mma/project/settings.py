"""The project folder: where everything lies, its settings in mma.toml, and what kind of folder is none."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, ValidationError

from mma.errors import UserError
from mma.files import write_atomically
from mma.settings import Settings, explain
from mma.text import printable, update_hint

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
