"""A pool of millions of images on disk: scored and selected from with bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from bench.duel import QUIET, ROOT, environment
from bench.machine import gigabytes
from mma.data import DataSet, Images
from mma.data.cache import open_saved, save
from mma.data.images import no_images
from mma.nets import Small
from mma.rng import rng

COUNT, SIDE, PICKS = 2_000_000, 16, 250
QUERY = "diff2-kmeans"  # it needs probabilities and embeddings
NAME = "pool"


def section(threads: int, count: int = COUNT) -> str:
    """Make the pool, look at it in a fresh process, and say what that took."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        make(Path(folder), count)
        made = time.perf_counter() - begin
        command = [sys.executable, "-m", "bench.pool", folder, str(threads)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(**QUIET), cwd=ROOT)
    print(answer.stdout.strip(), flush=True)
    return as_table(count, made, json.loads(answer.stdout))


def as_table(count: int, made: float, found: dict[str, float]) -> str:
    """Say what a process found that looked at a pool made in so many seconds."""
    size = count * SIDE * SIDE / 1e9
    return "\n".join(
        [
            "## A pool on disk",
            "",
            f"{count:,} images of {SIDE}x{SIDE} ({size:.2f} GB, memory-mapped from the cache; made and saved in {made:.0f} s), "
            f"scored by a small network ({found['width']} numbers per embedding) and {PICKS} chosen by `{QUERY}`, in a fresh "
            "process (target: below 4 GB).",
            "",
            "| | |",
            "|---|---|",
            f"| scoring | {found['scoring']:.0f} s, {count / found['scoring']:,.0f} images/s |",
            f"| selection | {found['selection']:.1f} s |",
            f"| peak memory of its own (anonymous) | **{found['anonymous']:.2f} GB** |",
            f"| of it scores and embeddings | {found['kept']:.2f} GB |",
            "| peak with pages of files (mapped images, libraries), which the system can take back | "
            f"{found['resident']:.2f} GB |",
        ]
    )


def make(folder: Path, count: int) -> None:
    """Write images a block at a time and save them as a data set, as `mma data get` would."""
    pixels = np.lib.format.open_memmap(folder / "raw.npy", "w+", np.uint8, (count, SIDE, SIDE, 1))
    for begin in range(0, count, 100_000):
        block = pixels[begin : begin + 100_000]
        block[:] = rng(1, "pool", begin).integers(0, 256, block.shape, dtype=np.uint8)
    pixels.flush()
    classes = tuple("abcdefghij")
    train = Images(pixels, np.full(count, -1, np.int64), classes)
    save(DataSet(NAME, train, no_images((SIDE, SIDE, 1), classes)), folder)
    (folder / "raw.npy").unlink()


class Peak(threading.Thread):
    """Watches how much memory of its own this process holds: the system remembers a peak only of all pages together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.anonymous = 0.0

    def run(self) -> None:
        while True:
            self.anonymous = max(self.anonymous, gigabytes("RssAnon"))
            time.sleep(0.02)


def looked_at(folder: Path, threads: int) -> dict[str, float]:
    """Score the pool and select from it: seconds of both, and how much is known of the images in between."""
    from mma.query import Query
    from mma.training.host import Host
    from mma.training.predict import candidates
    from mma.views import PixelViews, pixel_views

    device = Host(threads=threads).prepare()
    images = open_saved(NAME, folder).train
    net, query = Small(filters=8).build((SIDE, SIDE, 1), 10).eval(), Query.parse(QUERY)
    begin = time.perf_counter()
    seen = candidates(net, pixel_views(images, device, PixelViews(shift=1), 1), np.arange(len(images)), query, 1, 1)
    scored = time.perf_counter()
    query.select(seen, PICKS, rng(1, "select"))
    assert seen.probs is not None
    assert seen.features is not None
    return {
        "scoring": scored - begin,
        "selection": time.perf_counter() - scored,
        "width": seen.features.shape[1],
        "kept": (seen.probs.nbytes + seen.features.nbytes) / 1e9,
    }


def main() -> None:
    """Look at the pool in this process; print what it took as JSON."""
    peak = Peak()
    peak.start()
    found = looked_at(Path(sys.argv[1]), threads=int(sys.argv[2]))
    print(json.dumps({**found, "anonymous": peak.anonymous, "resident": gigabytes("VmHWM")}))


if __name__ == "__main__":
    main()
