"""`mma review`: labels and images of a project that somebody should look at again. Nothing is changed.

Audit images are left out: looking at them again because of what a model says would spoil the measurement.
"""

from __future__ import annotations

import importlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mma.config import Config
from mma.errors import UserError
from mma.features.table import unit
from mma.project.labels.events import merge_roots
from mma.project.project import Project
from mma.project.quality.accuracy import cross_fit
from mma.project.quality.agreement import (
    Answers,
    Kappa,
    find_disagreements,
    overall_kappa,
    pairwise_kappas,
    second_looks,
    self_consistency,
)
from mma.project.records import ANSWERS, Event
from mma.project.worker.features import Pool, TrainingSet, live_config, open_ready_pool
from mma.project.worker.live_model import fit_answers
from mma.project.worker.picks import nearest_similarity
from mma.text import install_hint

LEAST = 20  # labels before any is called wrong
NEIGHBOURS = 5
FARTHEST = 2_000  # images farthest from all labels, among which groups are looked for
FEWEST = 5  # images that make a group
FAR = 0.02  # share of the labeled images that are as far from their nearest labeled one as an image of no class is
APART = (
    0.7  # of the median distance between classes. On objects, parts of one class: 0.1 to 0.67; two as one: 0.7 to 1.3
)
LOOSE = 0.1  # share of the labeled images that are as far from it as two images of one group may be
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
class ChangedMind:
    """An image that was asked about twice and answered differently."""

    file: str
    before: str
    after: str


@dataclass(frozen=True)
class FolderDoubt:
    """A folder, how many of its images people could not tell, and how many were asked about."""

    folder: str
    cannot_tell: int
    asked: int


@dataclass(frozen=True)
class SplitClass:
    """A class whose images fall into two parts that are nearly as far apart as two classes are."""

    label: str
    files: tuple[str, ...]  # the smaller part, the most typical first
    others: int  # images of the larger one


@dataclass(frozen=True)
class Mistakes:
    """What to look at again. Classes and files by name."""

    labels: int
    predicted: float | None  # share of the labels that models predict unseen: how far to trust suspects
    suspects: tuple[SuspectLabel, ...]
    conflicts: tuple[dict[str, tuple[str, ...]], ...]  # class -> near-duplicates that have it
    agreement: Kappa  # of all people
    pairs: dict[str, Kappa]  # "Ann, Bob" -> agreement
    disagreements: tuple[str, ...]
    self_agreement: dict[str, Kappa]  # of people asked about an image again
    changed: tuple[ChangedMind, ...]
    doubts: tuple[FolderDoubt, ...]
    unknown_groups: tuple[tuple[str, ...], ...]  # files that look alike and match no class
    split: tuple[SplitClass, ...]
    notes: tuple[str, ...]  # what was not looked for, and why


def find_mistakes(project: Project, say: Callable[[str], None] = lambda message: None) -> Mistakes:
    """Look for mistakes in a project's labels. While features are computed, the images take part that have them."""
    training = TrainingSet(project.labels(), project.is_audit)
    names = {image.id: image.name for image in project.images()}
    events = project.events()
    undone = {event.supersedes for event in events if event.kind == "undo"}
    events = [event for event in events if event.kind in ANSWERS and event.id not in undone]
    # A label that was kept or corrected in the review needs no third look.
    last = {event.image: event for event in events}
    reviewed = {image for image, event in last.items() if event.provenance == "review"}
    labels = {image: label for image, label in training.train.items() if image in names}
    conflicts = [
        {training.names[label]: tuple(names[image] for image in images) for label, images in conflict.items()}
        for conflict in find_conflicts(labels, project.groups())
        if any(image not in reviewed for images in conflict.values() for image in images)
    ]
    answers, repeats = answers_by_person(events, merge_roots(training.labels.classes))
    unsure = [names[image] for image in training.labels.cannot_tell if image in names]
    predicted, suspects, split = None, list[SuspectLabel](), list[SplitClass]()
    unknown_groups, notes = list[tuple[str, ...]](), list[str]()
    if (many := len(training.train)) < LEAST:
        notes = [f"wrong labels and new classes are looked for from {LEAST} labels on; there are {many}."]
    else:
        config = live_config(project)
        images = [image for image in project.images() if not image.audit]
        pool = open_ready_pool(project, images, training.train, say)
        if len(pool) < len(images):
            notes = [f"new classes were looked for among the {len(pool):,} photos that are prepared so far."]
        predicted, suspects = suspect_labels(pool, training, config, reviewed)
        left_out = {*training.labels.cannot_tell, *training.labels.excluded}
        rows = np.array([row for row, image in enumerate(pool.images) if image.id not in left_out], np.int64)
        given = np.array([training.train.get(pool.images[row].id, -1) for row in rows], np.int64)
        x = unit(pool.vectors(rows).numpy())
        groups = find_unknown_groups(x, given)
        unknown_groups = [tuple(pool.images[rows[row]].name for row in group) for group in groups]
        for part, others in find_split_classes(x, given):
            files = tuple(pool.images[rows[row]].name for row in part)
            split.append(SplitClass(training.names[int(given[part[0]])], files, others))
    return Mistakes(
        labels=len(training.train),
        predicted=predicted,
        suspects=tuple(suspects),
        conflicts=tuple(conflicts),
        agreement=overall_kappa(answers, 1 + max((klass.id for klass in training.labels.classes), default=0)),
        pairs={", ".join(pair): kappa for pair, kappa in pairwise_kappas(answers).items()},
        disagreements=tuple(names[i] for i in find_disagreements(answers) if i in names and i not in reviewed),
        self_agreement=self_consistency(repeats),
        changed=tuple(
            ChangedMind(names[each.image], each.before, each.after)
            for each in second_looks(project).corrections
            if each.asked_again and each.image in names and each.image not in reviewed
        ),
        doubts=tuple(doubts_by_folder([*(names[image] for image in labels), *unsure], unsure)),
        unknown_groups=tuple(unknown_groups),
        split=tuple(split),
        notes=tuple(notes),
    )


