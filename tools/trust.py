"""Can the accuracy that a project shows be trusted? Many simulated projects, and how often the shown interval is right.

    python tools/pools.py POOLS --raw DIR --photos DIR     # vectors of six data sets, once
    python tools/trust.py reduce POOLS vectors.npz         # on their 64 strongest directions
    python tools/trust.py run vectors.npz rows.jsonl       # goes on where it stopped
    python tools/trust.py run vectors.npz heads.jsonl --head --seeds 1     # with the head that projects train; slow
    python tools/trust.py tables results/trust rows.jsonl heads.jsonl --real results/serving/trained.csv     # tools/projects.py

A project is a part of a pool; the true accuracy is measured on the rest of it. When a question is about the audit, which labels
are asked again, how heads are crossed and what is shown are the functions that projects use. The person answers 3 % wrong. The
model is a ridge regression on the classes, about as accurate as a logistic regression, and there in a millisecond.
"""

from __future__ import annotations

import argparse
import csv
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from mma.files import append_lines, read_lines
from mma.project.photos import is_audit_group
from mma.project.project import audit_share
from mma.project.quality.accuracy import LEAST_AUDIT, cross_fit, doubtful_rows, fold_numbers, share
from mma.project.questions import Rules, audit_is_due, recheck_is_due
from mma.query import Candidates, Labeled, Query
from mma.query.coverage import nearest
from mma.rng import rng
from mma.shares import exact_interval

HOG = ("digits", "fashion-mnist", "signs", "svhn")  # data sets for which gradient histograms tell more
POOLS = ("digits", "fashion-mnist", "signs", "objects", "cifar10", "svhn")
LONG = ("digits", "fashion-mnist", "cifar10", "svhn")  # also with classes 20 to 1; objects are so by themselves
MOST, WIDTH, SLIPS, PICKS = 1_000, 64, 0.03, 80
PENALTY, SURENESS = 0.3, 8.0  # of the ridge regression; what its answers are multiplied by to be logits
SHOWN = (20, 50, 100, 150, 200, 300, 400)  # labels at which the number is looked at
PICKED = (20, 40, 60, 80, 120, 160, 220, 280, 340)  # labels at which the model chooses what is asked next
SIZES = (20, 50, 100, 200, 400)  # of the table
REAL_SIZES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)  # labels of real projects
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


def reduce(args: argparse.Namespace) -> None:
    """Write the vectors of all pools on their strongest directions, their classes, and the rows of their long tails."""
    found: dict[str, np.ndarray] = {}
    for name in POOLS:
        pool = np.load(args.pools / f"{name}.npz")
        x = pool["hog" if name in HOG else "lite0"].astype(np.float32)
        x -= x.mean(0)
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
        sample = x[rng(0, "directions").permutation(len(x))[:1_000]]
        basis = sample.T @ np.linalg.eigh(sample @ sample.T)[1][:, -WIDTH:]
        found[name], found[f"{name} classes"] = x @ (basis / np.linalg.norm(basis, axis=0)), pool["labels"]
        if name in LONG:
            found[f"{name} tail"] = pool["long_tail"]
    np.savez(args.vectors, **found)  # type: ignore[arg-type]


