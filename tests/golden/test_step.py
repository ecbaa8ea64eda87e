"""One training step against the recorded numbers of the original implementation, and against the naive way to write it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from mma.algorithms import Batch, MixMatch
from mma.config import Optim
from mma.rng import rng
from mma.training.state import State, assemble
from mma.training.step import decay, training_step, update
from mma.views import PixelViews, pixel_views

RECORDED = MixMatch(weight=75.0, alpha=0.0, ramp=2)  # at ramp step 1 the weight is 37.5
OPTIM = Optim(lr=0.002, weight_decay=0.02, ema_decay=0.999, batch=16)


@pytest.fixture
def recorded(parity, parity_student) -> tuple[State, Batch]:
    batch = Batch(parity.images("input/x_u8"), parity.tensor("input/labels").long(), parity.views())
    return assemble(parity_student, torch.device("cpu")), batch


def step(state: State, batch: Batch):
    return training_step(state, RECORDED, OPTIM, batch, age=state.step, ramp=1, rng=rng(0, "unused"))


def kernels_off(state: State, expected: dict[str, torch.Tensor]) -> float:
    """Share of kernel elements off by more than 1e-5. Conv biases have a zero gradient: Adam turns rounding into steps there."""
    pairs = [(p.detach(), expected[name]) for name, p in state.student.named_parameters() if p.ndim >= 2]
    off = sum(int(((found - wanted).abs() > 1e-5).sum()) for found, wanted in pairs)
    return off / sum(found.numel() for found, _ in pairs)


def test_the_recorded_gradients_move_the_parameters_to_the_recorded_ones(parity, recorded):
    state, _ = recorded
    wanted = parity.state("step1/grad/")
    for name, view in state.weights.views(state.weights.gradient):
        view.copy_(wanted[name])
    update(state, OPTIM, 1)
    decay(state, OPTIM.lr * OPTIM.weight_decay)
    assert kernels_off(state, parity.state("step1/var/")) <= 1 / 1_000


def test_parameters_after_one_whole_step_are_nearly_the_recorded_ones(parity, recorded):
    """Adam's first step is sign-like, so a gradient near zero whose rounding differs moves the other way.

    Rounding also flips LeakyReLU kinks in the recording itself: with float64 throughout, 2.5 elements in 1,000 are off.
    """
    state, batch = recorded
    step(state, batch)
    assert kernels_off(state, parity.state("step1/var/")) <= 4 / 1_000


def test_running_statistics_after_one_step_are_the_recorded_ones(parity, recorded):
    state, batch = recorded
    step(state, batch)
    expected = parity.state("step1/bn/")
    found = {name: buffer for name, buffer in state.student.named_buffers() if "running" in name}
    assert set(found) == set(expected)
    for name, buffer in found.items():
        torch.testing.assert_close(buffer, expected[name], atol=1e-6, rtol=0)


def test_the_average_after_one_step_is_the_recorded_one(parity, recorded):
    state, batch = recorded
    step(state, batch)
    expected = parity.state("step1/ema/")
    for name, parameter in state.teacher.named_parameters():
        if parameter.ndim >= 2:
            torch.testing.assert_close(parameter, expected[name], atol=5e-6, rtol=0)


def test_the_losses_of_three_steps_are_the_recorded_ones(parity, recorded):
    state, batch = recorded
    for labeled, unlabeled, tolerance in zip(
        parity.tensor("train/loss_xe"), parity.tensor("train/loss_l2u"), (5e-6, 5e-3, 2e-2), strict=True
    ):
        terms = {name: term.detach() for name, term in step(state, batch).terms.items()}
        assert float(terms["labeled"]) == pytest.approx(float(labeled), abs=tolerance)
        assert float(terms["unlabeled"]) / 37.5 == pytest.approx(float(unlabeled), abs=tolerance)


def test_the_flat_update_equals_the_naive_one(tiny, digits):
    """torch's own Adam per tensor, a loop for decay and average: the same numbers up to epsilon's place."""
    from mma.training.state import start
    from mma.training.step import Stream

    config = tiny()
    state = start(config, digits.train.shape, 10, torch.device("cpu"))
    student, teacher = copy.deepcopy(state.student), copy.deepcopy(state.teacher)
    for parameter in student.parameters():
        parameter.grad = None
    optimizer = torch.optim.Adam(student.parameters(), lr=config.optim.lr, eps=1e-12)
    pixels = pixel_views(digits.train, torch.device("cpu"), PixelViews(shift=1, mirror=False), 100)
    answers = {i: int(digits.train.labels[i]) for i in range(10)}
    stream = Stream(config, pixels, np.arange(len(digits.train)), answers, config.growth.rounds()[0])
    for at in range(3):
        training_step(state, config.algorithm, config.optim, stream[at], age=at, ramp=at, rng=rng(1, "loss", at))
        losses = config.algorithm.loss(student, teacher, stream[at], at, rng(1, "loss", at))
        optimizer.zero_grad()
        sum(losses.terms.values()).backward()
        optimizer.step()
        with torch.no_grad():
            for mine, average in zip(student.parameters(), teacher.parameters(), strict=True):
                if mine.ndim >= 2:
                    mine *= 1 - config.optim.lr * config.optim.weight_decay
                average.lerp_(mine, 1 - config.optim.ema_decay)
    for naive, flat in zip(teacher.parameters(), state.teacher.parameters(), strict=True):
        torch.testing.assert_close(naive, flat, atol=2e-5, rtol=1e-3)


def test_biases_and_normalisation_do_not_decay(parity, recorded):
    state, _ = recorded
    before = {name: parameter.detach().clone() for name, parameter in state.student.named_parameters()}
    decay(state, 0.5)
    for name, parameter in state.student.named_parameters():
        factor = 0.5 if parameter.ndim >= 2 else 1.0
        assert torch.equal(parameter, before[name] * factor), name


def test_kernels_and_their_gradients_are_channels_last_views_of_one_vector(recorded):
    state, batch = recorded
    step(state, batch)
    for name, parameter in state.student.named_parameters():
        assert parameter.untyped_storage().data_ptr() == state.weights.vector.untyped_storage().data_ptr(), name
        if parameter.ndim == 4 and parameter.shape[1] > 1 and parameter.shape[2] > 1:
            assert parameter.is_contiguous(memory_format=torch.channels_last), name
