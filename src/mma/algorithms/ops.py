"""The operations that algorithms share, for inputs of any shape (B, ...). None of them waits for the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mma.nets import GroupedNetwork

T = TypeVar("T")
Alignment = Literal["off", "uniform", "labels", "shares"]  # what the mean of the guesses is brought to
JOINED = 32_768  # positions (pixels, or rows) of a batch up to which several are forwarded as one; more would not fit the cache


def probabilities(logits: Tensor) -> Tensor:
    """Return the softmax, in float32 where the logits are in half precision."""  # (B, classes)
    return logits.softmax(1, dtype=torch.promote_types(logits.dtype, torch.float32))


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """Raise each distribution to the power 1 / temperature and normalise it again."""  # (B, classes)
    # Dividing by the largest entry first changes nothing but the risk that a whole row underflows to zero.
    powered = (p / p.amax(1, keepdim=True)) ** (1 / temperature)
    return powered / powered.sum(1, keepdim=True)


def ramp(step: int, length: int) -> float:
    """Return the height of a linear ramp from 0 to 1 over `length` steps; always 1 for length 0."""
    return min(step / length, 1.0) if length else 1.0


def one_hot(y: Tensor, like: Tensor) -> Tensor:
    """Return one-hot rows, or the soft labels given, with the width, dtype and device of `like`."""  # -> (B, classes)
    if y.ndim == 2:  # soft labels
        return y.to(like)
    # A comparison, because torch's own one_hot looks at the labels and so waits for them.
    return (y[:, None] == torch.arange(like.shape[1], device=y.device)).to(like)


def mixup(inputs: Tensor, targets: Tensor, alpha: float, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Mix every example with a random partner: lambda' x + (1 - lambda') partner, targets with the same lambda'.

    Each example draws its own lambda from Beta(alpha, alpha), lambda' = max(lambda, 1 - lambda); alpha = 0 mixes nothing.
    """
    if alpha == 0:  # Beta(0, 0) is 0 or 1, so lambda' is exactly one
        return inputs, targets
    lam = rng.beta(alpha, alpha, size=len(inputs))
    drawn = np.maximum(lam, 1 - lam).astype(np.float32), rng.permutation(len(inputs))
    weight, partner = (torch.from_numpy(values).to(inputs.device, non_blocking=True) for values in drawn)  # (N,) each

    def mix(values: Tensor) -> Tensor:
        share = weight.to(values.dtype).view(-1, *[1] * (values.ndim - 1))
        return values[partner].lerp_(values, share)  # the gathered copy is ours alone

    return mix(inputs), mix(targets)


def uniform(classes: int) -> Tensor:
    """Return the uniform distribution, which running averages of distributions start from."""
    return torch.full((classes,), 1.0 / classes)


def ema(average: Tensor, value: Tensor, decay: float) -> Tensor:
    """Return decay * average + (1 - decay) * value as a new tensor without gradient."""
    return torch.lerp(value.detach().to(average.dtype), average, decay)


def rescale(p: Tensor, average: Tensor, target: Tensor) -> Tensor:
    """Scale guesses by target / average and normalise them again, so that their mean moves towards `target`.

    A guess that has probability only on classes with target 0 is returned unchanged.
    """
    scaled = p * (target / average.clamp_min(1e-6))  # (B, classes)
    total = scaled.sum(1, keepdim=True)
    return torch.where(total > 0, scaled / total.clamp_min(1e-12), p)


def alignment_memory(how: Alignment, classes: int) -> dict[str, Tensor]:
    """Return the running means of guesses and labels before the first step; nothing when alignment is off.

    The pool's shares are what whoever starts the training writes here. Zeros are nobody's estimate: nothing is aligned.
    """
    if how == "off":
        return {}
    target = {"shares": torch.zeros(classes)} if how == "shares" else {"labels": uniform(classes)}
    return {"guesses": uniform(classes), **target}