def make_folder(vectors: dict[str, np.ndarray], name: str, long: bool, seed: int) -> Folder:
    """Draw a folder from a pool; its rows come in random order."""
    x, y = vectors[name], vectors[f"{name} classes"]
    order = rng(seed, "folder", name).permutation(len(y))
    part = vectors[f"{name} tail"] if long else order[: min(MOST, len(y) * 6 // 10)]
    part = rng(seed, "order", name).permutation(part)[:MOST]
    rest = np.setdiff1d(order, part)
    count = int(y.max()) + 1
    weight = (np.bincount(y[part], minlength=count) / np.maximum(np.bincount(y[rest], minlength=count), 1))[y[rest]]
    return Folder(x[part], y[part], x[rest], y[rest], weight, count)


def fit_ridge(x: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Return the weights of a ridge regression on the classes; the last row is the bias. (D + 1, classes)"""
    wide = np.column_stack([x, np.ones(len(x), np.float32)])
    weights: np.ndarray = np.linalg.solve(
        wide.T @ wide + PENALTY * np.eye(wide.shape[1]), wide.T @ np.eye(classes)[labels]
    )
    return weights


class Person:
    """Answers, now and then wrong; asked again, they answer afresh."""

    def __init__(self, folder: Folder, seed: int) -> None:
        self.folder, self.seed = folder, seed

    def answer(self, row: int, time: int = 0) -> int:
        """Return what they say about a row for the first or second time."""
        draw = rng(self.seed, "answer", len(self.folder.others), row, time)
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
        looks, refreshes = total in (HEADS if head else SHOWN), asks and total in PICKED
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
    """What is learned from some labels: a ridge regression, or the head that projects train."""

    def __init__(self, folder: Folder, known: dict[int, int], seed: int, *, head: bool) -> None:
        self.folder, self.known = folder, known
        self.rows, self.labels = np.array(list(known)), np.array(list(known.values()))
        self.fitted = fit_ridge(folder.x[self.rows], self.labels, folder.classes)
        self.views: Any = None
        if head:
            import torch

            from mma.presets import preset
            from mma.training.head import fit_head
            from mma.views import FeatureViews, RowViews

            torch.set_num_threads(1)
            everything = np.concatenate([folder.x, folder.others])
            everything /= np.maximum(np.linalg.norm(everything, axis=1, keepdims=True), 1e-9)
            self.views, self.pool = RowViews(torch.from_numpy(everything), FeatureViews()), np.arange(len(folder.x))
            self.config = preset("photos").model_copy(update={"seed": seed})
            self.head = fit_head(self.views, known, folder.classes, pool=self.pool, config=self.config)

    def probs(self, x: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Return what the ridge regression says."""
        weights = self.fitted if weights is None else weights
        found: np.ndarray = softmax(SURENESS * (x @ weights[:-1] + weights[-1]), axis=1)
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
                from mma.training.head import answers_without

                left_out = at[test]
                return answers_without(self.head, self.views, self.known, left_out, pool=self.pool, config=self.config)
            kept = ~np.isin(self.rows, at[test])
            return self.probs(f.x[at[test]], fit_ridge(f.x[self.rows[kept]], self.labels[kept], f.classes))

        return cross_fit(np.array(list(audit.values()), np.int64), [str(row) for row in at], without)


def choose(folder: Folder, slice_: np.ndarray, model: Model, seed: int, total: int) -> list[int]:
    """Ask the project's query for the next picks, as a project does: without the labels of the audit."""
    rows = np.array([row for row in np.flatnonzero(~slice_) if row not in model.known], np.int64)
    asked = ~slice_[model.rows]
    x, labels = folder.x[model.rows[asked]], model.labels[asked]
    candidates = Candidates(rows, model.probs(folder.x[rows], fit_ridge(x, labels, folder.classes)), folder.x[rows])
    found = Query.parse("auto").selection(candidates, PICKS, rng(seed, "select", total), Labeled(x, labels))
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
        weights = fit_ridge(folder.x[rows[~test]], labels[~test], folder.classes)
        right[test] = (folder.x[rows[test]] @ weights[:-1] + weights[-1]).argmax(1) == labels[test]
    stands_for = 1.0 + np.bincount(nearest(folder.x[rows], folder.x), minlength=len(rows))
    value = float(np.average(right, weights=stands_for))
    size = float(stands_for.sum()) ** 2 / float(np.square(stands_for).sum())
    return (value, *exact_interval(min(value * size, size), size))


def run(args: argparse.Namespace) -> None:
    """Simulate what is not in the file yet; each project is written as it ends."""
    vectors = dict(np.load(args.vectors))
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
            folder = make_folder(vectors, name, kind == "20:1", seed)
            rows = list(simulate(folder, arm, asks=order == "auto", seed=seed, head=args.head))
            append_lines(args.rows, [{"project": project, "rows": rows}])


def flat(rows: list[dict[str, Any]], model: str) -> list[dict[str, Any]]:
    """Return one row for each moment of each project."""
    names = ("data", "classes", "order", "seed", "number")
    return [
        {"model": model, **dict(zip(names, row["project"], strict=True)), **at} for row in rows for at in row["rows"]
    ]


def table(rows: list[dict[str, Any]], sizes: tuple[int, ...] = SIZES) -> list[str]:
    """Return a table of what was shown, with a line for each number of labels."""
    lines = [
        "| labels | projects | audit labels | shown in | intervals that hold the truth | half-width, points "
        "| shown - true | true accuracy |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size in sizes:
        at = [row for row in rows if row["labels"] == size]
        if not at:
            continue
        said = [row for row in at if row["shown"] is not None]
        means = f"{np.mean([row['audit'] for row in at]):.0f} | {len(said) / len(at):.0%} | "
        if said:
            holds = np.mean([row["low"] <= row["true"] <= row["high"] for row in said])
            half = np.mean([(row["high"] - row["low"]) / 2 for row in said])
            means += f"{100 * holds:.1f} % | {half:.1f} | {np.mean([row['shown'] - row['true'] for row in said]):+.1f}"
        else:
            means += "- | - | -"
        lines.append(f"| {size} | {len(at)} | {means} | {np.mean([row['true'] for row in at]):.1f} |")
    return lines


def falls(rows: list[dict[str, Any]]) -> str:
    """Say how often the number fell by more than its half-width while the truth rose, from one look to the next."""
    projects: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["shown"] is not None:
            projects.setdefault((row["data"], row["classes"], row["order"], row["seed"]), []).append(row)
    steps = [pair for each in projects.values() for pair in pairwise(each)]
    bad = sum(
        one["shown"] - two["shown"] > (one["high"] - one["low"]) / 2 and two["true"] > one["true"] for one, two in steps
    )
    share_of = f"{bad} of {len(steps):,} steps ({bad / len(steps):.1%})"
    return f"From one line to the next it fell by more than its half-width while the truth rose in {share_of}."


def tables(args: argparse.Namespace) -> None:
    """Write projects.csv and README.md."""
    rows = flat(read_lines(args.rows), "ridge") + (flat(read_lines(args.heads), "head") if args.heads else [])
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "projects.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    used = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "torch"))
    parts = [INTRO, f"Python {platform.python_version()}, {used}."]
    for title, arm, model in (
        ("What projects show", NEW, "ridge"),
        ("The number before", OLD, "ridge"),
        ("The same audit, but its labels are not learned", SILENT, "ridge"),
        ("What projects show, with the head that they train", NEW, "head"),
    ):
        chosen = [row for row in rows if row["number"] == arm.name and row["model"] == model]
        if chosen:
            parts += [f"## {title}", "\n".join(table(chosen)), falls(chosen)]
    if args.real:
        parts += real_projects(args.real)
    parts += ["## What the audit costs", cost(rows)]
    (args.out / "README.md").write_text("\n\n".join(parts) + "\n")


def real_projects(path: Path) -> list[str]:
    """Return the part about projects whose heads, index, queue and worker are those of `mma start`."""
    with path.open(newline="") as file:
        found = [row for row in csv.DictReader(file) if row["model"] == "live"]
    numbers = ("labels", "audit", "shown", "low", "high", "true")
    rows = [{**row, **{name: float(row[name]) if row[name] else None for name in numbers}} for row in found]
    rows = [{**row, "classes": "", "order": ""} for row in rows]
    return ["## In real projects", REAL, "\n".join(table(rows, REAL_SIZES)), falls(rows)]


def cost(rows: list[dict[str, Any]]) -> str:
    """Compare the true accuracy of the same folders under the three ways to measure, in a table."""
    true = {
        (row["number"], row["labels"], row["order"], row["data"], row["classes"], row["seed"]): row["true"]
        for row in rows
        if row["model"] == "ridge"
    }
    lines = [
        "| labels | asked by | against before, points | against a silent audit, points | folders |",
        "|---|---|---|---|---|",
    ]
    for size in SIZES:
        for order in ("auto", "random"):
            folders = [key[3:] for key in true if key[:3] == (NEW.name, size, order)]
            cells = []
            for other in (OLD, SILENT):
                gains = [
                    true[NEW.name, size, order, *each] - true[other.name, size, order, *each]
                    for each in folders
                    if (other.name, size, order, *each) in true
                ]
                half = 2 * np.std(gains, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
                cells.append(f"{np.mean(gains):+.1f} ± {half:.1f}" if gains else "-")
            lines.append(f"| {size} | {order} | {cells[0]} | {cells[1]} | {len(folders)} |")
    return "\n".join(lines)


INTRO = """# Can the shown accuracy be trusted?
Simulated projects on vectors of frozen backbones: digits, Fashion-MNIST, signs, objects (28 to 1 as they are), CIFAR-10 and
SVHN, four of them also with classes 20 to 1; asked by `auto` and in random order; 3 % of the answers are wrong. The true
accuracy is that on the photos of the pool that the project never saw, weighed so that classes are as common as in the
project. The schedule of the audit, the crossing, the second questions and the interval are the code of the project. The head
of `tools/trust.py` says how to make it all again. Rows: [projects.csv](projects.csv).

Two numbers were chosen with such projects, on other seeds too: answers of crossed heads count as `labels / (labels + 20)` of
an independent one, and two questions in five are about the audit until there are 60. Projects of one data set and seed share
their folder in both orders, so they are not independent. With 20 labels it is too early to say anything.

Learning the audit labels, crossed, was chosen over a silent audit: it is more accurate and its intervals hold as often.
The last column counts folders with the new number; fewer were run the other ways, as the tables say."""


REAL = """The same question to whole projects, with the heads that people get: 600 photos of signs or of objects (28 to 1),
labeled by a script through the project's own index, queue and worker, with the settings of a new project and 3 % slips
(`tools/projects.py`, rows in [../serving/trained.csv](../serving/trained.csv)). The true accuracy is that on 800 other photos
of the same folder. Points of one project are not independent of each other, and there are few projects: this shows no
coverage of 95 %, but it would show a number that is off."""


def main() -> None:
    """Run, or make tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("reduce")
    one.add_argument("pools", type=Path)
    one.add_argument("vectors", type=Path)
    one.set_defaults(do=reduce)
    one = commands.add_parser("run")
    one.add_argument("vectors", type=Path)
    one.add_argument("rows", type=Path)
    one.add_argument("--seeds", type=int, default=12)
    one.add_argument("--silent", type=int, default=4, help="seeds that are also run with a silent audit")
    one.add_argument("--part", default="0/1")
    one.add_argument("--head", action="store_true")
    one.set_defaults(do=run)
    one = commands.add_parser("tables")
    one.add_argument("out", type=Path)
    one.add_argument("rows", type=Path)
    one.add_argument("heads", type=Path, nargs="?")
    one.add_argument("--real", type=Path)
    one.set_defaults(do=tables)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
