"""Do people agree with each other and with themselves, and what became of labels that were looked at again? No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import or_, select

from mma.project.labels import database as db
from mma.project.labels.events import chunks, merge_roots
from mma.project.project import Project
from mma.project.quality.accuracy import share
from mma.project.records import SECOND_LOOKS
from mma.shares import Share

SHOWN = 3  # kinds of corrections that are named
ENOUGH = 10  # labels of one kind that must be asked again before anything is said of them
Ints = NDArray[np.int64]
Answers = Mapping[str, Mapping[str, int]]  # image -> person -> class


@dataclass(frozen=True)
class Kappa:
    """Agreement: 1 is perfect, 0 is what chance gives, below is worse. None where it is not defined."""

    value: float | None
    images: int  # it rests on
    same: float  # share of answers that are the same, chance included

    @classmethod
    def of(cls, same: float, chance: float, images: int) -> Kappa:
        """Return agreement beyond chance."""
        return cls(None if chance >= 1.0 else (same - chance) / (1.0 - chance), images, same)


def cohen_kappa(first: Ints, second: Ints) -> Kappa:
    """Return the agreement of two people about the same images (Cohen, 1960); not defined when both say one class alone."""
    assert len(first) == len(second)
    if not len(first):
        return Kappa(None, 0, 0.0)
    classes = int(max(first.max(), second.max())) + 1
    shares = [np.bincount(each, minlength=classes) / len(each) for each in (first, second)]
    return Kappa.of(float((first == second).mean()), float(shares[0] @ shares[1]), len(first))


def fleiss_kappa(counts: Ints) -> Kappa:
    """Return the agreement of any number of people (Fleiss, 1971); counts are answers by image and class."""  # (N, classes)
    counts = counts[counts.sum(axis=1) >= 2]  # one answer says nothing
    if not len(counts):
        return Kappa(None, 0, 0.0)
    people = counts.sum(axis=1)
    shares = counts.sum(axis=0) / counts.sum()
    same = float(((counts * (counts - 1)).sum(axis=1) / (people * (people - 1))).mean())
    return Kappa.of(same, float(shares @ shares), len(counts))


def pairwise_kappas(answers: Answers) -> dict[tuple[str, str], Kappa]:
    """Return the agreement of every two people who answered about the same images."""
    people = sorted({person for given in answers.values() for person in given})
    pairs = {
        (one, other): [(given[one], given[other]) for given in answers.values() if one in given and other in given]
        for one, other in combinations(people, 2)
    }
    return {people: cohen_kappa(*np.array(both, np.int64).T) for people, both in pairs.items() if both}


def overall_kappa(answers: Answers, classes: int) -> Kappa:
    """Return the agreement of all people together."""
    counts = np.zeros((len(answers), classes), np.int64)
    for row, given in enumerate(answers.values()):
        np.add.at(counts[row], list(given.values()), 1)
    return fleiss_kappa(counts)


def find_disagreements(answers: Answers) -> list[str]:
    """Return the images about which people differ, those with the most different answers first."""
    different = {image: len(set(given.values())) for image, given in answers.items()}
    return sorted((image for image, count in different.items() if count > 1), key=lambda i: (-different[i], i))


def self_consistency(repeats: Iterable[tuple[str, int, int]]) -> dict[str, Kappa]:
    """Return how far each person agrees with themselves; `repeats` are (person, first answer, answer when asked again)."""
    by_person: dict[str, list[tuple[int, int]]] = {}
    for person, first, again in repeats:
        by_person.setdefault(person, []).append((first, again))
    return {person: cohen_kappa(*np.array(pairs, np.int64).T) for person, pairs in sorted(by_person.items())}


@dataclass(frozen=True)
class Correction:
    """A label that was changed later."""

    image: str
    before: str
    after: str
    asked_again: bool  # it came out when the same question was asked again


@dataclass(frozen=True)
class SecondLooks:
    """What second looks at labels showed. None: nothing of that kind was asked again yet."""

    grid: Share | None  # labels of grids that stayed the same when asked one by one
    single: Share | None  # labels given one by one that stayed the same
    kept: int  # labels that the review kept
    corrections: tuple[Correction, ...]


def second_looks(project: Project) -> SecondLooks:
    """Sum up what became of labels that were asked again, reviewed or corrected."""
    c = db.events.c
    labels = select(c.image, c.class_id, c.provenance).where(c.active == 1, c.kind == "label")
    looked_at = labels.where(or_(c.provenance.in_(SECOND_LOOKS), c.supersedes.is_not(None)))
    by_image: dict[str, list[Any]] = {}  # the labels in force, oldest first
    with project.store.reading() as connection:
        images = sorted({str(row.image) for row in connection.execute(looked_at)})
        for part in chunks(images):
            for row in connection.execute(labels.where(c.image.in_(part)).order_by(c.seq)):
                by_image.setdefault(row.image, []).append(row)
    classes = project.classes()
    roots, names = merge_roots(classes), {each.id: each.name for each in classes}
    stayed: dict[bool, list[bool]] = {True: [], False: []}  # whether it came from a grid -> whether it stayed
    corrections, kept = [], 0
    for image, rows in by_image.items():
        said = [roots[row.class_id] for row in rows]
        again = [place for place, row in enumerate(rows) if row.provenance == "again" and place]
        if again:
            stayed[rows[again[0] - 1].provenance == "grid"].append(said[again[-1]] == said[again[0] - 1])
        if said[0] != said[-1]:
            corrections.append(Correction(image, names[said[0]], names[said[-1]], bool(again)))
        elif rows[-1].provenance == "review":
            kept += 1
    grid, single = (share(np.array(stayed[kind], np.bool_)) if stayed[kind] else None for kind in (True, False))
    return SecondLooks(grid, single, kept, tuple(corrections))


def looks_words(looks: SecondLooks) -> list[str]:
    """Return it in sentences; none where too few labels were looked at to say anything."""
    asked = {"in a grid and asked again one by one": looks.grid, "one by one and asked again": looks.single}
    lines = [
        f"Labels given {how}: {found.right:,} of {found.of:,} stayed the same "
        f"(between {100 * found.low:.0f} and {100 * found.high:.0f} %)."
        for how, found in asked.items()
        if found is not None and found.of >= ENOUGH
    ]
    if looks.kept or looks.corrections:
        kinds = Counter((each.before, each.after) for each in looks.corrections).most_common(SHOWN)
        commonest = ", ".join(f"{many} {before} -> {after}" for (before, after), many in kinds)
        commonest = f" ({commonest})" if kinds else ""
        lines.append(f"Looked at again: {len(looks.corrections):,} corrected{commonest}, {looks.kept:,} kept.")
    return lines
