"""Features per second against the bare network, and the memory that a million rows take."""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from bench.duel import QUIET, ROOT, environment
from bench.machine import gigabytes
from bench.pool import Peak
from bench.timing import seconds
from mma.data.images import KEY_BYTES, pixel_keys
from mma.features import DEFAULT, ArrayImages, Backbone, ImageSource, PhotoFiles, features, parse_backbone
from mma.features.extract import BATCH
from mma.rng import rng

BACKBONE, IMAGES, ROUNDS, TARGET = DEFAULT, 512, 5, 0.9
PHOTO = 256  # pixels of a photo's side
MILLION, WIDTH = 1_000_000, 1280


def section(threads: int, images: int = IMAGES, rounds: int = ROUNDS, rows: int = MILLION) -> str:
    """Return both tables."""
    return "\n".join(["## Features", "", throughput(threads, images, rounds), "", memory(rows)])


def throughput(threads: int, images: int, rounds: int) -> str:
    """Photos and arrays, from the source to the disk, against the network alone on images that are ready; in turns."""
    lines = [
        f"`{parse_backbone(BACKBONE).resolve().label()}`, {images} images, {threads} cores, medians of {rounds} rounds. The "
        f"bare network has its images decoded in memory, and every core computes batches of {BATCH} of its own. The share is "
        "of processor seconds, which other programs on the machine do not change.",
        "",
        "| images | bare network | features | share | target |",
        "|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources(Path(folder), images).items():
            bare, ours, share = in_turns(source, threads, rounds)
            lines.append(
                f"| {name} | {images / bare:,.0f}/s | {images / ours:,.0f}/s | **{share:.2f}** | {TARGET:.2f} |"
            )
            print(lines[-1], flush=True)
    return "\n".join(lines)


def sources(folder: Path, count: int) -> dict[str, ImageSource]:
    """Return random images as an array, and smooth ones as JPEG files."""
    pixels = rng(1, "bench").integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    names, keys = [f"{number}.jpg" for number in range(count)], []
    for name, small in zip(names, pixels, strict=True):
        Image.fromarray(small[:8, :8]).resize((PHOTO, PHOTO), Image.Resampling.BICUBIC).save(folder / name, quality=90)
        keys.append(hashlib.sha256((folder / name).read_bytes()).digest())
    photos = PhotoFiles(folder.resolve(), names, np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY_BYTES))
    arrays = ArrayImages(pixels, pixel_keys(pixels))
    return {"arrays of 32 x 32": arrays, f"JPEG files of {PHOTO} x {PHOTO}": photos}


def in_turns(source: ImageSource, threads: int, rounds: int) -> tuple[float, float, float]:
    """Return median seconds of the bare network and of `features`, and the share; the first round warms up."""
    backbone = parse_backbone(BACKBONE).resolve()
    network, ready = backbone.load(), torch.from_numpy(source.decode(np.arange(len(source)), backbone.side))
    taken: list[tuple[float, float, float]] = []
    for _ in range(rounds + 1):
        bare, bare_processor = seconds(lambda: run_bare(network, ready, threads))
        with tempfile.TemporaryDirectory() as root:
            ours, processor = seconds(partial(features, source, backbone, threads=threads, root=Path(root)))
        taken.append((bare, ours, bare_processor / processor))
    bares, all_ours, shares = zip(*taken[1:], strict=True)
    return statistics.median(bares), statistics.median(all_ours), statistics.median(shares)


def run_bare(network: nn.Module, images: Tensor, threads: int) -> None:
    """Run the network alone, a batch per core."""

    @torch.inference_mode()
    def run(start: int) -> None:
        network(images[start : start + BATCH])

    with ThreadPoolExecutor(threads, "bare", torch.set_num_threads, (1,)) as pool:
        list(pool.map(run, range(0, len(images), BATCH)))


def memory(rows: int) -> str:
    """Store rows of a backbone that costs nothing, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.features", folder, str(rows)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(**QUIET), cwd=ROOT)
    found = json.loads(answer.stdout)
    size = rows * WIDTH * 2 / 1e9
    return (
        f"{rows:,} x {WIDTH} float16 ({size:.2f} GB) from a backbone that costs nothing: {found['seconds']:.0f} s, peak memory "
        f"of its own (anonymous) **{found['anonymous']:.2f} GB**, of which {found['keys']:.2f} GB are keys."
    )


class Numbers:
    """Images that are made when they are asked for."""

    content = "made"

    def __init__(self, count: int) -> None:
        hashes = b"".join(hashlib.sha256(number.to_bytes(8, "little")).digest() for number in range(count))
        self.keys: NDArray[np.uint8] = np.frombuffer(hashes, np.uint8).reshape(-1, KEY_BYTES)

    def __len__(self) -> int:
        return len(self.keys)

    def decode(self, rows: NDArray[np.int64], side: int) -> NDArray[np.uint8]:
        return np.broadcast_to(self.keys[rows, None, :side, None], (len(rows), side, side, 3)).copy()

    def take(self, rows: NDArray[np.int64]) -> ImageSource:
        raise NotImplementedError


class Repeat(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        flat = images.float().flatten(1)
        return flat.repeat(1, -(-WIDTH // flat.shape[1]))[:, :WIDTH]


class Free(Backbone):
    """A backbone that costs nothing."""

    name: Literal["free"] = "free"
    side: int = 8

    def load(self) -> nn.Module:
        return Repeat()


def main() -> None:
    """Fill a store in this process and print what it took as JSON."""
    source, peak = Numbers(int(sys.argv[2])), Peak()
    peak.start()
    took, _ = seconds(lambda: features(source, Free(), root=Path(sys.argv[1])).centring())
    print(
        json.dumps(
            {"seconds": took, "anonymous": max(peak.anonymous, gigabytes("RssAnon")), "keys": source.keys.nbytes / 1e9}
        )
    )


if __name__ == "__main__":
    main()
