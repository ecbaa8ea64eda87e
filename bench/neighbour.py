"""What one busy program beside it costs the classifier, the features and a round of the labeling page's worker.

    python -m bench.neighbour WHAT CASE THREADS      a contestant (see `bench/worker.py`)

A step by step comparison of training itself is in `bench/steps.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import torch

from bench.duel import QUIET, Contestant, alone_and_beside
from bench.heads import CLASSES, clusters, fit_and_score, open_views
from bench.worker import answer
from mma.classifier import MixMatchClassifier
from mma.data.images import pixel_keys
from mma.features import ArrayImages, compute_block, parse_backbone
from mma.features.table import DEFAULT
from mma.rng import rng

LABELS, IMAGES, STEPS = 60, 1_000, 60
FAIR = 2.0  # of two cores one is left


def section(threads: int, rounds: int = 3) -> str:
    """Return the table."""
    lines = [
        "## Beside a busy program",
        "",
        "Seconds, medians, alone and beside one process that never rests. What is fair: one of two cores is left, so twice as "
        f"slow at most, and hardly more processor time. Features: 128 images through `{DEFAULT}`. A round of the page's "
        f"worker: a head fitted on {LABELS} labels among {IMAGES:,} images, and every image scored. The classifier: "
        f"`MixMatchClassifier`, {STEPS} steps.",
        "",
        "| | alone | beside a busy process | slower by | at most | processor: alone | beside a busy process |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in WORK:
        contestant = Contestant(name, "-", QUIET, module="bench.neighbour")
        (alone,), (beside,) = alone_and_beside([contestant], rounds, 1)
        lines.append(
            f"| {name} | {alone[0]:.3f} | {beside[0]:.3f} | **{beside[0] / alone[0]:.1f} x** | {FAIR:.1f} x | "
            f"{alone[1]:.3f} | {beside[1]:.3f} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def features() -> Callable[[int], object]:
    """Compute features of an array, on all cores."""
    pixels = rng(1, "images").integers(0, 256, (128, 32, 32, 3), dtype=np.uint8)
    images, backbone = ArrayImages(pixels, pixel_keys(pixels)), parse_backbone(DEFAULT).resolve()
    return lambda step: compute_block(images, backbone, np.arange(len(pixels)))


def page_worker() -> Callable[[int], object]:
    """Fit a head as a round of the page's worker does, with its one thread."""
    torch.set_num_threads(1)
    stored, truth = clusters(IMAGES)
    views, answers = open_views(stored), {row: int(truth[row]) for row in range(LABELS)}
    return lambda step: fit_and_score(views, answers)


def classifier() -> Callable[[int], object]:
    """Fit the classifier on images of noise, with the threads it takes by itself."""
    draw = rng(1, "images")
    images, y = draw.integers(0, 256, (400, 16, 16), dtype=np.uint8), np.full(400, -1)
    y[:LABELS] = np.arange(LABELS) % CLASSES
    return lambda step: MixMatchClassifier(steps=STEPS, random_state=0).fit(images, y)


WORK: dict[str, Callable[[], Callable[[int], object]]] = {
    "features": features,
    "a round of the page's worker": page_worker,
    "the classifier": classifier,
}

if __name__ == "__main__":
    answer(WORK[sys.argv[1]]())
