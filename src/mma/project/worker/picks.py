"""What to ask next, and why each: coverage first, then the query, with a share of random images in between."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.features.table import unit
from mma.project.quality.accuracy import doubtful_rows
from mma.project.questions import AGAIN_WHY
from mma.project.records import Pick, Provenance
from mma.project.worker.features import Pool, TrainingSet
from mma.query import Candidates, Labeled, Query
from mma.rng import rng

MANY = 48  # picks that wait in the queue: enough for a few people until the next model
BLOCK = 2_048  # images compared with the labeled ones at a time
MOST = 20_000  # images a query looks at; of larger pools a random part, another one each time
COVERAGE = "herding"
TORN = 0.2  # distance of the two most likely classes below which a model is torn between them
SURE = 0.9
FAR = 0.2  # share of the candidates that count as unlike anything labeled
LISTED = 3  # classes of a suggestion
GOAL_SHARE = 0.5  # of the picks, where the goal is to find one class: likely photos of it
Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Question:
    """What a query is asked with."""

    pool: Pool
    training: TrainingSet
    query: str
    seed: int
    round: int
    probs: NDArray[np.float32] | None = None  # (rows of the pool, classes); None before the first model
    random_share: float = 0.0
    goal: int | None = None  # the class, by its place, that the goal is to find


@dataclass(frozen=True)
class ChosenPicks:
    """Picks in the order in which they are asked, and one sentence about how they were chosen."""

    picks: list[Pick]
    why: str


def choose_picks(question: Question, many: int = MANY) -> ChosenPicks:
    """Choose images to ask about. No two near-duplicates, and none of what has an answer, are among them."""
    rows = candidate_rows(question)
    if not len(rows):
        return ChosenPicks([], "every image has an answer.")
    vectors, labeled, query = question.pool.vectors(rows).numpy(), labeled_set(question), Query.parse(question.query)
    candidates = Candidates(rows, None if question.probs is None else question.probs[rows], vectors)
    found = query.selection(candidates, many, rng(question.seed, "select", question.round), labeled)
    unlike = np.zeros(len(found.index), np.bool_)
    if labeled.features is not None:
        known, chosen = unit(labeled.features), unit(vectors[np.searchsorted(rows, found.index)])
        unlike = nearest_similarity(chosen, known) < np.quantile(nearest_similarity(unit(vectors[:2_000]), known), FAR)
    provenance: Provenance = "start" if question.probs is None else "query"
    picks = []
    for row, score, far in zip(found.index.tolist(), found.scores.tolist(), unlike.tolist(), strict=True):
        own = None if question.probs is None else question.probs[row]
        picks.append(make_pick(question, row, score, explain(question, own, unlike=far), provenance))
    picks, why = mix_likely(question, rows, picks), found.why or f"chosen by {query}."
    if question.goal is not None:
        name = question.training.names[question.goal]
        why = f"{why.rstrip('.')}. Every second photo is a likely one of {name}, which is the goal."
    return ChosenPicks(mix_random(question, rows, picks), why)


def candidate_rows(question: Question) -> Ints:
    """Return one row of each group of near-duplicates that has no answer yet; all open rows when no such group is left."""
    labels, pool = question.training.labels, question.pool
    answered = {*labels.ids, *labels.cannot_tell, *labels.excluded}
    settled = {pool.group(each) for each in answered if each in pool.everything}
    new, again = dict[str, int](), dict[str, int]()
    for row, image in enumerate(pool.images):
        if image.id not in answered and not image.audit:
            (again if image.group in settled else new).setdefault(image.group, row)
    rows = np.array(sorted((new or again).values()), np.int64)
    if len(rows) <= MOST:
        return rows
    return np.sort(rng(question.seed, "candidates", question.round).permutation(rows)[:MOST])


def labeled_set(question: Question) -> Labeled:
    """Return the images that have an answer, as the query sees them; -1 for those that people could not tell.

    Without the audit: a query that knew where it is would ask elsewhere, and each audit photo would look harder than others.
    """
    pool, training = question.pool, question.training
    answers = {**dict.fromkeys(training.labels.cannot_tell, -1), **training.train}
    known = [(pool.row[image], label) for image, label in answers.items() if image in pool.row]
    if not known:
        return Labeled()
    rows, labels = np.array(known, np.int64).T
    return Labeled(pool.vectors(rows).numpy(), labels)


def nearest_similarity(images: Floats, others: Floats, *, skip_self: bool = False) -> Floats:
    """Return the cosine similarity of each image to its nearest other one, of vectors of length one. (N,)"""
    nearest = np.empty(len(images), np.float32)
    for start in range(0, len(images), BLOCK):
        block = images[start : start + BLOCK].astype(np.float32) @ others.astype(np.float32).T  # (B, M)
        if skip_self:
            block[np.arange(len(block)), start + np.arange(len(block))] = -np.inf
        nearest[start : start + BLOCK] = block.max(axis=1)
    return nearest


def explain(question: Question, probs: Floats | None, *, unlike: bool) -> str:
    """Say in a few words why an image is asked about."""
    other, names = "nothing like it is labeled yet", question.training.names
    if probs is None:
        return other if unlike else "stands for many images that look like it"
    first, second = np.argsort(probs)[::-1][:2]
    if probs[first] - probs[second] < TORN:
        words = f"torn between {names[first]} and {names[second]}"
    elif probs[first] < SURE:
        words = f"not sure that it is {names[first]}"
    else:
        words = f"taken for {names[first]}; stands for many images that look like it"
    return f"{words}; {other}" if unlike else words


def recheck_picks(training: TrainingSet, probs: Floats, asked_again: set[str], draw: np.random.Generator) -> list[Pick]:
    """Return the audit images to ask about again (see `doubtful_rows`); `probs` is what heads without them say."""
    images = list(training.audit)
    looked_at = np.array([i in asked_again or training.provenance[i] != "audit" for i in images], np.bool_)
    rows = doubtful_rows(probs, training.audit_labels, looked_at, draw)
    return [Pick(images[row], AGAIN_WHY, 0.0, "recheck", None) for row in rows]


def make_pick(question: Question, row: int, score: float, why: str, provenance: Provenance) -> Pick:
    """Return a pick with the classes that the model thinks most likely."""
    suggestion = None
    if question.probs is not None:
        probs = question.probs[row]
        best = np.argsort(probs)[::-1][:LISTED]
        suggestion = [(question.training.classes[k].id, round(float(probs[k]), 4)) for k in best]
    return Pick(question.pool.images[row].id, why, score, provenance, suggestion)


def mix_likely(question: Question, rows: Ints, picks: list[Pick]) -> list[Pick]:
    """Put likely photos of the goal's class between the picks: the likeliest of those that the model is not sure of.

    What it is sure of teaches little, and what it holds for impossible is hardly ever of the class.
    """
    if question.goal is None or question.probs is None:
        return picks
    likely = question.probs[rows, question.goal]
    order = np.argsort(-np.where(likely < SURE, likely, 0.0), kind="stable")[: len(picks)]
    why = f"may be {question.training.names[question.goal]}, which is to be found"
    wanted = [make_pick(question, int(rows[at]), float(likely[at]), why, "query") for at in order]
    many = round(GOAL_SHARE * len(picks))
    pairs = zip_longest(wanted[:many], picks[: len(picks) - many])
    return list({pick.image: pick for pair in pairs for pick in pair if pick is not None}.values())


def mix_random(question: Question, rows: Ints, picks: list[Pick]) -> list[Pick]:
    """Put random images between the picks: the share keeps up, whenever the queue is replaced."""
    share = question.random_share
    if share <= 0:
        return picks
    groups = {question.pool.group(pick.image) for pick in picks}
    draw, mixed = rng(question.seed, "random picks", question.round), list[Pick]()
    others = iter(draw.permutation(rows).tolist())
    due = float(draw.uniform())  # a random beginning, so that the first picks are as often random as the last ones
    for pick in picks:
        due += share
        if due >= 1.0:
            due -= 1.0
            row = next((row for row in others if question.pool.images[row].group not in groups), None)
            if row is not None:
                why = "drawn at random, to see what the model does not ask for"
                mixed.append(make_pick(question, row, 0.0, why, "random"))
        mixed.append(pick)
    return mixed
