"""What do minutes buy, of a person and of a machine? Ways to a classifier of photos: `python tools/minutes.py COMMAND`.

    photos RAW OUT             a folder of CIFAR-10 photos, pool/ and test/, from the release in RAW (`mma data get cifar10`)
    run PHOTOS OUT [--names]   every way on PHOTOS: pool/ and test/, a sub-folder for each class, whose names mean something
    report OUT...              rows, figure and tables in results/minutes

The ways: scikit-learn's logistic regression on features of a frozen network, labels drawn at random; the same network
fine-tuned on labels drawn at random, a fifth of them held out, as tools for everybody do; `mma train photos`, which asks for
labels; `mma train photos-deep` on the labels that it asked for; and photos confirmed in grids by the names of the classes.
The quick ways come first, then training on pixels, a seed after the other. What is in OUT/rows.jsonl is not run again.
Processor time is counted, so other load does not matter much.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from mma.config import change
from mma.data.releases import CIFAR10, read_release
from mma.data.tables import render_csv
from mma.features import Features
from mma.features.backbone import Backbone
from mma.features.extract import compute_block
from mma.features.inputs import PhotoFiles
from mma.features.names import first_guesses
from mma.features.table import parse_backbone, unit
from mma.files import write_atomically
from mma.presets import preset
from mma.project.scan import look
from mma.rng import rng
from mma.run import Run
from mma.training.head import fit_head
from mma.views import FeatureViews, VectorViews
from mma.views.features import find_projection

RESULTS = Path(__file__).parents[1] / "results" / "minutes"
ROWS = "rows.jsonl"
PER_CLASS, DEEP = (1, 2, 5, 10, 25), (10, 25)  # labels per class; those that are enough for training on pixels
HELD_OUT = 0.2  # of a person's labels, by those who fine-tune
GRID = 24  # photos that are confirmed together
# Seconds of a person, assumed: to type the name of a class, to label one photo, to look over a grid, to take one photo out.
NAME, ONE, LOOK, TAKE_OUT = 3.0, 2.0, 6.0, 0.7
WAYS = {  # what the page says, colour, marker
    "scikit-learn": ("scikit-learn on features of a network, random labels", "#8a8f98", "v"),
    "scikit-learn, both": ("the same on these and HOG", "#4b4f57", "^"),
    "fine-tuning": ("fine-tuning, random labels, a fifth held out", "#c8862b", "s"),
    "mma": ("mma: asks for labels", "#2f6fde", "o"),
    "mma, then on pixels": ("mma, then on pixels", "#7a3fc4", "P"),
    "mma from names": ("mma: grids by names first", "#1f9d63", "D"),
}
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20)  # minutes
Ints = NDArray[np.int64]
Points = dict[tuple[str, str], list[dict[str, float]]]  # of a folder of photos and a way: means over seeds
MARK = "<!-- what follows is written by tools/minutes.py -->\n"


@dataclass(frozen=True)
class Folder:
    """Photos of known classes, and their plain features by both backbones."""

    root: Path
    classes: list[str]
    y: Ints
    truth: Ints
    features: dict[str, NDArray[np.float16]]
    tested: dict[str, NDArray[np.float16]]
    seconds: dict[str, float]  # of one processor, to compute the features of pool and test


def write_photos(raw: Path, out: Path, counts: tuple[int, int] = (250, 100)) -> None:
    """Write some images of CIFAR-10 as files."""
    for part, images, count in zip(("pool", "test"), read_release(CIFAR10, raw, accept=True), counts, strict=False):
        for number, name in enumerate(images.classes):
            (out / part / name).mkdir(parents=True)
            for row in np.flatnonzero(images.labels == number)[:count]:
                Image.fromarray(np.asarray(images.pixels[row])).save(out / part / name / f"{row:05d}.png")


def open_folder(root: Path, out: Path) -> Folder:
    """Read the photos' features, or compute them once and note the time."""
    stored, backbones = out / "features.npz", {name: parse_backbone(name) for name in ("lite0", "hog")}
    classes = sorted(path.name for path in (root / "pool").iterdir())
    if not stored.exists():
        arrays: dict[str, Any] = {}
        for part in ("pool", "test"):
            files = [
                (number, path) for number, name in enumerate(classes) for path in sorted((root / part / name).iterdir())
            ]
            names = [path.relative_to(root).as_posix() for _, path in files]
            keys = np.array([list(bytes.fromhex(fact.image)) for fact in look(root, names)], np.uint8)
            source, arrays[f"{part} y"] = PhotoFiles(root, names, keys), np.array([number for number, _ in files])
            for name, backbone in backbones.items():
                begin = time.process_time()
                arrays[f"{part} {name}"] = compute_block(source, backbone.resolve(), np.arange(len(names)), threads=1)[
                    :, 0
                ]
                arrays[f"{part} {name} seconds"] = time.process_time() - begin
        np.savez(stored, **arrays)
    with np.load(stored) as found:
        arrays = {key: found[key] for key in found.files}
    seconds = {name: float(arrays[f"pool {name} seconds"] + arrays[f"test {name} seconds"]) for name in backbones}
    features, tested = ({name: arrays[f"{part} {name}"] for name in backbones} for part in ("pool", "test"))
    return Folder(root, classes, arrays["pool y"], arrays["test y"], features, tested, seconds)


