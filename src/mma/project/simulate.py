"""Would this have helped me? The same project code on photos that are labeled already, with a scripted person and no page.

Each seed is two projects on the same photos: one asks, one takes them in random order. A part of the photos is hidden
from both; on these the true accuracy is measured. Where answers are wrong on purpose, the person then looks at the labels
that the review doubts, and the next model tells what that brought.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import numpy as np
import torch

from mma.children import cores
from mma.data.photos import FORMATS, quiet_decoders
from mma.errors import UserError
from mma.experiments.report.statistics import interval
from mma.files import explain_write_errors, sync_folder, write_atomically
from mma.project import Answer, create_project
from mma.project.models import Models
from mma.project.project import Project, silent
from mma.project.quality.status import status
from mma.project.records import ProjectImage
from mma.project.review import find_wrong_labels, label_margins, out_of_sample
from mma.project.worker.features import Parts, Pool, live_config, photo_files, usable_key
from mma.project.worker.live_model import read_head
from mma.project.worker.worker import LiveWorker
from mma.rng import rng
from mma.shares import Share
from mma.text import printable, render_template

HELD = 0.3  # share of the photos that the projects never see
LEAST = 20  # labels
PLAN = "plan.json"  # the file by which a folder of simulated projects is recognized
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
PERSON = "person"
SECONDS = 3.0  # that the scripted person takes for a label


@dataclass(frozen=True)
class Plan:
    """What is simulated."""

    budget: int = 400
    noise: float = 0.0  # share of wrong answers
    every: int = 25  # labels between two trainings
    audit_asked: float = 0.1


@dataclass(frozen=True)
class TruePoint:
    """The true accuracy, in percent, of the model with so many answers, audit ones included."""

    answers: int
    accuracy: float


@dataclass(frozen=True)
class Cleaned:
    """Wrong labels that the review found, and the true accuracy in percent before and after they were corrected."""

    labels: int  # trained with
    wrong: int  # of these
    suspects: int  # labels that the review names
    found: int  # wrong ones among them
    found_by_margin: int  # wrong ones among as many labels with the lowest margin
    before: float
    after: float  # suspects corrected
    ceiling: float  # every wrong label corrected


@dataclass(frozen=True)
class SimulatedProject:
    """What one scripted project came to."""

    seed: int
    asks: bool
    points: tuple[TruePoint, ...]
    audit: Share | None  # what the project itself says at the end
    wrong: int  # answers that were wrong on purpose
    helping: str
    stop: str | None
    cleaned: Cleaned | None = None  # what the review brought, where answers were wrong

    @property
    def inside(self) -> bool | None:
        """Whether the audit's interval holds the true accuracy; None without an audit."""
        return None if self.audit is None else self.audit.low <= self.points[-1].accuracy / 100 <= self.audit.high

    @property
    def words(self) -> str:
        """How it ended, in one line."""
        audit, last = "no audit", self.points[-1]
        if (found := self.audit) is not None:
            verdict = "inside" if self.inside else "OUTSIDE"
            band = f"{100 * found.low:.1f}-{100 * found.high:.1f}, {found.of} labels"
            audit = f"audit {100 * found.value:.1f} % ({band}): {verdict}"
        way = "asking" if self.asks else "random order"
        words = f"seed {self.seed}, {way}: {last.answers} labels, truly {last.accuracy:.1f} %; {audit}"
        if (review := self.cleaned) is None:
            return words
        return (
            f"{words}; {review.found} of {review.wrong} wrong labels among {review.suspects} suspects "
            f"({review.found_by_margin} by margin), accuracy {review.before:.1f} -> {review.after:.1f} % (all right: "
            f"{review.ceiling:.1f})"
        )


@dataclass(frozen=True)
class LabeledPhotos:
    """Photos by content, and the class of each."""

    root: Path
    paths: dict[str, Path]  # sha256 -> file
    classes: dict[str, str]

    @property
    def names(self) -> list[str]:
        """The classes, sorted."""
        return sorted(set(self.classes.values()))


