"""How near a step is to the best convolutions, what Winograd gains, and what a step spends beside the network.

Everything here is in processor seconds of one thread.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from bench.duel import QUIET, SPINNING, Contestant, take_turns
from bench.worker import CASES, Case, batch_of, ours, reference, state_of
from mma.algorithms import Losses, ops
from mma.config import Log, Optim
from mma.data import Images
from mma.files import write_atomically
from mma.nets.winograd import convolve
from mma.presets import preset
from mma.rng import rng
from mma.training.checkpoint import Identity, encode
from mma.training.job import STORE_AFTER
from mma.training.state import State
from mma.training.step import Stream, decay, update
from mma.views import PixelViews, pixel_views

CASE = "wrn-28-2"
LAYERS = ((32, 32), (64, 16), (128, 8))  # channels and sides of its three stages


def processor_seconds(action: Callable[[], object], repeats: int = 7) -> float:
    """Return the median of a few runs, after one that warms up."""
    return in_turns([action], repeats)[0]


def in_turns(actions: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Return the median of a few runs of each action, one after the other in every round; the first round warms up."""
    rounds = [[seconds_of(action) for action in actions] for _ in range(repeats + 1)]
    return [statistics.median(taken) for taken in zip(*rounds[1:], strict=True)]


def seconds_of(action: Callable[[], object]) -> float:
    """Return the processor seconds of one run."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


def section(threads: int) -> str:
    """Return the three tables, all of one thread: several would also be charged for waiting."""
    torch.set_num_threads(1)
    step = ours(CASES[CASE])
    step(0)
    seconds = processor_seconds(lambda: step(1), 3)
    parts = [convolutions(), throughput(), beside_the_network(seconds, threads)]
    return "\n".join(["## Where the time goes", "", "\n\n".join(parts)])


def image(channels: int, side: int) -> Tensor:
    return torch.randn(64, channels, side, side).contiguous(memory_format=torch.channels_last)


def kernel(channels: int) -> Tensor:
    return (torch.randn(channels, channels, 3, 3) / channels).contiguous(memory_format=torch.channels_last)


def convolutions() -> str:
    """Direct and Winograd's convolution, forward alone and with both gradients."""
    lines = [
        "3x3 convolutions of 64 images, processor milliseconds, direct (oneDNN) / Winograd; mma chooses by a rule "
        "that suits training (`mma.nets.winograd.worthwhile`).",
        "",
        "| channels, side | forward | forward and gradients |",
        "|---|---|---|",
    ]
    for channels, side in ((16, 32), *LAYERS, (64, 8)):
        cells = [both_ways(channels, side, gradients=gradients) for gradients in (False, True)]
        lines.append(f"| {channels}, {side} | {cells[0]} | {cells[1]} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def both_ways(channels: int, side: int, *, gradients: bool) -> str:
    x, weight, grad = image(channels, side).requires_grad_(), kernel(channels).requires_grad_(), image(channels, side)

    def action(way: Callable[[Tensor, Tensor], Tensor]) -> object:
        return torch.autograd.grad(way(x, weight), (x, weight), grad) if gradients else way(x, weight)

    found = [processor_seconds(lambda: action(lambda x, w: F.conv2d(x, w, padding=1)))]
    found += [processor_seconds(lambda: action(convolve))]
    return " / ".join(f"{1e3 * seconds:.1f}" for seconds in found)


def throughput() -> str:
    """Compare steps of every network with the best convolution there is here."""
    best = max(2e-9 * 64 * c * c * 9 * s * s / processor_seconds(direct(c, s)) for c, s in LAYERS)
    lines = [
        "Steps against the best direct convolution forward there is here (of the three layers above, "
        f"{best:.0f} GFLOP per processor second). Work is counted as if every convolution were direct, so that Winograd's can "
        "pass it. *Floor* is what a step would take of the reference's time with every convolution direct, at that best, and "
        "nothing else: a ratio below it needs fewer multiplications.",
        "",
        "| network | GFLOP per step | reference, share of the best | ours | floor |",
        "|---|---|---|---|---|",
    ]
    for name, case in CASES.items():
        work, plain, mine = measured(name, 3 if name == CASE else 7)
        shares = " | ".join(f"{work / seconds / best:.0%}" for seconds in (plain, mine))
        lines.append(f"| {case.about} | {work:.2f} | {shares} | {work / best / plain:.2f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def measured(name: str, repeats: int) -> tuple[float, float, float]:
    """Return GFLOP of a step, and processor seconds of the reference's and of ours.

    Each is a process of its own: ours keeps freed memory, and in the same process the reference would gain by that.
    """
    plain, mine = Contestant("reference", name, SPINNING, threads=1), Contestant("ours", name, QUIET, threads=1)
    take_turns([plain, mine], rounds=repeats, steps=1)
    return step_flop(CASES[name]) / 1e9, plain.processor, mine.processor


def step_flop(case: Case) -> int:
    """Count a step of the reference."""
    plain = reference(case)
    with FlopCounterMode(display=False) as counter:
        plain(0)
    return counter.get_total_flops()


def direct(channels: int, side: int) -> Callable[[], Tensor]:
    x, weight = image(channels, side), kernel(channels)
    return lambda: F.conv2d(x, weight, padding=1)


def beside_the_network(seconds: float, threads: int) -> str:
    """What a step of the paper's network spends on everything that is not the network."""
    state, step_clock = state_of(CASES[CASE]), seconds / threads
    stored = checkpoint_seconds(state)
    every = min(Log().checkpoint, STORE_AFTER / step_clock)  # steps between stored states
    parts = {
        "batch and augmentation": processor_seconds(batches(), 15),
        "sharpen, MixUp, interleave": processor_seconds(mixing(), 15),
        "Adam, decay, average": processor_seconds(lambda: updated(state), 15),
        "sums of what is logged": processor_seconds(lambda: log(state), 15),
        f"stored state ({stored:.2f} s every {every:,.0f} steps)": stored / every,
    }
    lines = [
        f"{CASES[CASE].about}: what a step spends beside the network (target: at most 5 %).",
        "",
        "| | milliseconds | share of a step |",
        "|---|---|---|",
        *(f"| {name} | {1e3 * value:.2f} | {value / seconds:.2%} |" for name, value in parts.items()),
        f"| together | {1e3 * sum(parts.values()):.2f} | **{sum(parts.values()) / seconds:.2%}** |",
    ]
    print(lines[-1], flush=True)
    return "\n".join(lines)


def batches() -> Callable[[], object]:
    config = preset("cifar10")
    pixels = rng(1, "pool").integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8)
    images = Images(pixels, np.zeros(len(pixels), np.int64), tuple("abcdefghij"))
    on = pixel_views(images, torch.device("cpu"), PixelViews(shift=4, mirror=True), 100)
    answers = {i: i % 10 for i in range(250)}
    stream = Stream(config, on, np.arange(len(images)), answers, config.growth.rounds()[0])
    steps = iter(range(1_000))
    return lambda: stream[next(steps)]


def mixing() -> Callable[[], object]:
    batch, p = batch_of(CASES[CASE]), torch.rand(64, 10).softmax(1)

    def action() -> object:
        q = ops.sharpen(p, 0.5)
        targets = torch.cat([ops.one_hot(batch.y, q), q, q])
        images, _ = ops.mixup(torch.cat([batch.x, *batch.u]), targets, 0.75, rng(1, "loss", 0))
        mixed = ops.interleave(torch.split(images, [64] * 3))
        return ops.uninterleave([m[:, 0, 0, :10] for m in mixed], [64] * 3)

    return action


def updated(state: State) -> None:
    assert state.weights.gradient is not None
    state.weights.gradient.zero_()
    update(state, Optim(), 1)
    decay(state, 0.00004)
    state.average.vector.lerp_(state.weights.vector, 0.001)


def log(state: State) -> None:
    state.add(Losses({"labeled": torch.ones(()), "unlabeled": torch.ones(())}, torch.rand(64, 10)))


def checkpoint_seconds(state: State) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        return processor_seconds(lambda: write_atomically(path, encode(state, Identity("bench", "bench"))), 3)
