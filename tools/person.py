"""A scripted person labels photos through the real page: `python tools/person.py PHOTOS OUT [--test PHOTOS]`.

PHOTOS has a sub-folder for each class. The tool never sees them: the photos are copied into one folder under names that say
nothing, and the person knows the class of each by its sha256. `mma start` serves the page, Chromium opens it, and the person
names the classes, answers with the keyboard until there are enough models, asks for a training on pixels, goes on labeling,
and waits until it ends. On a busy machine the person waits for models that are two rounds behind. OUT gets the photos, the
project, models.csv and screenshots.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import mma
from mma.project import ModelRow, Project, open_project
from mma.project.simulate import LabeledPhotos, link_photos, read_labeled
from mma.project.worker.worker import EVERY

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FEW = 10  # classes that have a key each
PATIENCE = 7_200  # seconds for a training on pixels on a busy machine


@dataclass
class Person:
    """Somebody at the page who knows the class of every photo."""

    page: Any
    truth: dict[str, str]  # name of the file -> class
    classes: list[str]
    pause: float
    labels: int = 0
    waits: list[float] = field(default_factory=list)  # seconds from a key to the next picture

    def name_classes(self) -> None:
        """Say who sits here, type the classes on the first sheet, and begin."""
        self.page.fill("#my-name", "Ada")
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector(".sheet img")
        for name in self.classes:
            self.page.keyboard.type(name)
            self.page.keyboard.press("Enter")
            self.page.wait_for_function(
                "name => [...document.querySelectorAll('.made .chip')].some(each => each.textContent === name)",
                arg=name,
            )
        self.page.click("button.start")

    def label(self) -> None:
        """Answer the picture on the screen, and wait for the next one."""
        name = self.page.wait_for_selector("img.picture").get_attribute("alt")
        self.page.wait_for_timeout(1000 * self.pause)
        begin = time.perf_counter()
        self.choose(self.truth[name])
        self.page.wait_for_function(
            "name => { const now = document.querySelector('img.picture'); return now && now.alt !== name; }", arg=name
        )
        self.waits.append(time.perf_counter() - begin)
        self.labels += 1

    def choose(self, name: str) -> None:
        """Press the key of a class; with many classes type its name, and go down to it."""
        if len(self.classes) <= FEW:
            self.page.keyboard.press("1234567890"[self.classes.index(name)])
            return
        self.page.keyboard.type(name)
        while self.page.text_content(".choice.highlighted bdi") != name:
            self.page.keyboard.press("ArrowDown")
        self.page.keyboard.press("Enter")

    def ask_for_deep(self) -> None:
        """Turn to the results, ask for a training on pixels, and come back."""
        self.page.evaluate("() => { location.hash = 'results'; }")
        self.page.click("text=Train deeper now")
        self.page.evaluate("() => { location.hash = 'label'; }")


def main() -> None:
    """Run it and say what there is at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--test", type=Path, help="other photos, in the same sub-folders, to measure every model on")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--models", type=int, default=5, help="live models there must be")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds that the person looks at a picture")
    wanted = parser.parse_args()
    photos = read_labeled(wanted.photos)
    images = wanted.out / "photos"
    link_photos(photos, sorted(photos.paths), images)
    with page_of(images) as (page, project):
        label_until_done(wanted, photos, page, project)
    write_models(project, wanted.out / "models.csv", wanted.test)
    project.close()


def label_until_done(wanted: argparse.Namespace, photos: LabeledPhotos, page: Any, project: Project) -> None:
    """Label, ask for a deep training, label on, and wait for its end."""
    truth = {f"{key[:24]}{path.suffix.lower()}": photos.classes[key] for key, path in photos.paths.items()}
    person = Person(page, truth, photos.names, wanted.pause)
    person.name_classes()
    page.evaluate("() => { location.hash = 'label'; }")
    while person.labels < wanted.labels or len(ready(project, "live")) < wanted.models:
        person.label()
        wait_for(lambda: len(ready(project, "live")) >= person.labels // EVERY - 2, "a model")  # on a busy machine
    talk(f"{person.labels} labels, {len(ready(project, 'live'))} live models")
    person.ask_for_deep()
    for _ in range(20):
        person.label()
    page.screenshot(path=wanted.out / "labeling.png")
    wait_for(lambda: bool(ready(project, "deep")), "the training on pixels")
    wait_for(
        lambda: ready(project, "live")[-1].number > ready(project, "deep")[0].number, "a choice between the models"
    )
    page.evaluate("() => { location.hash = 'results'; }")
    page.wait_for_selector(".cards")
    page.screenshot(path=wanted.out / "results.png", full_page=True)
    p50, p95 = np.percentile(person.waits, [50, 95])
    talk(f"{person.labels} labels; from key to next picture {1e3 * p50:.0f} ms (p95 {1e3 * p95:.0f} ms)")


def ready(project: Project, kind: str) -> list[ModelRow]:
    """Return the models of a kind that are trained."""
    return [row for row in project.models.rows() if row.kind == kind and row.state == "ready"]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait, however busy the machine is."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what} did not come")
        time.sleep(1)


@contextmanager
def page_of(images: Path) -> Iterator[tuple[Any, Project]]:
    """Start `mma start` and a browser at its page."""
    from playwright.sync_api import sync_playwright

    folder = images.with_name(f"{images.name}.mma")
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "mma", "start", str(images), "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, env=os.environ)
    door = folder / "state" / "open.html"
    wait_for(door.exists, "the page")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(300_000)
            page.goto(door.as_uri())
            yield page, open_project(folder)
            browser.close()
    finally:
        server.terminate()
        server.wait()


def write_models(project: Project, path: Path, test: Path | None) -> None:
    """Write one line for each model: labels, picks, and its accuracy on photos that the project never saw."""
    photos = None if test is None else read_labeled(test)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("model", "kind", "labels", "audit labels", "picks", "test accuracy"))
        for number in project.models.numbers():
            report, folder = project.models.report(number), project.models.folder(number)
            picks = folder / "picks.csv"
            count = len(picks.read_text("utf-8").splitlines()) - 1 if picks.exists() else 0
            accuracy = "" if photos is None else f"{accuracy_of(folder, photos):.1f}"
            table.writerow((report.number, report.kind, report.labels, report.audit, count, accuracy))
    print(path.read_text("utf-8"))


def accuracy_of(folder: Path, photos: LabeledPhotos) -> float:
    """Return how many percent of the photos a model gets right."""
    model = mma.load(folder)
    keys = sorted(photos.paths)
    said = model.predict([photos.paths[key] for key in keys]).probs.argmax(1)
    return 100 * float(np.mean([model.classes[k] == photos.classes[key] for k, key in zip(said, keys, strict=True)]))


def talk(words: str) -> None:
    """Say how it goes."""
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
