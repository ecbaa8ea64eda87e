"""One contestant in a process of its own: reads a number of steps per line, answers with their seconds as JSON.

Each step is answered as (clock seconds, processor seconds of all threads): the second hardly changes when other
programs use the machine too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from bench.reference import PlainMixMatch, PlainSmallNet, PlainWideResNet
from mma.algorithms import Batch, MixMatch
from mma.config import Optim
from mma.nets import Small, Wrn, initialise
from mma.rng import rng
from mma.training.host import Host, suitable_threads
from mma.training.state import State, assemble
from mma.training.step import resolve, training_step


@dataclass(frozen=True)
class Case:
    """A network and the images it sees."""

    about: str
    filters: int
    blocks: int  # 0 = the small network
    side: int
    channels: int
    batch: int


CPU = torch.device("cpu")
CASES = {
    "wrn-28-2": Case("WRN-28-2, 32x32x3, B=64 (the paper's)", 32, 4, 32, 3, 64),
    "wrn-10-1": Case("WRN-10-1, 32x32x3, B=64 (small)", 16, 1, 32, 3, 64),
    "small-fashion": Case("small, 28x28x1, B=32 (`fashion-mnist`)", 16, 0, 28, 1, 32),
    "small-digits": Case("small, 8x8x1, B=32 (`digits`)", 32, 0, 8, 1, 32),
}


def batch_of(case: Case) -> Batch:
    """One batch of noise, as the stream would lay it out."""
    shape = (3 * case.batch, case.side, case.side, case.channels)
    images = torch.from_numpy(rng(1, "images").random(shape, dtype=np.float32) * 2 - 1).permute(0, 3, 1, 2)
    labels = torch.from_numpy(rng(1, "labels").integers(0, 10, case.batch))
    return Batch(images[: case.batch], labels, torch.stack(images[case.batch :].chunk(2)))


def plain_network(case: Case) -> nn.Module:
    if case.blocks:
        return PlainWideResNet(case.channels, 10, case.filters, case.blocks)
    return PlainSmallNet(case.channels, 10, case.filters, scales=2 if case.side == 8 else 3)


def network(case: Case) -> nn.Module:
    if case.blocks:
        return Wrn(filters=case.filters, blocks=case.blocks).build((case.side, case.side, case.channels), 10)
    return Small(filters=case.filters).build((case.side, case.side, case.channels), 10)


def state_of(case: Case) -> State:
    net = network(case)
    initialise(net, rng(1, "init"))
    return assemble(net, Host(threads=torch.get_num_threads()).prepare())


def reference(case: Case) -> Callable[[int], object]:
    plain, batch = PlainMixMatch(plain_network(case)), batch_of(case)
    return lambda step: plain.step(batch.x, batch.y, list(batch.u), rng(1, "loss", step))


def ours(
    case: Case, *, compiled: bool = False, suit: bool = False, precision: str = "float32"
) -> Callable[[int], object]:
    state, batch, algorithm = state_of(case), batch_of(case), MixMatch()
    optim = Optim.model_validate({"batch": case.batch, "precision": precision})
    if suit:
        torch.set_num_threads(suitable_threads(state.teacher, batch.x, case.batch, resolve(optim, CPU)))
    if compiled:
        state.student.compile()
    return lambda step: training_step(state, algorithm, optim, batch, age=step, ramp=step, rng=rng(1, "loss", step))


def main() -> None:
    """Set up, then answer one line per line."""
    who, case, threads = sys.argv[1], CASES[sys.argv[2]], int(sys.argv[3])
    torch.set_num_threads(threads or os.cpu_count() or 1)
    if who == "reference":
        answer(reference(case))
    precision = "bfloat16" if who == "bfloat16" else "float32"
    answer(ours(case, compiled=who == "compiled", suit=not threads, precision=precision))


def answer(step: Callable[[int], object]) -> None:
    """Make as many steps as each line asks for, and answer with the seconds of each."""
    done = 0
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            begin = time.perf_counter(), time.process_time()
            step(done)
            seconds.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
            done += 1
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
