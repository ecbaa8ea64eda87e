"""Where the mistakes may be: labels that look wrong, alike images with two labels, folders that people cannot tell. No torch.

Pure functions. Probabilities must be out of sample: of models that were not trained on the label they judge.
"""

from __future__ import annotations

import importlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXTRA = "finding wrong labels needs cleanlab:  pip install 'mma-learn[review]'"
Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Suspect:
    """A label that may be wrong."""

    row: int
    given: int
    likely: int  # the class that the probabilities favour
    self_confidence: float  # probability of the given label


def find_wrong_labels(labels: Ints, probs: Floats) -> list[Suspect]:
    """Return the labels that may be wrong, the least likely first (confident learning, arXiv:1911.00068).

    An image counts as mislabeled when another class is predicted with more than that class's own average confidence. This tells
    how many there are; which ones they are is told best by the probability of the given label. A class without a label takes no
    part; with fewer than two classes there is nothing to compare, so nothing is suspect.
    """
    present = np.unique(labels)
    if len(present) < 2:
        return []
    judged = probs[:, present].astype(np.float64)
    judged = judged / np.maximum(judged.sum(axis=1, keepdims=True), 1e-12)
    given = np.searchsorted(present, labels)
    filtering = _import_filter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of classes with few labels, which is where we begin
        rows = filtering.find_label_issues(
            given, judged, return_indices_ranked_by="self_confidence", filter_by="low_self_confidence", n_jobs=1
        )
    return [_suspect(int(row), labels, probs, present) for row in rows]


def _suspect(row: int, labels: Ints, probs: Floats, present: Ints) -> Suspect:
    given = int(labels[row])
    others = present[present != given]
    likely = int(others[probs[row, others].argmax()])
    return Suspect(row, given, likely, float(probs[row, given]))


def _import_filter() -> Any:
    try:
        return importlib.import_module("cleanlab.filter")
    except ImportError:
        raise ValueError(EXTRA) from None


def label_margins(labels: Ints, probs: Floats) -> Floats:
    """Return by how much the given label is more likely than the best other one; below 0 it is not. (N,)"""
    given = probs[np.arange(len(labels)), labels]
    others = probs.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    margins: Floats = given - others.max(axis=1)
    return margins


@dataclass(frozen=True)
class LabelConflict:
    """Images that are the same, or nearly, and have several labels: class -> images, the commonest first."""

    group: str
    images: dict[int, tuple[str, ...]]


def find_conflicts(labels: Mapping[str, int], groups: Mapping[str, str]) -> list[LabelConflict]:
    """Return the groups of near-duplicates whose images have different labels, the largest first."""
    members: defaultdict[str, defaultdict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for image, label in sorted(labels.items()):
        members[groups.get(image, image)][label].append(image)
    several = {group: by_class for group, by_class in members.items() if len(by_class) > 1}
    order = sorted(several, key=lambda group: (-sum(map(len, several[group].values())), group))
    return [
        LabelConflict(group, {label: tuple(images) for label, images in _commonest_first(several[group])})
        for group in order
    ]


def _commonest_first(by_class: Mapping[int, Sequence[str]]) -> list[tuple[int, Sequence[str]]]:
    return sorted(by_class.items(), key=lambda item: (-len(item[1]), item[0]))


@dataclass(frozen=True)
class FolderDoubt:
    """A folder, how many of its images people could not tell, and how many were asked about."""

    folder: str
    cannot_tell: int
    asked: int


def doubts_by_folder(asked: Iterable[str], cannot_tell: Iterable[str]) -> list[FolderDoubt]:
    """Group what people cannot tell by folder, the most doubtful first. Both are paths of images, with / between folders."""
    unsure = Counter(_folder(path) for path in cannot_tell)
    all_asked = Counter(_folder(path) for path in asked)
    found = [FolderDoubt(folder, count, max(all_asked[folder], count)) for folder, count in unsure.items()]
    return sorted(found, key=lambda doubt: (-doubt.cannot_tell, doubt.folder))


def _folder(path: str) -> str:
    parent = PurePosixPath(path).parent.as_posix()
    return "" if parent == "." else parent
