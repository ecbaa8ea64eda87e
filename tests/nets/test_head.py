"""The head for features: where it starts, and which parts of joined features it uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mma.nets import Head, Network
from mma.nets.logistic import FEWEST, choose_parts, cross_validate, deal, find_temperature, fit_logistic
from mma.rng import rng

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
    found = choose_parts(x, y, parts, 0.001)
    assert found.parts == chosen
    assert found.gate.sum() == sum(parts[part] for part in chosen)
    assert set(found.accuracies) == {"0", "1", "all"}


def test_few_labels_use_all_parts_and_say_so():
    x, y = blobs(6)
    assert len(y) < FEWEST
    found = choose_parts(x, y, (6, 4), 0.01)
    assert found.gate.all()
    assert "fewer than" in found.why


def test_a_class_with_one_label_does_not_keep_the_others_from_being_compared():
    x, y = blobs(12, parts=(6, 60), useful=(True, False))
    kept = np.concatenate([np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:1]])
    found = choose_parts(x[kept], y[kept], (6, 60), 0.001)
    assert found.parts == [0]


def test_one_part_leaves_nothing_to_choose():
    x, y = blobs(12, parts=(6,), useful=(True,))
    found = choose_parts(x, y, (6,), 0.01)
    assert (found.parts, found.gate.all(), list(found.accuracies)) == ([0], True, ["0"])


def test_cross_validation_never_tests_on_what_it_trained_on():
    """Noise with one number for each row: whoever saw the row knows its label, others are as good as chance."""
    y = np.arange(60) % 3
    x = np.eye(60, dtype=np.float32)
    assert share_right(x, y, 1e-4) < 0.6
    x, y = blobs(20)
    assert share_right(x, y, 0.001) > 0.9


def share_right(x, y, penalty):
    return (cross_validate(x, y, penalty).argmax(1) == y).mean()


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
    fold = deal(y, 3)
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