def answers_by_person(
    answers: Sequence[Event], target: Mapping[int, int]
) -> tuple[Answers, list[tuple[str, int, int]]]:
    """Return what each person last said about each image, and (person, first answer, second) of those asked again."""
    last, repeats = dict[str, dict[str, int]](), list[tuple[str, int, int]]()
    for event in answers:
        if event.kind != "label" or event.image is None or event.class_id is None or event.class_id not in target:
            continue
        label, given = target[event.class_id], last.setdefault(event.image, {})
        if event.by in given and event.supersedes is None:  # a correction of one's own answer is no second opinion
            repeats.append((event.by, given[event.by], label))
        given[event.by] = label
    return last, repeats


def find_conflicts(labels: Mapping[str, int], groups: Mapping[str, str]) -> list[dict[int, tuple[str, ...]]]:
    """Return near-duplicates with different labels: class -> images, the commonest first; the largest group first."""
    members: defaultdict[str, defaultdict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for image, label in sorted(labels.items()):
        members[groups.get(image, image)][label].append(image)
    several = sorted(members.items(), key=lambda item: (-sum(map(len, item[1].values())), item[0]))
    return [
        {label: tuple(images) for label, images in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))}
        for _, found in several
        if len(found) > 1
    ]


def doubts_by_folder(asked: Iterable[str], cannot_tell: Iterable[str]) -> list[FolderDoubt]:
    """Group what people cannot tell by folder, the most doubtful first. Both are paths of images, with / between folders."""
    unsure, all_asked = (Counter(path.rpartition("/")[0] for path in paths) for paths in (cannot_tell, asked))
    doubts = [FolderDoubt(folder, count, max(all_asked[folder], count)) for folder, count in unsure.items()]
    return sorted(doubts, key=lambda doubt: (-doubt.cannot_tell, doubt.folder))


# Labels that models doubt. A model never judges a label that it was trained on.


def suspect_labels(
    pool: Pool, training: TrainingSet, config: Config, reviewed: Container[object]
) -> tuple[float, list[SuspectLabel]]:
    """Return the share of labels that models predict without having seen them, and the suspects not yet reviewed."""
    images = [image for image in training.train if image in pool.row]
    by = dict(zip(training.labels.ids, training.labels.by, strict=True))
    labels, probs = out_of_sample(pool, training, images, config)
    x = unit(pool.vectors(np.array([pool.row[image] for image in images], np.int64)).numpy())
    _, group = np.unique([pool.group(image) for image in images], return_inverse=True)
    suspects = []
    for wrong in find_wrong_labels(labels, probs):
        image = images[wrong.row]
        if image in reviewed:
            continue
        alike = np.where(group == group[wrong.row], -np.inf, x @ x[wrong.row])  # near-duplicates are not neighbours
        nearest = np.argsort(-alike, kind="stable")[:NEIGHBOURS]
        nearest = nearest[group[nearest] != group[wrong.row]]
        sure = (round(wrong.self_confidence, 4), round(float(probs[wrong.row, wrong.likely]), 4))
        agree, names = (
            int((labels[nearest] == wrong.likely).sum()),
            (training.names[wrong.given], training.names[wrong.likely]),
        )
        suspects.append(SuspectLabel(pool.images[pool.row[image]].name, *names, *sure, agree, by[image]))
    return round(float((probs.argmax(1) == labels).mean()), 4), suspects


def out_of_sample(pool: Pool, training: TrainingSet, images: Sequence[str], config: Config) -> tuple[Ints, Floats]:
    """Return the labels of images, and what live models say that were trained without them; near-duplicates stay together."""
    labels = np.array([training.train[image] for image in images], np.int64)
    rows = np.array([pool.row[image] for image in images], np.int64)

    def predict(test: NDArray[np.bool_]) -> Floats:
        known = dict(zip(rows[~test].tolist(), labels[~test].tolist(), strict=True))
        return fit_answers(pool, training, known, config).probabilities(pool.views, rows[test])

    return labels, cross_fit(labels, [pool.group(image) for image in images], predict)


