"""How a gradient moves the weights: by Adam, or by Muon where they are kernels of convolutions."""

from __future__ import annotations

import math
from itertools import repeat

import torch
from torch import Tensor

from mma.config import Optim
from mma.training.state import State

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's own defaults
NEWTON_SCHULZ_STEPS = 5
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Muon's own: a x + b x^3 + c x^5, which rises fast near zero


@torch.no_grad()
def update(state: State, optim: Optim, updates: int) -> None:
    """Move the weights by the gradient, the `updates`-th time since they were drawn."""
    gradient = state.weights.gradient
    assert gradient is not None
    state.moment1.lerp_(gradient, 1.0 - BETA1)
    begin = muon(state, gradient, optim.kernel_lr) if optim.rule == "muon" else 0
    adam(state, gradient, optim.lr, updates, begin)


def adam(state: State, gradient: Tensor, lr: float, updates: int, begin: int) -> None:
    """Move the weights from `begin` on."""
    # Original: Adam in TensorFlow's form, whose epsilon stands beside the uncorrected sqrt(v).
    gradient, square = gradient[begin:], state.moment2[begin:]
    square.mul_(BETA2).addcmul_(gradient, gradient, value=1.0 - BETA2)
    corrected = lr * math.sqrt(1.0 - BETA2**updates) / (1.0 - BETA1**updates)
    moment = state.moment1[begin:] if state.rates is None else state.moment1[begin:] * state.rates[begin:]
    state.weights.vector[begin:].addcdiv_(moment, square.sqrt().add_(EPSILON), value=-corrected)


def muon(state: State, gradient: Tensor, lr: float) -> int:
    """Move the kernels of convolutions, each by `lr` times the norm of a freshly drawn one; return where the rest begins.

    Every direction in a kernel's gradient moves it alike, however strong it is, so the weak ones are learned as early.
    """
    layout = state.weights
    ahead = state.moment1.lerp(gradient, 1.0 - BETA1)  # Nesterov's momentum
    rates = repeat(None) if state.rates is None else layout.convolution_kernels(state.rates)
    kernels = layout.convolution_kernels(layout.vector)
    for kernel, direction, rate in zip(kernels, layout.convolution_kernels(ahead), rates, strict=False):
        rows = direction.flatten(1)  # (outputs, height x width x inputs)
        turned = orthogonal(rows).view_as(kernel)
        turned = turned if rate is None else turned * rate
        initial_norm = math.sqrt(2 * kernel.shape[-1])  # see nets/init.py
        kernel.sub_(turned, alpha=lr * initial_norm / math.sqrt(min(rows.shape)))
    return layout.convolutions


def orthogonal(matrix: Tensor) -> Tensor:
    """Return the matrix with its singular values brought close to 1 (0.7 to 1.2; vanishing ones stay small).

    A Newton-Schulz iteration. It runs on the small square matrix of products: polynomials of it commute, so the wide matrix
    is multiplied only before and after.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T).T
    rows = matrix / (matrix.norm() + EPSILON)  # no singular value is above 1
    gram, factor = rows @ rows.T, torch.eye(len(rows), device=rows.device)  # (n, n)
    a, b, c = NEWTON_SCHULZ
    for _ in range(NEWTON_SCHULZ_STEPS):
        polynomial = torch.addmm(b * gram, gram, gram, alpha=c)
        polynomial.diagonal().add_(a)
        factor, gram = polynomial @ factor, polynomial @ gram @ polynomial
    result: Tensor = factor @ rows
    return result


@torch.no_grad()
def decay(state: State, amount: float) -> None:
    """Shrink the kernels (not biases, not BN), apart from the gradient."""
    kernels = state.weights.kernels
    kept = 1.0 - amount if state.rates is None else 1.0 - amount * state.rates[:kernels]
    state.weights.vector[:kernels].mul_(kept)
