"""Real photos: a temperature found on the labels alone makes the probabilities of other photos honest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mma.data import FolderOptions, get_folder, load_data
from mma.features import image_source
from mma.rng import rng
from mma.training.head import fit_head
from mma.views import FeatureViews

SIGNS = Path(__file__).parents[2].parent / "shared" / "data" / "signs"
LABELS = 200
BINS = 15

pytestmark = pytest.mark.skipif(
    not SIGNS.is_dir(), reason=f"needs photos of traffic signs (GTSRB), a sub-folder per class, in {SIGNS}"
)


@pytest.fixture(scope="module")
def signs(tmp_path_factory):
    """Views of the pool and of photos of other drives, and the classes of both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMA_DATA", str(tmp_path_factory.mktemp("data")))
        get_folder(SIGNS / "pool", FolderOptions(name="signs", test=SIGNS / "test"))
        data = load_data("folder:signs")
        pool = FeatureViews(backbone="hog@48", crops=0).open_source(image_source(data.train)[0], torch.device("cpu"))
        yield pool, data.train.labels, pool.for_images(data.test), data.test.labels


def calibration_error(probs, truth):
    """Return the mean distance between confidence and accuracy over bins of confidence."""
    sure, right = probs.max(1), probs.argmax(1) == truth
    bins = np.minimum((BINS * sure).astype(int), BINS - 1)
    return sum(abs((sure - right)[bins == each].sum()) for each in range(BINS)) / len(truth)


def unlikelihood(probs, truth):
    return -np.log(probs[np.arange(len(truth)), truth]).mean()


def test_other_photos_get_more_honest_probabilities(signs):
    pool, labels, other, truth = signs
    every = np.arange(len(truth))
    gained = []
    for seed in range(3):
        rows = rng(seed, "labels").permutation(len(labels))[:LABELS]
        head = fit_head(pool, {int(row): int(labels[row]) for row in rows}, 12)
        calibrated = head.probabilities(other, every)
        head.net.head.temperature.fill_(1.0)
        raw = head.probabilities(other, every)
        assert (raw.argmax(1) == calibrated.argmax(1)).all()
        gained.append(
            [measure(raw, truth) - measure(calibrated, truth) for measure in (calibration_error, unlikelihood)]
        )
    assert (np.mean(gained, axis=0) > [0.01, 0.0]).all(), gained
