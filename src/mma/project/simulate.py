"""Would this have helped me? The same project code on photos that are labeled already, with a scripted person and no page.

Each seed is two projects on the same photos: one asks, one goes through them in random order. A part of the photos is hidden
from both; on these the true accuracy is measured.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal
from uuid import UUID

import numpy as np
import torch

from mma.config import Config
from mma.data.photos import FORMATS, quiet_decoders
from mma.files import explain_write_errors, sync_folder, write_atomically
from mma.machine import cores
from mma.project import Answer, create_project
from mma.project.models import ModelReport, Models
from mma.project.project import Project, silent
from mma.project.quality.accuracy import share
from mma.project.quality.status import status
from mma.project.records import ProjectImage
from mma.project.review import find_wrong_labels, label_margins, out_of_sample
from mma.project.worker.features import Parts, Pool, photo_files, usable_key
from mma.project.worker.live_model import read_head
from mma.project.worker.round import live_config
from mma.project.worker.training_set import TrainingSet
from mma.project.worker.verdict import audit_groups, audit_probs
from mma.project.worker.worker import LiveWorker
from mma.rng import rng
from mma.shares import Share
from mma.text import printable

HELD = 0.3  # share of the photos that the projects never see
EVERY = 25  # labels between two trainings
LEAST = 20  # labels
PLAN = "plan.json"  # what a folder of simulated projects is known by
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
Say = Callable[[str], None]


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
        if self.audit is None:
            return None
        return self.audit.low <= self.points[-1].accuracy / 100 <= self.audit.high


@dataclass(frozen=True)
class Plan:
    """What is simulated."""

    budget: int = 400
    noise: float = 0.0  # share of wrong answers
    every: int = EVERY
    audit_asked: float = 0.1


def read_labeled(folder: Path) -> LabeledPhotos:
    """Read a folder with a sub-folder for each class. Of equal photos the first counts; what cannot be read is left out."""
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {printable(str(folder))}. Give photos that are labeled:  mma simulate FOLDER"
        )
    root = folder.resolve()
    names = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*")) if is_photo(root, path)]
    paths: dict[str, Path] = {}
    classes: dict[str, str] = {}
    with quiet_decoders(), ThreadPoolExecutor(cores()) as pool:
        for name, key in zip(names, pool.map(lambda name: usable_key(root, name), names), strict=True):
            if key is not None:
                paths.setdefault(key, root / name)
                classes.setdefault(key, name.partition("/")[0])
    if len(set(classes.values())) < 2:
        kinds = ", ".join(FORMATS)
        raise ValueError(
            f"{printable(str(folder))} holds no labeled photos: it takes a sub-folder for each of two classes or more, with "
            f"photos in it ({kinds}). There are {len(names):,} files with such names, and {len(paths):,} different photos that "
            "can be read and do not link out of the folder."
        )
    return LabeledPhotos(root, paths, classes)


def is_photo(folder: Path, path: Path) -> bool:
    """Tell whether a file is a photo by its name, and lies in a sub-folder."""
    return path.suffix.lower() in SUFFIXES and path.parent != folder and path.is_file()


def open_place(place: Path, folder: Path, plan: Plan) -> None:
    """Make the folder for the projects. What an earlier simulation left there is replaced, so anything else is refused."""
    shown, there, photos = printable(str(place)), place.resolve(), folder.resolve()
    if there.is_relative_to(photos) or photos.is_relative_to(there):
        raise ValueError(
            f"--out {shown} and the photos lie in each other, and photos are never changed. Choose another --out."
        )
    if place.exists() and not (place / PLAN).is_file() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"--out {shown} holds something else than a simulation. Choose another --out.")
    with explain_write_errors(place, "the same command"):
        place.mkdir(parents=True, exist_ok=True)
        write_atomically(place / PLAN, json.dumps({"photos": folder.name, **asdict(plan)}, indent=1) + "\n")


def check_plan(photos: LabeledPhotos, plan: Plan) -> None:
    """Refuse what cannot be simulated."""
    have = int(len(photos.paths) * (1 - HELD))
    if have < LEAST:
        raise ValueError(
            f"{printable(str(photos.root))} holds {len(photos.paths):,} different photos, too few: {LEAST} are labeled at "
            f"least, and {HELD:.0%} are kept to measure on."
        )
    if plan.budget > have:
        raise ValueError(
            f"--budget {plan.budget} is more than the {have:,} photos to label: {HELD:.0%} of {len(photos.paths):,} are kept "
            f"to measure on. Use --budget {have} or less."
        )
    if not 0 <= plan.noise < 1:
        raise ValueError(f"--noise {plan.noise:g} is no share of wrong answers. Use 0 or more, and less than 1.")


def simulate(
    folder: Path,
    place: Path,
    *,
    plan: Plan = Plan(),
    seeds: Sequence[int] = (1,),
    control: bool = True,
    say: Say = silent,
) -> Iterator[SimulatedProject]:
    """Run scripted projects below `place`: two for each seed, or one without the control. Each is handed out as it ends."""
    photos = read_labeled(folder)
    check_plan(photos, plan)
    open_place(place, folder, plan)
    for seed in seeds:
        shown, hidden = split(photos, seed)
        images = place / f"photos-{seed}"
        link_photos(photos, shown, images)
        for asks in (True, False) if control else (True,):
            one = simulate_project(photos, hidden, images, plan, seed=seed, asks=asks)
            say(describe(one))
            yield one


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
    """Run one project to its budget; where answers were wrong, look for them and correct them."""
    folder = images.with_name(f"{images.name}-{'asking' if asks else 'random'}.mma")
    shutil.rmtree(folder, ignore_errors=True)
    project = create_project(images, folder, classes=photos.names, budget=plan.budget, seed=seed)
    project.index()
    project.rules = project.rules._replace(audit_asked=plan.audit_asked, again_share=0.0)
    torch.set_num_threads(1)
    worker = LiveWorker(project, deep=False, every=plan.every, asks=asks)
    person = ScriptedPerson(project, photos, plan.noise, seed)
    label_all(worker, person, plan)
    assert worker.pool is not None
    outside = HiddenPhotos(photos, hidden, worker.pool)
    result = summary(project, worker, outside, seed=seed, asks=asks, wrong=person.wrong)
    if plan.noise:
        cleaned = clean(project, person, outside, worker.training_set(), lambda: finish(worker))
        result = replace(result, cleaned=cleaned)
    project.close()
    return result


def label_all(worker: LiveWorker, person: ScriptedPerson, plan: Plan) -> None:
    """Give all answers of the budget, with a training now and then."""
    finish(worker)
    for count in range(1, plan.budget + 1):
        person.label_next()
        if count % plan.every == 0 or count == plan.budget:
            finish(worker)


def finish(worker: LiveWorker) -> None:
    """Let the worker do all that is due."""
    worker.rest()
    while worker.step():
        pass


def summary(
    project: Project, worker: LiveWorker, hidden: HiddenPhotos, *, seed: int, asks: bool, wrong: int
) -> SimulatedProject:
    """Measure every model on the hidden photos, and read what the project says of itself."""
    points = hidden.curve(project.models)
    report = project.models.latest_report()
    now = status(project)
    quality = report.quality if report else None
    audit = quality.accuracy if quality is not None and quality.source == "audit" else None
    if audit is None and report is not None:
        audit = audit_so_far(worker, report)
    helping = report.helping.answer if report else ""
    return SimulatedProject(seed, asks, points, audit, wrong, helping, now.stop.rule if now.stop else None)


def audit_so_far(worker: LiveWorker, report: ModelReport) -> Share | None:
    """Return the audit's interval where it is no verdict yet."""
    training, pool = worker.training_set(), worker.pool
    if not training.audit or pool is None:
        return None
    said = audit_probs(worker.memory.past[-1], pool, training).argmax(1)
    return share(said == np.array(list(training.audit.values())), audit_groups(pool, training))


