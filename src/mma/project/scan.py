"""Look at image files in parallel: sha256, size, perceptual hash, or the reason why a file cannot be used.

Processes that do nothing else import this file, and little with it.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mma.children import cores, end_after
from mma.data import photos
from mma.errors import UserError

FIRST, PART = 32, 512  # files per task, at least and at most: the first images are soon there
SHARES = 8  # tasks for each core, at least, so that all end at the same time
STORED = 1_024  # files from which on they are handed over: a large transaction costs less for each
LINGER = 0.2  # seconds to wait for so many
AHEAD = 4  # tasks under way for each core
MANY = 4_000  # files from which on processes pay: decoding small files holds the interpreter's lock
SIDE, KEPT = 32, 8  # of the picture that is hashed, and of its coarsest waves


class FileFacts(NamedTuple):
    """What one look at a file found. Without an image there is a reason."""

    path: str
    image: str | None
    width: int = 0
    height: int = 0
    phash: str = ""
    reason: str | None = None


def look(root: Path, names: Sequence[str]) -> list[FileFacts]:
    """Look at a few files, one after the other. `root` must be resolved."""
    pictures = np.zeros((len(names), SIDE, SIDE), np.float32)
    reader, found = _Reader(root), []
    for name, picture in zip(names, pictures, strict=True):
        try:
            data = reader.read(name)
            with photos.open_image(data, name) as image:
                small, (width, height) = photos.small_photo(image, SIDE)
                if min(width, height) < photos.SMALLEST:
                    raise UserError(
                        f"{width} x {height} pixels are too few: {photos.SMALLEST} x {photos.SMALLEST} are needed"
                    )
                small = small if small.size == (SIDE, SIDE) else small.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
                picture[:] = np.asarray(small)
            found.append(FileFacts(name, hashlib.sha256(data).hexdigest(), width, height))
        except Exception as error:  # decoders raise anything at all on broken bytes; one file must not stop the rest
            found.append(FileFacts(name, None, reason=photos.explain_bad_file(error)))
    hashes = perceptual_hashes(pictures)
    return [each._replace(phash=code) if each.image else each for each, code in zip(found, hashes, strict=True)]


class _Reader:
    """Reads files below a folder. Whether a sub-folder lies inside is looked at once for all of its files."""

    def __init__(self, root: Path) -> None:
        self.root, self.place = root, str(root)
        self.inside: set[str] = set()  # sub-folders that lie in the folder

    def read(self, name: str) -> bytes:
        path = os.path.join(self.place, name)
        if (folder := os.path.dirname(path)) not in self.inside:
            photos.check_inside(folder, self.root)
            self.inside.add(folder)
        if os.path.islink(path):
            return photos.read_file(Path(path), self.root)
        return photos.read_regular(path, getattr(os, "O_NOFOLLOW", 0))[0]


# The coarsest rows of the discrete cosine transform, without the factors that change no comparison. (KEPT, SIDE)
COSINES = np.cos(np.pi * np.arange(KEPT)[:, None] * (2 * np.arange(SIDE)[None, :] + 1) / (2 * SIDE))


def perceptual_hashes(pictures: NDArray[np.float32]) -> list[str]:
    """Hash grey pictures (N, 32, 32): which of the 64 coarsest waves are above their median. 16 digits each.

    As `phash` of the library ImageHash does it, for many pictures at once.
    """
    waves = np.round(COSINES @ pictures @ COSINES.T, 3).reshape(-1, KEPT * KEPT)  # rounded: a flat picture has no waves
    bits = waves > np.median(waves, axis=1, keepdims=True)
    return [code.tobytes().hex() for code in np.packbits(bits, axis=1)]


def scan(root: Path, names: Sequence[str]) -> Iterator[list[FileFacts]]:
    """Yield what is found of all files, some at a time, in order. Few tasks are under way, whatever the folder holds."""
    size = min(max(len(names) // (SHARES * cores()), FIRST), PART)
    parts = iter([names[:FIRST], *(names[start : start + size] for start in range(FIRST, len(names), size))])
    pool: Executor = ThreadPoolExecutor(cores())
    if len(names) >= MANY and cores() > 1:
        pool = ProcessPoolExecutor(cores(), get_context("spawn"), _be_quiet)
    with photos.quiet_decoders(), pool:
        try:
            running, most = deque(pool.submit(look, root, part) for part in islice(parts, AHEAD * cores())), FIRST
            while running:
                found, until = list[FileFacts](), time.monotonic() + LINGER
                while running and len(found) < most:
                    if found and not wait(list(running)[:1], max(until - time.monotonic(), 0.0)).done:
                        break
                    found += running.popleft().result()
                    running.extend(pool.submit(look, root, part) for part in islice(parts, 1))
                yield found
                most = STORED
        finally:
            pool.shutdown(cancel_futures=True)  # whoever stops early waits only for what has begun


def _be_quiet() -> None:
    """Silence the decoders for the life of a worker process, leave Ctrl-C to whoever started it, and end with them."""
    parent = parent_process()
    assert parent is not None
    end_after(parent.join)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    photos.quiet_decoders().__enter__()
