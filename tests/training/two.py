"""Run by test_ranks.py under torchrun: two processes do together, one after the other, what the tests look at.

    torchrun --nproc-per-node 2 two.py FOLDER

FOLDER holds runs by name. What each process found goes to FOLDER/RANK.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

from mma.data import load_data
from mma.extensions import use
from mma.query import Query
from mma.run import Run, Watch
from mma.training.ask import DatasetLabels
from mma.training.host import Host
from mma.training.job import load_read_only
from mma.training.loop import train
from mma.training.predict import accuracy, candidates
from mma.training.processes import Group, OtherProcessFailed, alone, joined

DATA = load_data("digits")
use(str(Path(__file__).with_name("own_nets.py")))


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


def go(folder: Path, name: str, **options) -> Run:
    run, oracle = Run.open(folder / name), options.pop("oracle", DatasetLabels(DATA.train))
    train(run, oracle, on=Host(threads=1), data=DATA, **options)
    return run


def refusal(folder: Path, name: str, **options) -> list[str]:
    """Train what cannot be trained; return how this process ended and what it said."""
    try:
        go(folder, name, **options)
    except ValueError as error:
        return ["elsewhere" if isinstance(error, OtherProcessFailed) else "said", str(error)]
    return ["trained", ""]


def scored_alike(run: Run, group: Group) -> list[bool]:
    """Return for several queries, and for the test set, whether sharing the work changes any bit."""
    job, found = load_read_only(run, DATA), []
    for name in ("diff2.aug-kmeans", "max-infoD", "entropy-direct", "herding"):
        query, net = Query.parse(name), job.state.teacher
        shared = candidates(net, job.views, job.pool, query, 1, 2)
        with alone():
            whole = candidates(net, job.views, job.pool, query, 1, 2)
        if not group.first:
            found.append(shared.probs is None and shared.features is None)
            continue
        found.append(np.array_equal(whole.probs, shared.probs))
        found.append(not query.needs_features or np.array_equal(whole.features, shared.features))
    for count in (3, 499, 500, 501, 1297):  # fewer batches than processes, and a last one that is not full
        labels = DATA.train.labels[:count]
        shared = accuracy(net, job.views, labels)
        with alone():
            found.append(accuracy(net, job.views, labels) == shared)
    return found


def main(folder: Path, group: Group) -> dict[str, object]:
    go(folder, "mixmatch")
    for name in ("plain-supervised", "plain-mixmatch"):
        go(folder, name)
        if group.first:
            with alone():
                go(folder, f"{name}-alone")
    go(folder, "stopped", watch=StopsTheSecond(group.rank))
    stopped = Run(folder / "stopped").checkpoint_steps()
    go(folder, "stopped")
    calls = 0
    while group.from_first(Run(folder / "late").status) != "done":
        go(folder, "late", oracle=Slow(group.rank))
        calls += 1
    return {
        "stopped": stopped,
        "calls": calls,
        "scored alike": scored_alike(Run(folder / "mixmatch"), group),
        "odd batch": refusal(folder, "odd"),
        "held": refusal(folder, "held"),
        "one process": refusal(folder, "one"),
        "uneven": refusal(folder, "uneven"),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined() as group:
        found = main(Path(sys.argv[1]), group)
        (Path(sys.argv[1]) / f"{group.rank}.json").write_text(json.dumps(found))
