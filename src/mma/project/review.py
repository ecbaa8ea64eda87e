"""`mma review`: everything about a project that somebody should look at again. Nothing is changed.

Audit images are left out: whoever looked at them again because of what a model says would spoil the measurement.
"""

from __future__ import annotations

import importlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.config import Config
from mma.errors import UserError
from mma.project.labels.events import merge_roots
from mma.project.project import Project
from mma.project.quality.accuracy import fold_numbers
from mma.project.quality.agreement import (
    Answers,
    Kappa,
    find_disagreements,
    overall_kappa,
    pairwise_kappas,
    second_looks,
    self_consistency,
)
from mma.project.records import ANSWERS, Event, Klass
from mma.project.worker.features import Pool, open_pool
from mma.project.worker.live_model import fit_answers
from mma.project.worker.round import live_config
from mma.project.worker.training_set import TrainingSet
from mma.text import install_hint
from mma.views import FeatureViews

LEAST = 20  # labels before any is called wrong
NEIGHBOURS = 5
Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class SuspectLabel:
    """A label that may be wrong, and the class that is likelier."""

    file: str
    label: str
    likely: str
    confidence: float  # probability of the label, by models that did not see it
    likely_confidence: float  # and of the likelier class
    neighbours: int  # of the NEIGHBOURS nearest other labels, how many are of the likelier class
    by: str


@dataclass(frozen=True)
class JudgedImages:
    """What models say about labels that they did not see, and about images without one."""

    predicted: float | None = None
    suspects: tuple[SuspectLabel, ...] = ()
    strangers: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChangedMind:
    """An image that was asked about twice and answered differently."""

    file: str
    before: str
    after: str


@dataclass(frozen=True)
class Mistakes:
    """What to look at again. Classes and files by name."""

    labels: int
    predicted: (
        float | None
    )  # share of the labels that models which did not see them get right: how far to trust suspects
    suspects: tuple[SuspectLabel, ...]
    conflicts: tuple[dict[str, tuple[str, ...]], ...]  # class -> near-duplicates that have it
    agreement: Kappa  # of all people
    pairs: dict[str, Kappa]  # "Ann, Bob" -> agreement
    disagreements: tuple[str, ...]
    self_agreement: dict[str, Kappa]  # of people asked about an image again
    changed: tuple[ChangedMind, ...]  # images that were answered differently when asked again
    doubts: tuple[FolderDoubt, ...]
    strangers: tuple[tuple[str, ...], ...]  # groups of files that look like no class
    notes: tuple[str, ...]  # what was not looked for, and why


def find_mistakes(project: Project, say: Callable[[str], None] = lambda message: None) -> Mistakes:
    """Look for mistakes in a project's labels. Features are computed where they are not stored yet."""
    training = TrainingSet(project.labels(), project.is_audit)
    names = {image.id: image.name for image in project.images()}
    events = project.events()
    settled = reviewed_images(events)
    judged = judge_images(project, training, names, say, settled)
    known = {image: label for image, label in training.train.items() if image in names}
    answers, repeats = answers_by_person(events, training.labels.classes)
    pairs = pairwise_kappas(answers)
    unsure = [names[image] for image in training.labels.cannot_tell if image in names]
    return Mistakes(
        len(training.train),
        judged.predicted,
        judged.suspects,
        tuple(
            {training.names[label]: tuple(names[image] for image in images) for label, images in found.images.items()}
            for found in find_conflicts(known, project.groups())
            if not {image for images in found.images.values() for image in images} <= settled
        ),
        overall_kappa(answers, 1 + max((klass.id for klass in training.labels.classes), default=0)),
        {", ".join(pair): kappa for pair, kappa in pairs.items()},
        tuple(names[image] for image in find_disagreements(answers) if image in names and image not in settled),
        self_consistency(repeats),
        tuple(
            ChangedMind(names[each.image], each.before, each.after)
            for each in second_looks(project).corrections
            if each.asked_again and each.image in names and each.image not in settled
        ),
        tuple(doubts_by_folder([*(names[image] for image in known), *unsure], unsure)),
        judged.strangers,
        judged.notes,
    )


