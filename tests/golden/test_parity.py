"""The network, the guesses, the losses and the gradients are those of the original implementation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from mma.algorithms import Batch, Losses, MixMatch
from mma.algorithms.ops import frozen_statistics, interleave, sharpen, uninterleave
from mma.nets import WideResNet

HALF_RAMP = 1_024  # of 2,048 steps: the recorded step has weight 75 x 0.5


def first_step(parity, student: WideResNet) -> Losses:
    batch = Batch(parity.images("input/x_u8"), parity.tensor("input/labels").long(), parity.views())
    return MixMatch(alpha=0).loss(student, copy.deepcopy(student), batch, HALF_RAMP, np.random.default_rng(0))


def assert_close(ours: Tensor, recorded: Tensor, atol: float) -> None:
    torch.testing.assert_close(ours.detach(), recorded, atol=atol, rtol=0)


def test_logits_in_evaluation_mode(parity, parity_student):
    parity_student.eval()
    assert_close(parity_student(parity.images("input/batch_u8")), parity.tensor("forward/logits_eval"), 5e-5)


def test_logits_with_batch_statistics(parity, parity_student):
    assert_close(parity_student(parity.images("input/batch_u8")), parity.tensor("forward/logits_train"), 5e-5)


def test_pooled_embedding(parity, parity_student):
    parity_student.eval()
    ours = parity_student.features(parity.images("input/batch_u8"))
    assert_close(ours, parity.tensor("forward/embedding_pooled"), 5e-5)


def test_map_before_pooling(parity, parity_student):
    parity_student.eval()
    ours = parity_student.trunk(parity.images("input/batch_u8"))
    assert (len(ours), *ours.shape[2:], ours.shape[1]) == tuple(parity.arrays["forward/embedding_shape"])
    recorded = parity.tensor("forward/embedding_first2").permute(0, 3, 1, 2)
    assert_close(ours[:2], recorded, 5e-5)


def test_guesses_before_sharpening(parity, parity_student):
    with torch.no_grad(), frozen_statistics(parity_student):
        p = torch.stack([parity_student(view).softmax(1) for view in parity.views()]).mean(0)
    assert_close(p, parity.tensor("train/p_model"), 5e-6)


def test_guesses_of_the_first_step(parity, parity_student):
    assert_close(first_step(parity, parity_student).guesses, parity.tensor("train/p_target"), 5e-6)


def test_losses_of_the_first_step(parity, parity_student):
    terms = first_step(parity, parity_student).terms
    assert_close(terms["labeled"], parity.tensor("train/loss_xe")[0], 5e-6)
    assert_close(terms["unlabeled"] / 37.5, parity.tensor("train/loss_l2u")[0], 5e-6)


def test_gradients_of_the_first_step(parity, parity_student):
    sum(first_step(parity, parity_student).terms.values()).backward()
    recorded = parity.state("step1/grad/")
    kernels = {name: p.grad for name, p in parity_student.named_parameters() if p.ndim > 1}
    assert len(kernels) == 16
    for name, gradient in kernels.items():
        error = (gradient - recorded[name]).norm() / recorded[name].norm()
        assert error <= 2e-2, f"{name}: relative error {error:.1e}"


def test_running_statistics_after_the_first_step(parity, parity_student):
    first_step(parity, parity_student)
    buffers = dict(parity_student.named_buffers())
    recorded = parity.state("step1/bn/")
    assert len(recorded) == 26
    for name, statistic in recorded.items():
        assert_close(buffers[name], statistic, 1e-6)


@pytest.mark.parametrize("size", [16, 64])
def test_interleave_is_exact_and_can_be_undone(parity, size):
    parts = list(parity.tensor(f"interleave/in_b{size}"))
    mixed = interleave(parts)
    assert torch.equal(torch.stack(mixed), parity.tensor(f"interleave/out_b{size}"))
    assert torch.equal(torch.stack(uninterleave(mixed, [size] * 3)), torch.stack(parts))


def test_sharpen(parity):
    assert_close(sharpen(parity.tensor("sharpen/in"), 0.5), parity.tensor("sharpen/out_T0.5"), 1e-6)