def read_labeled(folder: Path) -> LabeledPhotos:
    """Read a folder with a sub-folder for each class. Of equal photos the first counts; what cannot be read is left out."""
    shown, root = printable(str(folder)), folder.resolve()
    if not folder.is_dir():
        raise UserError(f"there is no folder {shown}. Give photos that are labeled:  mma simulate FOLDER")
    names = [
        path.relative_to(root).as_posix()
        for path in sorted(root.rglob("*"))
        if path.suffix.lower() in SUFFIXES and path.parent != root and path.is_file()
    ]
    paths, classes = dict[str, Path](), dict[str, str]()
    with quiet_decoders(), ThreadPoolExecutor(cores()) as pool:
        for name, key in zip(names, pool.map(lambda name: usable_key(root, name), names), strict=True):
            if key is not None:
                paths.setdefault(key, root / name)
                classes.setdefault(key, name.partition("/")[0])
    if len(set(classes.values())) < 2:
        raise UserError(
            f"{shown} holds no labeled photos: it takes a sub-folder for each of two classes or more, with "
            f"photos in it ({', '.join(FORMATS)}). There are {len(names):,} files with such names, and {len(paths):,} "
            "different photos that can be read and do not link out of the folder."
        )
    return LabeledPhotos(root, paths, classes)


def simulate(
    folder: Path,
    place: Path,
    *,
    plan: Plan = Plan(),
    seeds: Sequence[int] = (1,),
    control: bool = True,
    say: Callable[[str], None] = silent,
) -> Iterator[SimulatedProject]:
    """Run scripted projects below `place`: two for each seed, or one without the control. Each is yielded as it ends."""
    photos = read_labeled(folder)
    check_plan(photos, plan)
    open_place(place, folder, plan)
    for seed in seeds:
        shown, hidden = split(photos, seed)
        images = place / f"photos-{seed}"
        link_photos(photos, shown, images)
        for asks in (True, False) if control else (True,):
            one = simulate_project(photos, hidden, images, plan, seed=seed, asks=asks)
            say(one.words)
            yield one


def check_plan(photos: LabeledPhotos, plan: Plan) -> None:
    """Refuse what cannot be simulated."""
    have = int(len(photos.paths) * (1 - HELD))
    if have < LEAST:
        raise UserError(
            f"{printable(str(photos.root))} holds {len(photos.paths):,} different photos, too few: {LEAST} are labeled at "
            f"least, and {HELD:.0%} are kept to measure on."
        )
    if plan.budget > have:
        raise UserError(
            f"--budget {plan.budget} is more than the {have:,} photos to label: {HELD:.0%} of {len(photos.paths):,} are kept "
            f"to measure on. Use --budget {have} or less."
        )
    if not 0 <= plan.noise < 1:
        raise UserError(f"--noise {plan.noise:g} must be a share of wrong answers: 0 or more, and less than 1.")


def open_place(place: Path, folder: Path, plan: Plan) -> None:
    """Make the folder for the projects. An earlier simulation there is replaced; anything else is refused."""
    shown, there, photos = printable(str(place)), place.resolve(), folder.resolve()
    if there.is_relative_to(photos) or photos.is_relative_to(there):
        why = f"--out {shown} and the photos lie in each other, and photos are never changed."
        raise UserError(f"{why} Choose another --out.")
    if place.exists() and not (place / PLAN).is_file() and (not place.is_dir() or any(place.iterdir())):
        raise UserError(f"--out {shown} holds something else than a simulation. Choose another --out.")
    with explain_write_errors(place, "the same command"):
        place.mkdir(parents=True, exist_ok=True)
        write_atomically(place / PLAN, json.dumps({"photos": folder.name, **asdict(plan)}, indent=1) + "\n")


def split(photos: LabeledPhotos, seed: int) -> tuple[list[str], list[str]]:
    """Return the photos that the projects see, and those that are hidden."""
    keys = sorted(photos.paths)
    order = [keys[i] for i in rng(seed, "simulate", "held out").permutation(len(keys))]
    held = round(HELD * len(keys))
    return order[held:], order[:held]


def link_photos(photos: LabeledPhotos, keys: Sequence[str], images: Path) -> None:
    """Put photos into one flat folder under names that say nothing: the tool must not see the classes."""
    shutil.rmtree(images, ignore_errors=True)
    images.mkdir(parents=True)
    for key in keys:
        target = images / f"{key[:24]}{photos.paths[key].suffix.lower()}"
        try:
            os.link(photos.paths[key], target)
        except OSError:  # another disk, or links are not allowed
            shutil.copyfile(photos.paths[key], target)
    sync_folder(images)


