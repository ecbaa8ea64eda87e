"""How long a query takes: scoring against the bare network, selection at sizes from 10,000 to a million, and beyond."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from bench.duel import ROOT, environment
from bench.machine import gigabytes
from bench.share import in_turns
from bench.steps import EMULATED, half_name
from bench.worker import CASES, CPU, Case, network, state_of
from mma.config import Optim
from mma.data import Images
from mma.experiments.report.figures import style
from mma.query import Candidates, Labeled, Query, names
from mma.rng import rng
from mma.training.host import Host, suitable_threads
from mma.training.predict import candidates
from mma.training.step import computing, has_bfloat16
from mma.views import PixelViews, Views, pixel_views
from mma.views.pixels import SCORED as BATCH

SIZES = (10_000, 100_000, 1_000_000)
PICKS, WIDTH, CLASSES, LABELED = 250, 384, 10, 250
HALF_PICKS = 100
# .aug changes what is scored, not what is selected; the other measures differ from diff2 in one pass over the probabilities.
ALIKE = ("max", "entropy")
STRATEGIES = [name for name in names() if ".aug" not in name and not name.startswith(ALIKE)]
PLOT = Path(__file__).with_name("queries.png")


def section(threads: int) -> str:
    """Return the tables and draw the plot."""
    return "\n".join(["## Queries", "", scoring(threads), "", scoring_in_halves(), "", selection()])


def scoring(threads: int) -> str:
    """Look at a pool as a run does, against forwards of one ready batch."""
    device = Host(threads=threads).prepare()
    lines = [
        f"Scoring a pool of images, against bare forwards of a ready batch of {BATCH}, with the threads a run takes "
        "(target: at least 0.9).",
        "",
        "| network | query | images/s | bare network, images/s | share |",
        "|---|---|---|---|---|",
    ]
    for case, count in (("wrn-10-1", 2_000), ("small-fashion", 10_000), ("small-digits", 40_000)):
        for line in scored(CASES[case], count, threads, device):
            lines.append(line)
            print(line, flush=True)
    return "\n".join(lines)


def noise_pool(case: Case, count: int, device: torch.device) -> Views:
    """Return images of noise in the shape that a network sees."""
    shape = (count, case.side, case.side, case.channels)
    pixels = rng(1, "pool").integers(0, 256, shape, dtype=np.uint8)
    images = Images(pixels, np.zeros(count, np.int64), tuple("abcdefghij"))
    return pixel_views(images, device, PixelViews(shift=2), 1)


def scored(case: Case, count: int, threads: int, device: torch.device) -> Iterator[str]:
    """Measure one network on a pool of noise: a line of the table for each query."""
    on, net, index = noise_pool(case, count, device), network(case).eval(), np.arange(count)
    working = min(threads, suitable_threads(net, on.plain(index[:1]), case.batch))  # as a run would
    torch.set_num_threads(working)
    ready = on.plain(index[:BATCH])
    for name in ("diff2-direct", "diff2.aug-kmeans"):
        query = Query.parse(name)
        forwards = (2 if query.aug else 1) + (query.aug and query.needs_features)
        looking = partial(candidates, net, on, index, query, 1, 1)
        whole, alone = in_turns([looking, partial(bare_forwards, net, ready, forwards * count // BATCH)], 3)
        yield (
            f"| {case.about} | {name} | {count / whole * working:,.0f} | {count / alone * working:,.0f} | "
            f"**{alone / whole:.2f}** |"
        )


def scoring_in_halves() -> str:
    """Score a pool in float32 and in bfloat16, and see whether the same images would be asked about."""
    lines = [
        f"The same in {half_name()}: images per second of one core, one thread; `diff2-direct`, networks of random weights. "
        f"*Same picks*: of the {HALF_PICKS} chosen in float32, those that bfloat16 chooses too.",
        *([] if has_bfloat16(CPU) else ["", EMULATED]),
        "",
        "| network | float32 | bfloat16 | faster by | same picks |",
        "|---|---|---|---|---|",
    ]
    torch.set_num_threads(1)
    for name, count in (("wrn-28-2", 500), ("wrn-10-1", 2_000), ("small-fashion", 4_000)):
        lines.append(halves(CASES[name], count))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def halves(case: Case, count: int) -> str:
    """Measure one network on a pool of noise in both precisions."""
    on, net, query = noise_pool(case, count, CPU), state_of(case).teacher.eval(), Query.parse("diff2-direct")
    picks: dict[str, set[int]] = {}

    def look(precision: Literal["float32", "bfloat16"]) -> None:
        with computing(Optim(precision=precision), CPU):
            found = candidates(net, on, np.arange(count), query, 1, 1)
        picks[precision] = set(query.select(found, HALF_PICKS, rng(1, "select")).tolist())

    whole, half = in_turns([partial(look, "float32"), partial(look, "bfloat16")], 3)
    same = len(picks["float32"] & picks["bfloat16"])
    return f"| {case.about} | {count / whole:,.0f} | {count / half:,.0f} | **{whole / half:.2f}** | {same} |"


@torch.inference_mode()
def bare_forwards(net: torch.nn.Module, ready: torch.Tensor, times: int) -> None:
    """Forward one ready batch so often, and do nothing else."""
    for _ in range(times):
        net(ready)


def selection() -> str:
    """Select at every size, each in a process of its own, and see how the cost grows."""
    found = {size: measured(size) for size in SIZES}
    seconds = {name: np.array([found[size]["seconds"][name] for size in SIZES]) for name in STRATEGIES}
    draw(seconds)
    lines = [
        f"Choosing {PICKS} of N images with embeddings of {WIDTH} numbers, {LABELED} others labeled, one thread, processor "
        "seconds, checks of the input included (target: 20 s and 3 GB at 1,000,000). `max` and `entropy` cost what `diff2` "
        "does. *Peak* is resident memory with the data "
        f"themselves ({1e6 * 4 * (WIDTH + CLASSES) / 1e9:.2f} GB at a million).",
        "",
        "| query | " + " | ".join(f"{size:,}" for size in SIZES) + " | fit per million | at 100 million |",
        "|---" * (len(SIZES) + 3) + "|",
    ]
    for name, taken in seconds.items():
        slope = float((taken * SIZES).sum() / np.square(SIZES).sum())  # through the origin: the large ones decide
        cells = " | ".join(f"{value:.3f}" for value in taken)
        lines.append(f"| {name} | {cells} | {1e6 * slope:.2f} s | {1e8 * slope / 60:.1f} min |")
    peaks = " | ".join(f"{found[size]['gigabytes']:.2f} GB" for size in SIZES)
    lines += [f"| peak | {peaks} | | |", "", growth(seconds), "", "![cost of a query](queries.png)", "", PEERS]
    return "\n".join(lines)


def growth(seconds: dict[str, np.ndarray]) -> str:
    """Say how the cost grows and what that means for a hundred million."""
    exponents = [np.polyfit(np.log(SIZES), np.log(taken), 1)[0] for taken in seconds.values()]
    data = 1e8 * 4 * (WIDTH + CLASSES) / 1e9
    return (
        f"Between {SIZES[0]:,} and {SIZES[-1]:,} the cost grows as N to the power {min(exponents):.2f} to "
        f"{max(exponents):.2f} (1 is linear). At 100 million: 100 times the fit per million, and 10^8 x ({WIDTH} + "
        f"{CLASSES}) x 4 bytes = {data:.0f} GB of scores and embeddings, which must then be memory-mapped arrays; "
        "selection reads them in blocks and keeps a few numbers per image."
    )


PEERS = (
    "For comparison, measured elsewhere on a like machine, 250 of 50,000 x 128 (given figures, not part of this run): "
    "the original implementation's entropy 11.9 s and k-means 0.64 s; scikit-activeml TypiClust 13.5 s, Badge 26.3 s, "
    "CoreSet 2.7 s."
)


def measured(size: int) -> dict[str, Any]:
    """Run this file on one size in a fresh process."""
    command = [sys.executable, "-m", "bench.queries", str(size)]
    answer = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment(OMP_NUM_THREADS="1"), cwd=ROOT
    )
    print(size, answer.stdout.strip(), flush=True)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def draw(seconds: dict[str, np.ndarray]) -> None:
    """Draw the cost over the size, both logarithmic, with a line of slope one to compare with."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, taken in seconds.items():
        look = style(name)
        axes.loglog(SIZES, taken, linestyle=look.line, label=name, markersize=4, **look.marks())
    axes.loglog(SIZES, 1e-6 * np.array(SIZES), "k--", linewidth=0.8, label="1 s per million")
    axes.plot([1_000_000], [20], "kv", label="target")
    axes.set(xlabel="images in the pool", ylabel="processor seconds", title=f"Choosing {PICKS} of N images, one thread")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=2)
    figure.savefig(PLOT, dpi=110, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    """Select at one size with every strategy; print seconds and peak memory as JSON."""
    size = int(sys.argv[1])
    random = rng(1, "queries", size)
    probs = random.random((size, CLASSES), dtype=np.float32) ** 4
    probs /= probs.sum(axis=1, keepdims=True)
    features = random.standard_normal((size, WIDTH), dtype=np.float32)
    centres = 2 * random.standard_normal((40, WIDTH), dtype=np.float32)
    for row in range(0, size, 10_000):
        features[row : row + 10_000] += centres[random.integers(0, 40, len(features[row : row + 10_000]))]
    from sklearn.cluster import KMeans  # noqa: F401 (its import is paid once, and is no cost of a query)

    labeled = Labeled(features[:LABELED].copy(), random.integers(0, CLASSES, LABELED))
    seconds = {}
    for name in STRATEGIES:
        begin = time.process_time()
        Query.parse(name).select(Candidates(np.arange(size), probs, features), PICKS, rng(1, "select"), labeled)
        seconds[name] = time.process_time() - begin
    print(json.dumps({"seconds": seconds, "gigabytes": gigabytes("VmHWM")}))


if __name__ == "__main__":
    main()
