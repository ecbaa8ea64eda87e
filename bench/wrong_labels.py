"""How well wrong labels are found, against a ranking by margin:  python -m bench.wrong_labels FOLDER

FOLDER has a sub-folder per class. Some labels are drawn at random, and a share of them is set to a wrong class at random.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.special import softmax

from mma.data import FolderOptions, get_folder
from mma.features import features, image_source
from mma.nets.head import fit_logistic
from mma.project.quality.accuracy import fold_numbers
from mma.project.review import find_wrong_labels, label_margins
from mma.project.worker.round import PENALTY
from mma.rng import rng

BACKBONE, LABELS, NOISE, SEEDS = "hog", (150, 300), 0.05, 10
Numbers = tuple[float, float, float, float, float, float]


def main() -> None:
    """Print one line per number of labels: means over the seeds."""
    images = get_folder(Path(sys.argv[1]), FolderOptions(name="wrong-labels", holdout=0.0)).train
    found = features(image_source(images)[0], BACKBONE)
    x = found.centring()(found.take(np.arange(len(images))))
    print("| labels | suspects | precision | recall | right class | precision by margin | recall by margin |")
    print("|---|---|---|---|---|---|---|")
    for count in LABELS:
        means = np.mean([once(x, images.labels, count, seed) for seed in range(SEEDS)], axis=0)
        print(f"| {count} | {means[0]:.1f} | " + " | ".join(f"{share:.0%}" for share in means[1:]) + " |", flush=True)


def once(x: np.ndarray, truth: np.ndarray, count: int, seed: int) -> Numbers:
    """Plant wrong labels, look for them, and take as many with the lowest margin."""
    draw, classes = rng(seed, "wrong labels"), int(truth.max()) + 1
    rows = draw.choice(len(truth), count, replace=False)
    labels, bad = truth[rows].copy(), draw.choice(count, round(NOISE * count), replace=False)
    labels[bad] = (labels[bad] + draw.integers(1, classes, len(bad))) % classes
    probs = out_of_sample(x[rows], labels, classes)
    suspects = find_wrong_labels(labels, probs)
    wrong = labels != truth[rows]
    picked = np.array([suspect.row for suspect in suspects], np.int64)
    lowest = np.argsort(label_margins(labels, probs), kind="stable")[: len(picked)]
    right = [suspect.likely == truth[rows][suspect.row] for suspect in suspects if wrong[suspect.row]]
    ours, margin = wrong[picked], wrong[lowest]
    return (
        len(picked),
        ours.mean(),
        ours.sum() / len(bad),
        float(np.mean(right)),
        margin.mean(),
        margin.sum() / len(bad),
    )


def out_of_sample(x: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Return probabilities of logistic regressions that did not see the label."""
    fold = fold_numbers(labels, range(len(labels)))
    probs = np.zeros((len(labels), classes), np.float32)
    for number in np.unique(fold):
        test = fold == number
        weight, bias = fit_logistic(x[~test], labels[~test], classes, PENALTY)
        probs[test] = softmax(x[test] @ weight.T + bias, axis=1)
    return probs


if __name__ == "__main__":
    main()
