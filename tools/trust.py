"""Can the accuracy that a project shows be trusted? Many simulated projects, and how often the shown interval is right.

    python tools/pools.py POOLS --raw DIR --photos DIR     # vectors of six data sets, once
    python tools/trust.py run POOLS rows.jsonl             # goes on where it stopped; --part 0/2 and 1/2 share the work
    python tools/trust.py run POOLS heads.jsonl --head     # with the head that projects train; slow
    python tools/trust.py tables results/trust rows.jsonl heads.jsonl

A project is a part of a pool; the true accuracy is measured on the rest of it. When a question is about the audit, which labels
are asked again, how heads are crossed and what is shown are the functions that projects use. The person answers 3 % wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import softmax

from mma.files import append_lines, read_lines
from mma.nets.head import fit_logistic
from mma.presets import preset
from mma.project.photos import is_audit_group
from mma.project.project import audit_share
from mma.project.quality.accuracy import LEAST_AUDIT, cross_fit, doubtful_rows, fold_numbers, share
from mma.project.questions import Rules, audit_is_due, recheck_is_due
from mma.query import Candidates, Labeled, Query
from mma.query.space import nearest
from mma.rng import rng
from mma.shares import exact_interval
from mma.training.head import answers_without, fit_head
from mma.views.features import RowViews

HOG = ("digits", "fashion-mnist", "signs", "svhn")  # data sets for which gradient histograms tell more
POOLS = ("digits", "fashion-mnist", "signs", "objects", "cifar10", "svhn")
LONG = ("digits", "fashion-mnist", "cifar10", "svhn")  # also with classes 20 to 1; objects are so by themselves
MOST, WIDTH, SLIPS, PENALTY, PICKS = 1_000, 64, 0.03, 1e-4, 48
SHOWN = (20, 50, 100, 150, 200, 300, 400)  # labels at which the number is looked at
SIZES = (20, 50, 100, 200, 400)  # of the table
HEADS = (50, 100, 200)  # labels at which the slow head is measured


@dataclass(frozen=True)
class Arm:
    """A way to measure: how many audit questions, whether their labels are learned, and which number is shown."""

    name: str
    rules: Rules
    learns: bool = True
    crossed: bool = False  # the number before: asked labels, cross-validated, until there are 50 audit labels


NEW = Arm("new", Rules(again_share=0.02))
SILENT = Arm("silent audit", Rules(again_share=0.02), learns=False)
OLD = Arm("before", Rules(audit_asked=0.1, audit_early=0), learns=False, crossed=True)


@dataclass(frozen=True, eq=False)
class Folder:
    """A simulated folder of photos, and other photos like them."""

    x: np.ndarray  # (N, D)
    y: np.ndarray
    others: np.ndarray
    truth: np.ndarray
    weight: np.ndarray  # of the others, so that classes are as common as in the folder
    classes: int


@cache
def read_pool(path: Path, backbone: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the vectors of a pool on its strongest directions, their classes, and the rows of its long tail."""
    pool = np.load(path)
    x, y = pool[backbone].astype(np.float32), pool["labels"]
    x -= x.mean(0)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    sample = x[rng(0, "directions").permutation(len(x))[:1_000]]
    basis = sample.T @ np.linalg.eigh(sample @ sample.T)[1][:, -WIDTH:]
    return x @ (basis / np.linalg.norm(basis, axis=0)), y, pool.get("long_tail")


