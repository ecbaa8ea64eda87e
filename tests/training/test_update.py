"""Muon: kernels of convolutions move by their gradient's directions alone, everything else by Adam."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mma.config import Optim
from mma.nets import NETS, initialise
from mma.rng import rng
from mma.training.state import Flat, State, assemble
from mma.training.step import BETA1, orthogonal, update

MUON = Optim(rule="muon", kernel_lr=0.03)


def state() -> State:
    net = NETS["small"](filters=16).build(
        (8, 8, 1), 3
    )  # its first kernel is a tall matrix, 16 x 9, the others are wide
    initialise(net, rng(1, "init"))
    return assemble(net, torch.device("cpu"))


def gradients(one: State, count: int) -> list[torch.Tensor]:
    return [
        torch.from_numpy(rng(2, "gradient", k).standard_normal(len(one.weights.vector), dtype="float32"))
        for k in range(count)
    ]


def moved(optim: Optim, count: int = 3) -> State:
    """Return the state after some made-up gradients."""
    one = state()
    for k, gradient in enumerate(gradients(one, count), 1):
        one.weights.gradient.copy_(gradient)
        update(one, optim, k)
    return one


def by_hand(matrix: np.ndarray) -> np.ndarray:
    """The iteration as it is defined, on the whole matrix in float64."""
    x = matrix / np.linalg.norm(matrix)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


@pytest.mark.parametrize("shape", [(16, 16), (8, 90), (90, 8), (1, 5), (5, 1)])
def test_the_iteration_on_small_matrices_gives_what_it_gives_on_whole_ones(shape):
    matrix = rng(3, "matrix").standard_normal(shape, dtype="float32")
    wanted = by_hand(matrix.astype(float)) if shape[0] <= shape[1] else by_hand(matrix.T.astype(float)).T
    torch.testing.assert_close(
        orthogonal(torch.from_numpy(matrix)).double(), torch.from_numpy(wanted), atol=2e-4, rtol=0
    )


@pytest.mark.parametrize("fall", [0, 1, 2])
def test_singular_values_become_alike_and_directions_stay(fall):
    draw = rng(4, "matrix")
    left, right = (np.linalg.qr(draw.standard_normal((n, 24)))[0] for n in (24, 100))
    strengths = np.logspace(0, -fall, 24)
    found = orthogonal(torch.from_numpy(left @ np.diag(strengths) @ right.T).float()).numpy()
    inside = left.T @ found @ right
    assert np.abs(inside - np.diag(np.diag(inside))).max() < 1e-3
    assert 0.6 < np.diag(inside).min() < np.diag(inside).max() < 1.25


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_directions_without_a_gradient_stay_without_one(rank):
    """Rounding in the small matrix must not grow into a direction of its own."""
    draw = rng(5, "matrix")
    matrix = draw.standard_normal((64, rank), dtype="float32") @ draw.standard_normal((rank, 500), dtype="float32")
    values = torch.linalg.svdvals(orthogonal(torch.from_numpy(matrix)))
    assert values[rank:].max() < 1e-3
    assert (values[:rank] > 0.6).all()


def test_kernels_move_as_a_count_by_hand_says():
    first, found, drawn = state(), moved(MUON), gradients(state(), 3)
    begin = 0
    for name, shape in first.weights.shapes.items():
        size = int(np.prod(shape))
        if len(shape) == 4:
            out, inputs = shape[:2]
            kernel = first.weights.vector[begin : begin + size].double().numpy().reshape(out, -1)
            momentum = np.zeros_like(kernel)
            for gradient in drawn:
                part = gradient[begin : begin + size].double().numpy().reshape(out, -1)
                momentum = BETA1 * momentum + part
                ahead = part + BETA1 * momentum
                turned = by_hand(ahead) if ahead.shape[0] <= ahead.shape[1] else by_hand(ahead.T).T
                kernel = kernel - 0.03 * np.sqrt(2 * inputs / min(kernel.shape)) * turned
            reached = found.weights.vector[begin : begin + size].double().numpy().reshape(out, -1)
            np.testing.assert_allclose(reached, kernel, atol=2e-5, err_msg=name)
        begin += size


def test_everything_else_moves_by_adam():
    muon, adam = moved(MUON), moved(Optim())
    rest = slice(muon.weights.convolutions, None)
    assert torch.equal(muon.weights.vector[rest], adam.weights.vector[rest])
    assert not torch.equal(muon.weights.vector, adam.weights.vector)


def test_convolutions_lie_before_other_kernels_and_those_before_the_rest():
    class Odd(nn.Module):
        """Parameters of every number of dimensions, in no good order."""

        def __init__(self) -> None:
            super().__init__()
            for place, dimensions in enumerate([1, 5, 2, 4, 3, 0, 4]):
                setattr(self, f"p{place}", nn.Parameter(torch.full((2,) * dimensions, float(dimensions))))

    flat = Flat(Odd(), gradients=True)
    assert [len(shape) for shape in flat.shapes.values()] == [4, 4, 5, 2, 3, 1, 0]
    assert flat.convolutions == 2 * 16
    assert flat.kernels == 2 * 16 + 32 + 4 + 8
    assert [kernel.shape for kernel in flat.convolution_kernels(flat.vector)] == [(2, 2, 2, 2)] * 2
