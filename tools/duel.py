"""Queries of ours against those of scikit-activeml, on the same vectors, with the same head, starts, seeds and budgets.

    python tools/duel.py run POOLS [--seeds 12] [--pools NAME,...]    # resumable: finished runs are not done again
    python tools/duel.py time                                         # seconds of one query of 10,000 and 100,000 images
    python tools/duel.py report                                       # table, figure, README

POOLS holds the .npz files that tools/pools.py makes. A run is one pool, query and seed. Each seed draws its own images of the
pool. The head is scikit-learn's logistic regression (C = 10) on vectors as `views=features` makes them: centred on the pool,
scaled to length one, 256 principal directions. All queries start from the same images, one per class: the middles of k-means
clusters; `random` starts from random ones. Labels are 1, 2, 5, 10 and 20 per class, fewer where there are many classes. The
accuracy is that on the test images.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances_argmin
from threadpoolctl import threadpool_limits

from mma.features.table import unit
from mma.query import Candidates, Labeled, Query
from mma.query.space import strongest_directions
from mma.rng import rng

RESULTS = Path(__file__).parents[1] / "results"
OURS = ("auto", "herding", "diff2-direct")
THEIRS = ("DropQuery", "MaxHerding", "TypiClust", "ProbCover", "Badge", "Falcun", "CoreSet")
START = "random from the same start"  # what the start alone is worth
QUERIES = ("random", START, *OURS, *(f"skactiveml:{name}" for name in THEIRS))
BACKBONES = {"cifar10": "lite0", "cifar100": "lite0", "cifar100-held": "lite0", "objects": "lite0"}  # hog elsewhere
HELD = ("signs-held", "cifar100-held")
POOLS = ("digits", "fashion-mnist", "signs", "objects", "cifar10", "svhn", "cifar100", *HELD)
PER_CLASS = {"objects": (1, 2, 5, 10), "cifar100": (1, 2, 5), "cifar100-held": (1, 2, 5, 10)}
SIZES = (1, 2, 5, 10, 20)  # labels per class
DRAWN = {"cifar100": 1_500, "signs-held": 600}  # images of a pool that a seed draws
IMAGES = 1_000  # drawn elsewhere
TOO_SLOW = {("cifar100", "skactiveml:Badge")}  # a gradient of 20,480 numbers for each image: a minute for each run
Arrays = dict[str, NDArray[Any]]


def prepare(pools: Path, name: str, seed: int) -> Arrays:
    """Draw a seed's images and return their vectors and labels, and those of the test set."""
    stored, backbone, draw = np.load(pools / f"{name}.npz"), BACKBONES.get(name, "hog"), rng(seed, "duel", name)
    labels = stored["labels"]
    rows = np.sort(draw.permutation(len(labels))[: DRAWN.get(name, IMAGES)])
    values = stored[backbone][rows].astype(np.float32)
    mean = values.mean(axis=0)
    directions = strongest_directions(values := unit(values - mean), draw)
    test = unit(stored[f"test_{backbone}"].astype(np.float32) - mean)
    return {
        "x": values @ directions,
        "y": labels[rows],
        "test_x": test @ directions,
        "test_y": stored["test_labels"],
        "classes": stored["classes"],
    }


def fit(x: NDArray[Any], y: NDArray[Any]) -> LogisticRegression:
    """Fit the head."""
    return LogisticRegression(C=10.0, max_iter=300, tol=1e-3).fit(x, y)


def probabilities(head: LogisticRegression, x: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """Return probabilities of all classes; those without a label have none."""
    probs = np.zeros((len(x), classes))
    probs[:, head.classes_] = head.predict_proba(x)
    return probs


def first_labels(arrays: Arrays, count: int, query: str, seed: int) -> NDArray[np.int64]:
    """Choose the images that are labeled first."""
    x, draw = arrays["x"], rng(seed, "duel", "start")
    if query == "random":
        return draw.permutation(len(x))[:count]
    middles = KMeans(count, n_init=1, random_state=int(draw.integers(2**31))).fit(x).cluster_centers_
    return np.asarray(np.unique(pairwise_distances_argmin(middles, x)))


def run(arrays: Arrays, name: str, query: str, seed: int) -> dict[str, Any]:
    """Return the accuracies of one run, in percent, and the seconds its queries took."""
    x, y, classes = arrays["x"], arrays["y"], len(arrays["classes"])
    labeled, draw, took = first_labels(arrays, classes, query, seed), rng(seed, "duel", name, query), 0.0
    chooser, found = Query.parse("random" if query == START else query), {}
    head = None
    for size in PER_CLASS.get(name, SIZES):
        if more := classes * size - len(labeled):
            free = np.setdiff1d(np.arange(len(x)), labeled)
            probs = probabilities(head, x[free], classes) if head is not None else None
            begin = time.process_time()
            known = Labeled(x[labeled], y[labeled])
            labeled = np.concatenate([labeled, chooser.select(Candidates(free, probs, x[free]), more, draw, known)])
            took += time.process_time() - begin
        if len(np.unique(y[labeled])) > 1:
            head = fit(x[labeled], y[labeled])
            found[len(labeled)] = round(100 * float((head.predict(arrays["test_x"]) == arrays["test_y"]).mean()), 3)
    return {"pool": name, "query": query, "seed": seed, "accuracy": found, "seconds": round(took, 3)}


def run_all(pools: Path, out: Path, seeds: int, names: tuple[str, ...]) -> None:
    """Do the runs that are missing, all pools with the first seed, then with the next; the held-out pools last."""
    path = out / "runs.jsonl"
    done = {(one["pool"], one["query"], one["seed"]) for one in read(path)}
    for part in ([name for name in names if name not in HELD], [name for name in names if name in HELD]):
        for seed, name in ((seed, name) for seed in range(1, seeds + 1) for name in part):
            missing = [query for query in QUERIES if (name, query, seed) not in done and (name, query) not in TOO_SLOW]
            arrays = prepare(pools, name, seed) if missing else {}
            for query in missing:
                with path.open("a", encoding="utf-8") as file:
                    print(json.dumps(run(arrays, name, query, seed)), file=file, flush=True)
            print(name, seed, flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the finished runs."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def main() -> None:
    """Do what was asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "time", "report"])
    parser.add_argument("pools", type=Path, nargs="?", default=Path())
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--pools", dest="names", default=",".join(POOLS))
    parser.add_argument("--out", type=Path, default=RESULTS / "duel")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        if asked.what == "run":
            run_all(asked.pools, asked.out, asked.seeds, tuple(asked.names.split(",")))


if __name__ == "__main__":
    main()
