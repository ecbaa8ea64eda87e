"""Compare ways to train a head on frozen features: the same labels, images and features for each.

    python results/heads/compare.py cifar10 --backbone lite0 --seeds 5 --out results/heads/runs.csv
    python results/heads/compare.py cifar10 --held-out --set algorithm.weight=30 --out trial.csv

A line of the CSV is one fit. `--held-out` scores on images of the pool instead of the test set: settings were chosen that way.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from mma.config import change
from mma.data import DataSet, load_data, nested_order
from mma.features import ImageSource, image_source
from mma.presets import preset
from mma.rng import rng
from mma.training.head import fit_head
from mma.views import FeatureViews, VectorViews

HELD_OUT = 2_000  # images of the larger pools
ALIKE = 0.8  # cosine of centred features above which photos of a folder are frames of the same scene
METHODS = {
    "logistic regression": ["algorithm=supervised", "growth.final=1", "optim.lr=1e-9"],  # where all the others start
    "self-training": ["algorithm=pseudo-label", "algorithm.ramp=0", "algorithm.threshold=0.8", "optim.lr=0.02"],
    "mean-teacher": ["algorithm=mean-teacher", "algorithm.ramp=0", "optim.lr=0.02"],
    "freematch": ["algorithm=freematch", "optim.lr=0.02"],
    "mixmatch": [],
}


@dataclass(frozen=True)
class Task:
    """A pool to learn from and other images to be scored on."""

    views: VectorViews
    labels: np.ndarray
    other: VectorViews
    truth: np.ndarray
    classes: int


def load_task(args: argparse.Namespace, settings: FeatureViews) -> Task:
    """Compute features that are not stored yet, and split."""
    data = load_data(args.data)
    source, _ = image_source(data.train)
    order = nested_order(len(source), 0)
    pool = np.sort(order[: args.pool])
    if not args.held_out:
        test, rows = image_source(data.test)[0], np.sort(nested_order(len(data.test), 0)[: args.test])
        return make_task(data, source, pool, test.take(rows), data.test.labels[rows], settings)
    if len(order) >= args.pool + HELD_OUT:
        rows = np.sort(order[args.pool : args.pool + HELD_OUT])
    else:
        pool, rows = split_scenes(source, data.train.labels)
    return make_task(data, source, pool, source.take(rows), data.train.labels[rows], settings)


def make_task(
    data: DataSet, source: ImageSource, pool: np.ndarray, other: ImageSource, truth: np.ndarray, settings: FeatureViews
) -> Task:
    """Open the views of both."""
    views = settings.open_source(source.take(pool), torch.device("cpu"))
    return Task(views, data.train.labels[pool], views.of_source(other), truth, len(data.train.classes))


def split_scenes(source: ImageSource, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split a small pool in half, so that no image has a near-duplicate in the other half."""
    x = FeatureViews(backbone="hog", crops=0).open_source(source, torch.device("cpu")).plain(np.arange(len(source)))
    group = np.arange(len(labels))
    for one, other in zip(*np.nonzero(np.triu((x @ x.T).numpy() > ALIKE, 1)), strict=True):
        group[group == group[one]] = group[other]
    held: list[np.ndarray] = []
    for label in np.unique(labels):
        groups = rng(0, "scenes", int(label)).permutation(np.unique(group[labels == label]))
        rows = [np.flatnonzero((group == each) & (labels == label)) for each in groups]
        enough = int(np.searchsorted(np.cumsum([len(part) for part in rows]), (labels == label).sum() / 2)) + 1
        held.extend(rows[:enough])
    out = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(labels)), out), out


def draw_labels(labels: np.ndarray, per_class: int, seed: int) -> dict[int, int]:
    """Draw as many labels of each class."""
    order = rng(seed, "labels").permutation(len(labels))
    rows = np.concatenate([order[labels[order] == each][:per_class] for each in np.unique(labels)])
    return {int(row): int(labels[row]) for row in rng(seed, "order").permutation(rows)}


def scores(probs: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return accuracy in percent, mean negative log-likelihood, and expected calibration error in points (15 bins)."""
    sure, right = probs.max(1), probs.argmax(1) == truth
    bins = np.minimum((15 * sure).astype(int), 14)
    gaps = [abs((sure - right)[bins == each].sum()) for each in range(15)]
    likelihood = np.log(np.maximum(probs[np.arange(len(truth)), truth], 1e-12))
    found = {"accuracy": 100 * right.mean(), "nll": -likelihood.mean(), "ece": 100 * sum(gaps) / len(truth)}
    return {name: float(value) for name, value in found.items()}


def compare(task: Task, args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Fit every method with every number of labels and seed; with and without the temperature."""
    for per_class in args.labels:
        for seed in range(1, args.seeds + 1):
            answers = draw_labels(task.labels, per_class, seed)
            for method in args.methods:
                settings = [*args.set, *METHODS[method], f"seed={seed}"]
                begin, processor = time.perf_counter(), time.process_time()
                head = fit_head(task.views, answers, task.classes, config=change(preset("photos"), settings))
                took = time.perf_counter() - begin, time.process_time() - processor
                every = np.arange(len(task.truth))
                found = scores(head.probabilities(task.other, every), task.truth)
                temperature = head.net.head.temperature.item()
                head.net.head.temperature.fill_(1.0)
                raw = scores(head.probabilities(task.other, every), task.truth)
                row: dict[str, object] = {
                    "method": method,
                    "per_class": per_class,
                    "labels": len(answers),
                    "seed": seed,
                }
                row |= {name: round(value, 4) for name, value in found.items()}
                row |= {"raw_nll": round(raw["nll"], 4), "raw_ece": round(raw["ece"], 4)}
                row |= {"temperature": round(temperature, 4), "used": "+".join(head.used)}
                yield {**row, "seconds": round(took[0], 3), "processor": round(took[1], 3)}


def main() -> None:
    """Append one line per fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--backbone", default="lite0+hog")
    parser.add_argument("--labels", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4, 16, 64])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", type=lambda text: text.split(";"), default=list(METHODS))
    parser.add_argument("--pool", type=int, default=10_000, help="images to learn from, at most")
    parser.add_argument("--test", type=int, default=5_000, help="test images, at most")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--note", default="")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = change(preset("photos"), [f"views.backbone={args.backbone}", *args.set])
    assert isinstance(config.views, FeatureViews)
    task = load_task(args, config.views)
    for row in compare(task, args):
        row = {"data": args.data, "backbone": args.backbone, "note": args.note or " ".join(args.set), **row}
        new = not args.out.exists()
        with args.out.open("a", newline="") as file:
            table = csv.DictWriter(file, list(row))
            if new:
                table.writeheader()
            table.writerow(row)


if __name__ == "__main__":
    main()
