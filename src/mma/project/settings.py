"""The project folder: where everything lies, its settings in mma.toml, and what kind of folder is none."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from mma.errors import UserError
from mma.files import write_atomically
from mma.settings import Settings, explain
from mma.text import printable, update_hint

FORMAT = 1  # of the folder and of mma.toml
SUFFIX = ".mma"


class ProjectSettings(Settings):
    """What mma.toml holds. It is written by us and can be read by anyone."""

    format: int = FORMAT
    id: str = Field(pattern="^[0-9a-f]{16}$")
    images: str  # relative to the project folder where both lie on one disk
    seed: int = Field(ge=0)
    store: str = "sqlite"  # or postgresql; the URL is in state/, because it can hold a password
    budget: int | None = Field(default=None, ge=1)
    overlap: int = Field(default=1, ge=1, le=100)  # people asked about each image
    audit_share: float = Field(default=0.1, ge=0, le=0.5)  # of the images, kept for measuring
    audit_asked: float = Field(default=0.1, ge=0, le=1)  # of the images asked about
    random_share: float = Field(default=0.1, ge=0, le=1)  # of the picks, drawn at random
    again_share: float = Field(default=0.02, ge=0, le=0.5)  # of the questions, about labels given long before
    query: str = "auto"  # how the picks are chosen
    backbone: str | None = None  # whose features the live model learns from; None = that of the preset photos
    fallback: bool = True  # where the query is shown to be worse than chance, ask for coverage instead
    deep_when_idle: bool = True  # train on pixels when nobody labels
    target: float | None = Field(default=None, gt=0, le=100)  # accuracy in percent
    label_price: float | None = Field(default=None, gt=0)
    point_value: float | None = Field(default=None, gt=0)  # money that a point of accuracy is worth


@dataclass(frozen=True)
class Layout:
    """The places in one project folder."""

    folder: Path

    @property
    def settings(self) -> Path:
        """The file that makes a folder a project."""
        return self.folder / "mma.toml"

    @property
    def state(self) -> Path:
        """What only we may read and write."""
        return self.folder / "state"

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.state / "project.db"

    @property
    def log(self) -> Path:
        """The second copy of every event."""
        return self.state / "labels.jsonl"

    @property
    def backups(self) -> Path:
        """Copies made before migrations and rounds."""
        return self.state / "backups"

    @property
    def url(self) -> Path:
        """The URL of a PostgreSQL store."""
        return self.state / "store.url"

    @property
    def mirror(self) -> Path:
        """The current labels, for people and other programs."""
        return self.folder / "labels.csv"

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
    values = {name: value for name, value in settings.model_dump().items() if value is not None}
    lines = ["# A labeling project, see docs/label.md. The images are never changed.", *map(_toml, values.items())]
    write_atomically(layout.settings, "\n".join(lines) + "\n")


def _toml(item: tuple[str, Any]) -> str:
    name, value = item
    if isinstance(value, str):
        return f"{name} = " + json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{name} = {json.dumps(value)}"


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