def make_folder(pools: Path, name: str, long: bool, seed: int) -> Folder:
    """Draw a folder from a pool; its rows come in random order."""
    x, y, tail = read_pool(pools / f"{name}.npz", "hog" if name in HOG else "lite0")
    order = rng(seed, "folder", name).permutation(len(y))
    part = tail if long and tail is not None else order[: min(MOST, len(y) * 6 // 10)]
    part = rng(seed, "order", name).permutation(part)[:MOST]
    rest = np.setdiff1d(order, part)
    count = int(y.max()) + 1
    weight = (np.bincount(y[part], minlength=count) / np.maximum(np.bincount(y[rest], minlength=count), 1))[y[rest]]
    return Folder(x[part], y[part], x[rest], y[rest], weight, count)


class Person:
    """Answers, now and then wrong; asked again, they answer afresh."""

    def __init__(self, folder: Folder, seed: int) -> None:
        self.folder, self.seed = folder, seed

    def answer(self, row: int, time: int = 0) -> int:
        """Return what they say about a row for the first or second time."""
        draw = rng(self.seed, "answer", row, time)
        right = int(self.folder.y[row])
        if draw.uniform() >= SLIPS:
            return right
        return int((right + draw.integers(1, self.folder.classes)) % self.folder.classes)


def simulate(folder: Folder, arm: Arm, *, asks: bool, seed: int, head: bool) -> Iterator[dict[str, Any]]:
    """Label a folder up to 400 labels, and yield what is shown and what is true."""
    count = len(folder.y)
    size = audit_share(count)
    slice_ = np.array([is_audit_group(seed, str(row), size) for row in range(count)])
    person, audit, train, picks = Person(folder, seed), dict[int, int](), dict[int, int](), list[int]()
    again, waiting = set[int](), list[int]()
    asked = audits = 0
    for_audit, plain = (iter(np.flatnonzero(part).tolist()) for part in (slice_, ~slice_))
    while len(audit) + len(train) < min(max(SHOWN), int(0.9 * count)):
        if recheck_is_due(asked, arm.rules) and waiting:
            row = waiting.pop(0)
            again.add(row)
            audit[row] = person.answer(row, 1)
            asked += 1
            continue
        row = next(for_audit, None) if audit_is_due(asked, audits, arm.rules) else None
        asked += 1
        if row is not None:
            audit[row], audits = person.answer(row), audits + 1
        else:
            row = next((each for each in picks if each not in train), None) if asks else None
            row = next((each for each in plain if each not in train), None) if row is None else row
            if row is None:
                return
            train[row] = person.answer(row)
        total = len(audit) + len(train)
        looks, refreshes = total in (HEADS if head else SHOWN), asks and total % (20 if total <= 100 else 40) == 0
        if not looks and not refreshes:
            continue
        known = {**train, **audit} if arm.learns else dict(train)
        model = Model(folder, known, seed, head=head and looks)
        if refreshes:
            picks = choose(folder, slice_, model, seed, total)
        if looks:
            probs = model.audit_answers(audit, crossed=arm.learns)
            numbers = shown(folder, arm, train, audit, probs)
            yield {"labels": total, "audit": len(audit), "asked": asked, "true": model.true(), **numbers}
        if looks and arm.rules.again_share and audit:
            images, given = list(audit), np.array(list(audit.values()))
            seen = np.array([image in again for image in images])
            waiting = [images[place] for place in doubtful_rows(probs, given, seen, rng(seed, "again", total))]


class Model:
    """What is learned from some labels: a logistic regression, or the head that projects train."""

    def __init__(self, folder: Folder, known: dict[int, int], seed: int, *, head: bool) -> None:
        self.folder, self.known = folder, known
        self.rows, self.labels = np.array(list(known)), np.array(list(known.values()))
        self.fitted = fit_logistic(folder.x[self.rows], self.labels, folder.classes, PENALTY)
        self.views = None
        if head:
            everything = np.concatenate([folder.x, folder.others])
            everything /= np.maximum(np.linalg.norm(everything, axis=1, keepdims=True), 1e-9)
            self.views, self.pool = RowViews(torch.from_numpy(everything), 0.2, 0.5), np.arange(len(folder.x))
            self.config = preset("photos").model_copy(update={"seed": seed})
            self.head = fit_head(self.views, known, folder.classes, pool=self.pool, config=self.config)

    def probs(self, x: np.ndarray) -> np.ndarray:
        """Return what the logistic regression says."""
        weight, bias = self.fitted
        found: np.ndarray = softmax(x @ weight.T + bias, axis=1)
        return found

    def true(self) -> float:
        """Return the share of right answers about other photos like those of the folder, in percent."""
        f = self.folder
        said = self.probs(f.others)
        if self.views is not None:
            said = self.head.probabilities(self.views, np.arange(len(f.x), len(f.x) + len(f.others)))
        return round(100 * float(np.average(said.argmax(1) == f.truth, weights=f.weight)), 3)

    def audit_answers(self, audit: dict[int, int], *, crossed: bool) -> np.ndarray:
        """Return what is said about audit images by a model without their labels."""
        f, at = self.folder, np.array(list(audit), np.int64)
        if not crossed:
            return self.probs(f.x[at])

        def without(test: np.ndarray) -> np.ndarray:
            if self.views is not None:
                left_out = at[test]
                return answers_without(self.head, self.views, self.known, left_out, pool=self.pool, config=self.config)
            kept = ~np.isin(self.rows, at[test])
            weight, bias = fit_logistic(f.x[self.rows[kept]], self.labels[kept], f.classes, PENALTY)
            found: np.ndarray = softmax(f.x[at[test]] @ weight.T + bias, axis=1)
            return found

        return cross_fit(np.array(list(audit.values()), np.int64), [str(row) for row in at], without)


def choose(folder: Folder, slice_: np.ndarray, model: Model, seed: int, total: int) -> list[int]:
    """Ask the project's query for the next picks; the first ones cover the folder."""
    rows = np.array([row for row in np.flatnonzero(~slice_) if row not in model.known], np.int64)
    candidates = Candidates(rows, model.probs(folder.x[rows]), folder.x[rows])
    labeled = Labeled(folder.x[model.rows], model.labels)
    found = Query.parse("auto").selection(candidates, PICKS, rng(seed, "select", total), labeled)
    return [int(row) for row in found.index]


def shown(
    folder: Folder, arm: Arm, train: dict[int, int], audit: dict[int, int], probs: np.ndarray
) -> dict[str, float | None]:
    """Return the number that is shown with its interval, in percent; None while it is too early for one."""
    found: tuple[float | None, ...] = (None, None, None)
    if arm.crossed and len(audit) < 50:
        found = crossed(folder, train)
    elif len(audit) >= LEAST_AUDIT:
        learned = len(train) + len(audit) if arm.learns else 0
        measured = share(probs.argmax(1) == np.array(list(audit.values())), learned=learned)
        found = measured.value, measured.low, measured.high
    names = ("shown", "low", "high")
    return {name: None if one is None else round(100 * one, 3) for name, one in zip(names, found, strict=True)}


def crossed(folder: Folder, train: dict[int, int]) -> tuple[float | None, float | None, float | None]:
    """The number before: asked labels cross-validated in five parts, each weighed by the photos that lie nearest to it."""
    rows, labels = np.array(list(train)), np.array(list(train.values()))
    if len(rows) < 10:
        return None, None, None
    fold, right = fold_numbers(labels, rows.tolist(), 5), np.zeros(len(rows), bool)
    for number in np.unique(fold):
        test = fold == number
        weight, bias = fit_logistic(folder.x[rows[~test]], labels[~test], folder.classes, PENALTY)
        right[test] = (folder.x[rows[test]] @ weight.T + bias).argmax(1) == labels[test]
    weights = 1.0 + np.bincount(nearest(folder.x[rows], folder.x), minlength=len(rows))
    value = float(np.average(right, weights=weights))
    size = float(weights.sum()) ** 2 / float(np.square(weights).sum())
    return (value, *exact_interval(min(value * size, size), size))


def run(args: argparse.Namespace) -> None:
    """Simulate what is not in the file yet; each project is written as it ends."""
    torch.set_num_threads(1)
    done = {tuple(row["project"]) for row in read_lines(args.rows)} if args.rows.is_file() else set()
    part, parts = map(int, args.part.split("/"))
    pools = [(name, False) for name in POOLS] + [(name, True) for name in LONG]
    arms = [(NEW, args.seeds)] if args.head else [(NEW, args.seeds), (OLD, args.seeds), (SILENT, args.silent)]
    plan = [
        (arm, (name, "20:1" if long else "as it is", order, seed, arm.name))
        for arm, seeds in arms
        for seed in range(1, seeds + 1)
        for name, long in pools
        for order in ("auto", "random")
    ]
    for number, (arm, project) in enumerate(plan):
        if number % parts == part and project not in done:
            name, kind, order, seed, _ = project
            folder = make_folder(args.pools, name, kind == "20:1", seed)
            rows = list(simulate(folder, arm, asks=order == "auto", seed=seed, head=args.head))
            append_lines(args.rows, [{"project": project, "rows": rows}])


def main() -> None:
    """Run, or make tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("pools", type=Path)
    one.add_argument("rows", type=Path)
    one.add_argument("--seeds", type=int, default=12)
    one.add_argument("--silent", type=int, default=4, help="seeds that are also run with a silent audit")
    one.add_argument("--part", default="0/1")
    one.add_argument("--head", action="store_true")
    one.set_defaults(do=run)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
