"""What a worker learns from: the labels of one moment, and the images as rows with the features of a frozen backbone."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mma.config import Config
from mma.data.photos import SMALLEST, read_unscaled_photo
from mma.data.tables import render_csv
from mma.errors import UserError
from mma.features import PhotoFiles, StoredViews, parse_backbone
from mma.features.extract import open_store
from mma.presets import preset
from mma.project.project import Project, silent
from mma.project.records import Klass, Labels, ProjectImage
from mma.text import duration, quote_path
from mma.views import FeatureViews, VectorViews

BLOCK = 256  # images: a few seconds
QUICK, SOON = 1.0, 5.0  # seconds: too short to be mentioned, and to be worth a beginning with fewer images
LARGE, LONG = 5_000, 60.0  # images and seconds from which on the plain view of all images comes before the other views
STAGES = (300, 1_500, 6_000, 24_000)  # images after which the pool is opened anew: asking begins with the first few

MEASURING = ("audit", "import", "review")  # labels of audit images that nobody chose for what a model thinks of them
HOST = torch.device("cpu")
Say = Callable[[str], None]
Note = Callable[[int, int, str | None], None]  # done, total, time left
Ints = NDArray[np.int64]
Parts = list[NDArray[np.float16]]  # vectors of each joined backbone, (N, D) each


@dataclass(frozen=True)
class TrainingSet:
    """Labels after event `seq`. Those that people could not tell stay unlabeled.

    Live models learn all of `learned`, and are judged on `audit` by heads that leave it out; deep ones learn `train` alone.
    """

    labels: Labels
    is_audit: Callable[[str], bool]
    lost: Container[str] = ()  # audit images that have no features, or none any more

    @cached_property
    def classes(self) -> tuple[Klass, ...]:
        """The classes there are, without merged ones; a model numbers them in this order."""
        return tuple(each for each in self.labels.classes if each.merged_into is None)

    @cached_property
    def number(self) -> dict[int, int]:
        """Map a class's id to its place."""
        return {each.id: place for place, each in enumerate(self.classes)}

    @cached_property
    def train(self) -> dict[str, int]:
        """Map images outside the audit to their class's place, in the order in which they were answered."""
        pairs = zip(self.labels.ids, self.labels.class_ids, strict=True)
        return {image: self.number[klass] for image, klass in pairs if not self.is_audit(image)}

    @cached_property
    def audit(self) -> dict[str, int]:
        """Map images to measure by, a random sample, to their class's place."""
        pairs = zip(self.labels.ids, self.labels.class_ids, strict=True)
        chosen = {image for image, by in self.provenance.items() if self.is_audit(image) and by in MEASURING}
        return {image: self.number[klass] for image, klass in pairs if image in chosen and image not in self.lost}

    @cached_property
    def learned(self) -> dict[str, int]:
        """Map all images that a live model learns to their class's place."""
        return {**self.train, **self.audit}

    @cached_property
    def provenance(self) -> dict[str, str]:
        """Map images to where their label came from."""
        return dict(zip(self.labels.ids, self.labels.provenance, strict=True))

    @cached_property
    def class_ids(self) -> tuple[int, ...]:
        """The ids of the classes, in this order."""
        return tuple(each.id for each in self.classes)

    @cached_property
    def audit_labels(self) -> NDArray[np.int64]:
        """What people say about the audit images. (N,)"""
        return np.array(list(self.audit.values()), np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(each.name for each in self.classes)

    def per_class(self) -> dict[str, int]:
        """Count the labels of each class."""
        counts = Counter(self.learned.values())
        return {name: counts[place] for place, name in enumerate(self.names)}

    def summary(self) -> dict[str, Any]:
        """Return what a model's report says of the labels; `provenance` counts them by where their image came from."""
        return {
            "seq": self.labels.seq,
            "labels": len(self.learned),
            "audit": len(self.audit),
            "classes": self.names,
            "class_ids": self.class_ids,
            "per_class": self.per_class(),
            "provenance": dict(sorted(Counter(self.labels.provenance).items())),
        }

    def as_csv(self) -> bytes:
        """Return the snapshot as a table: one line per label, then those who could not tell, then the excluded."""
        names = {each.id: each.name for each in self.labels.classes}
        columns = (self.labels.ids, self.labels.class_ids, self.labels.provenance, self.labels.by, self.labels.seqs)
        rows: list[list[Any]] = [["image", "answer", "class_id", "provenance", "by", "seq", "audit"]]
        for image, klass, provenance, by, seq in zip(*columns, strict=True):
            rows.append([image, names[klass], klass, provenance, by, seq, int(self.is_audit(image))])
        for kind, images in (("can't tell", self.labels.cannot_tell), ("exclude", self.labels.excluded)):
            rows += [[image, kind, None, None, None, None, int(self.is_audit(image))] for image in images]
        return render_csv(rows)


@dataclass(eq=False)
class Pool:
    """The images of a project with their features; row by row in an order that never changes.

    Audit images are rows like the others; nobody picks them, and no guess is learned for them.
    """

    images: list[ProjectImage]  # in the order of the rows
    views: VectorViews
    everything: dict[str, ProjectImage]  # by id, also those without features

    def __post_init__(self) -> None:
        self.row = {image.id: row for row, image in enumerate(self.images)}

    def __len__(self) -> int:
        return len(self.images)

    def group(self, image: str) -> str:
        """Return the first of an image's near-duplicates."""
        return self.everything[image].group

    def vectors(self, rows: Ints) -> Tensor:
        """Return where some rows lie."""  # (N, D)
        return self.views.where(rows)

    def parts(self, rows: Ints) -> Parts:
        """Return the stored vectors of some rows, for heads of any pool."""
        return [part.take(rows) for part in self.views.parts]


def photo_files(root: Path, images: Sequence[ProjectImage]) -> PhotoFiles:
    """Return images of a project as a backbone reads them: each is compared with its id every time."""
    keys = np.frombuffer(bytes.fromhex("".join(image.id for image in images)), np.uint8).reshape(-1, 32)
    return PhotoFiles(
        root, [image.name for image in images], keys, f"look at the folder again:  mma start {quote_path(root)}"
    )


def live_config(project: Project) -> Config:
    """Return the settings of the live model: those of the preset photos, on the backbone that the project wants."""
    config = preset("photos")
    views = feature_views(config)
    views = views.model_copy(update={"backbone": project.settings.backbone or views.backbone})
    return config.model_copy(update={"seed": project.settings.seed, "views": views})


def feature_views(config: Config) -> FeatureViews:
    """Return the views of a live model, which are of features."""
    assert isinstance(config.views, FeatureViews)
    return config.views


def open_pool(
    project: Project, images: Sequence[ProjectImage], say: Say = silent, settings: FeatureViews | None = None
) -> Pool:
    """Return the pool of images whose features are stored, in the project's own order: the same images, the same rows."""
    everything, wanted = {image.id: image for image in project.images()}, {image.id for image in images}
    ordered = [image for image in everything.values() if image.id in wanted]
    source = (settings or feature_views(live_config(project))).open_source(
        photo_files(project.root, ordered), HOST, say
    )
    return Pool(ordered, source, everything)


def open_ready_pool(
    project: Project, images: Sequence[ProjectImage], needed: Collection[str], say: Say = silent
) -> Pool:
    """Return the pool of the images that have features by now, and of those of `needed`; of all, where none has any."""
    settings = feature_views(live_config(project))
    source, best, stored = photo_files(project.root, images), settings, set[str]()
    for views in (settings, settings.model_copy(update={"mirror": False, "crops": 0})):
        kept = StoredViews(mirror=views.mirror, crops=views.crops)
        parts = [open_store(source, part.resolve(), kept).keys() for part in parse_backbone(views.backbone).parts]
        here = set.intersection(*({bytes(key).hex() for key in keys} for keys in parts))
        best, stored = (views, here) if len(here) > len(stored) else (best, stored)
    wanted = {*stored, *needed}
    return open_pool(project, [image for image in images if image.id in wanted or not stored], say, best)


def compute_features(
    root: Path, settings: FeatureViews, images: Sequence[ProjectImage], say: Say
) -> tuple[list[ProjectImage], str]:
    """Compute and store features. Return the images that have them, and why others have not, if any."""
    views = StoredViews(mirror=settings.mirror, crops=settings.crops)
    why = ""
    try:
        settings.compute(photo_files(root, images), views, say)
    except UserError as error:
        # Those that a backbone can see, and that still have the bytes they were indexed with.
        readable = [image for image in images if usable_key(root, image.name) == image.id]
        if len(readable) == len(images):
            raise
        images, why = readable, str(error)
        if readable:
            settings.compute(photo_files(root, readable), views, say)
    return list(images), why


def usable_key(root: Path, name: str) -> str | None:
    """Return the sha256 of a photo below `root`, which must be resolved; None for one that no backbone can see."""
    try:
        photo, key = read_unscaled_photo(root, name, 64)
    except Exception:  # decoders raise anything at all on broken bytes
        return None
    return bytes(key).hex() if min(photo.shape[:2]) >= SMALLEST else None


@dataclass(eq=False)
class Gathering:
    """Which images have features, which cannot have any, and the pool of those that do."""

    project: Project
    settings: FeatureViews
    note: Note  # hears how far it is
    pool: Pool | None = None
    ready: dict[str, ProjectImage] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    waiting: list[ProjectImage] = field(default_factory=list)
    images: int = -1  # in the project when it was last listed
    begun: tuple[float, int] = (0.0, 0)  # when, and with how many
    plain: bool = False  # only the plain views are there: with them a model sees every image, in a third of the time
    behind: list[ProjectImage] = field(default_factory=list)  # whose other views are missing
    told: bool = True  # a note of how far it is stands, perhaps that of a worker which was killed

    def is_missing(self) -> bool:
        """Tell whether some images have no features yet, or the pool must be opened anew."""
        changed = self.project.counts().images != self.images
        return changed or bool(self.waiting) or (self.pool is None and bool(self.ready))

    def advance(self, labeled: Collection[str]) -> None:
        """Compute the features of the next block; labeled images come first."""
        if self.project.counts().images != self.images:
            self.list_images(labeled)
        self.tell()
        if not self.plain and len(self.waiting) >= LARGE and self.ready and self.seconds_left() > LONG:
            self.plain, self.waiting, self.ready = True, [*self.ready.values(), *self.waiting], {}
            self.begun = time.monotonic(), 0
        block, self.waiting = self.waiting[:BLOCK], self.waiting[BLOCK:]
        self.compute(block)
        # The pool is opened anew at the end, and on the way where that is far.
        have = 0 if self.pool is None else len(self.pool)
        stage = next((stage for stage in STAGES if stage > have), math.inf)
        far = len(self.ready) >= stage and self.seconds_left() > SOON
        if self.ready and (far or not self.waiting):
            self.open()
            self.behind = list(self.ready.values()) if self.plain and not self.waiting else []
        if not self.waiting:
            self.tell()

    def catch_up(self) -> None:
        """Compute the other views of the next block. The pool has them when all images do."""
        block, self.behind = self.behind[:BLOCK], self.behind[BLOCK:]
        self.compute(block, self.settings)
        if not self.behind:
            self.plain = False
            self.open()

    @property
    def seen(self) -> FeatureViews:
        """The views that the pool has."""
        return self.settings.model_copy(update={"mirror": False, "crops": 0}) if self.plain else self.settings

    def compute(self, block: list[ProjectImage], views: FeatureViews | None = None) -> None:
        """Compute features of a block, and note whose cannot be."""
        if block:
            known, why = compute_features(self.project.root, views or self.seen, block, silent)
            lost = {image.id for image in block} - {image.id for image in known}
            self.ready = {each: image for each, image in self.ready.items() if each not in lost}
            self.ready.update((image.id, image) for image in known)
            self.broken.update((each, why) for each in lost)

    def open(self) -> None:
        """Open the pool of the images that have features."""
        self.pool = open_pool(self.project, list(self.ready.values()), settings=self.seen)

    def list_images(self, labeled: Collection[str]) -> None:
        """See which images there are now."""
        self.images, listed = self.project.counts().images, self.project.images()
        first, here = set(labeled), {image.id for image in listed}
        self.ready = {each: image for each, image in self.ready.items() if each in here}
        new = [image for image in listed if image.id not in self.ready and image.id not in self.broken]
        self.waiting = sorted(new, key=lambda image: image.id not in first)  # stable: otherwise in their own order
        self.begun = time.monotonic(), len(self.ready)

    def seconds_left(self) -> float:
        """Return how long the images that wait will take."""
        since, first = self.begun
        return (time.monotonic() - since) / max(len(self.ready) - first, 1) * len(self.waiting)

    def tell(self) -> None:
        """Note how far it is, and how long it will take; nothing when it is a matter of a second."""
        (since, first), done = self.begun, len(self.ready)
        if self.waiting and (time.monotonic() - since >= QUICK or len(self.waiting) > 2 * BLOCK):
            self.told = True
            self.note(done, done + len(self.waiting), duration(self.seconds_left()) if done > first else None)
        elif self.told and not self.waiting:
            self.told = False
            self.note(done, done, None)
