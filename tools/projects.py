"""Real projects on real photos, labeled by a script: is the shown accuracy true, which model serves, does a class goal steer?

    python tools/projects.py serve OUT ROWS.csv signs=DIR objects=DIR     # 100 labels, then a training on pixels
    python tools/projects.py steer OUT ROWS.csv signs=DIR objects=DIR     # 50 labels, then 100 with or without a class goal
    python tools/projects.py serve OUT ROWS.csv                           # nothing new: the table of what there is

A DIR has a sub-folder for each class. Each seed draws 600 photos for a folder whose file names say nothing. Project, index,
queue, worker and models are those that `mma start` uses, with the settings of a new project; only the page is left out. The
person answers 3 % wrong, and afresh when asked again. Other photos of DIR, 800 at most, tell the true accuracy. To see what a
class goal steers, pictures and picks are the project's, and the models logistic regressions, without an audit. Networks are
those of `photos-deep` or `photos-scratch`, whichever the project chooses, with a part of their steps. Rows that are there are
not made again; each is written as it ends.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import torch
from scipy.special import softmax

import mma
from mma.nets.head import fit_logistic
from mma.presets import preset
from mma.project import Answer, Project, create_project
from mma.project.models import PREDICTIONS
from mma.project.project import silent
from mma.project.quality.status import status
from mma.project.records import Klass, Labels, ProjectImage
from mma.project.simulate import HiddenPhotos, LabeledPhotos, finish, link_photos, read_labeled
from mma.project.worker.deep import suitable_config, train_deep
from mma.project.worker.features import HOST, Pool, TrainingSet, feature_views, photo_files
from mma.project.worker.picks import Question, choose_picks
from mma.project.worker.worker import EVERY, LiveWorker
from mma.rng import rng

SHOWN, HIDDEN, SLIPS = 600, 800, 0.03
LABELS = 100  # before the training on pixels
STEPS = {"photos-deep": 0.25, "photos-scratch": 0.5}  # of the steps that the preset has
RANDOM, PENALTY = 0.1, 1e-4  # share of random picks; of a logistic regression
FEWEST = 10  # photos of a class that tell its recall
STEERED, REFRESHED = (50, 150), 20  # labels when the goal is set, and at the end; labels between two models
PERSON, SECONDS = "person", 3.0
Row = dict[str, Any]


@dataclass(eq=False)
class Labeler:
    """A project on part of some photos, its worker, and the person who answers."""

    project: Project
    worker: LiveWorker
    photos: LabeledPhotos
    hidden: list[str]
    seed: int
    asked: int = 0

    def label(self, until: int, every: int) -> None:
        """Answer questions until there are so many labels; the worker has its turn after every few."""
        ids, trained = {each.name: each.id for each in self.project.classes()}, self.project.counts().labeled
        finish(self.worker)
        while (labeled := self.project.counts().labeled) < until:
            if labeled >= trained + every:
                trained = labeled
                finish(self.worker)
            image, self.asked = self.project.next(PERSON, 1)[0].image, self.asked + 1
            draw, name = rng(self.seed, "answer", image, self.asked), self.photos.classes[image]
            if draw.uniform() < SLIPS:
                others = [each for each in self.photos.names if each != name]
                name = others[int(draw.integers(len(others)))]
            given = UUID(bytes=draw.bytes(16), version=4)
            self.project.answer(
                Answer(id=given, images=[image], kind="label", class_id=ids[name], by=PERSON, seconds=SECONDS)
            )
        finish(self.worker)

    def outside(self) -> HiddenPhotos:
        """Return the photos that tell the truth."""
        assert self.worker.pool is not None
        return HiddenPhotos(self.photos, self.hidden, self.worker.pool)


def begin(photos: LabeledPhotos, place: Path, seed: int) -> Labeler:
    """Draw a folder and make a project for it, as `mma new` does."""
    order = [sorted(photos.paths)[row] for row in rng(seed, "real projects").permutation(len(photos.paths))]
    shutil.rmtree(place, ignore_errors=True)
    link_photos(photos, order[:SHOWN], place / "photos")
    project = create_project(place / "photos", classes=photos.names, seed=seed)
    project.index()
    torch.set_num_threads(1)
    worker = LiveWorker(project, deep=False, raises=True)
    return Labeler(project, worker, photos, order[SHOWN : SHOWN + HIDDEN], seed)


def serve(name: str, photos: LabeledPhotos, place: Path, seed: int) -> Iterator[Row]:
    """Yield what was shown and what was true after each live model, and last which of two models serves."""
    labeler = begin(photos, place, seed)
    labeler.label(LABELS, EVERY)
    project, worker, outside = labeler.project, labeler.worker, labeler.outside()
    for number in project.models.numbers("model.json"):
        report, true = project.models.report(number), outside.accuracy(project.models, number).accuracy
        row: Row = {"data": name, "seed": seed, "model": "live", "labels": report.labels, "audit": report.audit}
        if report.quality is not None:
            share = report.quality.accuracy
            row |= {"shown": 100 * share.value, "low": 100 * share.low, "high": 100 * share.high}
        yield row | {"true": true}
    live = project.models.latest_report("live")
    assert live is not None
    before = outside.accuracy(project.models, live.number).accuracy
    config = suitable_config(project)
    growth = {
        step: max(int(STEPS[config.preset] * getattr(config.growth, step)), 1) for step in ("first", "every", "final")
    }
    clock = time.monotonic()
    deep = train_deep(project, config=config.model_copy(update={"growth": config.growth.model_copy(update=growth)}))
    assert deep is not None
    seconds = time.monotonic() - clock
    model = mma.load(project.models.folder(deep.number))
    said = model.predict([photos.paths[key] for key in labeler.hidden]).probs.argmax(1)
    true = 100 * float(
        np.mean([model.classes[k] == photos.classes[key] for k, key in zip(said, labeler.hidden, strict=True)])
    )
    worker.answers, worker.done_seq = (
        project.models.answers(PREDICTIONS),
        -1,
    )  # as the worker does when a training ended
    finish(worker)
    now = status(project).report
    assert now is not None
    found = None if now.quality is None else now.quality.accuracy
    yield {
        "data": name, "seed": seed, "model": config.preset, "labels": deep.labels, "audit": deep.audit,
        "shown": "" if found is None else 100 * found.value, "low": "" if found is None else 100 * found.low,
        "high": "" if found is None else 100 * found.high, "true": before if now.serving.use == "live" else true,
        "true live": before, "true deep": true, "served": now.serving.use, "why": now.serving.why,
        "steps": deep.uses.rpartition(", ")[2].removesuffix(" steps"), "seconds": seconds,
    }  # fmt: skip
    project.close()


def steer(name: str, photos: LabeledPhotos, place: Path, seed: int) -> Iterator[Row]:
    """Yield the recall of the class that is found worst, where the goal is about it from 50 labels on, and where not."""
    order = [sorted(photos.paths)[row] for row in rng(seed, "real projects").permutation(len(photos.paths))]
    names, classes = photos.names, tuple(Klass(number, each) for number, each in enumerate(photos.names))
    files = {key: photos.paths[key].relative_to(photos.root).as_posix() for key in order}
    images = [ProjectImage(key, files[key], 0, 0, key, False) for key in order[: SHOWN + HIDDEN]]
    views = feature_views(preset("photos"))
    source = views.open_source(photo_files(photos.root, images[:SHOWN]), HOST, silent)
    pool = Pool(images[:SHOWN], source, {image.id: image for image in images})
    others = pool.views.of_source(photo_files(photos.root, images[SHOWN:]))
    x, hidden = pool.vectors(np.arange(SHOWN)).numpy(), others.where(np.arange(len(images) - SHOWN)).numpy()
    truth = np.array([names.index(photos.classes[image.id]) for image in images[SHOWN:]])
    told = [int((truth == k).sum()) >= FEWEST for k in range(len(names))]
    worst = -1
    for goal in (False, True):
        known: dict[str, int] = {}
        found: list[tuple[np.ndarray, float]] = []
        picks = [image.id for image in images[: STEERED[0]]]
        for turn in range((STEERED[1] - STEERED[0]) // REFRESHED + 1):
            for image in picks:
                draw, right = rng(seed, "answer", image), names.index(photos.classes[image])
                wrong = draw.uniform() < SLIPS
                known[image] = int((right + draw.integers(1, len(names))) % len(names)) if wrong else right
            rows, y = np.array([pool.row[image] for image in known]), np.array(list(known.values()))
            weight, bias = fit_logistic(x[rows], y, len(names), PENALTY)
            right = (hidden @ weight.T + bias).argmax(1) == truth
            recalls = [float(right[truth == k].mean()) if told[k] else np.nan for k in range(len(names))]
            found.append((np.array(recalls), 100 * float(right.mean())))
            worst = int(np.nanargmin(recalls)) if worst < 0 else worst
            count, ids = len(known), tuple(known)
            given = (ids, tuple(known.values()), ("query",) * count, (PERSON,) * count, tuple(range(count)))
            training = TrainingSet(Labels(count, *given, classes, (), ()), lambda image: False)
            probs = softmax(x @ weight.T + bias, axis=1).astype(np.float32)
            question = Question(pool, training, "auto", seed, turn, probs, RANDOM, worst if goal else None)
            picks = [pick.image for pick in choose_picks(question, REFRESHED).picks[:REFRESHED]]
        (first, accuracy), (last, after) = found[0], found[-1]
        yield {
            "data": name, "seed": seed, "class": names[worst], "goal": int(goal), "labels": len(known),
            "of the class": sum(klass == worst for klass in known.values()), "recall before": 100 * first[worst],
            "recall at 70": 100 * found[1][0][worst], "recall at 90": 100 * found[2][0][worst],
            "recall": 100 * last[worst], "accuracy before": accuracy, "accuracy": after,
        }  # fmt: skip


COLUMNS = {
    "serve": (
        "data", "seed", "model", "labels", "audit", "shown", "low", "high", "true",
        "true live", "true deep", "served", "steps", "seconds", "why",
    ),
    "steer": (
        "data", "seed", "class", "goal", "labels", "of the class", "recall before", "recall at 70", "recall at 90",
        "recall", "accuracy before", "accuracy",
    ),
}  # fmt: skip


def tables(what: str, rows: list[dict[str, str]]) -> list[str]:
    """Return the rows as Markdown, and what they come to."""
    if what == "serve":
        rows = [row for row in rows if row["model"] != "live"]
        names = ("data", "seed", "model", "steps", "audit", "true live", "true deep", "served")
        gains = [float(row["true deep"]) - float(row["true live"]) for row in rows]
        served = [row["served"] == "deep" for row in rows]
        better, right = (
            sum(gain > 0 for gain in gains),
            sum(s for s, gain in zip(served, gains, strict=True) if gain > 0),
        )
        wrong = [-gain for s, gain in zip(served, gains, strict=True) if s and gain < 0]
        words = f"Of {len(rows)} projects the network is better in {better}, and serves in {right} of these. It serves wrongly "
        words += f"in {len(wrong)}" + (
            f", where it is worse by {', '.join(f'{each:.1f}' for each in wrong)} points." if wrong else "."
        )
        inside = sum(float(row["low"]) <= float(row["true"]) <= float(row["high"]) for row in rows if row["shown"])
        words += f" The interval that is shown for what serves holds its true accuracy in {inside} of {len(rows)}."
    else:
        names = (
            "data",
            "seed",
            "class",
            "goal",
            "of the class",
            "recall before",
            "recall at 70",
            "recall at 90",
            "recall",
            "accuracy",
        )
        arms = [{(row["data"], row["seed"]): row for row in rows if row["goal"] == goal} for goal in "01"]
        both = sorted(arms[0].keys() & arms[1].keys())
        words = f"Means of {len(both)} pairs, without the goal and with it:"
        for name in ("of the class", *names[5:]):
            means = [np.mean([float(arm[key][name]) for key in both]) for arm in arms]
            words += f" {name} {means[0]:.1f} and {means[1]:.1f};"
        words = words.rstrip(";") + "."
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    return [*lines, *("| " + " | ".join(row[name] for name in names) + " |" for row in rows), "", words]


def main() -> None:
    """Make what is missing, one project after the other, the data sets in turn; then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=COLUMNS)
    parser.add_argument("out", type=Path, help="folder for the projects")
    parser.add_argument("rows", type=Path)
    parser.add_argument("photos", nargs="*", metavar="NAME=DIR")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    asked = parser.parse_args()
    folders = dict(each.split("=", 1) for each in asked.photos)
    rows = list(csv.DictReader(asked.rows.open(newline=""))) if asked.rows.exists() else []
    done = {(row["data"], int(row["seed"])) for row in rows}
    photos = {name: read_labeled(Path(folder)) for name, folder in folders.items()}
    for seed in range(asked.first, asked.first + asked.seeds):
        for name in folders:
            if (name, seed) in done:
                continue
            make = serve if asked.what == "serve" else steer
            found = list(make(name, photos[name], asked.out / f"{asked.what}-{name}-{seed}", seed))
            fresh = not asked.rows.exists()
            asked.rows.parent.mkdir(parents=True, exist_ok=True)
            with asked.rows.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS[asked.what], lineterminator="\n")
                if fresh:
                    writer.writeheader()
                for row in found:
                    writer.writerow(
                        {key: f"{value:.2f}" if isinstance(value, float) else value for key, value in row.items()}
                    )
            print(name, seed, "is done", file=sys.stderr, flush=True)
    print("\n".join(tables(asked.what, list(csv.DictReader(asked.rows.open(newline=""))))))


if __name__ == "__main__":
    main()