def reviewed_images(events: Sequence[Event]) -> set[str]:
    """Return the images whose label somebody has looked at in the review: it was kept or corrected."""
    undone = {event.supersedes for event in events if event.kind == "undo"}
    last = {
        event.image: event.provenance
        for event in events
        if event.image is not None and event.kind in ANSWERS and event.id not in undone
    }
    return {image for image, provenance in last.items() if provenance == "review"}


def judge_images(
    project: Project,
    training: TrainingSet,
    names: dict[str, str],
    say: Callable[[str], None],
    settled: Container[str] = (),
) -> JudgedImages:
    """Look for suspect labels, and for groups of images that look like no class.

    Labels that are `settled` were looked at already, and are no longer suspect.
    """
    if len(training.train) < LEAST:
        why = f"wrong labels and new classes are looked for from {LEAST} labels on; there are {len(training.train)}."
        return JudgedImages(notes=(why,))
    config = live_config(project)
    assert isinstance(config.views, FeatureViews)
    pool = open_pool(project, config.views, [image for image in project.images() if not image.audit], say)
    by = dict(zip(training.labels.ids, training.labels.by, strict=True))
    images = [image for image in training.train if image in pool.row]
    labels, probs = out_of_sample(pool, training, images, config)
    wrong = [found for found in find_wrong_labels(labels, probs) if images[found.row] not in settled]
    near = nearest_labels(pool, images, labels, [found.row for found in wrong])
    suspects = [
        SuspectLabel(
            names[images[found.row]],
            training.names[found.given],
            training.names[found.likely],
            round(found.self_confidence, 4),
            round(float(probs[found.row, found.likely]), 4),
            int((labels_near == found.likely).sum()),
            by[images[found.row]],
        )
        for found, labels_near in zip(wrong, near, strict=True)
    ]
    return JudgedImages(
        round(float((probs.argmax(1) == labels).mean()), 4), tuple(suspects), strangers_of(pool, training)
    )


def nearest_labels(pool: Pool, images: Sequence[str], labels: Ints, rows: Sequence[int]) -> Ints:
    """Return the labels of the nearest labeled neighbours of some images; near-duplicates are none. (rows, NEIGHBOURS)"""
    x = pool.vectors(np.array([pool.row[image] for image in images], np.int64)).numpy()
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    _, group = np.unique([pool.group(image) for image in images], return_inverse=True)
    found = np.full((len(rows), NEIGHBOURS), -1, np.int64)
    for place, row in enumerate(rows):
        alike = np.where(group == group[row], -np.inf, x @ x[row])
        nearest = np.argsort(-alike, kind="stable")[:NEIGHBOURS]
        nearest = nearest[group[nearest] != group[row]]
        found[place, : len(nearest)] = labels[nearest]
    return found


def out_of_sample(pool: Pool, training: TrainingSet, images: Sequence[str], config: Config) -> tuple[Ints, Floats]:
    """Return the labels of images, and what live models say that were trained without them; near-duplicates stay together."""
    labels = np.array([training.train[image] for image in images], np.int64)
    rows = np.array([pool.row[image] for image in images], np.int64)
    fold = fold_numbers(labels, [pool.group(image) for image in images])
    probs = np.zeros((len(labels), len(training.classes)), np.float32)
    for number in np.unique(fold):
        test = fold == number
        known = dict(zip(rows[~test].tolist(), labels[~test].tolist(), strict=True))
        probs[test] = fit_answers(pool, training, known, config).probabilities(pool.views, rows[test])
    return labels, probs


def strangers_of(pool: Pool, training: TrainingSet) -> tuple[tuple[str, ...], ...]:
    """Return groups of unlabeled images that look like no class; what people could not tell or excluded is left out."""
    away = {*training.labels.cannot_tell, *training.labels.excluded}
    rows = np.array([row for row, image in enumerate(pool.images) if image.id not in away], np.int64)
    vectors = pool.vectors(rows).numpy()
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    labels = np.array([training.train.get(pool.images[row].id, -1) for row in rows], np.int64)
    groups = find_strangers(vectors, labels)
    return tuple(tuple(pool.images[rows[row]].name for row in group.rows) for group in groups)


