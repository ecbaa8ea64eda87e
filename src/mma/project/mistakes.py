"""`mma review`: everything about a project that somebody should look at again. Nothing is changed.

Audit images are left out: whoever looked at them again because of what a model says would spoil the measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mma.config import Config
from mma.project.audit import fold_numbers
from mma.project.classes import merge_roots
from mma.project.heads import fit_answers
from mma.project.kappa import (
    Answers,
    Kappa,
    find_disagreements,
    overall_kappa,
    pairwise_kappas,
    self_consistency,
)
from mma.project.pool import Pool, open_pool
from mma.project.project import Project
from mma.project.recall import live_config
from mma.project.records import ANSWERS, Event, Klass
from mma.project.review import FolderDoubt, doubts_by_folder, find_conflicts, find_wrong_labels
from mma.project.second_looks import second_looks
from mma.project.strangers import find_strangers
from mma.project.training_set import TrainingSet
from mma.views import FeatureViews

LEAST = 20  # labels before any is called wrong
NEIGHBOURS = 5
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


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
