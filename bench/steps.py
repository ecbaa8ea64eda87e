"""How long a MixMatch step takes, against plain PyTorch; compiled; and beside another busy program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from bench.duel import PASSIVE, Contestant, take_turns
from bench.worker import CASES

TURNS = {"wrn-28-2": (5, 1), "wrn-10-1": (6, 3), "small-fashion": (6, 10), "small-digits": (6, 30)}  # rounds, steps
TARGETS = {"wrn-28-2": 0.70, "wrn-10-1": 0.50, "small-fashion": 0.50, "small-digits": 0.50}


def section(threads: int) -> str:
    """Return the three tables."""
    return "\n".join(
        ["## A training step", "", against_reference(threads), "", compiled(threads), "", beside_a_busy_process()]
    )


def against_reference(threads: int) -> str:
    """Ours against `bench/reference.py`, taking turns."""
    lines = [
        "Seconds per MixMatch step (K=2), medians. The reference is plain channels-last PyTorch (`bench/reference.py`); both "
        f"have {threads} threads and the same wait policy. *Processor* is seconds of all threads together, which other "
        "programs on the machine disturb less.",
        "",
        "| network | reference | ours | ratio | processor: reference | ours | ratio | target |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, (rounds, steps) in TURNS.items():
        plain, mine = (Contestant(who, case, threads) for who in ("reference", "ours"))
        take_turns([plain, mine], rounds, steps)
        lines.append(
            f"| {CASES[case].about} | {plain.clock:.4f} | {mine.clock:.4f} | **{mine.clock / plain.clock:.2f}** | "
            f"{plain.processor:.4f} | {mine.processor:.4f} | {mine.processor / plain.processor:.2f} | {TARGETS[case]:.2f} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def compiled(threads: int, cases: Sequence[str] = ("wrn-10-1", "small-digits")) -> str:
    """`--compile` against ours as it is, its warm-up counted."""
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        return "`--compile` was not measured: there is no C++ compiler here, and torch.compile needs one."
    lines = [
        "`mma train --compile` (torch.compile), its first two steps counted apart; a cold cache.",
        "",
        "| network | ours | compiled | ratio | first two steps, compiled | steps until it pays |",
        "|---|---|---|---|---|---|",
    ]
    for case in cases:
        cold = {**PASSIVE, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        mine, other = Contestant("ours", case, threads), Contestant("compiled", case, threads, cold)
        warm_up = sum(clock for clock, _ in other.run(2))
        take_turns([mine, other], *TURNS[case])
        gain = mine.clock - other.clock
        pays = f"{warm_up / gain:,.0f}" if gain > 0 else "never"
        lines.append(
            f"| {CASES[case].about} | {mine.clock:.4f} | {other.clock:.4f} | {other.clock / mine.clock:.2f} | "
            f"{warm_up:.0f} s | {pays} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def beside_a_busy_process(case: str = "small-fashion") -> str:
    """Two threads beside one program that never rests, with threads that sleep while they wait and with ones that spin."""
    threads = os.cpu_count() or 1
    policies = {"sleep (`OMP_WAIT_POLICY=PASSIVE`, what `mma` sets)": PASSIVE, "spin (OpenMP's default)": {}}
    lines = [
        f"{CASES[case].about}, {threads} threads, beside one busy process; waiting threads either sleep or spin.",
        "",
        "| waiting threads | alone | beside a busy process | slower by |",
        "|---|---|---|---|",
    ]
    found = {}
    for busy in (False, True):
        others = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
        try:
            pair = [Contestant("ours", case, threads, extra) for extra in policies.values()]
            take_turns(pair, 4, 4)
            found[busy] = [contestant.clock for contestant in pair]
        finally:
            if others is not None:
                others.kill()
                others.wait()
    for name, alone, beside in zip(policies, found[False], found[True], strict=True):
        lines.append(f"| {name} | {alone:.4f} | {beside:.4f} | {beside / alone:.1f} x |")
        print(lines[-1], flush=True)
    return "\n".join(lines)
