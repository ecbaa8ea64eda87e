"""A head trained in memory: what the live worker and scripts call."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mma.config import change
from mma.data import load_data
from mma.features import ArrayImages
from mma.nets import Head
from mma.presets import preset
from mma.rng import rng
from mma.soft_targets import Guesses
from mma.training.head import answers_without, fit_head
from mma.views import FeatureViews, RowViews

CPU = torch.device("cpu")
CONFIG = change(preset("photos"), ["growth.final=60"])


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """400 real digits, their labels, and the views of two small backbones."""
    images = load_data("digits").train
    source = ArrayImages(images.pixels, images.keys).take(np.arange(400))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMA_DATA", str(tmp_path_factory.mktemp("data")))
        views = FeatureViews(backbone="hog@32+hog@24", crops=1, width=64).open_source(source, CPU)
        yield views, images.labels[:400], source


def some(labels, count):
    return {row: int(labels[row]) for row in range(count)}


def test_a_head_learns_from_labels_and_says_what_it_used(digits):
    views, labels, _ = digits
    head = fit_head(views, some(labels, 100), 10, config=CONFIG)
    probs = head.probabilities(views, np.arange(100, 400))
    assert (probs.argmax(1) == labels[100:]).mean() > 0.85
    assert set(head.accuracies) == {"hog@32", "hog@24", "all"}
    assert head.used
    assert head.why


def test_the_same_labels_give_the_same_head_bit_for_bit(digits):
    views, labels, _ = digits
    first, again = (fit_head(views, some(labels, 40), 10, config=CONFIG) for _ in range(2))
    for one, other in zip(first.net.state_dict().values(), again.net.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_the_caller_keeps_its_threads(digits):
    views, labels, _ = digits
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        fit_head(views, some(labels, 30), 10, config=CONFIG)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_one_label_is_enough(digits, count):
    views, labels, _ = digits
    probs = fit_head(views, some(labels, count), 10, config=CONFIG).probabilities(views, np.arange(10))
    np.testing.assert_allclose(probs.sum(1), 1.0, rtol=1e-5)


def test_the_temperature_comes_from_heads_that_did_not_see_the_label(digits):
    """With labels drawn at random nothing can be learned, which only a head that did not see them can know."""
    views, labels, _ = digits
    wrong = {row: int(label) for row, label in enumerate(rng(1, "wrong").permutation(labels[:150]))}
    assert fit_head(views, wrong, 10, config=CONFIG).temperature > 1.5
    assert fit_head(views, some(labels, 150), 10, config=CONFIG).temperature < 1.2


@pytest.mark.parametrize(("count", "folds"), [(150, 0), (100, 3)])
def test_without_folds_or_with_few_labels_nothing_is_calibrated(digits, count, folds):
    views, labels, _ = digits
    assert fit_head(views, some(labels, count), 10, config=change(CONFIG, [f"net.folds={folds}"])).temperature == 1.0


def test_the_heads_of_the_folds_start_as_the_head_itself(digits, monkeypatch):
    """With the penalty and the scale that all labels have chosen."""
    views, labels, _ = digits
    starts, start_with = [], Head.start_with
    monkeypatch.setattr(
        Head, "start_with", lambda self, *args: starts.append((self.penalty, self.scale)) or start_with(self, *args)
    )
    head = fit_head(views, some(labels, 150), 10, config=CONFIG)
    assert starts == [(head.penalty, head.scale)] * 4  # the head, and three folds
    assert head.scale != 1.0


def test_what_is_said_and_what_was_drawn_at_random_move_the_answers(digits):
    """Two classes, labels half and half: the pool has more threes where somebody says so, or where a random sample does."""
    views, labels, _ = digits
    pool = np.flatnonzero((labels == 3) | (labels == 8))
    answers = {int(row): int(labels[row] == 3) for row in pool[:8]}
    told = [{}, {"shares": {1: 0.95}}, {"sample": [1] * 95 + [0] * 5}]
    heads = [fit_head(views, answers, 2, pool=pool, config=CONFIG, **each) for each in told]
    alone, *others = (head.probabilities(views, pool)[:, 1].mean() for head in heads)
    assert all(other > alone + 0.05 for other in others)
    assert all(head.shares[1] > heads[0].shares[1] for head in heads[1:])


def test_before_labels_the_part_where_images_lie_closest_is_used(digits, monkeypatch):
    views, labels, _ = digits
    for part, names in ((None, ["hog@32", "hog@24"]), (1, ["hog@24"])):
        monkeypatch.setitem(vars(views), "closest", part)
        assert fit_head(views, {0: int(labels[0]), 1: int(labels[1])}, 10, config=CONFIG).used == names
        assert views.where(np.arange(3)).shape[1] == (sum(views.shape) if part is None else views.shape[1])


def test_no_label_is_said(digits, refusal):
    with refusal():
        fit_head(digits[0], {}, 10)


def test_images_that_are_not_in_the_pool_are_seen_as_if_they_were(digits):
    views, labels, source = digits
    head = fit_head(views, some(labels, 50), 10, config=CONFIG)
    others = views.of_source(source.take(np.arange(200, 210)))
    expected = head.probabilities(views, np.arange(200, 210))
    np.testing.assert_allclose(head.probabilities(others, np.arange(10)), expected, atol=2e-3)


def test_the_projection_can_be_folded_into_the_weights(digits):
    views, labels, _ = digits
    head = fit_head(views, some(labels, 50), 10, config=CONFIG)
    weight = views.unproject(head.net.head.weight * head.net.gate)
    rows = np.arange(60, 90)
    pairs = zip(views.parts, views.projections, strict=True)
    stored = [torch.from_numpy(part.take(rows)).float() - projection.mean for part, projection in pairs]
    x = torch.cat([torch.nn.functional.normalize(part) for part in stored], 1)
    probs = ((x @ weight.T + head.net.head.bias) / head.temperature).softmax(1)
    np.testing.assert_allclose(probs.detach(), head.probabilities(views, rows), atol=2e-3)


def test_what_is_left_out_is_answered_by_a_head_that_never_saw_it():
    """Labels by lot in many dimensions: whoever has seen them knows them by heart, and whoever has not guesses."""
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(60, 100)).astype(np.float32)
    views = RowViews(torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True)), FeatureViews())
    labels = draw.integers(2, size=60)
    answers, left_out = dict(enumerate(labels.tolist())), np.arange(20)
    pool = np.arange(60)
    fitted = fit_head(views, answers, 2, pool=pool, config=CONFIG)
    seen = fitted.probabilities(views, left_out).argmax(1) == labels[:20]
    unseen = answers_without(fitted, views, answers, left_out, pool=pool, config=CONFIG).argmax(1) == labels[:20]
    assert seen.mean() > 0.9
    assert unseen.mean() < 0.8


def test_guesses_of_no_weight_change_nothing_about_what_is_left_out(digits):
    views, labels, _ = digits
    answers = {row: label for row, label in some(labels, 60).items() if label < 8}  # two classes have no label
    noise = Guesses([np.eye(10)[np.random.default_rng(0).integers(10, size=400)]])
    fitted = fit_head(views, answers, 10, config=CONFIG, guesses=noise)
    assert fitted.trust == 0.0
    said = [
        answers_without(fitted, views, answers, np.arange(10), pool=np.arange(400), config=CONFIG, guesses=guesses)
        for guesses in (noise, None)
    ]
    np.testing.assert_array_equal(*said)
