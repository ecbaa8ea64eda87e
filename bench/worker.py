"""One contestant in a process of its own: reads a number of steps per line, answers with their seconds as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from bench.reference import PlainMixMatch, PlainSmallNet, PlainWideResNet
from mma.algorithms import Batch, MixMatch
from mma.config import Optim
from mma.nets import SmallNet, WideResNet
from mma.rng import rng
from mma.train.host import Host
from mma.train.state import assemble
from mma.train.step import training_step


@dataclass(frozen=True)
class Case:
    """A network and the images it sees."""

    filters: int
    blocks: int  # 0 = the small network
    side: int
    channels: int
    batch: int


CASES = {
    "wrn-28-2": Case(32, 4, 32, 3, 64),
    "wrn-10-1": Case(16, 1, 32, 3, 64),
    "small-digits": Case(32, 0, 8, 1, 32),
    "small-fashion": Case(16, 0, 28, 1, 32),
}


def batch_of(case: Case) -> Batch:
    shape = (3, case.batch, case.side, case.side, case.channels)
    images = torch.from_numpy(rng(1, "images").random(shape, dtype=np.float32) * 2 - 1).permute(0, 1, 4, 2, 3)
    labels = torch.from_numpy(rng(1, "labels").integers(0, 10, case.batch))
    return Batch(images[0], labels, images[1:])


def reference(case: Case) -> Callable[[int], object]:
    net = (
        PlainWideResNet(case.channels, 10, case.filters, case.blocks)
        if case.blocks
        else PlainSmallNet(case.channels, 10, case.filters, scales=2 if case.side == 8 else 3)
    )
    plain, batch = PlainMixMatch(net), batch_of(case)
    return lambda step: plain.step(batch.x, batch.y, list(batch.u), rng(1, "loss", step))


def ours(case: Case, *, compiled: bool = False) -> Callable[[int], object]:
    net = (
        WideResNet(case.channels, 10, case.side, filters=case.filters, blocks=case.blocks)
        if case.blocks
        else SmallNet(case.channels, 10, case.side, filters=case.filters)
    )
    device = Host(threads=torch.get_num_threads()).prepare()
    state, batch, algorithm, optim = assemble(net, device), batch_of(case), MixMatch(), Optim(batch=case.batch)
    if compiled:
        state.student.compile()
    return lambda step: training_step(state, algorithm, optim, batch, age=step, ramp=step, rng=rng(1, "loss", step))


CONTESTANTS = {"reference": reference, "ours": ours, "compiled": lambda case: ours(case, compiled=True)}


def main() -> None:
    who, case, threads = sys.argv[1], CASES[sys.argv[2]], int(sys.argv[3])
    torch.set_num_threads(threads)
    step = CONTESTANTS[who](case)
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
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
