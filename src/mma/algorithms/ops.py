"""The small operations algorithms are made of. None of them waits for the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Literal, TypeGuard, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mma.nets import GroupedNetwork

T = TypeVar("T")
Alignment = Literal["off", "uniform", "labels"]  # what the mean of the guesses is brought to
JOINED = 32_768  # pixels of a batch up to which several are forwarded as one; above, they would not fit the cache


def probabilities(logits: Tensor) -> Tensor:
    """Softmax, in single precision where the network answers in half."""  # (B, classes)
    return logits.softmax(1, dtype=torch.promote_types(logits.dtype, torch.float32))


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """Raise each distribution to the power 1 / temperature and normalise it again."""  # (B, classes)
    # Dividing by the largest entry first changes nothing but the risk that a whole row underflows to zero.
    powered = (p / p.amax(1, keepdim=True)) ** (1 / temperature)
    return powered / powered.sum(1, keepdim=True)


def ramp(step: int, length: int) -> float:
    """Return how far a linear rise from 0 to 1 over `length` steps has come; no length means no ramp."""
    return min(step / length, 1.0) if length else 1.0


def one_hot(y: Tensor, like: Tensor) -> Tensor:
    """Return labels as rows of zeros and a one, in the width, type and place of `like`."""  # (B,) -> (B, classes)
    # A comparison, because torch's own one_hot looks at the labels and so waits for them.
    return (y[:, None] == torch.arange(like.shape[1], device=y.device)).to(like)


def mixup(images: Tensor, targets: Tensor, alpha: float, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Blend every example with another one of the batch, so that the first of the two dominates.

    Each example has its own lambda from Beta(alpha, alpha), lambda' = max(lambda, 1 - lambda); alpha = 0 mixes nothing.
    """
    if alpha == 0:  # Beta(0, 0) is 0 or 1, so lambda' is exactly one
        return images, targets
    share = rng.beta(alpha, alpha, size=len(images))
    weight = _to_device(np.maximum(share, 1 - share).astype(np.float32), images)  # (N,)
    partner = _to_device(rng.permutation(len(images)), images)  # (N,)
    # The gathered copy is ours alone, so the blend is written into it.
    mixed = images[partner].lerp_(images, weight.to(images.dtype).view(-1, 1, 1, 1))
    return mixed, targets[partner].lerp_(targets, weight.to(targets.dtype).view(-1, 1))


def uniform(classes: int) -> Tensor:
    """Return the distribution that knows nothing: what a running average of distributions starts from."""
    return torch.full((classes,), 1.0 / classes)


def moved(average: Tensor, value: Tensor, decay: float) -> Tensor:
    """Return a running average after one more value; none of its inputs is changed."""
    return torch.lerp(value.detach().to(average.dtype), average, decay)


def align(p: Tensor, average: Tensor, target: Tensor) -> Tensor:
    """Scale guesses by target / average and normalise them again, so that their mean moves towards `target`.

    A guess of nothing but classes that the target lacks stays as it is.
    """
    scaled = p * (target / average.clamp_min(1e-6))  # (B, classes)
    total = scaled.sum(1, keepdim=True)
    return torch.where(total > 0, scaled / total.clamp_min(1e-12), p)


def alignment_memory(how: Alignment, classes: int) -> dict[str, Tensor]:
    """Return what `aligned` remembers: the running means of guesses and of labels."""
    return {} if how == "off" else {"guesses": uniform(classes), "labels": uniform(classes)}


