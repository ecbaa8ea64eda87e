"""Run by test_ranks.py under torchrun: two processes do together, one after the other, what the tests look at.

    torchrun --nproc-per-node 2 two.py FOLDER

FOLDER holds runs by name. What each process found goes to FOLDER/RANK.json.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from mma.data import load
from mma.query import Query
from mma.run import Run
from mma.training.evaluate import accuracy, candidates
from mma.training.host import Host
from mma.training.job import look_at
from mma.training.loop import train
from mma.training.oracle import DatasetLabels
from mma.training.ranks import ALONE, Elsewhere, Ranks, joined
from mma.training.watch import Watch

DATA = load("digits")


class Slow:
    """People: they answer two at a time. Only the first process may ask them."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def ask(self, indices, round):
        assert self.rank == 0
        return {i: int(DATA.train.labels[i]) for i in indices[:2]}


class StopsTheSecond(Watch):
    """Asks to stop in one process only."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def stepped(self, step, labels):
        self.stop = self.rank == 1 and step >= 9


class Plain(nn.Module):
    """A network without batch normalisation: what it makes of an image does not depend on the images beside it."""

    def __init__(self, channels: int, classes: int, side: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, 32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class Uneven(Plain):
    """A network that is another one in every process."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.register_buffer("mine", torch.tensor([float(os.environ["RANK"])]))


def go(folder: Path, name: str, ranks: Ranks, **options) -> Run:
    run, oracle = Run.open(folder / name), options.pop("oracle", DatasetLabels(DATA.train))
    train(run, oracle, on=Host(threads=1), data=DATA, ranks=ranks, **options)
    return run


def refusal(folder: Path, name: str, ranks: Ranks, **options) -> list[str]:
    """Train what cannot be trained; return how this process ended and what it said."""
    try:
        go(folder, name, ranks, **options)
    except ValueError as error:
        return ["elsewhere" if isinstance(error, Elsewhere) else "said", str(error)]
    return ["trained", ""]


def scored_alike(run: Run, ranks: Ranks) -> list[bool]:
    """Return for several queries, and for the test set, whether sharing the work changes any bit."""
    job, found = look_at(run, DATA), []
    for name in ("diff2.aug-kmeans", "max-infoD", "entropy-direct"):
        query, net = Query.parse(name), job.state.teacher
        alone = candidates(net, job.pixels, job.pool, query, 1, 2)
        shared = candidates(net, job.pixels, job.pool, query, 1, 2, ranks)
        if not ranks.first:
            found.append(shared.probs is None and shared.features is None)
            continue
        found.append(np.array_equal(alone.probs, shared.probs))
        found.append(not query.needs_features or np.array_equal(alone.features, shared.features))
    for count in (3, 499, 500, 501, 1297):  # fewer batches than processes, and a last one that is not full
        labels = DATA.train.labels[:count]
        found.append(accuracy(net, job.pixels, labels) == accuracy(net, job.pixels, labels, ranks))
    return found


def main(folder: Path, ranks: Ranks) -> dict[str, object]:
    go(folder, "mixmatch", ranks)
    for name in ("plain-supervised", "plain-mixmatch"):
        go(folder, name, ranks, network=Plain)
        if ranks.first:
            go(folder, f"{name}-alone", ALONE, network=Plain)
    go(folder, "stopped", ranks, watch=StopsTheSecond(ranks.rank))
    stopped = Run(folder / "stopped").checkpoint_steps()
    go(folder, "stopped", ranks)
    calls = 0
    while ranks.from_first_rank(Run(folder / "late").status) != "done":
        go(folder, "late", ranks, oracle=Slow(ranks.rank))
        calls += 1
    return {
        "stopped": stopped,
        "calls": calls,
        "scored alike": scored_alike(Run(folder / "mixmatch"), ranks),
        "odd batch": refusal(folder, "odd", ranks),
        "held": refusal(folder, "held", ranks),
        "one process": refusal(folder, "one", ranks),
        "uneven": refusal(folder, "uneven", ranks, network=Uneven),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined() as ranks:
        found = main(Path(sys.argv[1]), ranks)
        (Path(sys.argv[1]) / f"{ranks.rank}.json").write_text(json.dumps(found))
