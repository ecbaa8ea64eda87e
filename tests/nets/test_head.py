"""The head for features: where it starts, and which parts of joined features it uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mma.nets import Head, Network
from mma.nets.head import (
    ENOUGH,
    FOLDS,
    HEAD_START,
    PENALTIES,
    TESTED,
    CrossValidation,
    choose_parts,
    choose_penalty,
    choose_scale,
    cross_validate,
    estimate_shares,
    find_temperature,
    fit_logistic,
)
from mma.rng import rng
from mma.soft_targets import stratified_folds

CLASSES = 3


def blobs(per_class: int, parts: tuple[int, ...] = (6, 4), useful: tuple[bool, ...] = (True, True), seed: int = 0):
    """Features whose useful parts lie around a centre of their class; the others are noise."""
    draw = np.random.default_rng(seed)
    y = np.repeat(np.arange(CLASSES), per_class)
    pieces = []
    for length, told_apart in zip(parts, useful, strict=True):
        centres = np.random.default_rng(7).standard_normal((CLASSES, length)) * 2
        x = draw.standard_normal((len(y), length)) * (1.0 if told_apart else 2.0) + told_apart * centres[y]
        loud = 1.0 if told_apart else 8.0  # noise that cannot be overheard
        pieces.append(loud * x / np.linalg.norm(x, axis=1, keepdims=True))
    return np.concatenate(pieces, 1).astype(np.float32), y


def build(settings: Head, parts=(6, 4)):
    net = settings.build(parts, CLASSES)
    settings.reset(net, rng(1, "init"))
    return net


@pytest.mark.parametrize("hidden", [0, 5])
def test_a_head_has_features_and_logits_for_any_batch(hidden):
    net = build(Head(hidden=hidden))
    assert isinstance(net, Network)
    x = torch.randn(7, 10)
    assert net(x).shape == (7, CLASSES)
    assert net.features(x).shape == (7, hidden or 10)
    torch.testing.assert_close(net(x), net.head(net.features(x)))


def test_a_head_that_learned_nothing_says_nothing():
    assert not build(Head())(torch.randn(4, 10)).any()


def test_it_starts_from_a_logistic_regression_on_the_labels():
    from sklearn.linear_model import LogisticRegression

    x, y = blobs(20)
    net = build(Head(choose=False, penalty=0.01))
    Head(choose=False, penalty=0.01).start_from(net, torch.from_numpy(x), torch.from_numpy(y))
    expected = LogisticRegression(C=1 / (0.01 * len(y)), max_iter=200).fit(x, y).predict_proba(x)
    np.testing.assert_allclose(net(torch.from_numpy(x)).softmax(1).detach().numpy(), expected, atol=1e-4)


def test_two_classes_of_three_are_fitted_and_the_third_is_unlikely():
    x, y = blobs(20)
    some = y < 2
    weight, bias = fit_logistic(x[some], y[some], CLASSES, 0.01)
    logits = x[some] @ weight.T + bias
    assert (logits.argmax(1) == y[some]).mean() > 0.9
    assert not weight[2].any()
    assert bias[2] < bias[:2].min()


def test_one_class_alone_gives_no_direction():
    x, y = blobs(5)
    weight, _ = fit_logistic(x[y == 0], y[y == 0], CLASSES, 0.01)
    assert not weight.any()


@pytest.mark.parametrize(("useful", "chosen"), [((True, False), [0]), ((False, True), [1]), ((True, True), [0, 1])])
def test_the_parts_that_tell_the_labels_apart_are_chosen(useful, chosen):
    parts = (6, 60) if useful == (True, False) else (60, 6) if useful == (False, True) else (6, 6)
    x, y = blobs(12, parts=parts, useful=useful)
    found = choose_parts(CrossValidation(x, y), parts)
    assert found.parts == chosen
    assert len(range(sum(parts))[found.where]) == sum(parts[part] for part in chosen)
    assert set(found.accuracies) == {"0", "1", "all"}


@pytest.mark.parametrize(("closest", "chosen"), [(None, [0, 1]), (0, [0]), (1, [1])])
def test_without_labels_to_compare_by_the_part_where_images_lie_closest_is_used(closest, chosen):
    """One label of each class: nothing can be left out."""
    x, y = blobs(1)
    found = choose_parts(CrossValidation(x, y), (6, 4), closest)
    assert (found.parts, found.accuracies) == (chosen, {})
    assert "too few labels" in found.why


def test_labels_overrule_the_part_that_was_preferred():
    x, y = blobs(12, parts=(6, 60), useful=(True, False))
    assert choose_parts(CrossValidation(x, y), (6, 60), 1).parts == [0]
    few = slice(None, None, 9)  # two of each class, and one more for two: less than the head start
    assert len(y[few]) <= HEAD_START
    assert choose_parts(CrossValidation(x[few], y[few]), (6, 60), 1).parts == [1]


def test_where_no_part_is_preferred_labels_decide_from_the_first_one_on():
    x, y = blobs(12, parts=(6, 60), useful=(True, False))
    few = slice(None, None, 7)  # six labels, two more of which it gets right: less than a head start
    found = choose_parts(CrossValidation(x[few], y[few]), (6, 60))
    assert 0 < found.accuracies["0"] - found.accuracies["all"] < 100 * HEAD_START / 6
    assert found.parts == [0]


def test_what_is_known_of_the_pool_s_shares_is_combined():
    """The model's prediction, random labels, and a person's words."""
    predicted = np.array([0.7, 0.2, 0.1])
    assert estimate_shares(predicted, 12) == pytest.approx(predicted)
    sampled = estimate_shares(predicted, 12, [0] * 900 + [1] * 100)
    assert sampled[1] == pytest.approx(0.1, abs=0.03)
    said = estimate_shares(predicted, 12, (), {1: 0.1})
    assert 0.1 < said[1] < predicted[1]
    assert said[0] / said[2] == pytest.approx(7)
    assert said.sum() == pytest.approx(1)


def test_a_class_with_one_label_does_not_keep_the_others_from_being_compared():
    x, y = blobs(12, parts=(6, 60), useful=(True, False))
    kept = np.concatenate([np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:1]])
    found = choose_parts(CrossValidation(x[kept], y[kept]), (6, 60))
    assert found.parts == [0]


def test_one_part_leaves_nothing_to_choose():
    x, y = blobs(12, parts=(6,), useful=(True,))
    found = choose_parts(CrossValidation(x, y), (6,))
    assert (found.parts, found.where, list(found.accuracies)) == ([0], slice(None), ["0"])


def test_cross_validation_never_tests_on_what_it_trained_on():
    """Noise with one number for each row: whoever saw the row knows its label, others are as good as chance."""
    y = np.arange(60) % 3
    x = np.eye(60, dtype=np.float32)
    assert right(cross_validate(x, y, 1e-4)) < 0.6
    x, y = blobs(20)
    assert right(cross_validate(x, y, 0.001)) > 0.9


def right(left_out):
    logits, y = left_out
    return (logits.argmax(1) == y).mean()


def overlapping(per_class: int, seed: int = 0):
    """Classes that lie over each other, in many directions: a weak penalty learns single images by heart."""
    draw = np.random.default_rng(seed)
    y = np.repeat(np.arange(CLASSES), per_class)
    x = draw.standard_normal((len(y), 100)) + 0.35 * np.eye(CLASSES, 100)[y] * 4
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


def test_classes_that_overlap_get_a_strong_penalty():
    """And that is right: on other images of the same kind it is better than the weak one."""
    x, y = overlapping(100)
    penalty, losses = choose_penalty(CrossValidation(x, y))
    assert penalty == PENALTIES[-1]
    assert set(losses) == {"1e-05", "0.0001", "0.001"}
    assert losses["0.001"] < losses["1e-05"]
    other, truth = overlapping(1_000, seed=1)
    weak, strong = (accuracy(fit_logistic(x, y, CLASSES, each), other, truth) for each in (PENALTIES[0], penalty))
    assert strong > weak


def accuracy(model, x, y):
    weight, bias = model
    return ((x @ weight.T + bias).argmax(1) == y).mean()


def test_of_equal_penalties_the_weakest_is_chosen(monkeypatch):
    monkeypatch.setattr("mma.nets.head.log_likelihoods", lambda logits, y: np.full(len(y), -0.5))
    assert choose_penalty(CrossValidation(*blobs(60)))[0] == PENALTIES[0]


def test_few_labels_do_not_choose_a_penalty():
    x, y = overlapping(39)
    assert len(y) < ENOUGH
    assert choose_penalty(CrossValidation(x, y)) == (PENALTIES[0], {})


def test_labels_of_one_class_do_not_choose_a_penalty():
    x, _ = overlapping(60)
    assert choose_penalty(CrossValidation(x, np.zeros(len(x), np.int64))) == (PENALTIES[0], {})


def test_penalty_and_scale_are_those_asked_for_or_the_chosen_ones():
    x, y = (torch.from_numpy(each) for each in overlapping(100))
    chosen, asked = build(Head(), (100,)), build(Head(), (100,))
    found = Head().start_from(chosen, x, y)
    assert found["penalty"] == PENALTIES[-1]
    expected = fit_logistic(x.numpy(), y.numpy(), CLASSES, PENALTIES[-1])[0] * np.float32(found["scale"])
    np.testing.assert_allclose(chosen.head.weight.detach().numpy(), expected, rtol=1e-6)
    found = Head(penalty=1e-5, scale=1.0).start_from(asked, x, y)
    assert (found["penalty"], found["scale"], found["penalties"]) == (1e-5, 1.0, {})
    np.testing.assert_array_equal(
        asked.head.weight.detach().numpy(), fit_logistic(x.numpy(), y.numpy(), CLASSES, 1e-5)[0]
    )


def test_the_scale_makes_other_labels_more_likely():
    """Too sure after a weak penalty, not sure enough after a strong one."""
    x, y = overlapping(100)
    other, truth = overlapping(1_000, seed=1)
    for penalty, too_sure in ((1e-5, True), (1e-2, False)):
        scale = choose_scale(CrossValidation(x, y), slice(None), penalty)
        assert (scale < 1) == too_sure
        weight, bias = fit_logistic(x, y, CLASSES, penalty)
        logits = torch.from_numpy(other @ weight.T + bias)
        as_it_is, scaled = (F.cross_entropy(logits * each, torch.from_numpy(truth)) for each in (1.0, scale))
        assert scaled < as_it_is


def test_few_labels_do_not_choose_a_scale():
    assert choose_scale(CrossValidation(*overlapping(39)), slice(None), 1e-5) == 1.0


def test_the_scale_is_that_of_the_chosen_part():
    x, y = blobs(60, parts=(6, 60), useful=(True, False))
    net, labels = build(Head(), (6, 60)), CrossValidation(x, y)
    found = Head().start_from(net, torch.from_numpy(x), torch.from_numpy(y))
    assert found["parts"] == [0]
    assert net.gate.tolist() == [1.0] * 6 + [0.0] * 60
    assert found["scale"] == choose_scale(labels, slice(0, 6), found["penalty"])
    assert found["scale"] != choose_scale(labels, slice(None), found["penalty"])


def test_nothing_is_fitted_twice(monkeypatch):
    fits = []
    monkeypatch.setattr("mma.nets.head.fit_logistic", lambda *args: fits.append(args) or fit_logistic(*args))
    x, y = (torch.from_numpy(each) for each in blobs(60))
    Head().start_from(build(Head()), x, y)
    # All parts with each penalty, then the part that was chosen for its scale, unless it is all; and the head itself.
    assert len(fits) in (FOLDS * len(PENALTIES) + 1, FOLDS * (len(PENALTIES) + 1) + 1)


def test_of_many_labels_some_folds_are_predicted(monkeypatch):
    fits = []
    monkeypatch.setattr("mma.nets.head.fit_logistic", lambda *args: fits.append(len(args[0])) or fit_logistic(*args))
    x, y = blobs(TESTED)
    assert right(cross_validate(x, y, 0.001)) > 0.9
    assert len(fits) == 2
    assert fits[0] == len(y) * 4 // 5


@pytest.mark.parametrize("true", [0.4, 1.0, 2.5])
def test_the_temperature_that_made_the_labels_is_found(true):
    draw = np.random.default_rng(3)
    logits = 2 * draw.standard_normal((4_000, CLASSES))
    y = (logits / true + draw.gumbel(size=logits.shape)).argmax(1)
    assert find_temperature(logits, y) == pytest.approx(true, rel=0.08)


def test_a_few_labels_hardly_move_the_temperature():
    logits, y = np.array([[3.0, 0.0, 0.0]] * 3), np.array([0, 0, 1])
    assert find_temperature(logits, y) == pytest.approx(1.0, abs=0.2)
    assert find_temperature(np.repeat(logits, 1_000, 0), np.repeat(y, 1_000)) > 2.0


def test_logits_are_calibrated_when_the_head_is_used_and_not_while_it_is_trained():
    net, x = build(Head()), torch.randn(4, 10)
    net.head.weight.data.normal_()
    net.head.temperature.fill_(2.0)
    torch.testing.assert_close(net.eval()(x) * 2.0, net.train()(x))
    assert torch.equal(net.eval()(x), net.head(net.features(x)))


def test_folds_have_their_part_of_every_class():
    y = np.array([2, 0, 0, 1, 2, 0, 1, 2, 1])
    fold = stratified_folds(y, 3)
    assert all(sorted(y[fold == number].tolist()) == [0, 1, 2] for number in range(3))


def test_a_head_can_start_with_parts_that_were_chosen_elsewhere():
    x, y = blobs(12, parts=(6, 60), useful=(True, False))
    chosen, other = build(Head(), (6, 60)), build(Head(), (6, 60))
    found = Head().start_from(chosen, torch.from_numpy(x), torch.from_numpy(y))
    assert found["parts"] == [0]
    Head().start_with(other, torch.from_numpy(x), torch.from_numpy(y), chosen.gate)
    assert all(
        torch.equal(a, b) for a, b in zip(chosen.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_a_new_round_forgets_gate_and_temperature():
    net = build(Head())
    net.head.temperature.fill_(3.0)
    net.gate.zero_()
    Head().reset(net, rng(1, "again"))
    assert net.head.temperature == 1.0
    assert net.gate.all()


def test_parts_that_are_not_chosen_do_not_reach_the_logits():
    net = build(Head())
    net.head.weight.data.fill_(1.0)
    net.gate[6:] = 0.0
    x = torch.randn(3, 10)
    changed = x.clone()
    changed[:, 6:] += 5.0
    assert torch.equal(net(x), net(changed))