def simulate_project(
    photos: LabeledPhotos, hidden: Sequence[str], images: Path, plan: Plan, *, seed: int, asks: bool
) -> SimulatedProject:
    """Run one project to its budget and measure its models; where answers were wrong, find and correct them."""
    folder = images.with_name(f"{images.name}-{'asking' if asks else 'random'}.mma")
    shutil.rmtree(folder, ignore_errors=True)
    project = create_project(images, folder, classes=photos.names, budget=plan.budget, seed=seed)
    project.index()
    project.rules = project.rules._replace(audit_asked=plan.audit_asked, again_share=0.0)
    torch.set_num_threads(1)
    worker = LiveWorker(project, deep=False, every=plan.every, asks=asks, raises=True)
    person = ScriptedPerson(project, photos, plan.noise, seed)
    finish(worker)
    for count in range(1, plan.budget + 1):
        person.label_next()
        if count % plan.every == 0 or count == plan.budget:
            finish(worker)
    assert worker.pool is not None
    outside = HiddenPhotos(photos, hidden, worker.pool)
    report, stop = project.models.latest_report(), status(project).stop
    quality = report.quality if report else None
    points = tuple(outside.accuracy(project.models, number) for number in project.models.numbers("model.json"))
    audit, helping = quality.accuracy if quality else None, report.helping.answer if report else ""
    wrong, cleaned = person.wrong, clean(worker, person, outside) if plan.noise else None
    project.close()
    return SimulatedProject(seed, asks, points, audit, wrong, helping, stop.rule if stop else None, cleaned)


def finish(worker: LiveWorker) -> None:
    """Let the worker do all that is due."""
    worker.rest()
    while worker.step():
        pass


class ScriptedPerson:
    """Answers with the true class, and sometimes with another one: always the same answer for the same photo."""

    def __init__(self, project: Project, photos: LabeledPhotos, noise: float, seed: int) -> None:
        self.project, self.photos, self.noise, self.seed = project, photos, noise, seed
        self.ids = {each.name: each.id for each in project.classes()}
        self.wrong = 0

    def label_next(self) -> None:
        """Answer one question."""
        item = self.project.next(PERSON, 1)[0]
        self._label(item.image, self.answer_to(item.image), "label")

    def look_again(self, images: Iterable[str]) -> None:
        """Look at labels in the review: keep those that are right, and correct the others."""
        for image in sorted(images):
            self._label(image, self.ids[self.photos.classes[image]], "review")

    def _label(self, image: str, class_id: int, source: Literal["label", "review"]) -> None:
        draw = rng(self.seed, "answer", image, "id" if source == "label" else source).bytes(16)
        about: dict[str, Any] = {"class_id": class_id, "by": PERSON, "seconds": SECONDS, "source": source}
        self.project.answer(Answer(id=UUID(bytes=draw, version=4), images=[image], kind="label", **about))

    def answer_to(self, image: str) -> int:
        """Return the class that this person says."""
        draw = rng(self.seed, "answer", image)
        true = self.photos.classes[image]
        if draw.uniform() >= self.noise:
            return self.ids[true]
        self.wrong += 1
        others = [name for name in self.photos.names if name != true]
        return self.ids[others[int(draw.integers(len(others)))]]


@dataclass(frozen=True, eq=False)
class HiddenPhotos:
    """Labeled photos that a project never sees, with the features that its models look at."""

    photos: LabeledPhotos
    keys: Sequence[str]
    pool: Pool

    @cached_property
    def parts(self) -> Parts:
        """Their vectors, of each joined backbone."""
        names = {key: self.photos.paths[key].relative_to(self.photos.root).as_posix() for key in self.keys}
        images = [ProjectImage(key, names[key], 0, 0, key, False) for key in self.keys]
        views = self.pool.views.of_source(photo_files(self.photos.root, images))
        return [part.take(np.arange(len(images))) for part in views.parts]

    def accuracy(self, models: Models, number: int) -> TruePoint:
        """Measure one live model."""
        report = models.report(number)
        truth = np.array([report.classes.index(self.photos.classes[key]) for key in self.keys])
        said = read_head(models.folder(number)).probabilities(self.parts).argmax(1)
        return TruePoint(report.labels, 100 * float((said == truth).mean()))


def clean(worker: LiveWorker, person: ScriptedPerson, hidden: HiddenPhotos) -> Cleaned:
    """Correct the suspects of the review and train, then every other wrong label and train again."""
    training = worker.training_set()
    right = {name: place for place, name in enumerate(training.names)}
    wrong = {image for image, label in training.train.items() if label != right[person.photos.classes[image]]}
    images = [image for image in training.train if image in hidden.pool.row]
    labels, probs = out_of_sample(hidden.pool, training, images, live_config(worker.project))
    suspects = {images[suspect.row] for suspect in find_wrong_labels(labels, probs)}
    by_margin = {images[row] for row in np.argsort(label_margins(labels, probs), kind="stable")[: len(suspects)]}

    def accuracy() -> float:
        report = worker.project.models.latest_report("live")
        assert report is not None
        return hidden.accuracy(worker.project.models, report.number).accuracy

    accuracies = [accuracy()]
    for part in (suspects, wrong - suspects):
        person.look_again(part)
        finish(worker)
        accuracies.append(accuracy())
    return Cleaned(
        len(training.train), len(wrong), len(suspects), len(wrong & suspects), len(wrong & by_margin), *accuracies
    )


