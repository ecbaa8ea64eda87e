"""FixMatch, FreeMatch and anchored MixMatch against a second version in numpy, on a network small enough to do by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mma.algorithms import AnchoredMixMatch, Batch, FixMatch, FreeMatch, Losses, MixMatch
from mma.algorithms.freematch import class_confidence, fairness_divergence
from mma.algorithms.ops import align_distribution, rescale, sharpen
from mma.rng import rng

CLASSES = 3


class Pixels(nn.Module):
    """A network whose logits are the pixels: what goes in is what comes out, times a weight of one."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.head * x.flatten(1)


# Logits of two labeled and four unlabeled images, weak and strong.
X = np.array([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0]])
Y = np.array([0, 2])
WEAK = np.array([[4.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.2, 3.5], [0.3, 0.0, 0.1]])
STRONG = np.array([[1.0, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.0, 0.4], [2.0, 1.0, 0.0]])


def images(logits: np.ndarray) -> Tensor:
    return torch.tensor(logits, dtype=torch.float64).view(len(logits), CLASSES, 1, 1)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def cross_entropy(logits: np.ndarray, target: np.ndarray) -> np.ndarray:
    return -(target * np.log(softmax(logits))).sum(1)


def one_hot(y: np.ndarray) -> np.ndarray:
    return np.eye(CLASSES)[y]


def run(algorithm, memory: dict[str, np.ndarray] | None = None) -> Losses:
    given = algorithm.memory(CLASSES) if memory is None else {k: torch.tensor(v) for k, v in memory.items()}
    given = {name: value.double() for name, value in given.items()}
    batch = Batch(images(X), torch.tensor(Y), images(WEAK)[None], images(STRONG)[None], given)
    return algorithm.loss(Pixels().double(), Pixels().double(), batch, 0, rng(0, "loss"))


def exactly(value: Tensor, expected) -> None:
    np.testing.assert_allclose(value.detach().numpy(), expected, rtol=1e-14, atol=1e-15)


def test_fixmatch_fits_sure_guesses_on_the_strong_views():
    losses = run(FixMatch(threshold=0.9, weight=2.0))
    p = softmax(WEAK)
    sure = p.max(1) >= 0.9
    assert sure.tolist() == [True, False, True, False]
    exactly(losses.terms["labeled"], cross_entropy(X, one_hot(Y)).mean())
    fit = cross_entropy(STRONG, one_hot(p.argmax(1)))
    exactly(losses.terms["unlabeled"], 2.0 * (fit[0] + fit[2]) / 4)  # over all four, not over the two
    exactly(losses.guesses, one_hot(p.argmax(1)))
    assert losses.memory == {}


def test_fixmatch_keeps_a_guess_exactly_at_the_threshold():
    certain = images(np.array([[800.0, 0.0, 0.0]]))
    batch = Batch(images(X), torch.tensor(Y), certain[None], images(STRONG[:1])[None], {})
    losses = FixMatch(threshold=1.0).loss(Pixels().double(), Pixels().double(), batch, 0, rng(0, "loss"))
    exactly(losses.terms["unlabeled"], cross_entropy(STRONG[:1], one_hot(np.array([0]))).mean())


def test_freematch_keeps_a_guess_exactly_at_its_threshold():
    memory = {name: value.double() for name, value in FreeMatch().memory(CLASSES).items()}
    batch = Batch(images(X), torch.tensor(Y), images(WEAK[:1])[None], images(STRONG[:1])[None], memory)
    losses = FreeMatch(decay=0.0).loss(Pixels().double(), Pixels().double(), batch, 0, rng(0, "loss"))
    assert (
        losses.memory["confidence"] == losses.memory["guesses"].max()
    )  # without a past, its own confidence is the bar
    exactly(losses.terms["unlabeled"], cross_entropy(STRONG[:1], one_hot(np.array([0]))).mean())


