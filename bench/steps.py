"""How long a MixMatch step takes, in float32 and bfloat16, against plain PyTorch; compiled; and beside a busy program."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from bench.duel import QUIET, SPINNING, Contestant, alone_and_beside, take_turns
from bench.worker import CASES, CPU
from mma.training.step import has_bfloat16

TURNS = {"wrn-28-2": (8, 1), "wrn-10-1": (10, 3), "small-fashion": (10, 10), "small-digits": (10, 30)}  # rounds, steps
TARGETS = {"wrn-28-2": 0.70, "wrn-10-1": 0.50, "small-fashion": 0.50, "small-digits": 0.50}
# 1.5 times as fast as the original code, which took 0.91 and 0.84 of the reference's time.
HALF_TARGETS = {"wrn-28-2": 0.61, "wrn-10-1": 0.56}
EMULATED = "This processor has no bfloat16: it is emulated, and its rows say nothing about one that has it."
ORIGINAL = (
    "For comparison, measured elsewhere in one run with the reference (given figures, not part of this run): the original "
    "TensorFlow code, fed arrays, took 0.91 of the reference's time on WRN-28-2 and 0.84 on WRN-10-1."
)


def section(threads: int) -> str:
    """Return both tables."""
    return "\n".join(["## A training step", "", against_reference(threads), "", beside_a_busy_process()])


def against_reference(threads: int) -> str:
    """Ours against `bench/reference.py`, taking turns."""
    lines = [
        "Seconds per MixMatch step (K=2), medians; ratios are medians over pairs of neighbouring steps. The reference is "
        "plain channels-last PyTorch in float32 (`bench/reference.py`) with "
        f"torch's own {threads} threads, which spin while they wait. Ours is as `mma train` runs it: threads that fall asleep "
        "soon, and a single one for small networks. *Processor* is seconds of all threads together.",
        *([] if has_bfloat16(CPU) else ["", EMULATED]),
        "",
        "| network | | time | ratio | processor | ratio | target |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in TURNS:
        for line in step_rows(case):
            lines.append(line)
            print(line, flush=True)
    return "\n".join([*lines, "", ORIGINAL])


def step_rows(case: str) -> list[str]:
    """Measure the reference, and ours in both precisions; a line for each."""
    plain = Contestant("reference", case, SPINNING)
    mine, half = Contestant("ours", case, QUIET), Contestant("bfloat16", case, QUIET)
    take_turns([plain, mine, half], *TURNS[case])
    lines = [f"| {CASES[case].about} | reference | {plain.clock:.4f} | | {plain.processor:.4f} | | |"]
    for name, contestant, targets in (("float32", mine, TARGETS), (half_name(), half, HALF_TARGETS)):
        clock, processor = contestant.against(plain)
        target = f"{targets[case]:.2f}" if case in targets else ""
        lines.append(
            f"| | {name} | {contestant.clock:.4f} | **{clock:.2f}** | {contestant.processor:.4f} | {processor:.2f} | {target} |"
        )
    return lines


def half_name() -> str:
    """Name bfloat16 as this processor has it."""
    return "bfloat16" if has_bfloat16(CPU) else "bfloat16, emulated"


def compiled(threads: int, cases: Sequence[str] = ("wrn-10-1", "small-digits")) -> str:
    """`--compile` against ours as it is, its warm-up counted."""
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        return "`--compile` was not measured: there is no C++ compiler here, and torch.compile needs one."
    lines = [
        "## Compiled",
        "",
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
        for name, alone, beside in contest(case):
            lines.append(f"| {CASES[case].about} | {name} | {alone:.4f} | {beside:.4f} | {beside / alone:.1f} x |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def contest(case: str) -> list[tuple[str, float, float]]:
    """Return the clock seconds of a step of each: its name, alone, and beside another busy program."""
    three = {
        "float32": Contestant("ours", case, QUIET),
        half_name(): Contestant("bfloat16", case, QUIET),
        "reference": Contestant("reference", case, SPINNING),
    }
    alone, beside = alone_and_beside(list(three.values()), 4, 3)
    return [(name, before, after) for name, (before, _), (after, _) in zip(three, alone, beside, strict=True)]
