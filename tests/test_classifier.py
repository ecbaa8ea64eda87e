"""The front door for array users keeps scikit-learn's contract, and learns from images without a label."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor, nn

from mma.algorithms import ALGORITHMS, FreeMatch, MixMatch
from mma.classifier import MixMatchClassifier, labeled_accuracy
from mma.nets import HeadNet
from mma.nets.head import CrossValidation, choose_penalty
from mma.query.query import names

GUIDE = Path(__file__).parents[1] / "docs" / "classifier.md"


def quick(**settings: Any) -> MixMatchClassifier:
    return MixMatchClassifier(**{"steps": 3, "batch": 4, "filters": 4, "random_state": 0, **settings})


def grey(n: int = 12, side: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, side, side), dtype=np.uint8)


def some_labels(n: int = 12) -> np.ndarray:
    y = np.full(n, -1)
    y[:4] = [3, 5, 3, 5]
    return y


def does_not_apply(estimator: MixMatchClassifier) -> dict[str, str]:
    return {
        "check_classifiers_classes": "its last part has the classes -1 and 1, and here -1 means unlabeled; scikit-learn "
        "spares its own semi-supervised estimators that part by their names. Text labels are tested below.",
        "check_sample_weight_equivalence_on_dense_data": "labels are drawn at random by their weights, so that a sample of "
        "weight 2 weighs as much as two samples, and is not shown at the same steps",
    }


@parametrize_with_checks([MixMatchClassifier(steps=50, batch=16, filters=16)], expected_failed_checks=does_not_apply)
def test_scikit_learn_agrees(estimator: MixMatchClassifier, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
def test_unlabeled_digits_make_it_better_than_the_labels_alone() -> None:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    X, truth = digits.images[order], digits.target[order]
    y = np.full(1_297, -1)
    for digit in range(10):
        y[np.flatnonzero(truth[:1_297] == digit)[:4]] = digit
    score = {}
    for name in ("mixmatch", "supervised"):
        classifier = MixMatchClassifier(algorithm=name, filters=16, steps=300, random_state=0).fit(X[:1_297], y)
        score[name] = classifier.score(X[1_297:], truth[1_297:])
    assert score["mixmatch"] > 0.92, score
    assert score["mixmatch"] > score["supervised"] + 0.04, score


@pytest.mark.slow
def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code, *_ = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    space: dict[str, Any] = {}
    exec(code, space)
    assert re.findall(r"(\d+) labels", capsys.readouterr().out) == ["20", "40", "60"]
    assert space["accuracy"][-1] > 0.9


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("labels", [some_labels(), np.arange(12) % 3], ids=["some labeled", "all labeled"])
def test_every_algorithm_fits(algorithm: str, labels: np.ndarray) -> None:
    classifier = quick(algorithm=algorithm).fit(grey(), labels)
    assert classifier.predict_proba(grey()).shape == (12, len(classifier.classes_))


@pytest.mark.parametrize("dtype", [object, np.str_])
def test_text_labels_come_back_as_text(dtype: type) -> None:
    y = np.array(["cat", "dog", "eel"] * 4, dtype=dtype)
    classifier = quick().fit(grey(), y)
    assert classifier.classes_.tolist() == ["cat", "dog", "eel"]
    assert classifier.classes_.dtype.kind == y.dtype.kind
    assert classifier.transduction_.tolist() == y.tolist()
    assert set(classifier.predict(grey())) <= set(y)


def test_minus_one_beside_text_means_unlabeled() -> None:
    y = np.array(["cat", "dog", *[-1] * 10], dtype=object)
    classifier = quick().fit(grey(), y)
    assert classifier.classes_.tolist() == ["cat", "dog"]
    assert classifier.transduction_[:2].tolist() == ["cat", "dog"]
    assert set(classifier.transduction_) <= {"cat", "dog"}


@pytest.mark.parametrize("dtype", [np.int64, np.float64, object])
def test_minus_one_beside_numbers_means_unlabeled(dtype: type) -> None:
    classifier = quick().fit(grey(), some_labels().astype(dtype))
    assert classifier.classes_.tolist() == [3, 5]
    assert classifier.transduction_[:4].tolist() == [3, 5, 3, 5]


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (np.full(12, -1), "every label in y is -1"),
        (["cat", -1] * 6, "dtype=object"),
        (np.array(["-1", "cat"] * 6, dtype=object), "dtype=object"),
        (np.array(["cat", 1, -1] * 4, dtype=object), "mixes text and numbers"),
        (np.linspace(0, 1, 12), "Unknown label type"),
        (np.arange(11), "inconsistent numbers of samples"),
    ],
)
def test_labels_that_cannot_be_meant_are_explained(y: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        quick().fit(grey(), y)


def soften(y: np.ndarray, classes: int = 6) -> np.ndarray:
    """The same labels as rows; of those without one, the first half are zeros and the others NaN."""
    rows = np.eye(classes)[y]
    rows[y < 0] = 0.0
    rows[len(y) // 2 :][y[len(y) // 2 :] < 0] = np.nan
    return rows


def test_soft_labels_that_are_certain_are_labels() -> None:
    hard, soft = (
        quick(steps=9).fit(grey(), some_labels() // 4),
        quick(steps=9).fit(grey(), soften(some_labels() // 4, 2)),
    )
    np.testing.assert_array_equal(soft.predict_proba(grey()), hard.predict_proba(grey()))
    assert soft.classes_.tolist() == [0, 1]
    assert soft.transduction_[:4].tolist() == hard.transduction_[:4].tolist()
    half = soften(some_labels() // 4, 2).astype(np.float16)
    np.testing.assert_array_equal(quick(steps=9).fit(grey(), half).predict_proba(grey()), soft.predict_proba(grey()))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_learns_from_soft_labels(algorithm: str) -> None:
    soft = quick(algorithm=algorithm).fit(grey(), soften(some_labels()))
    assert soft.predict_proba(grey()).shape == (12, 6)


def test_a_doubtful_label_makes_a_doubtful_classifier() -> None:
    X = np.repeat(np.array([40, 200], np.uint8), 20)[:, None, None] * np.ones((8, 8), np.uint8)
    truth = np.repeat([0, 1], 20)
    settings = {"algorithm": "supervised", "steps": 150, "filters": 8, "batch": 16}
    sure, doubtful = (
        quick(**settings).fit(X, np.where(np.eye(2)[truth] > 0, p, 1 - p)).predict_proba(X)[:20, 0].mean()
        for p in (1.0, 0.7)
    )
    assert sure > 0.95
    assert doubtful == pytest.approx(0.7, abs=0.1)


def test_soft_labels_that_are_no_distributions_are_refused(refusal) -> None:
    for wrong in ([0.5, 0.6], [1.5, -0.5], [np.nan, 1.0]):
        soft = soften(some_labels() // 4, 2)
        soft[1] = wrong
        with refusal():
            quick().fit(grey(), soft)
    with refusal():
        quick().fit(grey(), np.full((12, 2), np.nan))
    with refusal():
        quick().fit(grey(), some_labels(), sample_weight=some_labels() < 0)


@pytest.mark.parametrize("rows", [False, True])
def test_weights_decide_between_labels_that_contradict_each_other(rows: bool) -> None:
    """Each image stands there twice, with two labels; those of the first half count, then those of the other."""
    X = np.repeat(np.array([40, 200], np.uint8), 10)[:, None, None] * np.ones((8, 8), np.uint8)
    X = np.concatenate([X, X]) + np.random.default_rng(0).integers(0, 30, (40, 8, 8)).astype(np.uint8)
    y = np.concatenate([np.repeat([0, 1], 10), np.repeat([1, 0], 10)])
    X = X.reshape(40, 64) if rows else X
    for first in (True, False):
        weights = np.where((np.arange(40) < 20) == first, 20.0, 1.0)
        fitted = quick(algorithm="supervised", steps=200, filters=8, batch=16).fit(X, y, weights)
        assert (fitted.predict(X) == y)[weights > 1].mean() > 0.9


def test_equal_weights_change_nothing_and_weight_zero_is_no_label() -> None:
    plain, alike = quick().fit(grey(), some_labels()), quick().fit(grey(), some_labels(), np.full(12, 3.0))
    np.testing.assert_array_equal(plain.predict_proba(grey()), alike.predict_proba(grey()))
    weights, fewer = np.ones(12), some_labels()
    weights[0], weights[2:] = 0.0, np.arange(2, 12)
    fewer[0] = -1
    zero, none = quick(steps=9).fit(grey(), some_labels(), weights), quick(steps=9).fit(grey(), fewer, weights)
    np.testing.assert_array_equal(zero.predict_proba(grey()), none.predict_proba(grey()))
    weights[4:] = 7.0  # of unlabeled samples
    again = quick(steps=9).fit(grey(), fewer, weights)
    np.testing.assert_array_equal(again.predict_proba(grey()), none.predict_proba(grey()))


class Constant(nn.Module):
    """It says the same of every image."""

    def __init__(self, channels: int, classes: int, side: int) -> None:
        super().__init__()
        self.head = nn.Linear(1, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(0.0 * x.flatten(1)[:, :1])


def test_a_collapse_to_one_class_is_warned_of() -> None:
    y = np.where(np.arange(50) < 10, np.arange(50) % 2, -1)
    with pytest.warns(UserWarning, match="100% of the unlabeled samples are taken for .* collapsed"):
        quick(net=Constant).fit(grey(50), y)
    quick(net=Constant).fit(grey(39), y[:39])  # too few to say


def test_an_algorithm_of_ones_own_has_the_defaults_that_mixmatch_has_here(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(MixMatch):
        name: str = "mine"

    class Heavier(MixMatch):
        name: str = "heavier"
        weight: float = 1000.0

    monkeypatch.setitem(ALGORITHMS, "mine", Mine)
    monkeypatch.setitem(ALGORITHMS, "heavier", Heavier)
    for X in (grey(), grey().reshape(12, 64)):
        theirs, mine, heavier = (
            quick(algorithm=name, steps=9).fit(X, some_labels()).predict_proba(X)
            for name in ("mixmatch", "mine", "heavier")
        )
        np.testing.assert_array_equal(mine, theirs)
        assert not np.array_equal(heavier, theirs)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"algorithm": "mixmach"}, "Did you mean 'mixmatch'"),
        ({"algorithm": MixMatch(), "weight": 3.0}, "leave weight=None"),
        ({"net": "resnet"}, "net='resnet' is no network for images"),
        ({"net": "head"}, "net='head' is for plain rows"),
        ({"steps": 0}, "steps=0 must be a whole number of at least 1"),
        ({"steps": 2.5}, "steps=2.5 must be a whole number"),
        ({"batch": 1}, "batch=1 must be"),
        ({"filters": 0}, "filters=0 must be"),
        ({"lr": 0.0}, "lr=0.0 must be a number above 0"),
        ({"lr": "fast"}, "lr='fast' must be"),
        ({"weight": -1}, "weight=-1 must be a number of at least 0"),
        ({"net": "fast", "filters": 4}, "filters: Input should be greater than or equal to 8"),
        ({"shift": 8}, "Use at most 7"),
        ({"precision": "half"}, "precision: Input should be 'float32', 'bfloat16' or 'auto'"),
        ({"image_shape": (4, 4)}, "does not fit samples of shape"),
        ({"device": "cuda:99"}, "torch sees no GPU"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], says: str) -> None:
    if torch.cuda.is_available() and "device" in settings:
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=re.escape(says)):
        quick(**settings).fit(grey(), some_labels())


@pytest.mark.parametrize("algorithm", ["fixmatch", FreeMatch()])
def test_rows_of_numbers_are_not_distorted_as_if_they_were_images(algorithm: Any, refusal) -> None:
    rows = grey().reshape(12, -1)
    with refusal():
        quick(algorithm=algorithm, net="small").fit(rows, some_labels())
    quick(algorithm=algorithm).fit(rows, some_labels())  # a head leaves columns out instead
    quick(algorithm=algorithm, image_shape=grey().shape[1:]).fit(rows, some_labels())


@pytest.mark.parametrize(
    ("X", "says"),
    [
        (np.zeros((12, 3, 8, 8)), "np.moveaxis(X, 1, -1)"),
        (np.zeros((12, 2, 2, 2, 2)), "(N, height, width, channels)"),
        (np.full((12, 8, 8), np.nan), "contains NaN"),
    ],
)
def test_arrays_that_are_no_images_are_explained(X: np.ndarray, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        quick().fit(X, some_labels())


def test_numpy_numbers_are_good_settings() -> None:
    settings = {"steps": np.int64(2), "batch": np.int32(4), "lr": np.float32(0.01), "weight": 5, "shift": np.int64(0)}
    quick(**settings).fit(grey(), some_labels())


def test_grey_images_are_the_same_with_a_channel_axis_and_as_rows() -> None:
    X, y = grey(), some_labels()
    images = quick().fit(X, y)
    np.testing.assert_array_equal(images.predict_proba(X), images.predict_proba(X[..., None]))
    rows = quick(image_shape=(8, 8)).fit(X.reshape(12, 64), y)
    np.testing.assert_array_equal(images.predict_proba(X), rows.predict_proba(X.reshape(12, 64)))
    assert images.image_shape_ == rows.image_shape_ == (8, 8, 1)
    assert rows.n_features_in_ == 64
    assert not hasattr(images, "n_features_in_")


def test_images_may_be_oblong_and_colored() -> None:
    X = np.random.default_rng(0).integers(0, 256, (12, 8, 10, 3), dtype=np.uint8)
    classifier = quick(mirror=True).fit(X, some_labels())
    assert classifier.image_shape_ == (8, 10, 3)
    assert len(classifier.query(X, 3)) == 3


def test_floats_are_scaled_as_in_fit_and_clipped_but_not_rounded() -> None:
    X, y = grey().astype(np.float64), some_labels()
    X[0, 0, :2] = 0, 255
    scaled = quick().fit(X / 255 - 3, y)
    probs = scaled.predict_proba(X / 255 - 3)
    np.testing.assert_allclose(probs, quick().fit(X.astype(np.uint8), y).predict_proba(X.astype(np.uint8)), atol=1e-5)
    high, higher = np.full((1, 8, 8), -2.0), np.full((1, 8, 8), 7.0)
    np.testing.assert_array_equal(scaled.predict_proba(high), scaled.predict_proba(higher))
    finer = X / 255 - 3
    finer[0, 4, 4] += 0.3 / 255 if finer[0, 4, 4] < -2.5 else -0.3 / 255  # less than half a byte
    assert np.abs(scaled.predict_proba(finer)[0] - probs[0]).max() > 0


def test_columns_with_other_units_are_scaled_one_by_one() -> None:
    X, y = np.random.default_rng(0).random((12, 5)), some_labels()
    wide, other = (X * units + [0, -1e6, 5, 0, 0] for units in ([1, 1e6, 1e-6, 10, 1], [1e4, 1, 10, 1, 1]))
    probs = quick().fit(wide, y).predict_proba(wide)
    np.testing.assert_allclose(probs, quick().fit(other, y).predict_proba(other), atol=1e-4)


def test_columns_of_a_projection_keep_their_spreads_and_labels_may_say_otherwise() -> None:
    """The classes lie along the first column; the others are noise that must not be blown up. Then along the faintest."""
    draw, truth = np.random.default_rng(0), np.arange(300) % 2
    for loud in (0, 19):
        X = draw.normal(size=(300, 20)) * np.geomspace(1, 0.05, 20)
        X[:, loud] = (2 * truth - 1 + draw.normal(size=300) / 3) * np.geomspace(1, 0.05, 20)[loud]
        y = np.where(np.arange(300) < 40, truth, -1)
        assert MixMatchClassifier(steps=20, random_state=0).fit(X, y).score(X[40:], truth[40:]) > 0.9


def test_plain_rows_start_from_a_logistic_regression_on_the_labels() -> None:
    X, truth = load_digits(return_X_y=True)
    X = np.delete(X, np.flatnonzero(X.std(0) == 0), 1)
    y = np.full(len(truth), -1)
    y[:150] = truth[:150]
    rows = MixMatchClassifier(steps=1, lr=1e-9, random_state=0).fit(X, y)
    scaled = (X - X.mean(0)) / np.sqrt(X.var(0).sum())
    penalty, _ = choose_penalty(CrossValidation(scaled[:150], truth[:150]))
    expected = LogisticRegression(C=1 / (150 * penalty), max_iter=200).fit(scaled[:150], truth[:150])
    assert (rows.predict(X) == expected.predict(scaled)).mean() > 0.98
    assert isinstance(rows.net_, HeadNet)
    assert rows.net_.head.temperature != 1.0


@pytest.mark.slow
def test_unlabeled_rows_make_a_head_better_than_the_labels_alone() -> None:
    X, truth = load_digits(return_X_y=True)
    found = {name: [] for name in ("mixmatch", "supervised")}
    for seed in range(3):
        y = np.full(len(truth), -1)
        order = np.random.default_rng(seed).permutation(len(truth))
        for digit in range(10):
            some = order[truth[order] == digit][:4]
            y[some] = digit
        for name, scores in found.items():
            fitted = MixMatchClassifier(algorithm=name, steps=300, random_state=seed).fit(X, y)
            scores.append((fitted.transduction_ == truth).mean())
    assert np.mean(found["mixmatch"]) > np.mean(found["supervised"]) + 0.01, found


def test_what_predict_gets_must_look_like_what_fit_saw(refusal) -> None:
    classifier = quick().fit(grey(), some_labels())
    with refusal():
        classifier.predict(grey(side=9))
    with refusal():
        classifier.predict(grey().reshape(12, 64))
    with refusal():
        classifier.predict(grey() / 255)
    np.testing.assert_array_equal(classifier.predict_proba(grey().tolist()), classifier.predict_proba(grey()))


def test_a_second_fit_forgets_the_first() -> None:
    classifier = quick().fit(np.random.default_rng(0).random((12, 5)), some_labels())
    assert classifier.n_features_in_ == 5
    classifier.fit(grey(), some_labels())
    assert not hasattr(classifier, "n_features_in_")
    np.testing.assert_array_equal(
        classifier.predict_proba(grey()), quick().fit(grey(), some_labels()).predict_proba(grey())
    )


def test_the_same_seed_gives_the_same_classifier_and_another_does_not() -> None:
    def answer(seed: Any) -> np.ndarray:
        return quick(random_state=seed).fit(grey(), some_labels()).predict_proba(grey())

    np.testing.assert_array_equal(answer(1), answer(1))
    np.testing.assert_array_equal(answer(np.random.RandomState(1)), answer(1))
    assert not np.array_equal(answer(1), answer(2))


class Dropping(nn.Module):
    """A network of a user's: it asks torch's own generator."""

    def __init__(self, channels: int, classes: int, side: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, 6), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(6, classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def flat(channels: int, classes: int, side: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, classes))


def test_training_is_repeatable_and_leaves_torch_as_it_was() -> None:
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    first = quick(net=Dropping).fit(grey(), some_labels())
    picks = first.query(grey(), 5)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    torch.rand(3)
    second = quick(net=Dropping).fit(grey(), some_labels())
    np.testing.assert_array_equal(first.predict_proba(grey()), second.predict_proba(grey()))
    np.testing.assert_array_equal(picks, second.query(grey(), 5))


def test_a_network_without_embeddings_predicts_but_cannot_be_queried(refusal) -> None:
    classifier = quick(net=flat).fit(grey(), some_labels())
    assert set(classifier.predict(grey())) <= {3, 5}
    assert len(classifier.query(grey(), 5, "random")) == 5
    assert len(classifier.query(grey(), 5, "max.aug-direct")) == 5  # goes by probabilities alone
    for strategy in ("diff2.aug-kmeans", "max-direct", "herding", "typiclust", "auto"):
        with refusal():
            classifier.query(grey(), 5, strategy)


@pytest.mark.parametrize("strategy", names())
def test_every_query_names_distinct_rows_and_repeats_itself(strategy: str) -> None:
    pool = grey(30)
    classifier = quick().fit(grey(), some_labels())
    picks = classifier.query(pool, 7, strategy)
    assert len(set(picks.tolist())) == 7
    assert set(picks.tolist()) <= set(range(30))
    np.testing.assert_array_equal(picks, classifier.query(pool, 7, strategy))
    assert sorted(classifier.query(pool, 99, strategy)) == list(range(30))


@pytest.mark.parametrize("strategy", ["herding", "typiclust", "uherding", "auto"])
def test_a_strategy_that_covers_the_pool_leaves_out_what_labels_cover(strategy: str) -> None:
    def cloud(*sizes: int) -> np.ndarray:
        centres = np.repeat(9.0 * np.eye(3), sizes, axis=0)
        return centres + np.random.default_rng(0).normal(scale=0.1, size=centres.shape)

    labeled, pool = cloud(5, 5, 0), cloud(40, 30, 10)
    y = np.repeat([3, 5, -1], [5, 5, len(pool)])
    classifier = quick().fit(np.concatenate([labeled, pool]), y)
    assert classifier.query(pool, 1, strategy)[0] >= 70  # in the smallest cloud, the only one without a label


def test_auto_trusts_a_model_whose_labels_predict_each_other() -> None:
    X, truth = load_digits(return_X_y=True)
    y = np.where(np.arange(400) < 100, truth[:400], -1)
    classifier = quick().fit(X[:400], y)
    auto, unsure, cover = (classifier.query(X[400:], 10, name).tolist() for name in ("auto", "uherding", "herding"))
    assert auto == unsure
    assert auto != cover


def test_a_pickle_queries_by_the_same_labels() -> None:
    classifier = quick().fit(grey(), some_labels())
    again = pickle.loads(pickle.dumps(classifier))
    assert again.query(grey(30), 7, "herding").tolist() == classifier.query(grey(30), 7, "herding").tolist()


def test_the_most_uncertain_row_comes_first() -> None:
    classifier = quick(steps=20).fit(grey(), some_labels())
    pool = grey(30)
    certainty = classifier.predict_proba(pool).max(1)
    np.testing.assert_array_equal(classifier.query(pool, 5, "max-direct"), np.argsort(certainty, kind="stable")[:5])


def test_a_query_that_makes_no_sense_is_explained(refusal) -> None:
    with pytest.raises(NotFittedError):
        quick().query(grey(), 3)
    classifier = quick().fit(grey(), some_labels())
    with refusal():
        classifier.query(grey(), -1)
    with refusal():
        classifier.query(grey(), 3, "diff2.aug")


def test_a_pickle_holds_the_weights_once() -> None:
    classifier = quick(filters=32).fit(grey(), some_labels())
    stored = pickle.dumps(classifier)
    weights = sum(parameter.nbytes for parameter in classifier.net_.parameters())
    assert weights < len(stored) < 1.5 * weights
    np.testing.assert_array_equal(pickle.loads(stored).predict_proba(grey()), classifier.predict_proba(grey()))


def test_a_training_that_diverges_says_so(refusal) -> None:
    with refusal():
        quick(net=flat, lr=1e38, steps=20).fit(grey(), some_labels())


def test_it_says_what_it_does_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    quick().fit(grey(), some_labels())
    assert capsys.readouterr().out == ""
    quick(verbose=True, steps=20).fit(grey(), some_labels())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("step 20 of 20 labeled ")


def test_a_fit_that_fails_leaves_nothing_half_fitted(refusal) -> None:
    classifier = quick().fit(grey(), some_labels())
    with refusal():
        classifier.set_params(steps=0).fit(grey(), some_labels())
    with pytest.raises(NotFittedError):
        classifier.predict(grey())


@pytest.mark.parametrize("has", ["float32", "bfloat16"])
def test_precision_auto_is_what_the_processor_has(monkeypatch: pytest.MonkeyPatch, has: str) -> None:
    monkeypatch.setattr("mma.training.step.native_precision", lambda: has)
    auto, same = (quick(precision=name).fit(grey(), some_labels()) for name in ("auto", has))
    np.testing.assert_array_equal(auto.predict_proba(grey()), same.predict_proba(grey()))
    assert auto.query(grey(), 5).tolist() == same.query(grey(), 5).tolist()


def test_in_bfloat16_it_predicts_and_queries_as_it_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, seen = quick(precision="bfloat16").fit(grey(), some_labels()), []
    real = Tensor.softmax

    def softmax(logits: Tensor, *args: Any, **settings: Any) -> Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return real(logits, *args, **settings)

    monkeypatch.setattr(Tensor, "softmax", softmax)
    classifier.predict(grey())
    predicted = len(seen)
    classifier.query(grey(), 5)
    assert len(seen) > predicted > 0
    assert all(seen)


def test_in_bfloat16_it_rounds_more_and_answers_alike() -> None:
    images, y = load_digits().images[:300], np.full(300, -1)
    y[:60] = load_digits().target[:60]
    settings = {"steps": 60, "batch": 16, "filters": 16, "random_state": 0}
    exact, half = (MixMatchClassifier(precision=p, **settings).fit(images, y) for p in ("float32", "bfloat16"))
    assert {parameter.dtype for parameter in half.net_.parameters()} == {torch.float32}
    probs = half.predict_proba(images)
    assert np.abs(probs - exact.predict_proba(images)).max() > 0
    np.testing.assert_allclose(probs.sum(1), 1.0)
    assert (half.predict(images) == exact.predict(images)).mean() > 0.8


def test_labeled_accuracy_looks_at_labeled_samples_alone():
    class Always:
        def predict(self, X):
            assert len(X) == 3
            return np.array(["cat"] * 3, dtype=object)

    rows = [[0.0], [1.0], [2.0], [3.0]]
    y = np.array(["cat", -1, "dog", "cat"], dtype=object)
    assert labeled_accuracy(Always(), rows, y) == pytest.approx(2 / 3)
    assert np.isnan(labeled_accuracy(Always(), rows, np.full(4, -1)))
