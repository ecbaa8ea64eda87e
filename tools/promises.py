"""Measure the three promises on simulated projects: are they kept, and what do they cost?

    python tools/promises.py alone|find|none POOLS OUT.jsonl [--projects N]

appends the rows of every project to OUT and skips projects that are there. `table FOLDER OUT.jsonl ...` writes the tables of
results/promises. POOLS are vectors made by tools/pools.py; fashion-pixels are the 60,000 images of Fashion-MNIST themselves.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from mma.data.releases import PACKAGE_FOLDERS, read_fashion
from mma.data.tables import render_csv
from mma.project.quality.accuracy import fold_numbers
from mma.project.quality.promises import (
    BATCH,
    GOAL,
    Recall,
    alone,
    draws_at_random,
    strange_above,
)
from mma.shares import AuditRecord, exact_interval

KINDS = {"digits": "hog", "fashion-mnist": "hog", "signs": "hog", "svhn": "hog", "objects": "lite0", "cifar10": "lite0"}
WIDTH = 128  # directions that vectors are projected on
ASKED, ROUND = 100, 20  # labels asked for, most doubtful first; labels between two trainings
AUDITS = (50, 150, 300)
ERRORS = (0.01, 0.02, 0.05, 0.1)
PENALTY, SHARPNESS = 0.3, 8.0  # of heads
LARGE = "fashion-pixels"
START = 60  # random labels before a search begins
Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


def read_pool(folder: Path, name: str, *, tests: bool = False) -> tuple[Floats, Ints]:
    """Return the vectors of a pool, centred, of length one and projected, with their labels."""
    if name == LARGE:
        images = read_fashion(PACKAGE_FOLDERS[0], accept=False)[0]
        x, y = images.pixels.reshape(len(images.pixels), -1).astype(np.float32), images.labels
    else:
        stored = np.load(folder / f"{name}.npz")
        parts = ["", "test_"] if tests else [""]
        x = np.concatenate([stored[f"{part}{KINDS[name]}"] for part in parts]).astype(np.float32)
        y = np.concatenate([stored[f"{part}labels"] for part in parts])
    x = x - x.mean(0)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    part = x[np.random.default_rng(0).permutation(len(x))[:3_000]]
    basis = np.linalg.svd(part, full_matrices=False)[2][:WIDTH].T
    return (x @ basis).astype(np.float32), y.astype(np.int64)


class Head:
    """A linear head by ridge regression: as good as a logistic regression here, and a hundred times faster."""

    def __init__(self, x: Floats, y: Ints, *, balanced: bool = False) -> None:
        self.classes, row, many = np.unique(y, return_inverse=True, return_counts=True)
        weight = len(y) / len(many) / many[row] if balanced else np.ones(len(y))
        targets = (y[:, None] == self.classes).astype(np.float32)
        self.mean = (weight[:, None] * targets).mean(0)
        gram = (x.T * weight) @ x + PENALTY * np.eye(x.shape[1])
        self.weight = np.linalg.solve(gram, (x.T * weight) @ (targets - self.mean))

    def probabilities(self, x: Floats) -> Floats:
        """Return probabilities; their order is what promises use. (N, classes)"""
        found: Floats = softmax(SHARPNESS * (x @ self.weight + self.mean), axis=1)
        return found


def simulate_alone(x: Floats, truth: Ints, seed: int, slips: float) -> Iterator[dict[str, Any]]:
    """Label a project, promise, and look at the truth of all photos that have no label."""
    rng = np.random.default_rng(seed)
    shuffled, classes = rng.permutation(len(x)), int(truth.max()) + 1
    said = np.where(rng.random(len(x)) < slips, (truth + rng.integers(1, classes, len(x))) % classes, truth)
    audit, pool = shuffled[: max(AUDITS)], shuffled[max(AUDITS) :]
    asked = pool[:ROUND]
    while len(asked) < ASKED:
        rest = np.setdiff1d(pool, asked)
        top = np.sort(Head(x[asked], said[asked]).probabilities(x[rest]), axis=1)
        asked = np.append(asked, rest[np.argsort(top[:, -1] - top[:, -2])[:ROUND]])
    for many in (each for each in AUDITS if each <= len(x) // 4):
        kept = audit[:many]
        sure, right = np.zeros(many), np.zeros(many, bool)
        fold = fold_numbers(said[kept], list(range(many)), 3)
        for number in np.unique(fold):  # each audit photo is judged by a head that did not see it
            test = fold == number
            rows = np.concatenate([asked, kept[~test]])
            head = Head(x[rows], said[rows])
            probs = head.probabilities(x[kept[test]])
            sure[test], right[test] = probs.max(1), head.classes[probs.argmax(1)] == said[kept[test]]
        rows = np.concatenate([asked, kept])
        rest = np.setdiff1d(np.arange(len(x)), rows)
        head = Head(x[rows], said[rows])
        probs = head.probabilities(x[rest])
        confidence, correct = probs.max(1), head.classes[probs.argmax(1)] == truth[rest]
        for wish in ERRORS:
            found = alone(wish, AuditRecord(*(tuple(each.tolist()) for each in (sure, right, confidence))))
            mine = np.zeros(len(rest), bool) if found.threshold is None else confidence >= found.threshold
            wrong = float((~correct[mine]).mean()) if mine.any() else 0.0
            yield {
                "audit": many,
                "slips": slips,
                "wish": wish,
                "promised": found.threshold is not None,
                "alone": float(mine.mean()),
                "wrong": wrong,
                "broken": wrong > wish,
                "accuracy": float(correct.mean()),
                "needed": found.needed,
            }


def simulate_find(x: Floats, truth: Ints, seed: int, ratio: int, brief: bool = False) -> Iterator[dict[str, Any]]:
    """Search a class that one in `ratio` photos has, in three orders; stop when the promise is made."""
    rng = np.random.default_rng(seed)
    klass = int(rng.integers(truth.max() + 1))
    others, mine = rng.permutation(np.flatnonzero(truth != klass)), rng.permutation(np.flatnonzero(truth == klass))
    few = min(max(round(len(others) / ratio), 2), len(mine))
    rows = rng.permutation(np.concatenate([others, mine[:few]]))
    x, is_one = x[rows], truth[rows] == klass
    first = np.append(rng.choice(np.flatnonzero(~is_one), START, replace=False), rng.choice(np.flatnonzero(is_one), 1))
    for order in ("search",) if brief else ("search", "random", "margin"):
        yield {"ratio": ratio, "photos": len(x), "of class": few, "order": order} | search(
            x, truth[rows], is_one, first, order, np.random.default_rng(seed)
        )


def search(
    x: Floats, labels: Ints, is_one: NDArray[np.bool_], first: Ints, order: str, rng: np.random.Generator
) -> dict[str, Any]:
    """Look at photos until the promise is made; return what it cost and whether it held."""
    open_ones = np.ones(len(x), bool)
    open_ones[first] = False
    klass = int(labels[is_one][0])
    bound, batches, known = Recall(len(x)), list[tuple[bool, int, int]](), first
    found, looked, fitted, reached, ranked = int(is_one[first].sum()), 0, 0, None, np.zeros(len(x))
    promised = None
    goal = GOAL * is_one.sum()
    while open_ones.any() and (promised is None or reached is None):
        rest = np.flatnonzero(open_ones)
        at_random = order == "random" or (order == "search" and draws_at_random(batches, len(rest)))
        if at_random:
            batch = rng.choice(rest, min(BATCH, len(rest)), replace=False)
        else:
            if len(known) >= 1.1 * fitted and len(known) <= 800:
                head = Head(x[known], labels[known], balanced=order != "margin")
                probs, fitted = head.probabilities(x), len(known)
                top = np.sort(probs, axis=1)
                ranked = top[:, -2] - top[:, -1] if order == "margin" else probs[:, list(head.classes).index(klass)]
            batch = rest[np.argsort(-ranked[rest], kind="stable")[:BATCH]]
        for place, row in enumerate(batch):
            if at_random:
                bound.draw(len(rest) - place, found, hit=bool(is_one[row]))
            found += int(is_one[row])
            open_ones[row] = False
            if reached is None and found >= goal:
                reached = looked + place + 1
        looked += len(batch)
        hits = int(is_one[batch].sum())
        batches.append((bool(at_random), len(batch), hits))
        if order == "margin":
            known = np.append(known, batch)
            if reached is not None:
                break
        else:
            known = np.append(known, batch[is_one[batch]])
            if promised is None and bound.promise(found, int(open_ones.sum())) >= GOAL:
                promised, broken = looked, found < goal
    if promised is None:
        promised, broken = looked, False
    return {"to find": reached, "to promise": None if order == "margin" else promised, "broken": bool(broken)}


def simulate_none(folder: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Ask for photos of no class among those of all classes."""
    stored = np.load(folder / "objects.npz")
    x, y, none = stored["lite0"].astype(np.float32), stored["labels"], stored["none_lite0"].astype(np.float32)
    centre = x.mean(0)
    x, none = ((each - centre) / np.linalg.norm(each - centre, axis=1, keepdims=True) for each in (x, none))
    order = np.random.default_rng(seed).permutation(len(x))
    for labels, audit in ((60, 25), (150, 50), (400, 100)):
        train, kept, rest = np.split(order, [labels, labels + audit])
        typical = np.stack([x[train][y[train] == k].mean(0) for k in np.unique(y[train])])
        typical /= np.linalg.norm(typical, axis=1, keepdims=True)
        scores, strange = (1 - (each @ typical.T).max(1) for each in (x, none))
        border = strange_above(scores[kept])
        assert border is not None
        area = roc_auc_score(np.r_[np.zeros(len(rest)), np.ones(len(none))], np.r_[scores[rest], strange])
        sharp = float((strange > np.quantile(scores[rest], 0.95)).mean())
        refused = {
            "ordinary refused": float((scores[rest] > border).mean()),
            "none refused": float((strange > border).mean()),
        }
        yield {"labels": labels, "audit": audit, "auroc": float(area), **refused, "none refused at 5 %": sharp}