def align_distribution(
    p: Tensor, y: Tensor, memory: Mapping[str, Tensor], how: Alignment, decay: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Bring the mean guess to the uniform distribution, to that of the labels, or to the estimated shares of the pool.

    Distribution alignment, arXiv:1911.09785. `y` are labels (B,), or rows (B, classes) that stand for the pool better than
    labels that were asked for. Returns the aligned guesses and the updated running means.
    """
    if how == "off":
        return p, {}
    guesses = ema(memory["guesses"], p.mean(0), decay)
    if how == "shares":
        shares = memory["shares"]
        target = torch.where(shares.sum() > 0, shares, guesses)
        return rescale(p, guesses, target), {"guesses": guesses, "shares": shares}
    labels = ema(memory["labels"], one_hot(y, p).mean(0), decay)
    target = labels if how == "labels" else torch.full_like(labels, 1.0 / len(labels))
    return rescale(p, guesses, target), {"guesses": guesses, "labels": labels}


def interleave(parts: Sequence[Tensor]) -> list[Tensor]:
    """Swap slices between the first part and each other one, so that part 0 holds a slice of all of them."""
    return _exchange(parts, _cuts([len(part) for part in parts]))


def uninterleave(parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
    """Undo `interleave`; `sizes` are the lengths of the original parts."""
    return _exchange(parts, _swap(_cuts(sizes)))


def interleaved_forward(student: nn.Module, inputs: Tensor, parts: Sequence[int]) -> Tensor:
    """Return the logits of `inputs`, computed in as many training-mode forwards as there are parts.

    `parts` are lengths that add up to that of `inputs`. Each forward normalises over its own interleaved batch, and
    only the first moves the running statistics of batch normalisation. Without batch normalisation one forward is the same.
    """
    if isinstance(student, GroupedNetwork) and not any(isinstance(m, _BatchNorm) for m in student.modules()):
        return cast(Tensor, student(inputs))
    mixed = interleave(torch.split(inputs, list(parts)))
    return torch.cat(uninterleave(forwards(student, mixed), parts))  # (N, classes)


def forwards(net: nn.Module, batches: Sequence[Tensor]) -> list[Tensor]:
    """Return the logits of each batch, forwarded one after another; the first alone moves running statistics."""
    first, *others = batches
    alike = bool(others) and all(batch.shape == first.shape for batch in others)
    if isinstance(net, GroupedNetwork) and alike and first[:, 0].numel() <= JOINED:  # as one tensor is faster
        return list(net.joined(torch.cat(list(batches)), len(batches)).chunk(len(batches)))
    logits = [net(first)]
    with frozen_statistics(net):
        logits += [net(other) for other in others]
    return logits


def weak_logits(student: nn.Module, teacher: nn.Module, weak: Tensor, guesser: str) -> Tensor:
    """Return the guesser's logits for weak views: batch statistics, no gradient.

    The student's forward moves its running statistics, because weak views look like the images of an evaluation.
    """
    with torch.no_grad():
        if guesser == "student":
            return cast(Tensor, student(weak))
        with same_modes(teacher, student), frozen_statistics(teacher):
            return cast(Tensor, teacher(weak))  # (B, classes)


def joint_forward(student: nn.Module, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits of labeled inputs and strong views from one forward, normalised over both together.

    The weak views have moved the running statistics already.
    """
    with frozen_statistics(student):
        logits: Tensor = student(torch.cat([x, s]))
    return logits[: len(x)], logits[len(x) :]


@contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Keep running statistics (and their count) unchanged; batch normalisation uses the statistics of its batch."""
    tracking = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for m in tracking:
        m.track_running_stats = False
    try:
        yield
    finally:
        for m in tracking:
            m.track_running_stats = True


@contextmanager
def same_modes(module: nn.Module, other: nn.Module) -> Iterator[None]:
    """Put each part of `module` in the mode of the same part of `other`; afterwards it gets its own back.

    A student in training has frozen parts in evaluation mode, and its teacher must treat them alike.
    """
    modes = [(m, m.training) for m in module.modules()]
    for m, same in zip(module.modules(), other.modules(), strict=True):
        m.training = same.training
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode


def noise_like(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Return standard normal noise with the shape, dtype and device of `x`."""
    generator = torch.Generator(device=x.device).manual_seed(int(rng.integers(2**63)))
    return torch.empty_like(x).normal_(generator=generator)


def _cuts(sizes: Sequence[int]) -> list[list[int]]:
    """Cut each part into as many slices as there are parts; the remainder goes to the last slices, one each."""
    n = len(sizes)
    return [[size // n + (slot >= n - size % n) for slot in range(n)] for size in sizes]


def _swap(rows: list[list[T]]) -> list[list[T]]:
    """Exchange slot i of row 0 with slot i of row i, for every i, in place."""
    for i, row in enumerate(rows):
        rows[0][i], row[i] = row[i], rows[0][i]
    return rows


def _exchange(parts: Sequence[Tensor], cuts: list[list[int]]) -> list[Tensor]:
    """Cut, swap, and join again."""
    rows = [list(torch.split(part, cut)) for part, cut in zip(parts, cuts, strict=True)]
    return [torch.cat(row) for row in _swap(rows)]
