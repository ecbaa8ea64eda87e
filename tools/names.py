"""What names and other guesses are worth, measured: `python tools/names.py COMMAND ...`, rows go to results/names.

    cells POOLS OUT        accuracy with and without the names, at 0, 1, 2, 5 labels per class
    guessers POOLS OUT     the same with simulated guessers of 50 to 95 %, each with a favourite mistake per class
    page PHOTOS OUT        a scripted person at the real page: types the classes, confirms the groups by names

POOLS is a folder that tools/pools.py has filled. PHOTOS has a sub-folder for each class; the product never sees them. Rows that
are in OUT already are not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from person import Person, page_of, ready, wait_for

from mma.features import parse_backbone
from mma.features.names import first_guesses
from mma.features.table import unit
from mma.nets.head import PENALTIES, fit_logistic
from mma.project.simulate import link_photos, read_labeled
from mma.rng import rng
from mma.soft_targets import Guesses

LOOK, TAKE_OUT, ONE = (
    6.0,
    0.7,
    1.6,
)  # seconds of a person: to look over a grid, to take one photo out, to label a single one


POOL, TEST, DIRECTIONS = 1_200, 1_000, 256
WHERE = {
    "cifar10": "lite0",
    "cifar100": "lite0",
    "objects": "lite0",
    "signs": "hog",
    "digits": "hog",
}  # the better backbone
SPOKEN = {"digits": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]}
TWENTY = 20  # classes of CIFAR-100 at a time


def project_of(pools: Path, name: str, seed: int) -> dict[str, Any]:
    """Return a project: features of a part of the pool and of its test images, raw vectors, classes."""
    stored = np.load(pools / f"{name}.npz")
    classes = np.arange(len(stored["classes"]))
    if name == "cifar100":
        classes = np.sort(rng(seed, "classes").permutation(classes)[:TWENTY])
    rows, test = (
        np.sort(rng(seed, kind).permutation(np.flatnonzero(np.isin(stored[labels], classes)))[:many])
        for kind, labels, many in (("pool", "labels", POOL), ("test", "test_labels", TEST))
    )
    x, tx = (stored[f"{kind}{WHERE[name]}"][part].astype(np.float32) for kind, part in (("", rows), ("test_", test)))
    mean = x.mean(0)
    directions = np.linalg.svd(unit(x - mean)[:512], full_matrices=False)[2][:DIRECTIONS].T
    names = SPOKEN.get(name) or [str(each) for each in stored["classes"][classes]]
    y, ty = (np.searchsorted(classes, stored[of][part]) for of, part in (("labels", rows), ("test_labels", test)))
    project = {"names": names, "raw": stored["lite0"][rows], "raw_test": stored["test_lite0"][test], "y": y, "ty": ty}
    return project | {"x": unit(x - mean) @ directions, "tx": unit(tx - mean) @ directions}


def append(out: Path, key: dict[str, Any], measure: Callable[[], dict[str, float]]) -> None:
    """Measure a row and write it."""
    row = key | {name: round(float(value), 2) for name, value in measure().items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def missing(out: Path, keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that are not in the file yet."""
    known = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return [key for key in keys if not any(all(row[name] == value for name, value in key.items()) for row in known)]


def compare(project: dict[str, Any], source: np.ndarray, per_class: int, seed: int) -> dict[str, float]:
    """Return the accuracy of a logistic regression on labels alone, and of one that starts from guesses, too."""
    y, x, classes = project["y"], project["x"], len(project["names"])
    draw = rng(seed, "labels", per_class)
    labels = np.concatenate([draw.permutation(np.flatnonzero(y == k))[:per_class] for k in range(classes)])
    labels = draw.permutation(labels)
    alone = fit_logistic(x[labels], y[labels], classes, PENALTIES[0])
    begin = time.perf_counter()
    guided, trust = Guesses([source]).start(x, labels, y[labels], np.arange(len(x)))
    seconds = time.perf_counter() - begin
    if not trust:
        guided = alone
    right = [100 * np.mean((project["tx"] @ w.T + b).argmax(1) == project["ty"]) for w, b in (alone, guided)]
    return {"without": right[0], "with": right[1], "trust": trust, "seconds": seconds}


def cells(asked: argparse.Namespace) -> None:
    """Compare labels with labels and names."""
    backbone = parse_backbone("lite0")
    for seed, name in product(range(asked.seeds), WHERE):
        keys = [{"pool of": name, "seed": seed, "labels per class": many} for many in (0, 1, 2, 5)]
        if not (keys := missing(asked.out, keys)):
            continue
        project = project_of(asked.pools, name, seed)
        begin = time.perf_counter()
        guesses, of_test = first_guesses(backbone, project["names"], project["raw"], project["raw_test"])
        seconds = time.perf_counter() - begin
        for key in keys:
            pairs = ((guesses, project["y"]), (of_test, project["ty"]))
            right = [100 * np.mean(probs.argmax(1) == y) for probs, y in pairs]
            alone = {"pool": right[0], "with": right[1], "sure": 100 * guesses.max(1).mean(), "seconds": seconds}
            many = key["labels per class"]
            append(
                asked.out, key, partial(compare, project, guesses, many, seed) if many else lambda alone=alone: alone
            )


