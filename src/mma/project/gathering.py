"""Features of a project's images, a block at a time, so that the worker can do something else in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from mma.project.pool import Pool, compute_features, open_pool
from mma.project.project import Project
from mma.project.records import ProjectImage
from mma.text import duration
from mma.views import FeatureViews

BLOCK = 256  # images: a few seconds
QUICK, SOON = 1.0, 5.0  # seconds: too short to be mentioned, and to be worth a beginning with fewer images
STAGES = (300, 1_500, 6_000, 24_000)  # images after which the pool is opened anew: asking begins with the first few

Note = Callable[[str, dict[str, Any]], None]


@dataclass(eq=False)
class Gathering:
    """Which images have features, which cannot have any, and the pool of those that do."""

    project: Project
    settings: FeatureViews
    note: Note  # hears how far it is, in words and as numbers for a bar
    pool: Pool | None = None
    ready: dict[str, ProjectImage] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    waiting: list[ProjectImage] = field(default_factory=list)
    images: int = -1  # in the project when it was last listed
    begun: tuple[float, int] = (0.0, 0)  # when, and with how many

    def is_missing(self) -> bool:
        """Tell whether some images have no features yet, or the pool must be opened anew."""
        if self.project.counts().images != self.images:
            return True
        return bool(self.waiting) or (self.pool is None and bool(self.ready))

    def advance(self, labeled: Collection[str]) -> None:
        """Compute the features of the next block; labeled images come first."""
        if self.project.counts().images != self.images:
            self.list_images(labeled)
        self.tell()
        block, self.waiting = self.waiting[:BLOCK], self.waiting[BLOCK:]
        if block:
            known, why = compute_features(self.project.root, self.settings, block, lambda message: None)
            self.ready.update((image.id, image) for image in known)
            self.broken.update((image.id, why) for image in block if image.id not in self.ready)
        if self.ready and self.stage_is_reached():
            self.pool = open_pool(self.project, self.settings, list(self.ready.values()), lambda message: None)

    def list_images(self, labeled: Collection[str]) -> None:
        """See which images there are now."""
        self.images = self.project.counts().images
        first = set(labeled)
        listed = [image for image in self.project.images() if not image.audit]
        here = {image.id for image in listed}
        self.ready = {each: image for each, image in self.ready.items() if each in here}
        new = [image for image in listed if image.id not in self.ready and image.id not in self.broken]
        self.waiting = sorted(new, key=lambda image: image.id not in first)  # stable: otherwise in their own order
        self.begun = time.monotonic(), len(self.ready)

    def stage_is_reached(self) -> bool:
        """Tell whether the pool should be opened anew: at the end, and on the way where that is far."""
        have = 0 if self.pool is None else len(self.pool)
        stage = next((stage for stage in STAGES if stage > have), None)
        return not self.waiting or (stage is not None and len(self.ready) >= stage and self.seconds_left() > SOON)

    def seconds_left(self) -> float:
        """Return how long the images that wait will take."""
        since, first = self.begun
        return (time.monotonic() - since) / max(len(self.ready) - first, 1) * len(self.waiting)

    def tell(self) -> None:
        """Say how far it is, and how long it will take; nothing when it is a matter of a second."""
        since, first = self.begun
        if not self.waiting or (time.monotonic() - since < QUICK and len(self.waiting) <= 2 * BLOCK):
            return
        done, total = len(self.ready), len(self.ready) + len(self.waiting)
        left = self.seconds_left() if done > first else None
        words = f"features: {done:,} of {total:,} images" + ("" if left is None else f", about {duration(left)} left")
        self.note(words, {"name": "features", "done": done, "total": total, "left": left and duration(left)})