def describe(one: SimulatedProject) -> str:
    """Say how a project ended."""
    audit = "no audit"
    if one.audit is not None:
        low, high = 100 * one.audit.low, 100 * one.audit.high
        verdict = "inside" if one.inside else "OUTSIDE"
        audit = f"audit {100 * one.audit.value:.1f} % ({low:.1f}-{high:.1f}, {one.audit.of} labels): {verdict}"
    way = "asking" if one.asks else "random order"
    last = one.points[-1]
    words = f"seed {one.seed}, {way}: {last.answers} labels, truly {last.accuracy:.1f} %; {audit}"
    return words if one.cleaned is None else f"{words}; {describe_cleaning(one.cleaned)}"


def describe_cleaning(found: Cleaned) -> str:
    """Say what the review found and brought."""
    return (
        f"{found.found} of {found.wrong} wrong labels among {found.suspects} suspects ({found.found_by_margin} by margin), "
        f"accuracy {found.before:.1f} -> {found.after:.1f} % (all right: {found.ceiling:.1f})"
    )


# A scripted person at a project: labeled photos, and answers that are right but for a share of them.

PERSON = "person"
SECONDS = 3.0  # that the scripted person takes for a label


@dataclass(frozen=True)
class LabeledPhotos:
    """Photos by content, and the class of each: a sub-folder for every class."""

    root: Path
    paths: dict[str, Path]  # sha256 -> file
    classes: dict[str, str]

    @property
    def names(self) -> list[str]:
        """The classes, sorted."""
        return sorted(set(self.classes.values()))


