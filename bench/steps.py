"""How long a MixMatch step takes, against plain PyTorch; compiled; and beside another busy program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence

from bench.duel import QUIET, SPINNING, Contestant, take_turns
from bench.worker import CASES

TURNS = {"wrn-28-2": (12, 1), "wrn-10-1": (10, 3), "small-fashion": (10, 10), "small-digits": (10, 30)}  # rounds, steps
TARGETS = {"wrn-28-2": 0.70, "wrn-10-1": 0.50, "small-fashion": 0.50, "small-digits": 0.50}


def section(threads: int) -> str:
    """Return the three tables."""
    return "\n".join(
        ["## A training step", "", against_reference(threads), "", compiled(), "", beside_a_busy_process()]
    )


def against_reference(threads: int) -> str:
    """Ours against `bench/reference.py`, taking turns."""
    lines = [
        "Seconds per MixMatch step (K=2), medians; ratios are medians over pairs of neighbouring steps. The reference is "
        "plain channels-last PyTorch (`bench/reference.py`) with "
        f"torch's own {threads} threads, which spin while they wait. Ours is as `mma train` runs it: threads that fall asleep "
        "soon, and a single one for small networks. *Processor* is seconds of all threads together.",
        "",
        "| network | reference | ours | ratio | processor: reference | ours | ratio | target |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, (rounds, steps) in TURNS.items():
        plain, mine = Contestant("reference", case, SPINNING), Contestant("ours", case, QUIET)
        take_turns([plain, mine], rounds, steps)
        clock, processor = mine.against(plain)
        lines.append(
            f"| {CASES[case].about} | {plain.clock:.4f} | {mine.clock:.4f} | **{clock:.2f}** | "
            f"{plain.processor:.4f} | {mine.processor:.4f} | {processor:.2f} | {TARGETS[case]:.2f} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def compiled(cases: Sequence[str] = ("wrn-10-1", "small-digits")) -> str:
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
        cold = {**QUIET, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        mine, other = Contestant("ours", case, QUIET), Contestant("compiled", case, cold)
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


def beside_a_busy_process(cases: Sequence[str] = ("small-fashion", "wrn-10-1")) -> str:
    """Ours and the reference, alone and beside a program that never rests."""
    lines = [
        "As above, alone and beside one busy process. What is fair: one of two cores is left, so twice as slow at most.",
        "",
        "| network | | alone | beside a busy process | slower by |",
        "|---|---|---|---|---|",
    ]
    for case in cases:
        alone, beside = contest(case, busy=False), contest(case, busy=True)
        for name in alone:
            ratio = beside[name] / alone[name]
            lines.append(f"| {CASES[case].about} | {name} | {alone[name]:.4f} | {beside[name]:.4f} | {ratio:.1f} x |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def contest(case: str, *, busy: bool) -> dict[str, float]:
    """Return the clock seconds of a step of both, with or without another busy program."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    try:
        pair = {"ours": Contestant("ours", case, QUIET), "reference": Contestant("reference", case, SPINNING)}
        take_turns(list(pair.values()), 4, 3)
        return {name: contestant.clock for name, contestant in pair.items()}
    finally:
        if other is not None:
            other.kill()
            other.wait()
