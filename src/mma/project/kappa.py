"""Do people agree with each other, and with themselves? Agreement beyond what chance gives. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

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
