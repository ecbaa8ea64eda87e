"""When to use a temperature, and how strongly to hold it at 1: both by images held out of the pools, never by test images.

    python results/heads/calibration_rule.py fit digits fashion-mnist folder:signs --out results/heads/calibration-rule.csv
    python results/heads/calibration_rule.py table results/heads/calibration-rule.csv

`fit` trains a head of the preset `photos` on `hog`, and the heads without a part of the labels that a temperature is found by.
A line is one number of labels, one seed and one PRIOR; PRIOR "none" is a temperature of 1. The seeds are in no other table.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from compare import draw_labels, make_task, scores, split_scenes

from mma.config import change
from mma.data import load_data, nested_order
from mma.features import image_source
from mma.nets import head as logistic
from mma.presets import preset
from mma.training import head as calibrate
from mma.training.head import fit_head
from mma.views import FeatureViews

PER_CLASS, SEEDS = (4, 8, 12, 16, 32), (101, 102)
PRIORS = (1.0, 5.0, 20.0, 80.0)
STARTS = (0, 60, 100, 120, 150, 250, 500)
POOL, HELD_OUT = 5_000, 2_000
FIELDS = ("data", "labels", "seed", "prior", "temperature", "nll", "ece")
Row = dict[str, str]


def fit(name: str) -> Iterator[dict[str, object]]:
    """Fit heads on one data set, and score every way to calibrate them."""
    config = change(preset("photos"), ["views.backbone=hog"])
    assert isinstance(config.views, FeatureViews)
    data = load_data(name)
    source, _ = image_source(data.train)
    order = nested_order(len(source), 0)
    held_out = min(HELD_OUT, len(order) // 3)
    pool, other = np.sort(order[held_out : held_out + POOL]), np.sort(order[:held_out])
    if data.train.names:  # photos: frames of one scene must not be on both sides
        pool, other = split_scenes(source, data.train.labels)
    task = make_task(data, source, pool, source.take(other), data.train.labels[other], config.views)
    for seed in SEEDS:
        for per_class in PER_CLASS:
            answers = draw_labels(task.labels, per_class, seed)
            crossed: list[tuple[np.ndarray, np.ndarray]] = []
            calibrate.ENOUGH = 0
            calibrate.find_temperature = lambda logits, y, crossed=crossed: crossed.append((logits, y)) or 1.0
            head = fit_head(task.views, answers, task.classes, config=change(config, [f"seed={seed}"]))
            known = np.log(np.maximum(head.probabilities(task.other, np.arange(len(task.truth))), 1e-30))
            for prior in (None, *PRIORS):
                logistic.PRIOR = prior or 0.0
                temperature = 1.0 if prior is None else logistic.find_temperature(*crossed[0])
                scaled = np.exp(known / temperature)
                found = scores(scaled / scaled.sum(1, keepdims=True), task.truth)
                about = {"data": name, "labels": len(answers), "seed": seed, "prior": prior or "none"}
                yield {
                    **about,
                    "temperature": temperature,
                    "nll": round(found["nll"], 4),
                    "ece": round(found["ece"], 3),
                }


def table(rows: list[Row]) -> None:
    """Print both errors by number of labels, and the mean of every rule against the one in use: 120 labels, PRIOR 20."""
    cells = {(r["data"], int(r["labels"]), r["seed"], r["prior"]): (float(r["nll"]), float(r["ece"])) for r in rows}
    places = sorted({key[:3] for key in cells}, key=lambda key: (key[0], key[1]))
    priors = ["none", *map(str, PRIORS)]
    for data, labels in dict.fromkeys(place[:2] for place in places):
        here = [place for place in places if place[:2] == (data, labels)]
        means = [np.mean([cells[(*place, prior)] for place in here], axis=0) for prior in priors]
        print(f"| {data} | {labels} |", " | ".join(f"{nll:.3f}, {ece:.1f}" for nll, ece in means), "|")
    today = np.array([cells[(*place, "20.0" if place[1] >= 120 else "none")] for place in places])
    for prior in priors[1:]:
        for start in STARTS:
            rule = np.array([cells[(*place, prior if place[1] >= start else "none")] for place in places])
            better = today - rule
            error = better.std(axis=0, ddof=1) / len(better) ** 0.5
            columns = zip(rule.mean(0), better.mean(0), error, strict=True)
            print(f"| {start} | {prior} |", " | ".join(f"{a:.4f}, {b:+.4f} ± {c:.4f}" for a, b, c in columns), "|")


def main() -> None:
    """Fit and append lines, or read them."""
    torch.set_num_threads(1)
    if sys.argv[1] == "table":
        with Path(sys.argv[2]).open(newline="") as file:
            table(list(csv.DictReader(file)))
        return
    *names, _, out = sys.argv[2:]
    with Path(out).open("w", newline="") as file:
        lines = csv.DictWriter(file, FIELDS, lineterminator="\n")
        lines.writeheader()
        for name in names:
            for row in fit(name):
                lines.writerow(row)
                file.flush()


if __name__ == "__main__":
    main()