def simulate(kind: str, pools: Path, out: Path, projects: int, only: str | None) -> None:
    """Simulate what is not in OUT yet."""
    done = {(row["pool"], row["seed"]) for row in read(out)} if out.exists() else set()
    names = {"alone": list(KINDS), "find": [*KINDS, LARGE], "none": ["objects"]}[kind]
    for name in names if only is None else [only]:
        if not (name == LARGE or (pools / f"{name}.npz").exists()):
            print(f"{name}: not there", flush=True)
            continue
        x, y = read_pool(pools, name, tests=kind == "find")
        for seed in range(projects // len(names) + 1 if kind != "none" else projects):
            if (name, seed) in done:
                continue
            if kind == "alone":
                rows = [row for slips in (0.0, 0.03) for row in simulate_alone(x, y, seed, slips)]
            elif kind == "find":
                ratios = (500,) if name == LARGE else (50, 500)
                rows = [row for ratio in ratios for row in simulate_find(x, y, seed, ratio, name == LARGE)]
            else:
                rows = list(simulate_none(pools, seed))
            with out.open("a") as file:
                file.writelines(json.dumps({"kind": kind, "pool": name, "seed": seed, **row}) + "\n" for row in rows)
            print(name, seed, flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def groups(rows: list[dict[str, Any]], *names: str) -> Iterator[tuple[list[Any], list[dict[str, Any]]]]:
    """Yield the rows that are equal in some columns, with what they are equal in."""
    for key in sorted({tuple(row[name] for name in names) for row in rows}):
        yield list(key), [row for row in rows if tuple(row[name] for name in names) == key]


def broken_words(part: list[dict[str, Any]]) -> str:
    """Write how often a promise is broken, with its interval."""
    broken = sum(row["broken"] for row in part)
    low, high = exact_interval(broken, len(part))
    return f"{broken / len(part):.1%} ({low:.1%} to {high:.1%})"


def table(kind: str, rows: list[dict[str, Any]]) -> str:
    """Return the table of one promise."""
    lines: list[list[str]] = []
    if kind == "alone":
        lines += [
            ["audit labels", "slips", "at most wrong", "promised in", "answered alone", "wrong of these", "broken"]
        ]
        for (audit, slips, wish), part in groups(rows, "audit", "slips", "wish"):
            if made := [row for row in part if row["promised"]]:
                shares = [f"{np.mean([row[name] for row in made]):.1%}" for name in ("alone", "wrong")]
                held = [f"{len(made)} of {len(part)} projects", *shares, broken_words(part)]
                lines += [[f"{audit}", f"{slips:.0%}", f"{wish:.0%}", *held]]
    elif kind == "find":
        names = ("to find", "to promise")
        lines += [["pool", "one in", "photos", "of the class", "order", "projects", *names, "broken"]]
        for (pool, ratio, order), part in groups(rows, "pool", "ratio", "order"):
            sizes = [f"{np.mean([row[name] for row in part]):,.0f}" for name in ("photos", "of class")]
            costs = [[row[name] / row["photos"] for row in part if row[name] is not None] for name in names]
            shown = [f"{np.mean(cost):.0%}" if cost else "" for cost in costs]
            held = broken_words(part) if order != "margin" else ""
            lines += [[pool, str(ratio), *sizes, order, str(len(part)), *shown, held]]
        for (ratio,), part in groups([row for row in rows if row["order"] == "search"], "ratio"):
            lines += [["all", str(ratio), "", "", "search", str(len(part)), "", "", broken_words(part)]]
    else:
        names = ("auroc", "none refused at 5 %", "ordinary refused", "none refused")
        lines += [["labels", "audit labels", *names]]
        for (labels, audit), part in groups(rows, "labels", "audit"):
            lines += [[str(labels), str(audit), *(f"{np.mean([row[name] for row in part]):.3f}" for name in names)]]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_tables(folder: Path, files: list[Path]) -> None:
    """Write the rows of all projects as CSV and print their tables."""
    rows = [row for path in files for row in read(path)]
    for kind in ("alone", "find", "none"):
        if part := [row for row in rows if row["kind"] == kind]:
            names = [name for name in part[0] if name != "kind"]
            cells = [[round(v, 5) if isinstance(v := row[name], float) else v for name in names] for row in part]
            (folder / f"{kind}.csv").write_bytes(render_csv([names, *cells]))
            print(f"{kind}\n\n{table(kind, part)}\n")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("alone", "find", "none", "table"))
    parser.add_argument("pools", type=Path, help="With table: the folder to write to.")
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--only", metavar="POOL")
    parser.add_argument("--projects", type=int, default=200)
    given = parser.parse_args()
    if given.kind == "table":
        write_tables(given.pools, given.out)
    else:
        simulate(given.kind, given.pools, given.out[0], given.projects, given.only)


if __name__ == "__main__":
    main()