def answers_by_person(events: Sequence[Event], classes: Sequence[Klass]) -> tuple[Answers, list[tuple[str, int, int]]]:
    """Return what each person last said about each image, and what those said first who were asked again.

    Answers that were undone do not count, and a correction of one's own answer is no second opinion.
    """
    target = merge_roots(classes)
    undone = {event.supersedes for event in events if event.kind == "undo"}
    last: dict[str, dict[str, int]] = {}
    repeats: list[tuple[str, int, int]] = []
    for event in events:
        if event.kind != "label" or event.id in undone or event.image is None or event.class_id not in target:
            continue
        said, given = target[event.class_id], last.setdefault(event.image, {})
        if event.by in given and event.supersedes is None:
            repeats.append((event.by, given[event.by], said))
        given[event.by] = said
    return last, repeats


# Where the mistakes may be: labels that look wrong, alike images with two labels, folders that people cannot tell. No torch.
# Pure functions. Probabilities must be out of sample: of models that were not trained on the label they judge.


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
        raise UserError(f"finding wrong labels needs cleanlab:  {install_hint('review')}") from None


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


# Images that look like none of the classes, and alike: perhaps a class that nobody has named yet. No torch.

BLOCK = 2_048  # images compared with the labeled ones at a time
MOST = 2_000  # of the strangest images, among which groups are looked for
FEWEST = 5  # images that make a group
FAR = 0.02  # share of the labeled images that are as far from their nearest fellow as a stranger is
LOOSE = 0.1  # and that are as far from it as two images of one group may be


@dataclass(frozen=True)
class StrangerGroup:
    """Images that are alike and like nothing that has a name; the most typical one first."""

    rows: tuple[int, ...]
    similarity: float  # of its images to their middle; 1 is the same

    def __len__(self) -> int:
        return len(self.rows)


def find_strangers(features: Floats, labels: Ints, fewest: int = FEWEST) -> list[StrangerGroup]:
    """Return groups of unlabeled images (label -1) that look like no labeled image, the largest first.

    `features` are vectors of length one. An image is strange when its nearest labeled image is farther away than that of
    all but a few labeled ones is from their own. Costs images x labels, in blocks; groups are looked for among the MOST
    strangest.
    """  # (N, D), (N,)
    known, free = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    if len(known) < 2 or not len(free):
        return []
    own = nearest_similarity(features[known], features[known], skip_self=True)
    border, alike = np.quantile(own, [FAR, LOOSE]).tolist()
    nearest = nearest_similarity(features[free], features[known])
    strange = free[nearest < border]
    strange = strange[np.argsort(nearest[nearest < border], kind="stable")][:MOST]
    return _groups(features, np.sort(strange), alike, fewest)


def nearest_similarity(images: Floats, others: Floats, *, skip_self: bool = False) -> Floats:
    """Return the cosine similarity of each image to its nearest other one. (N,)"""
    found = np.empty(len(images), np.float32)
    for start in range(0, len(images), BLOCK):
        block = images[start : start + BLOCK].astype(np.float32) @ others.astype(np.float32).T  # (B, M)
        if skip_self:
            block[np.arange(len(block)), start + np.arange(len(block))] = -np.inf
        found[start : start + BLOCK] = block.max(axis=1)
    return found


def _groups(features: Floats, rows: Ints, alike: float, fewest: int) -> list[StrangerGroup]:
    """Put images together that have enough neighbours as near as most labeled images have theirs."""
    from sklearn.cluster import DBSCAN

    if len(rows) < fewest:
        return []
    distance = np.clip(1.0 - features[rows].astype(np.float32) @ features[rows].astype(np.float32).T, 0.0, 2.0)
    numbers = DBSCAN(eps=max(1.0 - alike, 1e-6), min_samples=fewest, metric="precomputed").fit(distance).labels_
    groups = [_group(features, rows[numbers == number]) for number in range(numbers.max() + 1)]
    return sorted(groups, key=lambda group: (-len(group), group.rows))


def _group(features: Floats, rows: Ints) -> StrangerGroup:
    members = features[rows].astype(np.float32)
    middle = members.mean(axis=0)
    closeness = members @ (middle / max(float(np.linalg.norm(middle)), 1e-12))
    order = np.argsort(-closeness, kind="stable")
    return StrangerGroup(tuple(rows[order].tolist()), float(closeness.mean()))


def describe_strangers(groups: Sequence[StrangerGroup]) -> list[str]:
    """Say for each group what it may be."""
    return [f"{len(group):,} images look alike and like nothing you named: a new class?" for group in groups]
