"""The labels of one moment, as training and measuring see them. It never changes. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.data.tables import render_csv
from mma.project.records import Klass, Labels

MEASURING = ("audit", "import", "review")  # labels of audit images that nobody chose for what a model thinks of them


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
        rows = zip(self.labels.ids, self.labels.class_ids, self.labels.provenance, strict=True)
        return {
            image: self.number[klass]
            for image, klass, provenance in rows
            if self.is_audit(image) and provenance in MEASURING and image not in self.lost
        }

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

    def can_train(self) -> bool:
        """Tell whether there are two classes to tell apart."""
        return len(set(self.learned.values())) > 1

    def per_class(self) -> dict[str, int]:
        """Count the labels of each class."""
        counts = Counter(self.learned.values())
        return {name: counts[place] for place, name in enumerate(self.names)}

    def by(self) -> dict[str, int]:
        """Count labels by who gave them."""
        return dict(sorted(Counter(self.labels.by).items()))

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