def test_freematch_lets_the_bar_of_each_class_follow_its_confidence():
    before = {
        "confidence": np.array([0.6]),
        "guesses": np.array([0.5, 0.1, 0.4]),
        "histogram": np.array([0.4, 0.2, 0.4]),
    }
    losses = run(FreeMatch(decay=0.8, weight=3.0, fairness=0.5), before)
    p = softmax(WEAK)
    top, guess = p.max(1), p.argmax(1)
    confidence = 0.8 * 0.6 + 0.2 * top.mean()
    guesses = 0.8 * before["guesses"] + 0.2 * p.mean(0)
    histogram = 0.8 * before["histogram"] + 0.2 * one_hot(guess).mean(0)
    exactly(losses.memory["confidence"], [confidence])
    exactly(losses.memory["guesses"], guesses)
    exactly(losses.memory["histogram"], histogram)
    bar = confidence * guesses / guesses.max()
    sure = top >= bar[guess]
    assert sure.tolist() == [True, True, True, False]  # the second passes the low bar of its rare class only
    assert top[1] < confidence
    exactly(losses.terms["unlabeled"], 3.0 * (sure * cross_entropy(STRONG, one_hot(guess))).mean())
    s, answers = softmax(STRONG)[sure], softmax(STRONG)[sure].argmax(1)
    often = one_hot(answers).sum(0)
    assert often.tolist() == [1, 0, 2]  # the class that no strong view is taken for is left out
    batch = np.array([s[:, 0].sum() / often[0], s[:, 2].sum() / often[2]])
    running = np.array([guesses[0] / histogram[0], guesses[2] / histogram[2]])
    batch, running = batch / batch.sum(), running / running.sum()
    exactly(losses.terms["fairness"], 0.5 * (running * np.log(running / batch)).sum())


def test_the_fairness_gradient_pulls_the_batch_towards_the_running_confidence():
    """A step down the gradient brings the batch's confidence per class nearer to the running one."""
    logits = torch.tensor(STRONG[:3], requires_grad=True)
    sure = torch.ones(3, dtype=torch.float64)
    answers = torch.tensor(one_hot(STRONG[:3].argmax(1))).sum(0)  # classes 0 and 2
    histogram = torch.full((3,), 1 / 3, dtype=torch.float64)
    for running in ([0.9, 0.05, 0.05], [0.05, 0.05, 0.9]):
        guesses = torch.tensor(running, dtype=torch.float64)
        target = guesses * (answers > 0) / (guesses * (answers > 0)).sum()

        def distance(z, target=target):
            return (class_confidence(z.softmax(1).sum(0), answers) - target).abs().sum()

        divergence = fairness_divergence(logits, sure, guesses, histogram)
        (gradient,) = torch.autograd.grad(divergence, logits)
        assert distance(logits - 0.1 * gradient) < distance(logits)
        assert distance(logits + 0.1 * gradient) > distance(logits)  # the way the authors' sign leads


def test_fairness_is_zero_where_batch_and_running_confidence_agree():
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]])
    even = torch.full((3,), 1 / 3)
    assert fairness_divergence(logits, torch.ones(3), even, even).abs() < 1e-6
    assert fairness_divergence(logits, torch.ones(3), torch.tensor([0.6, 0.2, 0.2]), even) > 0.01


def test_freematch_starts_from_knowing_nothing():
    memory = FreeMatch().memory(4)
    assert {name: value.tolist() for name, value in memory.items()} == {
        "confidence": [0.25],
        "guesses": [0.25] * 4,
        "histogram": [0.25] * 4,
    }


def test_freematch_without_a_sure_guess_is_supervised():
    losses = run(
        FreeMatch(decay=0.999), {k: np.full(n, 1.0) for k, n in (("confidence", 1), ("guesses", 3), ("histogram", 3))}
    )
    assert losses.terms["unlabeled"] == 0
    assert losses.terms["fairness"] == 0
    assert torch.isfinite(losses.terms["labeled"])


def test_aligning_brings_a_constant_bias_back_to_the_target():
    p = torch.tensor([[0.6, 0.3, 0.1]]).expand(5, 3)
    torch.testing.assert_close(rescale(p, p[0], torch.full((3,), 1 / 3)), torch.full((5, 3), 1 / 3))


def test_alignment_survives_a_class_that_is_never_guessed():
    p = torch.tensor([[1.0, 0.0]])
    q, _ = align_distribution(
        p, torch.tensor([1]), {"guesses": torch.tensor([1.0, 0.0]), "labels": torch.tensor([0.0, 1.0])}, "labels", 0.5
    )
    assert torch.equal(sharpen(q, 0.5), p)


def test_guesses_are_aligned_to_the_shares_that_were_written_and_to_nothing_without_any():
    p, mean = torch.tensor([[0.6, 0.4], [0.2, 0.8]]), torch.tensor([0.4, 0.6])
    q, memory = align_distribution(
        p, torch.tensor([0]), {"guesses": mean, "shares": torch.tensor([0.2, 0.8])}, "shares", 0.5
    )
    torch.testing.assert_close(q, rescale(p, mean, torch.tensor([0.2, 0.8])))
    assert memory["shares"].tolist() == pytest.approx([0.2, 0.8])
    unknown = MixMatch(align="shares").memory(2)
    torch.testing.assert_close(align_distribution(p, torch.tensor([0]), unknown, "shares", 0.5)[0], p)