def percent(right: NDArray[np.bool_]) -> float:
    """Return the accuracy."""
    return round(100 * float(right.mean()), 2)


def by_scikit_learn(folder: Folder, seed: int, backbones: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Learn from labels drawn at random, on features of the network that everybody takes, or on several kinds side by side."""
    order = rng(seed, "random").permutation(len(folder.y))
    x, tested = (
        np.hstack([unit(part[name].astype(np.float32)) for name in backbones])
        for part in (folder.features, folder.tested)
    )
    for size in (each * len(folder.classes) for each in PER_CLASS):
        begin, rows = time.process_time(), order[:size]
        seen = folder.y[rows]
        model: Any = LogisticRegression(C=1_000.0, max_iter=1_000)  # the best of four where nothing can be left out
        if (folds := min(3, int(np.bincount(seen)[np.unique(seen)].min()))) > 1:
            model = GridSearchCV(model, {"C": [1.0, 10.0, 100.0, 1_000.0]}, cv=folds)
        answers = model.fit(x[rows], seen).predict(tested)
        machine = sum(folder.seconds[name] for name in backbones) + time.process_time() - begin
        yield {"labels": size, "person": size * ONE, "machine": machine, "accuracy": percent(answers == folder.truth)}


def mma(out: Path, *words: str) -> float:
    """Run a command and return its seconds of one processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"MMA_DATA": str(out / "cache"), "OMP_NUM_THREADS": "1"}
    with (out / "log.txt").open("a") as log:
        print("mma", *words, file=log, flush=True)
        command = [sys.executable, "-m", "mma", *words, "--threads", "1"]
        subprocess.run(command, check=True, stdout=log, stderr=log, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def photos_of(folder: Folder) -> list[str]:
    """Return the options that name the photos."""
    return ["--data", str(folder.root / "pool"), "--test", str(folder.root / "test")]


def settings(**given: Any) -> list[str]:
    """Return options that change settings; `growth__start` is growth.start."""
    return [word for name, value in given.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]


def last_accuracy(run: Path) -> float:
    """Return the accuracy of a run's last model."""
    return round(float(Run.open(run).read("metrics")[-1]["accuracy"]), 2)


def by_fine_tuning(folder: Folder, seed: int, size: int, out: Path) -> dict[str, Any]:
    """Fine-tune on labels drawn at random; what is held out would choose when to stop, and the schedule runs to its end."""
    learned, run = round(size * (1 - HELD_OUT)), out / f"tuned-{seed}-{size}"
    shutil.rmtree(run, ignore_errors=True)
    given = settings(seed=seed, algorithm="supervised", growth__start=learned, growth__budget=learned)
    given += settings(growth__start_set="uniform", log__every=1000)
    machine = mma(out, "train", "photos-deep", *photos_of(folder), *given, "--out", str(run))
    return {"labels": size, "person": size * ONE, "machine": machine, "accuracy": last_accuracy(run)}


def by_asking(folder: Folder, seed: int, out: Path) -> Iterator[dict[str, Any]]:
    """Ask on features, from 1 label per class to the most. The names of the classes are typed once.

    Each round begins anew with its labels, so the rounds of one run are the smaller sizes. The seconds of the whole run count
    for each of them (a few too many), and those of the features.
    """
    noted, largest = out / "features-seconds.json", PER_CLASS[-1] * len(folder.classes)
    if not noted.exists():  # once with features that nobody has computed yet
        noted.write_text(json.dumps(ask(folder, seed, largest, out)[1] - ask(folder, seed, largest, out)[1]))
    run, machine = ask(folder, seed, largest, out)
    machine += json.loads(noted.read_text())
    for row in Run.open(run).read("metrics"):
        labels, accuracy = row["labels"], round(float(row["accuracy"]), 2)
        person = NAME * len(folder.classes) + labels * ONE
        yield {"labels": labels, "person": person, "machine": machine, "accuracy": accuracy}


def ask(folder: Folder, seed: int, size: int, out: Path) -> tuple[Path, float]:
    """Run `mma train photos` to so many labels; return its folder, and its seconds."""
    run, sizes = (
        out / f"photos-{seed}-{size}",
        [labels for each in PER_CLASS if (labels := each * len(folder.classes)) <= size],
    )
    shutil.rmtree(run, ignore_errors=True)
    given = settings(seed=seed, growth__policy="sizes", growth__start=sizes[0], growth__budget=size)
    given += ["--set", f"growth.policy.labels={sizes}", "--out", str(run)]
    return run, mma(out, "train", "photos", *photos_of(folder), *given)


def on_pixels(folder: Folder, seed: int, size: int, out: Path) -> dict[str, Any]:
    """Go on with the labels that were asked for. The machine's seconds until then count, too."""
    asked = next(row for row in read(out / ROWS) if (row["way"], row["seed"], row["labels"]) == ("mma", seed, size))
    source, run = ask(folder, seed, size, out)[0], out / f"deep-{seed}-{size}"
    shutil.rmtree(run, ignore_errors=True)
    given = ["--labels-from", str(source), *settings(seed=seed, log__every=1000)]
    machine = mma(out, "train", "photos-deep", *photos_of(folder), *given, "--out", str(run))
    return asked | {"machine": asked["machine"] + machine, "accuracy": last_accuracy(run)}


def by_names(folder: Folder, seed: int) -> Iterator[dict[str, Any]]:
    """Confirm one grid for each class, the photos that its name fits best, and learn from those that were right."""
    backbone: Backbone = parse_backbone("lite0")
    begin, names = time.process_time(), NAME * len(folder.classes)
    rows = np.sort(
        rng(seed, "names").permutation(len(folder.y))[: round(0.8 * len(folder.y))]
    )  # a seed has a pool of its own
    x, tested = folder.features["lite0"][rows], folder.tested["lite0"]
    guesses, answers = first_guesses(backbone, folder.classes, x, tested)
    machine = sum(folder.seconds.values()) + time.process_time() - begin
    yield {"labels": 0, "person": names, "machine": machine, "accuracy": percent(answers.argmax(1) == folder.truth)}
    labels: dict[int, int] = {}
    person = names
    for number in range(len(folder.classes)):
        shown = [row for row in np.argsort(-guesses[:, number]) if int(row) not in labels][:GRID]
        right = [int(row) for row in shown if folder.y[rows[row]] == number]
        labels |= dict.fromkeys(right, number)
        person += LOOK + TAKE_OUT * (len(shown) - len(right))
    answer = head_on(folder, rows, labels, seed)
    machine += answer["seconds"]
    yield {"labels": len(labels), "person": person, "machine": machine, "accuracy": answer["accuracy"]}


def head_on(folder: Folder, rows: Ints, labels: dict[int, int], seed: int) -> dict[str, float]:
    """Fit the head of the preset `photos` and test it."""
    config = change(preset("photos"), ["views.crops=0", f"seed={seed}"])
    assert isinstance(config.views, FeatureViews)
    keys = [np.zeros((len(part), 32), np.uint8) for part in (rows, folder.truth)]
    begin = time.process_time()
    pool, test = (
        tuple(Features(part[name][chosen][:, None], np.arange(len(chosen)), key, name) for name in ("lite0", "hog"))
        for part, chosen, key in zip(
            (folder.features, folder.tested), (rows, np.arange(len(folder.truth))), keys, strict=True
        )
    )
    projections = tuple(find_projection(part, config.views.width) for part in pool)
    cpu = torch.device("cpu")
    seen, tested = (VectorViews(part, projections, cpu, config.views) for part in (pool, test))
    head = fit_head(seen, labels, len(folder.classes), config=config)
    answers = head.probabilities(tested, np.arange(len(folder.truth))).argmax(1)
    return {"accuracy": percent(answers == folder.truth), "seconds": time.process_time() - begin}


def run(root: Path, out: Path, seeds: int, names: bool) -> None:
    """Run what is missing; a way's rows of a seed are appended whole."""
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    folder = open_folder(root, out)

    def keep(way: str, seed: int, make: Callable[[], Iterable[dict[str, Any]]], size: int | None = None) -> None:
        if any((row["way"], row["seed"]) == (way, seed) and size in (None, row["labels"]) for row in read(out / ROWS)):
            return
        rows = [row | {"photos": out.name, "way": way, "seed": seed} for row in make()]
        with (out / ROWS).open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
        print(f"{out.name}, {way}, seed {seed}: {[row['accuracy'] for row in rows]}", flush=True)

    for seed in range(1, seeds + 1):
        keep("scikit-learn", seed, partial(by_scikit_learn, folder, seed, ("lite0",)))
        keep("scikit-learn, both", seed, partial(by_scikit_learn, folder, seed, ("lite0", "hog")))
        keep("mma", seed, partial(by_asking, folder, seed, out))
        if names:
            keep("mma from names", seed, partial(by_names, folder, seed))
    for size in (each * len(folder.classes) for each in DEEP):
        for seed in range(1, seeds + 1):
            for way, make in (("mma, then on pixels", on_pixels), ("fine-tuning", by_fine_tuning)):
                keep(way, seed, lambda make=make, seed=seed, size=size: [make(folder, seed, size, out)], size)


def read(path: Path) -> list[dict[str, Any]]:
    """Read the rows there are."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(folders: list[Path]) -> None:
    """Write rows, figure, and the tables at the end of the page."""
    rows = [row for folder in folders for row in read(folder / ROWS)]
    names = ["photos", "way", "seed", "labels", "person", "machine", "accuracy"]
    kinds = dict.fromkeys(row["photos"] for row in rows)
    rows.sort(
        key=lambda row: (list(kinds).index(row["photos"]), list(WAYS).index(row["way"]), row["seed"], row["labels"])
    )
    cells = [[round(v, 2) if isinstance(v := row[n], float) else v for n in names] for row in rows]
    RESULTS.mkdir(exist_ok=True)
    write_atomically(RESULTS / "rows.csv", render_csv([names, *cells]))
    points = {
        (kind, way): means([row for row in rows if (row["photos"], row["way"]) == (kind, way)])
        for kind in kinds
        for way in WAYS
    }
    page = RESULTS / "README.md"
    write_atomically(page, page.read_text("utf-8").split(MARK)[0] + MARK + "\n".join(tables(points)) + "\n")
    draw(points)


def tables(points: Points) -> Iterator[str]:
    """Write a table for each folder of photos."""
    for kind in dict.fromkeys(kind for kind, _ in points):
        yield f"\n## {kind}\n"
        yield "| way | labels | minutes of a person | of a core | accuracy, % | seeds |"
        yield "|---|---|---|---|---|---|"
        for way, (title, _, _) in WAYS.items():
            for point in points[kind, way]:
                spread = f" ± {point['spread']:.1f}" if point["seeds"] > 1 else ""
                yield (
                    f"| {title} | {point['labels']:.0f} | {point['person'] / 60:.1f} | {point['machine'] / 60:.1f} | "
                    f"{point['accuracy']:.1f}{spread} | {point['seeds']:.0f} |"
                )


def draw(points: Points) -> None:
    """Draw accuracy over minutes: a line of panels for each folder of photos."""
    kinds = list(dict.fromkeys(kind for kind, _ in points))
    figure, places = plt.subplots(len(kinds), 2, figsize=(10, 3.6 * len(kinds)), layout="constrained", squeeze=False)
    for line, kind in zip(places, kinds, strict=True):
        for axis, whose, name in zip(
            line, ("person", "machine"), ("of a person", "of one processor core"), strict=True
        ):
            for way, (title, colour, marker) in WAYS.items():
                if means_of := points[kind, way]:
                    minutes, heights = [p[whose] / 60 for p in means_of], [p["accuracy"] for p in means_of]
                    axis.plot(minutes, heights, color=colour, marker=marker, label=title, markersize=5)
            axis.set(xscale="log", xlabel=f"minutes {name}", ylabel="accuracy on other photos, %", title=kind)
            axis.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
            axis.set_xticks([], minor=True)
            axis.set_xlim(TICKS[0], TICKS[-1])
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    shown = {
        label: handle for axis in places[:, 0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    order = [title for title, _, _ in WAYS.values() if title in shown]
    figure.legend(
        [shown[title] for title in order], order, loc="outside lower center", ncols=2, fontsize=9, frameon=False
    )
    figure.savefig(RESULTS / "minutes.png", dpi=110)


def means(rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the mean over the seeds of each number of labels; what was confirmed in grids differs and is one point."""
    places = dict.fromkeys((row["seed"] for row in rows), 0)
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:  # the first of each seed belong together, the second, ...
        groups.setdefault(places[row["seed"]], []).append(row)
        places[row["seed"]] += 1
    found = []
    for group in groups.values():
        point = {
            name: float(np.mean([row[name] for row in group])) for name in ("labels", "person", "machine", "accuracy")
        }
        spread = float(np.std([row["accuracy"] for row in group], ddof=1)) if len(group) > 1 else 0.0
        found.append(point | {"spread": spread, "seeds": len(group)})
    return found


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing, running = commands.add_parser("photos"), commands.add_parser("run")
    for command in (writing, running):
        command.add_argument("source", type=Path)
        command.add_argument("out", type=Path)
    running.add_argument("--seeds", type=int, default=3)
    running.add_argument("--names", action="store_true", help="the names of the classes mean something to a reader")
    commands.add_parser("report").add_argument("folders", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "photos":
        write_photos(given.source, given.out)
    elif given.command == "run":
        run(given.source.resolve(), given.out.resolve(), given.seeds, given.names)
    else:
        report(given.folders)


if __name__ == "__main__":
    main()
