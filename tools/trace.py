"""Prove that a change keeps the numbers: trace short runs of every preset before and after it, and compare.

    python tools/trace.py before                 in the old checkout
    python tools/trace.py after                  in the new one
    python tools/trace.py --compare before after

A trace is every loss and accuracy, every pick with its score, every label and purchase, and a hash of the last state. Runs are
cut short, but each asks, grows and ends. Presets whose data is not on this machine are left out and named. The photos are
those of docs/data.md, made ready by  mma data get folder --name signs ; features are stored beside them, and computed again
where their folder is removed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import mma
from mma.training import checkpoint

FEW = ("data.total=1000", "data.validation=200", "growth.first=2", "growth.every=1", "growth.final=2", "log.every=1")
PAPER = (*FEW, "growth.start=250", "growth.add=50", "growth.budget=350", "log.checkpoint=2")
WIDE = (*FEW, "growth.start=300", "growth.add=100", "growth.budget=500", "optim.batch=8", "log.checkpoint=2")
LAB = (
    "data.validation=500",
    "growth.first=20",
    "growth.every=5",
    "growth.final=20",
    "log.every=5",
    "log.checkpoint=10",
)
TINY = ("growth.first=60", "growth.every=20", "growth.final=60", "log.every=20")
MONEY = ("growth.policy.money=250", "growth.policy.label_price=5", "growth.policy.image_price=1", "growth.budget=120")
SIGNS = ("data.name=folder:signs",)
HEAD = (*SIGNS, "growth.budget=72", "growth.first=30", "growth.every=30", "growth.final=30", "log.every=10")
DEEP = ("growth.start=24", "growth.add=12", "growth.budget=48", *FEW[2:], "log.checkpoint=2")
COVERING = ("herding", "uherding", "typiclust", "badge", "cluster-margin", "diff2.aug-kmeans")
RAMPED = ("pi-model", "pseudo-label", "mean-teacher", "vat", "anchored-mixmatch")
CASES: dict[str, tuple[str, ...]] = {
    "digits": (),
    "digits passive": ("growth.policy=passive",),
    **{f"digits {q}": (f"query={q}", *TINY) for q in ("random", "max-infoD", "diff2-kmeans", "entropy.aug-kmeans")},
    **{f"digits {how}": (f"growth.start_set={how}", *TINY) for how in ("coverage", "proportional")},
    "digits refresh": ("growth.refresh_every=1", "growth.shrink=0.5", *TINY),
    "digits split": ("growth.policy=split", "growth.policy.initial_pool=200", "growth.policy.share=0.5", *MONEY, *TINY),
    "digits buyer": ("growth.policy=buyer", "growth.policy.initial_pool=200", *MONEY, *TINY),
    **{f"digits {name}": (f"algorithm={name}", *TINY) for name in ("supervised", "fixmatch", "freematch")},
    **{f"digits {name}": (f"algorithm={name}", "algorithm.ramp=30", *TINY) for name in RAMPED},
    "digits wrn": ("net=wrn", "net.filters=8", "net.blocks=1", *TINY),
    "digits muon": ("optim.rule=muon", "optim.warmup=10", "optim.decay=linear", "optim.unlabeled_ratio=2", *TINY),
    "digits bfloat16": ("optim.precision=bfloat16", *TINY),
    "fashion-mnist": ("data.total=3000", *LAB),
    "cifar10-lab": ("data.total=3000", *LAB),
    "cifar10-fast": ("data.total=3000", "optim.warmup=5", "algorithm.ramp=20", *LAB),
    "cifar10": PAPER,
    "cifar100": WIDE,
    "cifar100-grow100": (*WIDE, "net.filters=32"),
    "svhn": PAPER,
    "svhn-extra": (*PAPER, "data.name=svhn"),
    "photos": (*HEAD, "growth.budget=96"),
    "photos passive": (*HEAD, "growth.policy=passive"),
    **{f"photos {query}": (*HEAD, f"query={query}") for query in COVERING},
    "photos-deep": (*SIGNS, "data.total=600", "data.validation=100", "optim.warmup=2", "algorithm.ramp=4", *DEEP),
    "photos-scratch": (*SIGNS, "optim.warmup=5", "algorithm.ramp=20", *LAB),
}


def trace(case: str) -> dict[str, object]:
    """Train one case and return everything that its numbers are."""
    config = mma.change(mma.preset(case.split()[0]), CASES[case])
    with TemporaryDirectory() as place:
        run = mma.new_run(config, Path(place) / "run")
        mma.train(run, on=mma.Host(threads=1))
        _, arrays = checkpoint.read(run.checkpoint_path(run.checkpoint_steps()[-1]))
        state = hashlib.sha256()
        for name in sorted(arrays):
            state.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
        logs = {log: run.read(log) for log in ("metrics", "queries", "labels", "purchases")}
    return {**logs, "state": state.hexdigest()}


def write(out: Path, wanted: list[str]) -> None:
    """Trace the cases, one file each; those that are there are not made again."""
    out.mkdir(parents=True, exist_ok=True)
    for case in wanted or CASES:
        path = out / f"{case}.json"
        if path.exists():
            continue
        try:
            path.write_text(json.dumps(trace(case)))
            print(f"{case}: done", file=sys.stderr)
        except ValueError as error:
            print(f"{case}: left out: {error}", file=sys.stderr)


def compare(before: Path, after: Path) -> bool:
    """Print a row for each case; return whether all that were run on both sides are identical."""
    same = True
    for path in sorted(before.glob("*.json")):
        old = json.loads(path.read_text())
        verdict = "not run"
        if (after / path.name).exists():
            new = json.loads((after / path.name).read_text())
            changed = [key for key in old if old[key] != new.get(key)]
            same &= not changed
            verdict = "differs: " + ", ".join(changed) if changed else "identical"
        print(f"| {path.stem} | {verdict} | {len(old['metrics'])} |")
    return same


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="+", type=str)
    parser.add_argument("--compare", action="store_true")
    words = parser.parse_args()
    if words.compare:
        sys.exit(0 if compare(*map(Path, words.out)) else 1)
    write(Path(words.out[0]), words.out[1:])