def test_mixmatch_aligned_sharpens_the_aligned_guesses():
    before = {"guesses": np.array([0.5, 0.3, 0.2]), "labels": np.array([1 / 3] * 3)}
    losses = run(MixMatch(align="uniform", align_decay=0.9), before)
    p = softmax(WEAK)
    q = p / (0.9 * before["guesses"] + 0.1 * p.mean(0))
    q = (q / q.sum(1, keepdims=True)) ** 2
    exactly(losses.guesses, q / q.sum(1, keepdims=True))


def test_mixmatch_off_is_the_loss_without_alignment():
    losses = run(MixMatch())
    q = softmax(WEAK) ** 2
    exactly(losses.guesses, q / q.sum(1, keepdims=True))
    assert losses.memory == {}


@pytest.mark.parametrize("guesser", ["student", "teacher"])
def test_anchored_mixmatch_fits_the_guess_of_the_weak_view_on_both_views(guesser):
    before = {"guesses": np.array([0.5, 0.3, 0.2]), "labels": np.array([1 / 3] * 3)}
    algorithm = AnchoredMixMatch(alpha=0.0, weight=4.0, ramp=0, align_decay=0.9, guesser=guesser)
    losses = run(algorithm, before)
    p = softmax(WEAK)
    running = 0.9 * before["guesses"] + 0.1 * p.mean(0)
    q = p / running
    q = (q / q.sum(1, keepdims=True)) ** 2
    q /= q.sum(1, keepdims=True)
    exactly(losses.guesses, q)
    exactly(losses.memory["guesses"], running)
    exactly(losses.terms["labeled"], cross_entropy(X, one_hot(Y)).mean())
    exactly(losses.terms["unlabeled"], 4.0 * np.mean([(softmax(view) - q) ** 2 for view in (WEAK, STRONG)]))


def test_anchored_mixmatch_asks_the_one_who_is_to_guess():
    batch = Batch(images(X), torch.tensor(Y), images(WEAK)[None], images(STRONG)[None], {})
    student, teacher = Pixels().double(), Pixels().double()
    teacher.head.data.fill_(-1.0)
    for guesser, logits in (("student", WEAK), ("teacher", -WEAK)):
        algorithm = AnchoredMixMatch(align="off", temperature=1.0, guesser=guesser)
        exactly(algorithm.loss(student, teacher, batch, 0, rng(0, "loss")).guesses, softmax(logits))


GIVEN = np.array([[0.1, 0.8, 0.1], [0.0, 0.5, 0.5], [0.2, 0.0, 0.8], [1.0, 0.0, 0.0]])


@pytest.mark.parametrize(("step", "guidance"), [(0, 1.0), (25, 0.75), (100, 0.0), (200, 0.0)])
def test_given_guesses_give_way_to_its_own(step, guidance):
    algorithm = AnchoredMixMatch(align="off", temperature=1.0, alpha=0.0, weight=4.0, ramp=50, guided=100)
    batch = Batch(images(X), torch.tensor(Y), images(WEAK)[None], images(STRONG)[None], {}, torch.tensor(GIVEN))
    losses = algorithm.loss(Pixels().double(), Pixels().double(), batch, step, rng(0, "loss"))
    q = guidance * GIVEN + (1 - guidance) * softmax(WEAK)
    exactly(losses.guesses, q)
    error = np.mean([(softmax(view) - q) ** 2 for view in (WEAK, STRONG)])
    exactly(losses.terms["unlabeled"], 4.0 * max(step / 50 if step < 50 else 1.0, guidance) * error)


def test_given_guesses_say_how_the_pool_is_distributed():
    before = {name: torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64) for name in ("guesses", "labels")}
    batch = Batch(images(X), torch.tensor(Y), images(WEAK)[None], images(STRONG)[None], before, torch.tensor(GIVEN))
    algorithm = AnchoredMixMatch(align="labels", align_decay=0.9, guided=1)
    found = algorithm.loss(Pixels().double(), Pixels().double(), batch, 1, rng(0, "loss"))
    exactly(found.memory["labels"], 0.9 * before["labels"].numpy() + 0.1 * GIVEN.mean(0))


def test_without_guidance_given_guesses_are_not_looked_at():
    batch = Batch(images(X), torch.tensor(Y), images(WEAK)[None], images(STRONG)[None], {}, torch.tensor(GIVEN))
    algorithm = AnchoredMixMatch(align="off", temperature=1.0)
    exactly(algorithm.loss(Pixels().double(), Pixels().double(), batch, 0, rng(0, "loss")).guesses, softmax(WEAK))
