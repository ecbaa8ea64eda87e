"""Kill `mma start` again and again, soon after its start: no process of it is left five seconds later.

    python tests/project/orphans.py KILLS [PHOTOS] [SEED] [LATEST]

A third is killed at random, at most LATEST seconds after its start (5); a third up to a second after the page's address is printed,
and a third up to a second after a second process of it has appeared: a busy machine reaches either at its own pace. All processes of one
start are known by a variable in their environment. With more than 4,000 photos the index has processes of its own. What the starts
say is printed in the end, each line once.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

LEFT = 5.0  # seconds after the kill
PATIENCE = 120.0  # seconds until a start is killed that does not reach its moment
OPTIONS = ("--classes", "a,b", "--no-browser", "--port", "0")
MOMENTS = ("at random", "the address is printed", "a second process has appeared")
MARK = "MMA_ORPHANS"


def marked(value: str) -> list[int]:
    """Return the processes of one start."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            alive = "Z" not in (path / "stat").read_text().rpartition(")")[2].split()[0]
            if alive and f"{MARK}={value}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def wait_for(moment: str, server: subprocess.Popen[bytes], log: Path, value: str) -> bool:
    """Wait until a start has come so far; False if it takes too long."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and server.poll() is None:
        if b"http://" in log.read_bytes() if moment == MOMENTS[1] else len(marked(value)) > 1:
            return True
        time.sleep(0.02)
    return False


def photos(folder: Path, count: int) -> Path:
    """Write photos of noise."""
    folder.mkdir()
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def main() -> None:
    """Run it and print the outcome."""
    given = [*sys.argv[1:], *("100", "60", "0", "5")[len(sys.argv) - 1 :]]
    kills, count, seed, latest = (int(word) for word in given)
    draw, left, said, when = random.Random(seed), 0, Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        images = photos(Path(place) / "photos", count)
        for number in range(kills):
            if number % 10 == 0:
                shutil.rmtree(Path(place) / "photos.mma", ignore_errors=True)  # an index from the beginning, too
            value, log = f"{os.getpid()}-{number}", Path(place) / "log"
            command = [sys.executable, "-m", "mma", "start", str(images), *OPTIONS]
            with log.open("wb") as file:
                server = subprocess.Popen(command, stderr=file, env={**os.environ, MARK: value})
            begun, moment = time.monotonic(), MOMENTS[number % 3]
            reached = moment == MOMENTS[0] or wait_for(moment, server, log, value)
            time.sleep(draw.uniform(0, latest if moment == MOMENTS[0] else 1))
            after, had = time.monotonic() - begun, len(marked(value))
            os.kill(server.pid, signal.SIGKILL)
            server.wait()
            when[f"{moment if reached else 'after PATIENCE'}, {'alone' if had == 1 else f'{had} processes'}"] += 1
            time.sleep(LEFT if number % 2 == 0 else 0.1)  # every other one is followed at once by the next start
            said.update({re.sub(r"[\d,.]+", "N", line) for line in log.read_text().splitlines()})
            if number % 2 == 0 and (alive := marked(value)):
                left += 1
                print(f"kill {number}, {after:.2f} s after the start: {len(alive)} processes are left", flush=True)
                for pid in alive:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(LEFT)
        late = sum(bool(marked(f"{os.getpid()}-{number}")) for number in range(kills))
    print(f"{kills} kills: {left} starts left a process after {LEFT:.0f} s, {late} in the end")
    for line, times in [*sorted(when.items()), *said.most_common()]:
        print(f"{times:4} x  {line}")


if __name__ == "__main__":
    main()