def aligned(
    p: Tensor, y: Tensor, memory: Mapping[str, Tensor], how: Alignment, decay: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Align guesses with all classes alike or with the labels seen, and return what to remember (arXiv:1911.09785)."""
    if how == "off":
        return p, {}
    guesses = moved(memory["guesses"], p.mean(0), decay)
    labels = moved(memory["labels"], one_hot(y, p).mean(0), decay)
    target = labels if how == "labels" else torch.full_like(labels, 1.0 / len(labels))
    return align(p, guesses, target), {"guesses": guesses, "labels": labels}


def interleave(parts: Sequence[Tensor]) -> list[Tensor]:
    """Swap slices between the first part and each other one, so that part 0 holds a slice of all of them."""
    cuts = _cuts([len(part) for part in parts])
    return _exchange(parts, cuts)


def uninterleave(parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
    """Undo `interleave`; `sizes` are the lengths of the original parts."""
    return _exchange(parts, _swap(_cuts(sizes)))


def interleaved_forward(student: nn.Module, images: Tensor, parts: Sequence[int]) -> Tensor:
    """Return the logits of `images`, computed in as many training-mode forwards as there are parts.

    `parts` are lengths that add up to that of `images`. Each forward normalises over its own interleaved batch, and
    only the first moves the running statistics of batch normalisation.
    """
    mixed = interleave(torch.split(images, list(parts)))
    return torch.cat(uninterleave(forwards(student, mixed), parts))  # (N, classes)


def blended(
    student: nn.Module,
    labeled: tuple[Tensor, Tensor],
    views: list[Tensor],
    q: Tensor,
    alpha: float,
    weight: float,
    rng: np.random.Generator,
) -> dict[str, Tensor]:
    """MixUp labeled images and views of unlabeled ones that are taken for `q`, and return MixMatch's terms of the blend."""
    x, y = labeled
    targets = torch.cat([one_hot(y, q), *[q] * len(views)])
    images, targets = mixup(torch.cat([x, *views]), targets, alpha, rng)
    logits = interleaved_forward(student, images, [len(x), *[len(q)] * len(views)])
    first, rest = slice(len(x)), slice(len(x), None)
    return {
        "labeled": F.cross_entropy(logits[first], targets[first]),
        # Original: the squared error is averaged over the batch and over the classes.
        "unlabeled": weight * F.mse_loss(probabilities(logits[rest]), targets[rest]),
    }


def forwards(net: nn.Module, batches: Sequence[Tensor]) -> list[Tensor]:
    """Return the logits of each batch, forwarded one after another; the first alone moves running statistics."""
    if _joinable(net, batches):
        return list(net.joined(torch.cat(list(batches)), len(batches)).chunk(len(batches)))
    first, *others = batches
    logits = [net(first)]
    with frozen_statistics(net):
        logits += [net(other) for other in others]
    return logits


def _joinable(net: nn.Module, batches: Sequence[Tensor]) -> TypeGuard[GroupedNetwork]:
    """Whether one tensor of all batches is faster: where they are so small that calling costs more than computing."""
    first, *others = batches
    alike = bool(others) and all(batch.shape == first.shape for batch in others)
    return isinstance(net, GroupedNetwork) and alike and first[:, 0].numel() <= JOINED


def weak_answers(student: nn.Module, teacher: nn.Module, images: Tensor, guesser: str) -> Tensor:
    """Return the logits that guesses are made of, with the statistics of their batch and without gradient.

    The student's own forward moves its running statistics: weak views are what the images of an evaluation look like.
    """
    with torch.no_grad():
        if guesser == "student":
            return cast(Tensor, student(images))
        with training_mode(teacher), frozen_statistics(teacher):
            return cast(Tensor, teacher(images))  # (B, classes)


def joint_forward(student: nn.Module, x: Tensor, s: Tensor, *, moves_statistics: bool) -> tuple[Tensor, Tensor]:
    """Return the logits of labeled and strong images out of one forward, so that both are normalised alike."""
    with nullcontext() if moves_statistics else frozen_statistics(student):
        logits: Tensor = student(torch.cat([x, s]))
    return logits[: len(x)], logits[len(x) :]


@contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Let batch normalisation use the statistics of its batch and leave its running ones (and their count) alone."""
    tracking = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for m in tracking:
        m.track_running_stats = False
    try:
        yield
    finally:
        for m in tracking:
            m.track_running_stats = True


@contextmanager
def training_mode(module: nn.Module) -> Iterator[None]:
    """Put `module` in training mode, and every part of it back into its own mode afterwards."""
    modes = [(m, m.training) for m in module.modules()]
    module.train()
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode


def noise_like(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Return standard normal noise in the shape and place of `x`, drawn where `x` lives."""
    generator = torch.Generator(device=x.device).manual_seed(int(rng.integers(2**63)))
    return torch.empty_like(x).normal_(generator=generator)


def _cuts(sizes: Sequence[int]) -> list[list[int]]:
    """Cut each part into as many slices as there are parts; the remainder goes to the last slices, one each."""
    n = len(sizes)
    return [[size // n + (slot >= n - size % n) for slot in range(n)] for size in sizes]


def _swap(rows: list[list[T]]) -> list[list[T]]:
    """Exchange slot i of row 0 with slot i of row i, for every i."""
    first = [row[i] for i, row in enumerate(rows)]
    return [first] + [[*row[:i], rows[0][i], *row[i + 1 :]] for i, row in enumerate(rows) if i]


def _exchange(parts: Sequence[Tensor], cuts: list[list[int]]) -> list[Tensor]:
    """Cut, swap, and join again."""
    rows = [list(torch.split(part, cut)) for part, cut in zip(parts, cuts, strict=True)]
    return [torch.cat(row) for row in _swap(rows)]


def _to_device(array: np.ndarray, like: Tensor) -> Tensor:
    """Send host numbers to where `like` lives, without waiting for their arrival."""
    return torch.from_numpy(array).to(like.device, non_blocking=True)
