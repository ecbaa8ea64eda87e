"""Do people agree with each other, and with themselves? Agreement beyond what chance gives. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import or_, select

from mma.project.labels import tables as db
from mma.project.labels.current import chunks
from mma.project.labels.events import merge_roots
from mma.project.project import Project
from mma.project.quality.accuracy import share
from mma.project.records import SECOND_LOOKS
from mma.shares import Share

Answers = Mapping[str, Mapping[str, int]]  # image -> person -> class


@dataclass(frozen=True)
class Kappa:
    """Agreement: 1 is perfect, 0 is what chance gives, below is worse. None where it is not defined."""

    value: float | None
    images: int  # it rests on
    same: float  # share of answers that are the same, chance included


def cohen_kappa(first: NDArray[np.int64], second: NDArray[np.int64]) -> Kappa:
    """Return the agreement of two people about the same images (Cohen, 1960).

    It is not defined when both always say the same one class: chance alone would do that too.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} answers cannot be compared with {len(second)}.")
    if not len(first):
        return Kappa(None, 0, 0.0)
    classes = int(max(first.max(), second.max())) + 1
    shares = [np.bincount(each, minlength=classes) / len(each) for each in (first, second)]
    same, chance = float((first == second).mean()), float(shares[0] @ shares[1])
    return Kappa(_beyond(same, chance), len(first), same)


def fleiss_kappa(counts: NDArray[np.int64]) -> Kappa:
    """Return the agreement of any number of people (Fleiss, 1971); counts are answers by image and class.

    Images may have different numbers of answers; those with fewer than two say nothing and are left out.
    """  # (N, classes)
    counts = counts[counts.sum(axis=1) >= 2]
    if not len(counts):
        return Kappa(None, 0, 0.0)
    people = counts.sum(axis=1)
    pairs = (counts * (counts - 1)).sum(axis=1) / (people * (people - 1))
    shares = counts.sum(axis=0) / counts.sum()
    same, chance = float(pairs.mean()), float(shares @ shares)
    return Kappa(_beyond(same, chance), len(counts), same)


def _beyond(same: float, chance: float) -> float | None:
    return None if chance >= 1.0 else (same - chance) / (1.0 - chance)


def pairwise_kappas(answers: Answers) -> dict[tuple[str, str], Kappa]:
    """Return the agreement of every two people who answered about the same images."""
    people = sorted({person for given in answers.values() for person in given})
    found = {}
    for one, other in combinations(people, 2):
        both = [(given[one], given[other]) for given in answers.values() if one in given and other in given]
        if both:
            first, second = (np.array(column, np.int64) for column in zip(*both, strict=True))
            found[one, other] = cohen_kappa(first, second)
    return found


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
    return {
        person: cohen_kappa(*(np.array(column, np.int64) for column in zip(*pairs, strict=True)))
        for person, pairs in sorted(by_person.items())
    }


# Labels that somebody looked at again: how pure grids were, whether people say the same twice, what was corrected.

SHOWN = 3  # kinds of corrections that are named


@dataclass(frozen=True)
class Correction:
    """A label that is no longer what was said first."""

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
    classes = project.classes()
    roots, names = merge_roots(classes), {each.id: each.name for each in classes}
    same: dict[bool, list[bool]] = {True: [], False: []}  # whether it came from a grid -> whether it stayed
    corrections, kept = [], 0
    for image, rows in _looked_at(project).items():
        said = [roots[row.class_id] for row in rows]
        again = [place for place, row in enumerate(rows) if row.provenance == "again" and place]
        if again:
            same[rows[again[0] - 1].provenance == "grid"].append(said[again[-1]] == said[again[0] - 1])
        if said[0] != said[-1]:
            corrections.append(Correction(image, names[said[0]], names[said[-1]], bool(again)))
        elif rows[-1].provenance == "review":
            kept += 1
    return SecondLooks(_share(same[True]), _share(same[False]), kept, tuple(corrections))


def _share(same: Sequence[bool]) -> Share | None:
    return share(np.array(same, np.bool_)) if same else None


def _looked_at(project: Project) -> dict[str, list[Any]]:
    """Return the labels in force, oldest first, of every image that has a second look or a correction."""
    c = db.events.c
    second = select(c.image).where(
        c.active == 1, c.kind == "label", or_(c.provenance.in_(SECOND_LOOKS), c.supersedes.is_not(None))
    )
    found: dict[str, list[Any]] = {}
    with project.store.reading() as connection:
        images = sorted({str(image) for image in connection.execute(second).scalars()})
        for part in chunks(images):
            labels = select(c.image, c.class_id, c.provenance).where(
                c.image.in_(part), c.active == 1, c.kind == "label"
            )
            for row in connection.execute(labels.order_by(c.seq)):
                found.setdefault(row.image, []).append(row)
    return found


def looks_words(looks: SecondLooks) -> list[str]:
    """Say it in sentences; none where there is nothing to say."""
    lines = []
    if looks.grid is not None:
        lines.append(f"Labels given in a grid, asked again one by one: {_stayed(looks.grid)}.")
    if looks.single is not None:
        lines.append(f"Labels given one by one, asked again: {_stayed(looks.single)}.")
    if looks.kept or looks.corrections:
        lines.append(
            f"Looked at again: {len(looks.corrections):,} corrected{_commonest(looks.corrections)}, {looks.kept:,} kept."
        )
    return lines


def _stayed(found: Share) -> str:
    return f"{found.right:,} of {found.of:,} stayed the same ({100 * found.low:.0f}-{100 * found.high:.0f} %, 95 %)"


def _commonest(corrections: Iterable[Correction]) -> str:
    """Name the commonest corrections."""
    kinds = Counter((each.before, each.after) for each in corrections).most_common(SHOWN)
    return f" ({', '.join(f'{many} {before} -> {after}' for (before, after), many in kinds)})" if kinds else ""
