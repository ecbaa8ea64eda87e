"""Is `MixMatchClassifier` on plain rows ever below what scikit-learn has for few labels?

    python tools/plain_rows.py run POOLS --out ROWS [--seeds 6] [--whole 2] [POOL ...]
    python tools/plain_rows.py table ROWS

POOLS is what `tools/pools.py` writes; the draws are those of `tools/first_labels.py`. Rows are the vectors of one backbone as
it gives them, `hog` for digits, signs and house numbers and `lite0` for photos, or their first 64 principal components. The
same labels, drawn at random, go to all: `MixMatchClassifier()`, `SelfTrainingClassifier(LogisticRegression())` and
`LabelSpreading(kernel="knn")`. `table` writes results/first-labels/plain-rows.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

sys.path.insert(0, str(Path(__file__).parent))
from first_labels import MOST, POOLS, RESULTS, open_pool, percent, read

from mma import MixMatchClassifier
from mma.data.tables import render_csv
from mma.files import write_atomically
from mma.rng import rng

PER_CLASS = (2, 5, 10, 25)
DIRECTIONS = 64
WORST = -1.0  # points below the better of the others
HANDMADE = ("digits", "signs", "svhn")  # pools on which `hog` is the better backbone
OTHERS = ("self-training", "label spreading")
METHODS = ("mma", *OTHERS)


def learners(seed: int) -> dict[str, Any]:
    """Return the classifiers, as they come."""
    return {
        "mma": MixMatchClassifier(random_state=seed),
        "self-training": SelfTrainingClassifier(LogisticRegression(max_iter=1_000)),
        "label spreading": LabelSpreading(kernel="knn"),
    }


def run_one(folder: Path, name: str, seed: int, *, every: bool) -> Iterator[dict[str, Any]]:
    """Compare them on one draw of a pool; `every`: on all numbers, too."""
    pool = open_pool(folder, name, seed)
    part = 1 if name in HANDMADE else 0
    seen, tested = (
        np.asarray(views.parts[part].take(np.arange(len(views))), np.float32).reshape(len(views), -1)
        for views in (pool.views, pool.test)
    )
    main = PCA(DIRECTIONS, random_state=0).fit(seen)
    order = rng(seed, "random", name).permutation(len(pool.y))
    kinds = {"PCA-64": (main.transform(seen), main.transform(tested))} | (
        {"all numbers": (seen, tested)} if every else {}
    )
    for rows, (x, other) in kinds.items():
        for per_class in (each for each in PER_CLASS if each * pool.classes <= MOST * len(pool.y)):
            y = np.full(len(pool.y), -1)
            y[order[: per_class * pool.classes]] = pool.y[order[: per_class * pool.classes]]
            if len(np.unique(y)) < 3:  # one class alone: nobody can learn from that
                continue
            row: dict[str, Any] = {"pool": name, "seed": seed, "rows": rows, "per_class": per_class}
            for method, learner in learners(seed).items():
                begin = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # iterations at their end, classes without a neighbour
                    probs = learner.fit(x, y).predict_proba(other)
                row[f"{method} seconds"] = round(time.process_time() - begin, 3)
                whole = np.zeros((len(other), pool.classes))
                whole[:, learner.classes_] = np.nan_to_num(probs)
                row[method] = percent(whole, pool.truth)
            yield row


def run(folder: Path, out: Path, seeds: int, whole: int, names: list[str]) -> None:
    """Run what is not in the file; a (pool, seed) is appended whole. The first `whole` seeds have all numbers, too."""
    torch.set_num_threads(1)
    done = {(row["pool"], row["seed"]) for row in read(out)} if out.exists() else set()
    for seed in range(1, seeds + 1):
        for name in names or POOLS:
            if (name, seed) not in done and (folder / f"{POOLS[name].file}.npz").exists():
                text = "".join(json.dumps(row) + "\n" for row in run_one(folder, name, seed, every=seed <= whole))
                with out.open("a") as file:
                    file.write(text)
                print(f"{name}, seed {seed}", flush=True)


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """Return a table for each kind of rows, and name the cells below the better of the others."""
    text = []
    for kind in dict.fromkeys(row["rows"] for row in rows):
        lines, below, cells = [], [], 0
        for pool in dict.fromkeys(row["pool"] for row in rows):
            line, count = [], 0
            for per_class in PER_CLASS:
                mine = [r for r in rows if (r["rows"], r["pool"], r["per_class"]) == (kind, pool, per_class)]
                if not mine:
                    line.append("")
                    continue
                means = [float(np.mean([row[method] for row in mine])) for method in METHODS]
                gap, cells, count = means[0] - max(means[1:]), cells + 1, max(count, len(mine))
                line.append(" ".join(f"{mean:.1f}" for mean in means))
                if gap < WORST:
                    below.append(f"{pool}, {per_class} ({gap:+.2f})")
            chosen = "chosen on" if POOLS[pool].chosen_on else "accepts"
            lines.append(f"| {pool} | {chosen} | {count} | " + " | ".join(line) + " |")
        mine = [row for row in rows if row["rows"] == kind]
        seconds = ", ".join(
            f"{method} {np.median([row[f'{method} seconds'] for row in mine]):.2f}" for method in METHODS
        )
        text += [
            f"## {kind}",
            "",
            f"{cells} cells. Below the better of the others by more than a point on average: {'; '.join(below) or 'none'}. "
            f"Median seconds of a fit: {seconds}.",
            "",
            "| pool | | n | " + " | ".join(f"{each} per class" for each in PER_CLASS) + " |",
            "|---" * (3 + len(PER_CLASS)) + "|",
            *lines,
            "",
        ]
    return "\n".join(text)


def write(rows: list[dict[str, Any]]) -> None:
    """Write the page, with the rows at its end."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    table = render_csv([names, *([row.get(name) for name in names] for row in rows)]).decode("utf-8")
    head = (
        "# Plain rows\n\nAccuracy in % of `MixMatchClassifier()`, scikit-learn's `SelfTrainingClassifier` around its "
        '`LogisticRegression`, and its `LabelSpreading(kernel="knn")`, in this order, all as they come, on the same random '
        "labels: the mean over n seeds. Rows are vectors of one backbone (`hog` for digits, signs and svhn, else `lite0`): "
        "all numbers, or the first 64 principal components.\n\n"
        "Made by `python tools/plain_rows.py run POOLS --out ROWS`, then `table ROWS`. Seconds are those of one busy "
        "processor thread.\n\n"
    )
    page = f"{head}{as_markdown(rows)}\n## Rows\n```\n{table.rstrip()}\n```\n"
    write_atomically(RESULTS / "first-labels" / "plain-rows.md", page)


def main() -> None:
    """Run, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("pools", type=Path)
    running.add_argument("names", nargs="*")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--seeds", type=int, default=6)
    running.add_argument(
        "--whole", type=int, default=2, help="seeds that also look at all numbers, which takes longest"
    )
    commands.add_parser("table").add_argument("rows", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "run":
        run(given.pools, given.out, given.seeds, given.whole, given.names)
    else:
        write([row for path in given.rows for row in read(path)])


if __name__ == "__main__":
    main()
