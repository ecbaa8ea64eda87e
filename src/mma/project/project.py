"""A person's project: one object whose methods are all that the page, the worker and the commands need."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID, uuid4

from sqlalchemy import Connection, func, or_, select

from mma.data.folder import NOT_FOLLOWED
from mma.data.photos import FollowedFolder, check_inside
from mma.data.tables import refuse
from mma.errors import TemporarilyUnavailable, UserError
from mma.files import explain_write_errors, in_turn, locked, read_json, write_atomically
from mma.project import photos, questions, records
from mma.project.exchange.formats import LabelRow, read_current, read_rows, write_rows
from mma.project.exchange.import_labels import TakeIn, take_in
from mma.project.guesses import GuessStore
from mma.project.labels import database as db
from mma.project.labels import events as labels
from mma.project.labels.copies import Mirror, SecondCopy, last_seq
from mma.project.labels.votes import Disagreement, PersonProgress, Standing, Vote, read_shared, read_vote
from mma.project.models import Models
from mma.project.records import Answer, Counts, Event, Item, Klass, LabeledImage, Labels, Layout, Pick, ProjectImage
from mma.text import printable, quote_path

if TYPE_CHECKING:
    from mma.project.labels.repair import MergeReport


Say = Callable[[str], None]
P = ParamSpec("P")
T = TypeVar("T")
MEASURED = 30  # audit images that are asked about in a row, to measure now


def silent(message: str) -> None:
    """Say nothing."""


class Project:
    """An open project. It holds no lock, and may be used by several threads and processes at once."""

    def __init__(self, layout: Layout, settings: records.ProjectSettings, store: db.Store) -> None:
        self.layout, self.settings, self.store = layout, settings, store
        self.folder, self._stamp = layout.folder, 0  # when mma.toml was changed
        self.root = (layout.folder / settings.images).resolve()
        if settings.follow_links:
            self.root = FollowedFolder(self.root)
        self.rules = questions.Rules(settings.overlap, settings.audit_asked, settings.audit_early, settings.again_share)
        self.models = Models(layout, store)
        self.guesses = GuessStore(self)
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

    def _read(self, read: Callable[Concatenate[Connection, P], T], *values: P.args, **named: P.kwargs) -> T:
        with self.store.reading() as connection:
            return read(connection, *values, **named)

    # images

    def index(self, say: Say = silent, advance: Callable[[int, int], None] | None = None) -> photos.IndexReport:
        """Look for new, changed and missing images. Labels and the audit slice stay as they are."""
        groups, tell = self.layout.state / "groups.jsonl", advance or (lambda done, total: None)
        with in_turn(self.layout.state / "index.lock"):
            report = photos.index_folder(self.store, self.root, self.settings, groups, tell)
        say(f"{report.images:,} images in {report.files:,} files, {report.new:,} new")
        return report

    def progress(self) -> list[db.TaskProgress]:
        """Return how far the last index and the features are."""
        return self._read(db.read_progress)

    def images(self, ids: Collection[str] | None = None) -> list[ProjectImage]:
        """Return the images that have a file, or those of `ids`, in a random order that never changes."""
        c = db.images.c
        query = select(c.id, c.name, c.width, c.height, c.near, c.audit).where(c.present == 1).order_by(c.rank)
        parts = [query] if ids is None else [query.where(c.id.in_(part)) for part in labels.chunks(sorted(ids))]
        with self.store.reading() as connection:
            return [ProjectImage(*row[:5], bool(row[5])) for part in parts for row in connection.execute(part)]

    def files(self) -> Sequence[Any]:
        """Return path and image of every file that can be used, by path."""
        f = db.files.c
        with self.store.reading() as connection:
            return connection.execute(select(f.path, f.image).where(f.image.is_not(None)).order_by(f.path)).all()

    def path_of(self, image: str) -> Path:
        """Return a file of an image, after checking that it is a regular file inside the image folder."""
        with self.store.reading() as connection:
            paths = connection.execute(select(db.files.c.path).where(db.files.c.image == image)).scalars().all()
        for name in sorted(paths):
            path: Path = self.root / name
            with suppress(OSError, UserError):
                check_inside(path, self.root)
                if stat.S_ISREG(path.stat().st_mode):
                    return path
        raise UserError(f"image {image} has no file in {self.root}. Look for it:  {self.log.command}")

    def hints(self) -> photos.ClassHints:
        """Return what the folder suggests about classes. Nothing of it is taken without being asked for."""
        return photos.class_hints(self.root, photos.list_images(self.root)[0])

    def spread(self, n: int = 24) -> list[ProjectImage]:
        """Return images that look unlike each other, to see what there is. They are not leased."""
        return self.images(self._read(photos.spread_images, n))

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
        return photos.is_audit_group(self.settings.seed, near, self.settings.audit_share)

    # classes

    def classes(self) -> list[Klass]:
        """Return all classes, also merged ones."""
        return self._read(labels.read_classes)

    def add_class(self, name: str, by: str) -> Klass:
        """Add a class."""
        return self._change_class("class_add", by, None, lambda known, _: labels.check_name(name, known))

    def rename_class(self, class_id: int, name: str, by: str) -> Klass:
        """Give a class another name; its labels stay."""
        return self._change_class(
            "class_rename", by, class_id, lambda known, number: labels.check_name(name, known, besides=number)
        )

    def merge_class(self, class_id: int, into: int | None, by: str) -> Klass:
        """Count a class's labels for another class; None takes a merge back."""
        return self._change_class(
            "class_merge", by, class_id, lambda known, number: labels.check_merge(known, number, into)
        )

    def set_key(self, class_id: int, key: str | None, by: str) -> Klass:
        """Give a class a key to type."""
        return self._change_class("class_key", by, class_id, lambda known, number: labels.check_key(key, known, number))

    def _change_class(
        self, kind: str, by: str, class_id: int | None, check: Callable[[list[Klass], int], str | None]
    ) -> Klass:
        """Store a change of a class, or a new one: `check` returns the new value, or refuses it."""
        with self.store.writing() as connection:
            known = labels.read_classes(connection)
            number = labels.free_class_id(connection) if class_id is None else labels.find_class(known, class_id).id
            drafts = [labels.class_draft(kind, by, number, check(known, number))]
            events = labels.record(connection, drafts, self.settings.overlap)
            known = labels.read_classes(connection)
        self._finish(events)
        return labels.find_class(known, number)

    def delete_class(self, class_id: int, by: str) -> None:
        """Delete a class that no label needs; otherwise say what to do with its labels first."""
        with self.store.writing() as connection:
            labels.check_delete(connection, class_id)
            drafts = [labels.class_draft("class_delete", by, class_id, None)]
            events = labels.record(connection, drafts, self.settings.overlap)
        self._finish(events)
        if self.settings.target_class == class_id:
            self.wish(target=None, target_class=None)

    # answers

    def next(self, by: str, n: int = 8, holding: Collection[str] = (), lease: float = labels.LEASE) -> list[Item]:
        """Lease images to a person for so many seconds: up to `n` besides those they hold."""
        with self.store.writing() as connection:
            return questions.next_items(connection, by, n, holding, self.rules._replace(lease=lease))

    def audit_left(self) -> int:
        """Return how many audit images can still be asked about."""
        c = db.images.c
        with self.store.reading() as connection:
            return int(connection.execute(select(func.count()).where(c.open == 1, c.audit == 1)).scalar_one())

    def measure(self, by: str, n: int = MEASURED, lease: float = labels.LEASE) -> list[Item]:
        """Lease audit images alone, to name an accuracy sooner; what the person held is given back."""
        with self.store.writing() as connection:
            questions.release(connection, by)
            items = questions.next_items(connection, by, n, (), self.rules._replace(lease=lease, measures=True))
        if not items:
            raise UserError(
                "every photo that is kept for measuring has an answer. Label on: that makes the model better."
            )
        return items

    def grid(self, by: str, class_id: int | None, n: int = 24, holding: Collection[str] = ()) -> questions.PhotoGroup:
        """Lease images of one class to a person, as a model sees them, or without a class images that look alike."""
        with self.store.writing() as connection:
            return questions.lease_group(connection, self, by, class_id, n, holding)

    def release(self, by: str) -> None:
        """Give back the images that a person holds."""
        with self.store.writing() as connection:
            questions.release(connection, by)

    def answer(self, answer: Answer) -> list[Event]:
        """Store an answer. It is on disk, twice, when this returns; sent again, it is stored once."""
        with self.store.writing() as connection:
            events = labels.write_answer(connection, answer, self.settings.overlap)
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
        return self._read(labels.read_labels_at, upto)

    def events(self, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events after number `after`, in order."""
        return self._read(labels.events_after, after, limit)

    def recent(self, by: str, n: int = 20) -> list[Event]:
        """Return a person's last answers in force, the newest first."""
        c = db.events.c
        mine = select(*labels.COLUMNS).where(c.by == by, c.active == 1, c.kind.in_(records.UNDOABLE))
        with self.store.reading() as connection:
            return [Event(*row) for row in connection.execute(mine.order_by(c.seq.desc()).limit(n))]

    def labeled_by_class(self, class_id: int, n: int) -> list[LabeledImage]:
        """Return the images of a class, with those merged into it, that were labeled last."""
        return self._read(labels.read_labeled, n, class_id=class_id)

    def labeled_files(self, files: Sequence[str]) -> list[LabeledImage]:
        """Return the labels in force of files."""
        return self._read(labels.read_labeled, len(files), files=files)

    # several people

    def _votes(self) -> tuple[dict[int, str], Vote, dict[str, Standing]]:
        """Return the names of classes, what answers are weighed by, and what the images amount to that people share."""
        with self.store.reading() as connection:
            classes = labels.read_classes(connection)
            vote, shared = read_vote(connection, labels.merge_roots(classes)), read_shared(connection)
        stands = {image: vote.standing(rows) for image, rows in shared.items()}
        return {each.id: each.name for each in classes}, vote, stands

    def disagreements(self, by: str | None = None) -> list[Disagreement]:
        """Return images about which people differ and nobody has decided; for `by`, those they have not answered."""
        _, vote, stands = self._votes()
        open_ones = {image: stand for image, stand in stands.items() if vote.disputed(stand) and by not in stand.said}
        return [
            Disagreement(each.id, each.name, vote.code(stand.answer)[1], stand.answer.id, vote.voices(stand))
            for each in self.images(open_ones)
            for stand in (open_ones[each.id],)
        ]

    def gave(self, by: str, event: str) -> bool:
        """Tell whether an answer, by the id of its event or action, is this person's."""
        c = db.events.c
        with self.store.reading() as connection:
            people = connection.execute(select(c.by).where(or_(c.id == event, c.batch == event))).scalars().all()
        return set(people) <= {by}

    def how(self, images: Collection[str]) -> dict[str, str]:
        """Say how the labels in force of images came about, where several people answered."""
        names, vote, stands = self._votes()
        return {image: vote.words(stands[image], names) for image in images if image in stands}

    def people(self) -> list[PersonProgress]:
        """Return how much each person answered, and how far they agree with the labels in force of images they share."""
        c, (_, vote, stands), found = db.events.c, self._votes(), []
        totals = select(c.by, func.count().label("answers"), func.max(c.at).label("last")).group_by(c.by)
        with self.store.reading() as connection:
            rows = connection.execute(totals.where(c.active == 1, c.kind.in_(records.ANSWERS))).all()
        for row in sorted(rows, key=lambda row: -row.answers):
            shared = [stand for stand in stands.values() if row.by in stand.said]
            same = sum(vote.code(stand.said[row.by]) == vote.code(stand.answer) for stand in shared)
            found.append(PersonProgress(row.by, row.answers, row.last, len(shared), same, vote.reliability.get(row.by)))
        return found

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
        with self.store.writing() as connection:
            events = take_in(connection, rows, how, self.settings.overlap, source)
        return self._finish(events)

    def merge(self, other: Project) -> MergeReport:
        """Take in the events of a copy of this project that are not here yet."""
        from mma.project.labels.repair import merge_events

        if self.settings.id != other.settings.id:  # its events tell of other images and classes
            raise UserError(
                "the other project is no copy of this one, but was made on its own. Take its labels in by a file:  "
                "mma labels export OTHER labels.csv   and then  mma labels import PROJECT labels.csv"
            )
        with self.store.writing() as connection:
            report = merge_events(connection, other.events(), self.settings.overlap)
        self._finish(report.events)
        return report

    # counts

    def counts(self) -> Counts:
        """Return how many images are labeled, per class and in all, and how many are left."""
        return self._read(labels.read_counts)

    def seq(self) -> int:
        """Return the number of the last event."""
        return self._read(labels.count, "seq")

    # what the person wishes: mma.toml may change while page and worker run

    def wish(self, **values: Any) -> None:
        """Change the goal, or which model serves."""
        with in_turn(self.layout.state / "settings.lock"), explain_write_errors(self.folder, "mma start"):
            self.heed_wishes()
            self.settings = records.ProjectSettings.model_validate({**self.settings.model_dump(), **values})
            records.write_settings(self.layout, self.settings)

    def heed_wishes(self) -> bool:
        """Read the wishes again where the file has changed; tell whether they did."""
        before = self.settings
        with suppress(OSError, UserError):  # while somebody edits the file, the wishes of before hold
            stamp = self.layout.settings.stat().st_mtime_ns
            if stamp != self._stamp:
                wishes = records.read_settings(self.layout).model_dump(include=set(records.ProjectSettings.WISHES))
                self.settings, self._stamp = before.model_copy(update=wishes), stamp
        return before != self.settings

    # the worker

    def asked_again(self) -> set[str]:
        """Return the audit images that were asked about a second time."""
        c = db.events.c
        with self.store.reading() as connection:
            return {*connection.execute(select(c.image).where(c.active == 1, c.provenance == "recheck")).scalars()}

    def put_picks(self, picks: Sequence[Pick], model: int | None) -> int:
        """Replace the queue by these picks, best first; return how many of them can be asked about."""
        with self.store.writing() as connection:
            return questions.replace_picks(connection, picks, model)


# Make a project for a folder of images, or open one. Everything cheap is checked before anything is created.

AUDIT_IMAGES = 100  # enough for an interval of ten points to either side, and some more
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
    follow_links: bool = False,
    say: Say = silent,
) -> Project:
    """Make a project for the images of a folder. The images are read, never changed; nothing is indexed yet."""
    images = Path(images)
    folder = records.project_folder(images) if folder is None else Path(folder)
    files = check_images(FollowedFolder(images) if follow_links else images, folder)
    names = check_class_names(classes)
    number = secrets.token_hex(8)
    if store is not None:
        db.postgres_store(store, number).close()  # a server that does not answer is said before anything is made
    settings = records.ProjectSettings(
        id=number,
        images=records.relative_images(folder, images),
        follow_links=follow_links,
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
        records.write_settings(layout, settings)  # a project from this moment on
    project = Project(layout, settings, opened)
    for name in names:
        project.add_class(name, "start")
    say(f"made the project {printable(str(folder))}")
    return project


def open_project(place: Path | str) -> Project:
    """Open a project by its folder, or by the folder of its images."""
    layout = Layout(find_project(Path(place)))
    settings = records.read_settings(layout)
    return Project(layout, settings, open_store(layout, settings))


def find_project(place: Path) -> Path:
    """Return the project folder that `place` is or belongs to."""
    if not (place / "mma.toml").is_file() and (records.project_folder(place) / "mma.toml").is_file():
        return records.project_folder(place)
    return place


def open_store(layout: Layout, settings: records.ProjectSettings) -> db.Store:
    """Open the database of a project, and make its tables. One that lacks events of labels.jsonl is refused."""
    opened = db.open_database(layout, settings)
    try:
        logged = last_seq(layout.log)
        if not logged or db.read_format(opened) is not None:
            db.prepare(opened, layout)
            with opened.reading() as connection:
                if labels.count(connection, "seq") >= logged:
                    return opened
        raise UserError(
            f"the database of {printable(str(layout.folder))} lacks labels that labels.jsonl holds: it is gone or an older "
            f"copy. Make it again:  mma doctor {quote_path(layout.folder)} --rebuild"
        )
    except UserError:
        opened.close()
        raise


def relink(place: Path | str, images: Path | str) -> Project:
    """Open a project whose images were moved, and note their new place if at least one of them is there."""
    project, images = open_project(place), Path(images)
    if project.root.is_dir() and images.is_dir() and project.root.samefile(images):
        return project
    where, root, folder = (printable(str(each)) for each in (images, project.root, project.folder))
    try:
        if not images.is_dir():
            command = f"mma start FOLDER --project {quote_path(project.folder)}"
            raise UserError(f"there is no folder {where}. If its images were moved:  {command}")
        if project.root.is_dir():
            raise UserError(
                f"{folder} is the project of {root}, and those images are still there. "
                f"Choose another place for a new project with --project DIR."
            )
        if project.images() and not holds_photos(images, project):
            raise UserError(
                f"{where} holds none of the images that were in {root}. Give the folder they were moved to, with the same "
                "folders inside."
            )
    except UserError:
        project.close()
        raise
    return change_settings(project, images=records.relative_images(project.folder, images))


def moved_project(images: Path) -> Path | None:
    """Return the project beside a folder whose own images are gone and lie in this folder now: it was renamed or moved."""
    for place in sorted(images.resolve().parent.glob("*.mma")) if images.is_dir() else ():
        if not (place / "mma.toml").is_file() or place == records.project_folder(images):
            continue
        with suppress(UserError), closing(open_project(place)) as project:  # a damaged one is none to continue
            if not project.root.is_dir() and holds_photos(images, project):
                return place
    return None


def holds_photos(images: Path, project: Project) -> bool:
    """Tell whether a folder holds one of the first photos of a project, in the same place below it."""
    root = images.resolve()
    for each in project.images()[:SAMPLE]:
        path = (root / each.name).resolve()
        if path.is_relative_to(root) and path.is_file():
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == each.id:
                    return True
    return False


def change_settings(project: Project, **values: Any) -> Project:
    """Close a project, change settings of mma.toml, and open it again."""
    settings = records.ProjectSettings.model_validate({**project.settings.model_dump(), **values})
    project.close()
    with explain_write_errors(project.folder, f"mma start {quote_path(project.folder)}"):
        records.write_settings(project.layout, settings)
    return open_project(project.folder)


def check_images(images: Path, folder: Path) -> int:
    """Count the files that may be images. Refuse a folder without any, and a project inside the images."""
    place = printable(str(images))
    if images.is_file() and images.suffix.lower() == ".zip":
        into = images.with_suffix("")
        command = f"unzip {quote_path(images)} -d {quote_path(into)}"
        raise UserError(f"{place} is a zip file. Unzip it first:  {command}  and then:  mma start {quote_path(into)}")
    if images.is_file():
        raise UserError(f"{place} is a file. Give the folder it lies in:  mma start {quote_path(images.parent)}")
    if not images.is_dir():
        raise UserError(f"there is no folder {place}. Give a folder of images:  mma start FOLDER")
    if not os.access(images, os.R_OK | os.X_OK):
        raise UserError(f"the folder {place} may not be read. Allow it:  chmod u+rx {quote_path(images)}")
    if any(place.is_relative_to(images.resolve()) for place in (Path(os.path.abspath(folder)), folder.resolve())):
        raise UserError(
            f"the project {printable(str(folder))} would lie inside the images, which are never changed. Choose another "
            "place with --project DIR."
        )
    if (folder / "mma.toml").exists():
        shown = printable(str(folder))
        raise UserError(f"{shown} is a project already. Go on with it:  mma start {quote_path(images)}")
    names, left_out, _ = photos.list_images(images)
    if names:
        return len(names)
    if any(each.reason == NOT_FOLLOWED for each in left_out):
        command = f"mma start {quote_path(images)} --follow-links"
        raise UserError(f"{place} holds nothing but links to folders. To follow them:  {command}")
    raise UserError(f"{place} holds no images. Give a folder that does:  mma start FOLDER")


def check_class_names(classes: Sequence[str]) -> list[str]:
    """Return the names, or say which of them cannot be one."""
    known: list[Klass] = []
    for name in classes:
        known.append(Klass(len(known), labels.check_name(name, known)))
    return [each.name for each in known]


def audit_share(images: int) -> float:
    """Return the share of the images to measure with: a tenth, or what 60 images need, but never more than half."""
    return round(min(MOST, max(AUDIT_SHARE, AUDIT_IMAGES / max(images, 1))), 6)


# One owner per project: a lock that ends with its process, and a note that says who holds it.


@contextmanager
def owned(state: Path, command: str) -> Iterator[None]:
    """Hold the project for this process, or say who holds it. A lock whose process is gone does not count."""
    note = state / "owner.json"
    try:
        about = read_json(note)
        who = f"process {about['pid']} on {about['host']} since {about['since']} ({about['command']})"
    except (OSError, ValueError, KeyError):
        who = "another process"
    busy = f"{printable(str(state.parent))} is in use by {printable(who)}. Use its page, or stop it first."
    with locked(state / "lock", busy):
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": labels.now(), "command": command}
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
