"""How long a head takes to fit on stored features, beside scikit-learn's logistic regression on the same labels."""

from __future__ import annotations

import statistics
from functools import partial

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from bench.timing import seconds
from mma.data.images import KEY_BYTES
from mma.features import Features
from mma.presets import preset
from mma.rng import rng
from mma.training.head import fit_head
from mma.views import FeatureViews, VectorViews
from mma.views.features import find_projection

CASES = ((100, 10_000, 1.0), (1_000, 100_000, 10.0))  # labels, images, seconds that a fit may take
CLASSES, WIDTH, STORED, ROUNDS = 10, 1280, 3, 5


def section(threads: int, rounds: int = ROUNDS) -> str:
    """Return the table."""
    lines = [
        "## Heads",
        "",
        f"Preset `photos` on random clusters: {CLASSES} classes, {WIDTH:,} numbers, {STORED} stored views of each image, one "
        f"backbone; medians of {rounds} fits. A fit chooses, cross-validates, trains and scores every image, with one thread. "
        "Making the vectors ready happens once for all fits. scikit-learn's logistic regression fits the labels alone, on all "
        "numbers. Processor seconds, which other programs on the machine change little; a quiet machine's clock says the same.",
        "",
        "| labels | images | vectors ready, once | fit | target | logistic regression | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for labels, images, target in CASES:
        ready, fit, plain = measure(labels, images, rounds)
        ours = f"{ready:.1f} s | **{fit:.2f} s** | {target:.0f} s"
        lines.append(f"| {labels:,} | {images:,} | {ours} | {plain:.2f} s | {fit / plain:.1f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def measure(labels: int, images: int, rounds: int) -> tuple[float, float, float]:
    """Return processor seconds of making ready, and medians of a fit and of a logistic regression."""
    stored, truth = clusters(images)
    made: list[VectorViews] = []
    _, ready = seconds(lambda: made.append(open_views(stored)))
    views, answers = made[0], {row: int(truth[row]) for row in range(labels)}
    x, y = stored.centring()(stored.take(np.arange(labels))), truth[:labels]
    ours, plain = [], []
    for _ in range(rounds + 1):
        ours.append(seconds(partial(fit_and_score, views, answers))[1])
        plain.append(seconds(lambda: LogisticRegression(C=100.0, max_iter=200).fit(x, y))[1])
    return ready, statistics.median(ours[1:]), statistics.median(plain[1:])


def open_views(stored: Features) -> VectorViews:
    """Find the directions and make all vectors ready."""
    settings = preset("photos").views
    assert isinstance(settings, FeatureViews)
    one = settings.model_copy(update={"backbone": "lite0"})
    views = VectorViews((stored,), (find_projection(stored, one.width),), torch.device("cpu"), one)
    assert views.ready is not None
    return views


def fit_and_score(views: VectorViews, answers: dict[int, int]) -> None:
    """Fit a head and look at every image."""
    fit_head(views, answers, CLASSES).probabilities(views, np.arange(len(views)))


def clusters(images: int) -> tuple[Features, np.ndarray]:
    """Return vectors around a centre of each class, in a few directions, with noise."""
    draw = rng(1, "clusters")
    truth = draw.integers(0, CLASSES, images)
    centres = draw.standard_normal((CLASSES, WIDTH)).astype(np.float32)
    values = np.empty((images, STORED, WIDTH), np.float16)
    for start in range(0, images, 4_096):
        rows = truth[start : start + 4_096]
        noise = draw.standard_normal((len(rows), STORED, WIDTH), dtype=np.float32)
        values[start : start + 4_096] = centres[rows][:, None] + 4.0 * noise
    keys = np.zeros((images, KEY_BYTES), np.uint8)
    return Features(values, np.arange(images), keys, "random clusters"), truth