# What all of them came to: a table of asking against random order, and how often the audit was right.


def summarise(projects: Sequence[SimulatedProject]) -> dict[str, Any]:
    """Compare asking with random order seed by seed, and add up what audits and reviews came to.

    `rows` are means in percent after so many answers, with the paired difference in points and its 95 % interval; `inside`
    counts the audits whose interval holds the true accuracy.
    """
    audits = [one.inside for one in projects if one.inside is not None]
    true = {(point.answers, one.asks, one.seed): point.accuracy for one in projects for point in one.points}
    asked = sorted({one.seed for one in projects if one.asks})
    rows = []
    for answers in sorted({count for count, asks, _ in true if asks}):
        if any((answers, True, seed) not in true for seed in asked):
            continue  # a mean takes a model of every seed
        both = [seed for seed in asked if (answers, False, seed) in true]
        others = [true[answers, False, seed] for seed in both]
        gaps = [true[answers, True, seed] - other for seed, other in zip(both, others, strict=True)]
        asking, random = (
            float(np.mean(part)) for part in ([true[answers, True, seed] for seed in asked], others or [0.0])
        )
        row = {"answers": answers, "asking": asking, "random": random if both else None}
        rows.append({**row, **_mean_interval("difference", gaps)})
    cleaned, cleaning = [asdict(one.cleaned) for one in projects if one.cleaned is not None], None
    if cleaned:
        columns = {name: [one[name] for one in cleaned] for name in cleaned[0]}
        sums = {name: sum(column) for name, column in columns.items() if isinstance(column[0], int)}
        means = {name: float(np.mean(column)) for name, column in columns.items() if name not in sums}
        gain = [one["after"] - one["before"] for one in cleaned]
        cleaning = {**sums, **means, **_mean_interval("gain", gain)}
    return {
        "rows": rows,
        "projects": len(projects),
        "inside": sum(audits),
        "audited": len(audits),
        "cleaning": cleaning,
    }


def _mean_interval(name: str, differences: Sequence[float]) -> dict[str, float | None]:
    low, high = interval(np.array(differences)) if len(differences) > 1 else (None, None)
    return {name: float(np.mean(differences)) if len(differences) else None, "low": low, "high": high}


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Return in one sentence whether asking would have helped."""
    compared = [row for row in rows if row["random"] is not None]
    if not compared:
        return "There was nothing to compare with."
    last = compared[-1]
    answers, after = last["answers"], f"{last['difference']:+.1f} points after {last['answers']} answers."
    if last["low"] is not None and last["low"] > 0:
        enough = next((row["answers"] for row in compared if row["asking"] >= last["random"]), answers)
        saved = f" It reaches with {enough} answers what random order reaches with {answers}."
        return f"Asking would have helped: {after}{saved if enough < answers else ''}"
    if last["high"] is not None and last["high"] < 0:
        return f"Asking would have been worse: {after}"
    return f"No difference is shown after {answers} answers ({last['difference']:+.1f} points)."


def result_page(folder: Path, plan: Plan, projects: Sequence[SimulatedProject]) -> str:
    """Return the result as Markdown."""
    summary, seeds = summarise(projects), len({one.seed for one in projects})
    said = {"folder": folder.resolve().name, "plan": plan, "seeds": seeds, "projects": projects}
    return render_template("simulation.md", **said, summary=summary, verdict=verdict(summary["rows"]))


def as_json(projects: Sequence[SimulatedProject]) -> dict[str, Any]:
    """Return everything as plain values."""
    return {"summary": summarise(projects), "projects": [{**asdict(one), "inside": one.inside} for one in projects]}


def write_result(out: Path, folder: Path, plan: Plan, projects: Sequence[SimulatedProject]) -> None:
    """Keep the page and the numbers beside the projects."""
    write_atomically(out / "README.md", result_page(folder, plan, projects))
    write_atomically(out / "projects.json", json.dumps(as_json(projects), indent=1) + "\n")
