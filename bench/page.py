"""The labeling page: from a key press to the next image on the screen, alone and while a training computes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench.duel import ROOT, environment
from mma.project import create_project

IMAGES, SIDE = 400, 1_024
LABELS, ROUNDS = 30, 2
TARGET = 100.0  # milliseconds that a person does not notice
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SERVER = """
import sys
from mma.project import open_project
from mma.web import serve
serve(open_project(sys.argv[1]), port=0, browser=False, by="bench")
"""
BUSY = """
import os
import numpy as np
os.nice(10)
a = np.ones((512, 512), np.float32)
while True:
    a = np.tanh(a @ a)
"""
# The time of the key press is the event's own. An image counts as shown in the frame after the one that paints it.
WATCH = """() => {
  window.times = [];
  let pressed = null;
  addEventListener("keydown", (event) => { pressed = event.timeStamp; }, true);
  new MutationObserver(() => requestAnimationFrame(() => requestAnimationFrame((now) => {
    if (pressed !== null) window.times.push(now - pressed);
    pressed = null;
  }))).observe(document.querySelector(".stage"), { childList: true });
}"""


def section(threads: int, images: int = IMAGES, labels: int = LABELS, rounds: int = ROUNDS) -> str:
    """Return the table, or why there is none."""
    title = "## The labeling page"
    if CHROMIUM is None:
        return f"{title}\n\nNot measured: it takes chromium (apt-get install chromium)."
    with tempfile.TemporaryDirectory() as folder, page_of(Path(folder), images) as page:
        alone, busy = measure(page, labels, rounds, threads)
    return f"{title}\n\n{as_table(alone, busy, images)}"


def measure(page: Any, labels: int, rounds: int, threads: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each label, alone and beside processes that compute; in turns."""
    alone: list[float] = []
    busy: list[float] = []
    label(page, 5)  # the first ones warm up
    for _ in range(rounds):
        alone += label(page, labels)
        with computing(threads):
            busy += label(page, labels)
    return alone, busy


def label(page: Any, count: int) -> list[float]:
    """Press a key for each image, two a second at most, and return what the page measured."""
    page.evaluate("() => { window.times = []; }")
    for number in range(count):
        page.keyboard.press(str(number % 2 + 1))
        page.wait_for_function("count => window.times.length === count", arg=number + 1)
        page.wait_for_timeout(200)
    found: list[float] = page.evaluate("() => window.times")
    return found


@contextmanager
def computing(threads: int) -> Iterator[None]:
    """Keep every core busy at low priority, as training does."""
    workers = [
        subprocess.Popen([sys.executable, "-c", BUSY], env=environment(OMP_NUM_THREADS="1")) for _ in range(threads)
    ]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@contextmanager
def page_of(folder: Path, images: int) -> Iterator[Any]:
    """Serve a project of photos and open its page."""
    from playwright.sync_api import sync_playwright

    make_photos(folder / "photos", images)
    project = create_project(folder / "photos", classes=["one", "other"])
    project.index()
    command = [sys.executable, "-c", SERVER, str(project.folder)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(), cwd=ROOT)
    assert server.stderr is not None
    server.stderr.readline()
    address = (project.layout.state / "open.html").as_uri()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(address)
            page.wait_for_selector("img.picture")
            page.evaluate(WATCH)
            yield page
            browser.close()
    finally:
        server.terminate()
        server.wait()
        project.close()


def make_photos(folder: Path, images: int) -> None:
    """Write JPEG photos that differ."""
    folder.mkdir(parents=True)
    for number in range(images):
        coarse = np.random.default_rng(number).integers(0, 256, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(
            folder / f"{number:04d}.jpg", quality=90
        )


def as_table(alone: list[float], busy: list[float], images: int) -> str:
    """Say what was measured."""
    lines = [
        f"From a key press to the next image on the screen, {len(alone)} labels each on {images} photos of {SIDE}x{SIDE}, in "
        f"chromium without a screen (a frame takes 17 ms). Beside it means: a process at nice 10 on every core. Target: below "
        f"{TARGET:.0f} ms at the 95th percentile.",
        "",
        "| | p50 | p95 |",
        "|---|---|---|",
    ]
    rows = {"alone": np.percentile(alone, [50, 95]), "beside training": np.percentile(busy, [50, 95])}
    lines += [f"| {name} | {p50:.0f} ms | **{p95:.0f} ms** |" for name, (p50, p95) in rows.items()]
    ratio = rows["beside training"] / rows["alone"]
    lines.append(f"| ratio | {ratio[0]:.2f} | {ratio[1]:.2f} |")
    return "\n".join(lines)
