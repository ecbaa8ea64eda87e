"""A person's project: one object whose methods are all that the page, the worker and the commands need."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from sqlalchemy import select

from mma.data.tables import refuse
from mma.errors import TemporarilyUnavailable, UserError
from mma.files import explain_write_errors, in_turn, locked, read_json, write_atomically
from mma.project.exchange.formats import LabelRow, read_current, read_rows, write_rows
from mma.project.exchange.import_labels import ImportProblems, TakeIn, take_in
from mma.project.grid import Group, lease_group
from mma.project.labels import events as class_rules
from mma.project.labels import tables as db
from mma.project.labels.copies import Mirror, SecondCopy, last_seq, prepare, read_format
from mma.project.labels.database import Store, check_url, open_database, postgres_store
from mma.project.labels.events import (
    COLUMNS,
    LEASE,
    Draft,
    check_name,
    chunks,
    count,
    events_after,
    now,
    read_counts,
    read_labeled,
    read_labels_at,
    record,
    write_answer,
)
from mma.project.models import Models
from mma.project.photos import (
    ClassHints,
    IndexReport,
    IndexSettings,
    class_hints,
    index_folder,
    is_audit_group,
    list_images,
    spread_images,
)
from mma.project.progress import TaskProgress, read_progress
from mma.project.questions import Rules, next_items, release, replace_picks
from mma.project.records import (
    UNDOABLE,
    Answer,
    Counts,
    Event,
    Item,
    Klass,
    LabeledImage,
    Labels,
    Pick,
    ProjectImage,
)
from mma.project.settings import Layout, ProjectSettings, project_folder, read_settings, relative_images, write_settings
from mma.text import printable, quote_path

if TYPE_CHECKING:
    from mma.project.labels.repair import MergeReport


Say = Callable[[str], None]


def silent(message: str) -> None:
    """Say nothing."""


class Project:
    """An open project. It holds no lock, and may be used by several threads and processes at once."""

    def __init__(self, layout: Layout, settings: ProjectSettings, store: Store) -> None:
        self.layout, self.settings, self.store = layout, settings, store
        self.folder = layout.folder
        self.root = (layout.folder / settings.images).resolve()
        self.rules = Rules(settings.overlap, settings.audit_asked, settings.again_share)
        self.models = Models(layout, store)
        self.log = SecondCopy(layout.log, self.root)
        self.mirror = Mirror(layout.mirror, layout.state / "mirror.lock", store)

    def close(self) -> None:
        """Bring labels.csv up to date, and close the database."""
        self.mirror.finish()
        self.store.close()

    @contextmanager
    def owner(self, command: str = "mma start") -> Iterator[None]:
        """Be the one process that serves this project."""
        with owned(self.layout.state, command):
            self._finish(self.events(max(self.seq() - 1, 0)))  # a kill may have left either copy behind
            self.mirror.write()
            yield

    # images

    def index(self, say: Say = silent, advance: Callable[[int, int], None] | None = None) -> IndexReport:
        """Look for new, changed and missing images. Labels and the audit slice stay as they are."""
        settings = IndexSettings(
            self.settings.seed, self.settings.audit_share, self.settings.overlap, self.layout.state / "groups.jsonl"
        )
        with in_turn(self.layout.state / "index.lock"):
            report = index_folder(self.store, self.root, settings, advance or (lambda done, total: None))
        say(f"{report.images:,} images in {report.files:,} files, {report.new:,} new")
        return report

    def progress(self) -> list[TaskProgress]:
        """Return how far the last index and the features are."""
        with self.store.reading() as connection:
            return read_progress(connection)

    def images(self, ids: Collection[str] | None = None) -> list[ProjectImage]:
        """Return the images that have a file, or those of `ids`, in a random order that never changes."""
        c = db.images.c
        query = select(c.id, c.name, c.width, c.height, c.near, c.audit).where(c.present == 1)
        with self.store.reading() as connection:
            if ids is None:
                rows = connection.execute(query.order_by(c.rank)).all()
            else:
                parts = [connection.execute(query.where(c.id.in_(part))).all() for part in chunks(sorted(ids))]
                rows = [row for part in parts for row in part]
        return [ProjectImage(*row[:5], bool(row[5])) for row in rows]

    def path_of(self, image: str) -> Path:
        """Return a file of an image, after checking that it is a regular file inside the image folder."""
        with self.store.reading() as connection:
            paths = connection.execute(select(db.files.c.path).where(db.files.c.image == image)).scalars().all()
        for name in sorted(paths):
            path: Path = (self.root / name).resolve()
            if path.is_relative_to(self.root) and path.exists() and stat.S_ISREG(path.stat().st_mode):
                return path
        raise UserError(f"image {image} has no file in {self.root}. Look for it:  {self.log.command}")

    def hints(self) -> ClassHints:
        """Return what the folder suggests about classes. Nothing of it is taken without being asked for."""
        return class_hints(self.root, list_images(self.root)[0])

    def spread(self, n: int = 24) -> list[ProjectImage]:
        """Return images that look unlike each other, to see what there is. They are not leased."""
        with self.store.reading() as connection:
            ids = spread_images(connection, n)
        return self.images(ids)

    def groups(self) -> dict[str, str]:
        """Map each image to the first image of its near-duplicates."""
        with self.store.reading() as connection:
            return {row.id: row.near for row in connection.execute(select(db.images.c.id, db.images.c.near))}

    def is_audit(self, image: str) -> bool:
        """Tell whether an image is kept for measuring."""
        with self.store.reading() as connection:
            near = connection.execute(select(db.images.c.near).where(db.images.c.id == image)).scalar()
        if near is None:
            raise UserError(f"this project has no image {image}.")
        return is_audit_group(self.settings.seed, near, self.settings.audit_share)

    # classes

    def classes(self) -> list[Klass]:
        """Return all classes, also merged ones."""
        with self.store.reading() as connection:
            return class_rules.read_classes(connection)

    def add_class(self, name: str, by: str) -> Klass:
        """Add a class."""

        def change(known: list[Klass]) -> Draft:
            value = class_rules.check_name(name, known)
            return class_rules.class_draft("class_add", by, max((each.id for each in known), default=-1) + 1, value)

        return self._change_class(change)

    def rename_class(self, class_id: int, name: str, by: str) -> Klass:
        """Give a class another name; its labels stay."""

        def change(known: list[Klass]) -> Draft:
            class_rules.find_class(known, class_id)
            return class_rules.class_draft(
                "class_rename", by, class_id, class_rules.check_name(name, known, besides=class_id)
            )

        return self._change_class(change)

    def merge_class(self, class_id: int, into: int | None, by: str) -> Klass:
        """Count a class's labels for another class; None takes a merge back."""

        def change(known: list[Klass]) -> Draft:
            class_rules.check_merge(known, class_id, into)
            return class_rules.class_draft("class_merge", by, class_id, None if into is None else str(into))

        return self._change_class(change)

    def set_key(self, class_id: int, key: str | None, by: str) -> Klass:
        """Give a class a key to type."""

        def change(known: list[Klass]) -> Draft:
            class_rules.find_class(known, class_id)
            class_rules.check_key(key, known, class_id)
            return class_rules.class_draft("class_key", by, class_id, key)

        return self._change_class(change)

    def _change_class(self, change: Callable[[list[Klass]], Draft]) -> Klass:
        with self.store.writing() as connection:
            wanted = change(class_rules.read_classes(connection))
            event = record(connection, [wanted], self.settings.overlap)[0]
            known = class_rules.read_classes(connection)
        self._finish([event])
        return class_rules.find_class(known, wanted["class_id"])

    # answers

    def next(self, by: str, n: int = 8, holding: Collection[str] = (), lease: float = LEASE) -> list[Item]:
        """Lease images to a person for so many seconds: up to `n` besides those they hold."""
        with self.store.writing() as connection:
            return next_items(connection, by, n, holding, self.rules._replace(lease=lease))

    def grid(self, by: str, class_id: int | None, n: int = 24, holding: Collection[str] = ()) -> Group:
        """Lease images of one class to a person, as a model sees them, or without a class images that look alike."""
        with self.store.writing() as connection:
            return lease_group(connection, self.models, by, class_id, n, holding)

    def release(self, by: str) -> None:
        """Give back the images that a person holds."""
        with self.store.writing() as connection:
            release(connection, by)

    def answer(self, answer: Answer) -> list[Event]:
        """Store an answer. It is on disk, twice, when this returns; sent again, it is stored once."""
        with self.store.writing() as connection:
            events = write_answer(connection, answer, self.settings.overlap)
        return self._finish(events)

    def undo(self, by: str, event: str | UUID | None = None) -> list[Event]:
        """Take back the last answer of a person, or a given one, with everything it was given together with."""
        given = None if event is None else UUID(str(event))
        return self.answer(Answer(id=uuid4(), kind="undo", by=by, supersedes=given))

    def _finish(self, events: list[Event]) -> list[Event]:
        """Bring the second copy up to these events. They are stored: whatever fails here is no refusal."""
        try:
            if events:
                self.log.catch_up(self.store, events[-1].seq)
                self.mirror.touch()
        except UserError as error:
            raise TemporarilyUnavailable(str(error)) from error
        return events

    # what is known

    def labels(self, upto: int | None = None) -> Labels:
        """Return the labels in force after event `upto`, by default the last one."""
        with self.store.reading() as connection:
            return read_labels_at(connection, upto)

    def events(self, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events after number `after`, in order."""
        with self.store.reading() as connection:
            return events_after(connection, after, limit)

    def recent(self, by: str, n: int = 20) -> list[Event]:
        """Return a person's last answers in force, the newest first."""
        c = db.events.c
        query = select(*COLUMNS).where(c.by == by, c.active == 1, c.kind.in_(UNDOABLE)).order_by(c.seq.desc()).limit(n)
        with self.store.reading() as connection:
            return [Event(*row) for row in connection.execute(query)]

    def labeled_by_class(self, class_id: int, n: int) -> list[LabeledImage]:
        """Return the images of a class, with those merged into it, that were labeled last."""
        with self.store.reading() as connection:
            return read_labeled(connection, n, class_id=class_id)

    def labeled_files(self, files: Sequence[str]) -> list[LabeledImage]:
        """Return the labels in force of files."""
        with self.store.reading() as connection:
            return read_labeled(connection, len(files), files=files)

    # labels in and out

    def export_labels(self, path: Path | str, format: str | None = None, *, copy: bool = False) -> int:
        """Write the labels in force in the format of another tool; return how many files have one."""
        with self.store.reading() as connection:
            rows = read_current(connection)
        write_rows(self.root, rows, Path(path), format, copy=copy)
        return len(rows)

    def import_labels(self, path: Path | str, format: str | None = None, how: TakeIn = TakeIn()) -> list[Event]:
        """Take in labels, all or none of them; what is wrong is said with line numbers."""
        path = Path(path)
        rows, problems = read_rows(path, format)
        return self.take_in(rows, how, path, problems)

    def take_in(self, rows: Sequence[LabelRow], how: TakeIn, source: Path, problems: Sequence[str] = ()) -> list[Event]:
        """Take in rows of labels, all or none of them. `source` is named where something is wrong."""
        refuse(source, problems)
        try:
            with self.store.writing() as connection:
                events = take_in(connection, rows, how, self.settings.overlap)
        except ImportProblems as found:
            refuse(source, found.problems)
        return self._finish(events)

    def merge(self, other: Project) -> MergeReport:
        """Take in the events of a copy of this project that are not here yet."""
        from mma.project.labels.repair import check_copy, merge_events

        check_copy(self.settings, other.settings)
        with self.store.writing() as connection:
            report = merge_events(connection, other.events(), self.settings.overlap)
        self._finish(report.events)
        return report

    # counts

    def counts(self) -> Counts:
        """Return how many images are labeled, per class and in all, and how many are left."""
        with self.store.reading() as connection:
            return read_counts(connection)

    def seq(self) -> int:
        """Return the number of the last event."""
        with self.store.reading() as connection:
            return count(connection, "seq")

    # the worker

    def put_picks(self, picks: Sequence[Pick], model: int | None) -> int:
        """Replace the queue by these picks, best first; return how many of them can be asked about."""
        with self.store.writing() as connection:
            return replace_picks(connection, picks, model)


# Make a project for a folder of images, or open one. Everything cheap is checked before anything is created.

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
    except UserError:
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
    raise UserError(
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
    except UserError:
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
        raise UserError(f"there is no folder {place}. If its images were moved:  mma start FOLDER --project {folder}")
    if project.root.is_dir():
        raise UserError(
            f"{printable(str(project.folder))} is the project of {root}, and those images are still there. "
            f"Choose another place for a new project with --project DIR."
        )
    known = project.images()[:SAMPLE]
    inside = images.resolve()
    if known and not any(each.id == file_key(inside, each.name) for each in known):
        raise UserError(
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
        raise UserError(f"{place} is a file. Give the folder it lies in:  mma start {quote_path(images.parent)}")
    if not images.is_dir():
        raise UserError(f"there is no folder {place}. Give a folder of images:  mma start FOLDER")
    if not os.access(images, os.R_OK | os.X_OK):
        raise UserError(f"the folder {place} may not be read. Allow it:  chmod u+rx {quote_path(images)}")
    if Path(os.path.abspath(folder)).is_relative_to(images.resolve()) or folder.resolve().is_relative_to(
        images.resolve()
    ):
        raise UserError(
            f"the project {printable(str(folder))} would lie inside the images, which are never changed. Choose another "
            "place with --project DIR."
        )
    if (folder / "mma.toml").exists():
        raise UserError(
            f"{printable(str(folder))} is a project already. Go on with it:  mma start {quote_path(images)}"
        )
    names, _, _ = list_images(images)
    if not names:
        raise UserError(f"{place} holds no images. Give a folder that does:  mma start FOLDER")
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


# One owner per project: a lock that ends with its process, and a note that says who holds it.


@contextmanager
def owned(state: Path, command: str) -> Iterator[None]:
    """Hold the project for this process, or say who holds it. A lock whose process is gone does not count."""
    note = state / "owner.json"
    with locked(state / "lock", _busy(note)):
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": now(), "command": command}
        with explain_write_errors(state, command):
            write_atomically(note, json.dumps(about) + "\n", private=True)
        try:
            yield
        finally:
            note.unlink(missing_ok=True)


@contextmanager
def training(state: Path, command: str) -> Iterator[None]:
    """Be the one process that trains a project: two would write the same models."""
    place = printable(str(state.parent))
    busy = f"{place} is being trained by another process, mma start or mma work. Stop that one first, or let it train."
    with ExitStack() as held:
        with explain_write_errors(state, command):
            held.enter_context(locked(state / "training.lock", busy))
        yield


def _busy(note: Path) -> str:
    place = printable(str(note.parents[1]))
    try:
        about = read_json(note)
        who = f"process {about['pid']} on {about['host']} since {about['since']} ({about['command']})"
    except (OSError, ValueError, KeyError):
        who = "another process"
    return f"{place} is in use by {printable(who)}. Use its page, or stop it first."
