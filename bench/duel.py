"""Contestants that take turns: each is a process that sleeps while another one is measured."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "3000"}  # as the `mma` command sets it
SPINNING: dict[str, str] = {}  # torch as it comes
WARM = 2  # steps that are not counted
Medians = tuple[float, float]


def environment(**extra: str) -> dict[str, str]:
    """This process's environment with the repository's own modules first, and no setting that would tie threads."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "MALLOC_", "MKL_"))}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**kept, "PYTHONPATH": path, **extra}


@dataclass
class Contestant:
    """A worker process and everything it has answered."""

    who: str
    case: str
    extra: Mapping[str, str]
    threads: int = 0  # 0 = as many as it would take by itself
    module: str = "bench.worker"  # what runs in the process
    taken: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", self.module, self.who, self.case, str(self.threads)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment(**self.extra), cwd=ROOT
        )

    def run(self, steps: int) -> list[tuple[float, float]]:
        """Take `steps` steps and return (clock, processor) seconds of each, without remembering them."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(steps, file=self.process.stdin, flush=True)
        return [(clock, processor) for clock, processor in json.loads(self.process.stdout.readline())]

    @property
    def clock(self) -> float:
        """Median clock seconds of a step."""
        return statistics.median(clock for clock, _ in self.taken)

    @property
    def processor(self) -> float:
        """Median processor seconds of a step."""
        return statistics.median(processor for _, processor in self.taken)

    def against(self, other: Contestant) -> tuple[float, float]:
        """Return the medians, over steps and their neighbours in time, of our share of the other's (clock, processor)."""
        pairs = list(zip(self.taken, other.taken, strict=True))
        clock, processor = (statistics.median(mine[i] / theirs[i] for mine, theirs in pairs) for i in (0, 1))
        return clock, processor

    def close(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def busy_neighbour() -> Iterator[None]:
    """Let a program that never rests run beside what is measured."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def take_turns(contestants: Sequence[Contestant], rounds: int, steps: int) -> None:
    """Measure all of them in the same minutes: whatever disturbs the machine disturbs all. Then let them end."""
    _take_turns(contestants, rounds, steps)
    for contestant in contestants:
        contestant.close()


def alone_and_beside(contestants: Sequence[Contestant], rounds: int, steps: int) -> tuple[list[Medians], list[Medians]]:
    """Measure all of them in turns, alone and then beside a busy program: (clock, processor) of each. Then let them end."""
    _take_turns(contestants, rounds, steps)
    alone = [(contestant.clock, contestant.processor) for contestant in contestants]
    for contestant in contestants:
        contestant.taken.clear()
    with busy_neighbour():
        take_turns(contestants, rounds, steps)
    return alone, [(contestant.clock, contestant.processor) for contestant in contestants]


def _take_turns(contestants: Sequence[Contestant], rounds: int, steps: int) -> None:
    for contestant in contestants:
        contestant.run(WARM)
    for _ in range(rounds):
        for contestant in contestants:
            contestant.taken += contestant.run(steps)