def guessers(asked: argparse.Namespace) -> None:
    """Compare labels with labels and a guesser that is right in some percent, and has a favourite mistake in each class."""
    for seed, name in product(range(asked.seeds), ("cifar10", "objects", "signs")):
        keys = [
            {"pool of": name, "seed": seed, "percent": percent, "labels per class": many}
            for percent, many in product((50, 60, 70, 80, 90, 95), (1, 2, 5, 10, 20))
        ]
        if not (keys := missing(asked.out, keys)):
            continue
        project = project_of(asked.pools, name, seed)
        y, classes = project["y"], len(project["names"])
        for key in keys:
            draw = rng(seed, "guesser", key["percent"])
            favourite = (np.arange(classes) + draw.integers(1, classes, classes)) % classes
            skill = np.clip(key["percent"] / 100 + draw.uniform(-0.15, 0.15, classes), 0.05, 0.99)  # some are easier
            other = np.where(draw.random(len(y)) < 0.8, favourite[y], draw.integers(0, classes, len(y)))
            source = np.eye(classes, dtype=np.float32)[np.where(draw.random(len(y)) < skill[y], y, other)]
            append(asked.out, key, partial(compare, project, source, key["labels per class"], seed))


def page(asked: argparse.Namespace) -> None:
    """Type the classes, confirm the groups by names, and wait for the first model."""
    photos = read_labeled(asked.photos)
    images = asked.out / "photos"
    link_photos(photos, sorted(photos.paths), images)
    truth = {f"{key[:24]}{path.suffix.lower()}": photos.classes[key] for key, path in photos.paths.items()}
    with page_of(images) as (tab, project):
        person = Person(tab, truth, photos.names, 0.0)
        tab.set_default_timeout(120_000)
        tab.wait_for_selector("#my-name, .sheet img")
        if tab.query_selector("#my-name"):  # where the system has no name for whoever runs this
            tab.keyboard.type("script")
            tab.keyboard.press("Enter")
        tab.wait_for_selector(".sheet img")
        begin = time.monotonic()
        person.name_classes()
        typed = time.monotonic()
        tab.wait_for_selector(".grid-view .tile img")
        shown = time.monotonic()
        tab.wait_for_timeout(700)
        tab.screenshot(path=asked.out / "first-grid.png")
        grids: list[dict[str, Any]] = []
        while len(grids) < asked.grids:
            grids.append(confirm(tab, truth))
            if len(grids) == asked.grids or ready(project, "live"):
                break
        wait_for(lambda: bool(ready(project, "live")), "a model")
        model = time.monotonic()
        labels = project.counts().labeled
        tab.evaluate("() => { location.hash = 'results'; }")
        tab.wait_for_selector(".cards")
        tab.wait_for_timeout(1500)
        tab.screenshot(path=asked.out / "results.png", full_page=True)
        row = {
            "classes": len(photos.names),
            "photos": len(photos.paths),
            "typing": typed - begin,
            "grid": shown - typed,
        }
        row |= {"keys": sum(each["keys"] for each in grids), "labels": labels, "model": model - typed, "grids": grids}
        row["looked_at"] = sum(each["shown"] for each in grids)
        row["names"] = [each.words for each in project.guesses.qualities(project.labels())]
    row = {name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()}
    (asked.out / "page.json").write_text(json.dumps(row, indent=1) + "\n")
    print(json.dumps(row, indent=1))


def confirm(tab: Any, truth: dict[str, str]) -> dict[str, Any]:
    """Take out what is wrong in a grid, and press Enter."""
    name = tab.text_content(".grid-title em")
    tiles = tab.eval_on_selector_all(".tile img", "nodes => nodes.map(each => each.alt)")
    keys = 0
    for place, file in enumerate(tiles):
        if truth[file] != name:
            tab.click(f"#tile-{place}")
            keys += 1
    tab.focus(".tiles")
    tab.keyboard.press("Enter")
    first = tiles[0] if tiles else ""
    tab.wait_for_function(
        "before => { const now = document.querySelector('.tile img'); return now && now.alt !== before; }", arg=first
    )
    return {"class": name, "shown": len(tiles), "wrong": keys, "keys": keys + 1}


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for do, seeds in ((cells, 12), (guessers, 4)):
        of_pools = commands.add_parser(do.__name__)
        of_pools.add_argument("pools", type=Path)
        of_pools.add_argument("out", type=Path)
        of_pools.add_argument("--seeds", type=int, default=seeds)
        of_pools.set_defaults(do=do)
    at_page = commands.add_parser("page")
    at_page.add_argument("photos", type=Path)
    at_page.add_argument("out", type=Path)
    at_page.add_argument("--grids", type=int, default=3)
    at_page.set_defaults(do=page)
    asked = parser.parse_args()
    asked.do(asked)


if __name__ == "__main__":
    main()