class Suspect(NamedTuple):
    """A label that may be wrong."""

    row: int
    given: int
    likely: int  # the class that the probabilities favour
    self_confidence: float  # probability of the given label


def find_wrong_labels(labels: Ints, probs: Floats) -> list[Suspect]:
    """Return the labels that may be wrong, the least likely first (confident learning, arXiv:1911.00068).

    How many there are is told by other classes predicted with more than their own average confidence; which ones they are is
    told best by the probability of the given label. A class without a label takes no part.
    """
    present = np.unique(labels)
    if len(present) < 2:
        return []
    judged = probs[:, present].astype(np.float64)
    judged /= np.maximum(judged.sum(axis=1, keepdims=True), 1e-12)
    try:
        cleanlab = importlib.import_module("cleanlab.filter")
    except ImportError:
        raise UserError(f"finding wrong labels needs cleanlab:  {install_hint('review')}") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of classes with few labels, which is where we begin
        rows = cleanlab.find_label_issues(
            np.searchsorted(present, labels),
            judged,
            return_indices_ranked_by="self_confidence",
            filter_by="low_self_confidence",
            n_jobs=1,
        )
    others = probs.copy()
    others[np.arange(len(labels)), labels] = -np.inf  # never the given label, nor a class without one
    likely = present[others[:, present].argmax(axis=1)]
    return [Suspect(row, int(labels[row]), int(likely[row]), float(probs[row, labels[row]])) for row in map(int, rows)]


def label_margins(labels: Ints, probs: Floats) -> Floats:
    """Return by how much the given label is more likely than the best other one; below 0 it is not. (N,)"""
    given, others = (np.arange(len(labels)), labels), probs.copy()
    others[given] = -np.inf
    return np.asarray(probs[given] - others.max(axis=1))


# Images that match no class, and look alike: perhaps a class that nobody has named yet.


def find_unknown_groups(features: Floats, labels: Ints) -> list[tuple[int, ...]]:
    """Return groups of unlabeled rows (label -1) that look like no labeled one: the largest first, the most typical row first.

    An image matches no class when its nearest labeled image is farther away than that of all but a few labeled ones is from
    their own. Groups are images with FEWEST neighbours as near as most labeled images have theirs. Costs images x labels.
    """  # (N, D) of length one, (N,)
    from sklearn.cluster import DBSCAN

    labeled, unlabeled = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    if len(labeled) < 2 or not len(unlabeled):
        return []
    own = nearest_similarity(features[labeled], features[labeled], skip_self=True)
    border, alike = np.quantile(own, [FAR, LOOSE]).tolist()
    nearest = nearest_similarity(features[unlabeled], features[labeled])
    order = np.argsort(nearest, kind="stable")
    rows = np.sort(unlabeled[order[nearest[order] < border][:FARTHEST]])
    if len(rows) < FEWEST:
        return []
    x = features[rows].astype(np.float32)
    distance = np.clip(1.0 - x @ x.T, 0.0, 2.0)
    numbers = DBSCAN(eps=max(1.0 - alike, 1e-6), min_samples=FEWEST, metric="precomputed").fit(distance).labels_
    groups = []
    for number in range(numbers.max() + 1):
        members, of = x[numbers == number], rows[numbers == number]
        groups.append(tuple(of[np.argsort(-(members @ members.mean(axis=0)), kind="stable")].tolist()))
    return sorted(groups, key=lambda group: (-len(group), group))


def find_split_classes(features: Floats, labels: Ints) -> list[tuple[tuple[int, ...], int]]:
    """Return parts of classes that look like a class of their own: the rows of the smaller part, the size of the larger.

    Each class is cut in two (2-means); what counts is whether its parts are nearly as far apart as two classes are.
    """  # (N, D) of length one, (N,)
    from sklearn.cluster import KMeans

    present = [klass for klass in np.unique(labels) if klass >= 0 and (labels == klass).sum() >= FEWEST]
    if len(present) < 2:
        return []
    means = unit(np.stack([features[labels == klass].mean(axis=0, dtype=np.float64) for klass in present]))
    apart = APART * np.median(1.0 - (means @ means.T)[np.triu_indices(len(means), 1)])
    found = []
    for klass in present:
        rows = np.flatnonzero(labels == klass)
        if len(rows) < 2 * FEWEST:
            continue
        x = features[rows].astype(np.float64)
        part = KMeans(2, n_init=8, random_state=0).fit(x).labels_
        sides = [rows[part == side] for side in (0, 1)]
        small, large = sorted(sides, key=len)
        centres = unit(np.stack([features[side].mean(axis=0, dtype=np.float64) for side in (small, large)]))
        if len(small) >= FEWEST and 1.0 - centres[0] @ centres[1] >= apart:
            typical = np.argsort(-(features[small] @ centres[0]), kind="stable")
            found.append((tuple(small[typical].tolist()), len(large)))
    return found