class ScriptedPerson:
    """Answers with the true class, and sometimes with another one: always the same answer for the same photo."""

    def __init__(self, project: Project, photos: LabeledPhotos, noise: float, seed: int) -> None:
        self.project, self.photos, self.noise, self.seed = project, photos, noise, seed
        self.ids = {each.name: each.id for each in project.classes()}
        self.wrong = 0

    def label_next(self) -> None:
        """Answer one question."""
        item = self.project.next(PERSON, 1)[0]
        self.project.answer(self._label(item.image, self.answer_to(item.image), "label"))

    def look_again(self, image: str) -> None:
        """Look at a label in the review: keep it if it is right, else correct it."""
        self.project.answer(self._label(image, self.ids[self.photos.classes[image]], "review"))

    def _label(self, image: str, class_id: int, source: Literal["label", "review"]) -> Answer:
        draw = rng(self.seed, "answer", image, "id" if source == "label" else source).bytes(16)
        return Answer(
            id=UUID(bytes=draw, version=4),
            images=[image],
            kind="label",
            class_id=class_id,
            by=PERSON,
            seconds=SECONDS,
            source=source,
        )

    def answer_to(self, image: str) -> int:
        """Return the class that this person says."""
        draw = rng(self.seed, "answer", image)
        true = self.photos.classes[image]
        if draw.uniform() >= self.noise:
            return self.ids[true]
        self.wrong += 1
        others = [name for name in self.photos.names if name != true]
        return self.ids[others[int(draw.integers(len(others)))]]


# Photos that simulated projects never see: on these the true accuracy of their models is measured.


@dataclass(frozen=True)
class TruePoint:
    """The true accuracy, in percent, of the model with so many answers, audit ones included."""

    answers: int
    accuracy: float


@dataclass(frozen=True, eq=False)
class HiddenPhotos:
    """Labeled photos outside a project, with the features that its models look at."""

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
        return TruePoint(report.labels + report.audit, 100 * float((said == truth).mean()))

    def curve(self, models: Models) -> tuple[TruePoint, ...]:
        """Measure every model of a project."""
        return tuple(self.accuracy(models, number) for number in models.numbers("model.json"))


# What does the review bring? A scripted person looks at the labels that seem wrong, and the next model learns from it.


@dataclass(frozen=True)
class Cleaned:
    """Wrong labels that were found, and the true accuracy in percent before and after they were corrected."""

    labels: int  # trained with
    wrong: int  # of these
    suspects: int  # labels that the review names
    found: int  # wrong ones among them
    found_by_margin: int  # wrong ones among as many labels with the lowest margin
    before: float
    after: float  # suspects corrected
    ceiling: float  # every wrong label corrected


def clean(
    project: Project, person: ScriptedPerson, hidden: HiddenPhotos, training: TrainingSet, train: Callable[[], None]
) -> Cleaned:
    """Look at the suspects, train; look at all other labels, train again. `train` lets the worker make a model."""

    def accuracy() -> float:
        report = project.models.latest_report("live")
        assert report is not None
        return hidden.accuracy(project.models, report.number).accuracy

    wrong = wrong_labels(person, training)
    suspects, by_margin = look_for_wrong_labels(hidden.pool, training, live_config(project))
    before = accuracy()
    after = _corrected(person, suspects, train, accuracy)
    ceiling = _corrected(person, wrong - set(suspects), train, accuracy)
    return Cleaned(
        len(training.train),
        len(wrong),
        len(suspects),
        len(wrong & set(suspects)),
        len(wrong & set(by_margin)),
        before,
        after,
        ceiling,
    )


def _corrected(
    person: ScriptedPerson, images: Collection[str], train: Callable[[], None], accuracy: Callable[[], float]
) -> float:
    for image in sorted(images):
        person.look_again(image)
    train()
    return accuracy()


def wrong_labels(person: ScriptedPerson, training: TrainingSet) -> set[str]:
    """Return the images that train with a wrong label."""
    right = {name: place for place, name in enumerate(training.names)}
    return {image for image, label in training.train.items() if label != right[person.photos.classes[image]]}


def look_for_wrong_labels(pool: Pool, training: TrainingSet, config: Config) -> tuple[list[str], list[str]]:
    """Return the images whose label the review doubts, and as many whose label has the lowest margin."""
    images = [image for image in training.train if image in pool.row]
    labels, probs = out_of_sample(pool, training, images, config)
    suspects = [images[found.row] for found in find_wrong_labels(labels, probs)]
    lowest = np.argsort(label_margins(labels, probs), kind="stable")[: len(suspects)]
    return suspects, [images[row] for row in lowest]
