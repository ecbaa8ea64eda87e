"""Make a project for a folder of images, or open one. Everything cheap is checked before anything is created."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mma.files import explain_write_errors, write_atomically
from mma.project.classes import check_name
from mma.project.derive import count
from mma.project.layout import (
    Layout,
    ProjectSettings,
    project_folder,
    read_settings,
    relative_images,
    write_settings,
)
from mma.project.listing import list_images
from mma.project.migrations import prepare, read_format
from mma.project.project import Project, Say, silent
from mma.project.records import Klass
from mma.project.second_copy import last_seq
from mma.project.store import Store, check_url, open_database, postgres_store
from mma.text import printable, quote_path

AUDIT_IMAGES = 60  # the fewest that say something about a model
AUDIT_SHARE, MOST = 0.1, 0.5
SAMPLE = 100  # images looked for in a folder that is said to be the moved one


def create_project(
    images: Path | str,
    folder: Path | str | None = None,
    *,
    classes: Sequence[str] = (),
    store: str | None = None,
    budget: int | None = None,
    overlap: int = 1,
    seed: int = 0,
    say: Say = silent,
) -> Project:
    """Make a project for the images of a folder. The images are read, never changed; nothing is indexed yet."""
    images = Path(images)
    folder = project_folder(images) if folder is None else Path(folder)
    files = check_images(images, folder)
    names = check_class_names(classes)
    number = secrets.token_hex(8)
    if store is not None:
        check_url(store)
        postgres_store(store, number).close()  # a server that does not answer is said before anything is made
    settings = ProjectSettings(
        id=number,
        images=relative_images(folder, images),
        seed=seed,
        store="sqlite" if store is None else "postgresql",
        budget=budget,
        overlap=overlap,
        audit_share=audit_share(files),
    )
    layout = Layout(folder)
    with explain_write_errors(folder, "the same command"):
        layout.make()
        if store is not None:
            write_atomically(layout.url, store, private=True)
    opened = open_store(layout, settings)
    with explain_write_errors(folder, "the same command"):
        write_settings(layout, settings)  # a project from this moment on
    project = Project(layout, settings, opened)
    for name in names:
        project.add_class(name, "start")
    say(f"made the project {printable(str(folder))}")
    return project


def open_project(place: Path | str) -> Project:
    """Open a project by its folder, or by the folder of its images."""
    layout = Layout(find_project(Path(place)))
    settings = read_settings(layout)
    return Project(layout, settings, open_store(layout, settings))


def find_project(place: Path) -> Path:
    """Return the project folder that `place` is or belongs to."""
    if not (place / "mma.toml").is_file() and (project_folder(place) / "mma.toml").is_file():
        return project_folder(place)
    return place


def open_store(layout: Layout, settings: ProjectSettings, *, check: bool = True) -> Store:
    """Open the database of a project; make or migrate its tables. One that lacks events of labels.jsonl is refused."""
    opened = open_database(layout.database, layout.url, settings.store, settings.id)
    if not check:
        return opened
    try:
        _check_store(opened, layout)
    except ValueError:
        opened.close()
        raise
    return opened


def _check_store(opened: Store, layout: Layout) -> None:
    logged = last_seq(layout.log)
    if not logged or read_format(opened) is not None:
        prepare(opened, layout)
        with opened.reading() as connection:
            if count(connection, "seq") >= logged:
                return
    raise ValueError(
        f"the database of {printable(str(layout.folder))} lacks labels that labels.jsonl holds: it is gone or an older copy. "
        f"Make it again:  mma doctor {quote_path(layout.folder)} --rebuild"
    )


def relink(place: Path | str, images: Path | str) -> Project:
    """Open a project whose images were moved, and note their new place if at least one of them is there."""
    project, images = open_project(place), Path(images)
    if project.root.is_dir() and images.is_dir() and project.root.samefile(images):
        return project
    try:
        _check_moved(project, images)
    except ValueError:
        project.close()
        raise
    return change_settings(project, images=relative_images(project.folder, images))


def change_settings(project: Project, **values: Any) -> Project:
    """Close a project, change settings of mma.toml, and open it again."""
    settings = ProjectSettings.model_validate({**project.settings.model_dump(), **values})
    project.close()
    with explain_write_errors(project.folder, f"mma start {quote_path(project.folder)}"):
        write_settings(project.layout, settings)
    return open_project(project.folder)


def _check_moved(project: Project, images: Path) -> None:
    place, root = printable(str(images)), printable(str(project.root))
    if not images.is_dir():
        folder = quote_path(project.folder)
        raise ValueError(f"there is no folder {place}. If its images were moved:  mma start FOLDER --project {folder}")
    if project.root.is_dir():
        raise ValueError(
            f"{printable(str(project.folder))} is the project of {root}, and those images are still there. "
            f"Choose another place for a new project with --project DIR."
        )
    known = project.images()[:SAMPLE]
    inside = images.resolve()
    if known and not any(each.id == file_key(inside, each.name) for each in known):
        raise ValueError(
            f"{place} holds none of the images that were in {root}. Give the folder they were moved to, with the same "
            "folders inside."
        )


def file_key(root: Path, name: str) -> str | None:
    """Return the sha256 of a file below `root`, or None where there is none."""
    path = (root / name).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_images(images: Path, folder: Path) -> int:
    """Count the files that may be images. Refuse a folder without any, and a project inside the images."""
    place = printable(str(images))
    if images.is_file():
        raise ValueError(f"{place} is a file. Give the folder it lies in:  mma start {quote_path(images.parent)}")
    if not images.is_dir():
        raise ValueError(f"there is no folder {place}. Give a folder of images:  mma start FOLDER")
    if not os.access(images, os.R_OK | os.X_OK):
        raise ValueError(f"the folder {place} may not be read. Allow it:  chmod u+rx {quote_path(images)}")
    if Path(os.path.abspath(folder)).is_relative_to(images.resolve()) or folder.resolve().is_relative_to(
        images.resolve()
    ):
        raise ValueError(
            f"the project {printable(str(folder))} would lie inside the images, which are never changed. Choose another "
            "place with --project DIR."
        )
    if (folder / "mma.toml").exists():
        raise ValueError(
            f"{printable(str(folder))} is a project already. Go on with it:  mma start {quote_path(images)}"
        )
    names, _, _ = list_images(images)
    if not names:
        raise ValueError(f"{place} holds no images. Give a folder that does:  mma start FOLDER")
    return len(names)


def check_class_names(classes: Sequence[str]) -> list[str]:
    """Return the names, or say which of them cannot be one."""
    known: list[Klass] = []
    for name in classes:
        known.append(Klass(len(known), check_name(name, known)))
    return [each.name for each in known]


def audit_share(images: int) -> float:
    """Return the share of the images to measure with: a tenth, or what 60 images need, but never more than half."""
    return round(min(MOST, max(AUDIT_SHARE, AUDIT_IMAGES / max(images, 1))), 6)
